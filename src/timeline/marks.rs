//! The list of a stream's pending positions, as pure data: no driver, no lock, no clock.
//!
//! # Invariants
//!
//! * `pending` holds the positions from `first` on, without gaps; every one below `first` is
//!   complete.
//! * A mark is `done` only if its operation is known to be complete.
//! * When the event that [`event_for`](Marks::event_for) names is complete, so is the position
//!   asked about.
//! * Every position below `fenced` is complete, or covered by the event of a pending mark;
//!   `open_end` is past the last position without an event of its own. So all positions that no
//!   event covers lie in `fenced..open_end`.

use std::collections::VecDeque;
use std::ops::Range;

/// A position, and the positions below it that are complete whenever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) position: u64,
    /// All positions below this one are covered.
    pub(crate) covers: u64,
}

impl Fence {
    /// Whether the completion of this fence implies that of `position`.
    #[inline]
    pub(super) fn implies(self, position: u64) -> bool {
        position < self.covers || position == self.position
    }

    /// The one of two fences of a stream whose completion implies the other's, if there is one.
    #[inline]
    pub(crate) fn covering(self, other: Fence) -> Option<Fence> {
        if self.implies(other.position) {
            Some(self)
        } else if other.implies(self.position) {
            Some(other)
        } else {
            None
        }
    }
}

pub(super) struct Mark<E> {
    pub(super) covers: u64,
    pub(super) done: bool,
    /// Recorded after the operation. `None` for an operation of a group, and if recording failed.
    pub(super) event: Option<E>,
}

/// `E` is a handle of an event; all its clones are the same event.
pub(super) struct Marks<E> {
    first: u64,
    pending: VecDeque<Mark<E>>,
    fenced: u64,
    open_end: u64,
    /// The events of marks that have left the list, to be recorded again.
    pub(super) idle: VecDeque<E>,
}

impl<E> Default for Marks<E> {
    fn default() -> Self {
        let (pending, idle) = (VecDeque::new(), VecDeque::new());
        Marks { first: 0, pending, fenced: 0, open_end: 0, idle }
    }
}

impl<E: Clone> Marks<E> {
    /// The oldest position that is not known to be complete, with all below it.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The next position.
    pub(super) fn end(&self) -> u64 {
        self.first + self.pending.len() as u64
    }

    /// The positions that may have no event to wait for; empty if all have.
    pub(super) fn open(&self) -> Range<u64> {
        self.fenced..self.open_end
    }

    /// Gives `mark` the next position.
    #[inline]
    pub(super) fn push(&mut self, mark: Mark<E>) -> u64 {
        let position = self.end();
        let Mark { covers, done, .. } = mark;
        if mark.event.is_some() {
            // Its own event covers it too, which matters if nothing lies between.
            let fenced = if covers == position { position + 1 } else { covers };
            self.fenced = self.fenced.max(fenced);
        } else if !done {
            self.open_end = position + 1;
        }
        self.pending.push_back(mark);
        if done {
            self.complete(position);
        }
        position
    }

    fn get(&self, position: u64) -> Option<&Mark<E>> {
        self.pending.get(usize::try_from(position.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn is_done(&self, position: u64) -> bool {
        position < self.first || self.get(position).is_some_and(|mark| mark.done)
    }

    /// Notes that `position` is complete, and with it all that its mark covers.
    pub(super) fn complete(&mut self, position: u64) {
        let Some(index) = position.checked_sub(self.first) else { return };
        let Some(mark) = self.pending.get_mut(index as usize) else { return };
        mark.done = true;
        let covered = mark.covers;
        self.retire(covered);
    }

    /// Notes that all positions below `below` are complete.
    pub(super) fn retire(&mut self, below: u64) {
        while self.pending.front().is_some_and(|front| self.first < below || front.done) {
            if let Some(event) = self.pending.pop_front().and_then(|mark| mark.event) {
                self.idle.push_back(event);
            }
            self.first += 1;
        }
        self.fenced = self.fenced.max(self.first);
    }

    /// The first event whose completion implies that of `position`, and its fence. `position` is
    /// pending.
    pub(super) fn event_for(&self, position: u64) -> Option<(Fence, E)> {
        let index = position.checked_sub(self.first)? as usize;
        (position..).zip(self.pending.iter().skip(index)).find_map(|(at, mark)| {
            let fence = Fence { position: at, covers: mark.covers };
            let event = mark.event.as_ref().filter(|_| fence.implies(position))?;
            Some((fence, event.clone()))
        })
    }

    /// An event to query among the positions below `limit`: the first at `wanted` or after it, else
    /// the last one before.
    pub(super) fn event_near(&self, wanted: u64, limit: u64) -> Option<(u64, E)> {
        let limit = limit.clamp(self.first, self.end());
        let wanted = wanted.clamp(self.first, limit);
        let pending = |at: u64| {
            let mark = self.get(at).filter(|mark| !mark.done)?;
            Some((at, mark.event.clone()?))
        };
        (wanted..limit).find_map(pending).or_else(|| (self.first..wanted).rev().find_map(pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fenced(covers: u64, event: char) -> Mark<char> {
        Mark { covers, done: false, event: Some(event) }
    }

    fn grouped(covers: u64) -> Mark<char> {
        Mark { covers, done: false, event: None }
    }

    fn event_for(marks: &Marks<char>, position: u64) -> Option<(u64, char)> {
        marks.event_for(position).map(|(fence, event)| (fence.position, event))
    }

    /// Two threads fence at once: neither covers the other, and the one with the later position may
    /// well be the first to be complete.
    #[test]
    fn a_position_is_retired_with_those_that_cover_it_only() {
        let mut marks = Marks::default();
        assert_eq!(marks.push(fenced(0, 'a')), 0);
        assert_eq!(marks.push(fenced(0, 'b')), 1);
        marks.complete(1);
        assert_eq!(marks.first(), 0);
        assert!(!marks.is_done(0) && marks.is_done(1));
        assert_eq!(event_for(&marks, 0), Some((0, 'a')), "still to be waited for");

        // After both: when it is complete, so are they.
        assert_eq!(marks.push(fenced(2, 'c')), 2);
        marks.complete(2);
        assert_eq!((marks.first(), marks.end()), (3, 3));
        assert!((0..3).all(|position| marks.is_done(position)));
        assert_eq!(Vec::from(marks.idle), ['a', 'b', 'c']);
    }

    #[test]
    fn a_fence_stands_for_another_if_it_covers_it() {
        let fence = |position, covers| Fence { position, covers };
        assert_eq!(fence(3, 3).covering(fence(2, 0)), Some(fence(3, 3)));
        assert_eq!(fence(2, 0).covering(fence(3, 3)), Some(fence(3, 3)));
        assert_eq!(fence(3, 2).covering(fence(2, 2)), None);
        assert_eq!(fence(2, 2).covering(fence(3, 2)), None);
        assert_eq!(fence(2, 1).covering(fence(2, 1)), Some(fence(2, 1)));
    }

    #[test]
    fn a_group_is_waited_for_by_the_first_event_that_covers_it() {
        let mut marks = Marks::default();
        (0..3).for_each(|position| assert_eq!(marks.push(grouped(position)), position));
        assert_eq!(marks.open(), 0..3);
        assert_eq!(marks.event_for(0), None);
        // Recorded before the third was enqueued, pushed after it.
        marks.push(fenced(2, 'a'));
        assert_eq!(marks.open(), 2..3);
        assert_eq!(event_for(&marks, 0), Some((3, 'a')));
        assert_eq!(event_for(&marks, 1), Some((3, 'a')));
        assert_eq!(marks.event_for(2), None);
        marks.complete(3);
        assert_eq!((marks.first(), marks.open()), (2, 2..3), "the third is not covered");
        assert!(!marks.is_done(2) && marks.is_done(3));

        marks.push(fenced(4, 'b'));
        assert!(marks.open().is_empty());
        assert_eq!(event_for(&marks, 2), Some((4, 'b')));
        marks.complete(4);
        assert_eq!((marks.first(), marks.end()), (5, 5));
    }

    #[test]
    fn what_is_retired_without_an_event_is_not_open() {
        let mut marks = Marks::default();
        (0..3).for_each(|position| assert_eq!(marks.push(grouped(position)), position));
        marks.retire(2);
        assert_eq!((marks.first(), marks.open()), (2, 2..3));
        marks.retire(3);
        assert!(marks.open().is_empty());
        // An operation that was waited for at once needs no event either.
        marks.push(Mark { covers: 3, done: true, event: None });
        assert!(marks.open().is_empty());
        assert_eq!(marks.first(), 4);
    }

    #[test]
    fn a_search_finds_the_nearest_event_that_is_not_done() {
        let mut marks = Marks::default();
        assert_eq!(marks.event_near(0, u64::MAX), None);
        marks.push(grouped(0));
        marks.push(fenced(1, 'b'));
        marks.push(grouped(2));
        marks.push(fenced(0, 'd'));
        marks.push(fenced(2, 'e'));
        let near = |marks: &Marks<char>, wanted, limit| {
            marks.event_near(wanted, limit).map(|(position, _)| position)
        };
        assert_eq!(near(&marks, 0, u64::MAX), Some(1));
        assert_eq!(near(&marks, 2, u64::MAX), Some(3));
        assert_eq!(near(&marks, 2, 3), Some(1), "the one before, since none follows");
        assert_eq!(near(&marks, 9, u64::MAX), Some(4));
        assert_eq!(near(&marks, 0, 1), None);
        marks.complete(3);
        assert_eq!(near(&marks, 3, u64::MAX), Some(4), "the fourth is done");
    }
}
