//! Who used which bytes of an allocation last.
//!
//! ```text
//!   bytes    0........64.......128......................6144
//!   segment  [ write A#3 ][ write A#7, read B#2, read C#1  ]
//! ```
//!
//! A segment keeps the last write and the reads since, and of the reads only those that no later
//! read of the segment knows of: what is ordered after the later one is ordered after both. Uses of
//! rows ([`rows`](super::rows)) lie beside them: they take the place of nothing but earlier uses of
//! the same rows. Bytes without a segment were not used, or only by operations that all threads
//! know of.
//!
//! A shadow keeps the uses that may still race: whenever it has doubled, it drops those that all
//! threads know of. Past [`MOST`] segments half of them are forgotten. So a race may be missed, but
//! is never invented.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::clock::{Called, Epoch};
use super::report::RacingAccess;
use super::rows::Rows;
use pinlane_driver::Call;

/// The most segments of one allocation.
const MOST: usize = 4096;
/// The most unordered reads and uses of rows of one segment.
const OTHERS: usize = 512;
const FEW: usize = 32;

/// A use of memory by an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) at: Epoch,
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) rows: Rows,
    /// `None` for an access of the host's, which is no call.
    pub(super) call: Option<Call>,
    pub(super) access: RacingAccess,
    /// The byte of a fill, if its pattern has one.
    pub(super) value: Option<u8>,
    /// The number of its name, if it is a kernel.
    pub(super) kernel: Option<NonZeroU32>,
    /// Which call it is.
    pub(super) called: Called,
}

impl Use {
    /// A use with no bytes yet.
    pub(super) fn by(at: Epoch, call: Option<Call>, called: Called) -> Self {
        let (access, rows) = (RacingAccess::Read, Rows::default());
        Use { at, start: 0, bytes: 0, rows, call, access, value: None, kernel: None, called }
    }

    #[inline]
    pub(super) fn writes(&self) -> bool {
        self.access != RacingAccess::Read
    }

    /// Whether it takes the place of all earlier uses of its range.
    #[inline]
    fn replaces(&self) -> bool {
        self.writes() && self.is_whole()
    }

    /// The addresses that lie in the ranges of both; none if the first is not below the second.
    pub(super) fn range_with(&self, other: &Use) -> (u64, u64) {
        let end = |of: &Use| of.start.saturating_add(of.bytes);
        (self.start.max(other.start), end(self).min(end(other)))
    }
}

/// What the user of memory knows.
pub(super) trait View {
    /// Whether the epoch is ordered before this use.
    fn knows(&self, epoch: Epoch) -> bool;
    /// Whether the epoch is ordered before everything that is still to come.
    fn is_settled(&self, epoch: Epoch) -> bool;
}

/// An earlier use that is not ordered before a new one, and the bytes that they have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub(super) first: Use,
    pub(super) start: u64,
    pub(super) end: u64,
}

#[derive(Clone, Debug)]
struct Segment {
    end: u64,
    write: Option<Use>,
    read: Option<Use>,
    /// Reads that are parallel to `read` and to each other, and uses of rows.
    more: Vec<Use>,
}

/// The uses of one allocation.
#[derive(Debug)]
pub(super) struct Shadow {
    segments: BTreeMap<u64, Segment>,
    /// The number of segments at which the shadow is looked through.
    limit: usize,
}

impl Default for Shadow {
    fn default() -> Self {
        Shadow { segments: BTreeMap::new(), limit: FEW }
    }
}

impl Segment {
    fn uses(&self) -> impl Iterator<Item = &Use> {
        self.write.iter().chain(&self.read).chain(&self.more)
    }

    /// Looks for uses that race with a new one. The segment begins there.
    #[inline]
    fn check(&self, new: &Use, from: u64, view: &impl View, found: &mut Vec<Conflict>) {
        let writes = new.writes();
        let races = |other: &Use| (writes || other.writes()) && !view.knows(other.at);
        // Not one loop over `uses`, which takes several times as long.
        let is_found = self.write.as_ref().is_some_and(races)
            || self.read.as_ref().is_some_and(races)
            || self.more.iter().any(races);
        if is_found {
            self.find(new, from, races, found);
        }
    }

    /// Notes the uses that race with a new one.
    #[cold]
    fn find(&self, new: &Use, from: u64, races: impl Fn(&Use) -> bool, found: &mut Vec<Conflict>) {
        for other in self.uses().filter(|other| races(other)) {
            if let Some((start, end)) = new.common(other, from, self.end) {
                note(found, *other, start, end);
            }
        }
    }

    /// Adds a read of the whole segment.
    fn add_read(&mut self, read: &Use, view: &impl View) {
        if !self.more.is_empty() {
            self.more.retain(|other| other.writes() || !view.knows(other.at));
        }
        match &self.read {
            Some(other) if !view.knows(other.at) => self.push(*read),
            _ => self.read = Some(*read),
        }
    }

    /// Adds a use of rows.
    fn add_rows(&mut self, new: Use, view: &impl View) {
        self.more.retain(|other| {
            let is_over = new.writes() || !other.writes() && view.knows(other.at);
            !(is_over && new.has_rows_of(other))
        });
        self.push(new);
    }

    fn push(&mut self, new: Use) {
        if self.more.len() >= OTHERS {
            self.more.remove(0);
        }
        self.more.push(new);
    }

    fn add(&mut self, new: &Use, view: &impl View) {
        match new.is_whole() {
            true => self.add_read(new, view),
            false => self.add_rows(*new, view),
        }
    }
}

impl Shadow {
    /// Adds a use, and gives the earlier ones that are not ordered before it, each once.
    #[inline]
    pub(super) fn touch(&mut self, new: &Use, view: &impl View, found: &mut Vec<Conflict>) {
        let (start, end) = (new.start, new.start + new.bytes);
        // Most programs use the same ranges again and again.
        if let Some(segment) = self.segments.get_mut(&start)
            && segment.end == end
        {
            segment.check(new, start, view, found);
            if new.replaces() {
                segment.write = Some(*new);
                segment.read = None;
                segment.more.clear();
            } else {
                segment.add(new, view);
            }
            return;
        }
        self.touch_parts(new, view, found);
    }

    /// The same for a range that is no segment.
    #[inline(never)]
    fn touch_parts(&mut self, new: &Use, view: &impl View, found: &mut Vec<Conflict>) {
        let (start, end) = (new.start, new.start + new.bytes);
        self.cut(start);
        self.cut(end);
        for (&from, segment) in self.segments.range(start..end) {
            segment.check(new, from, view, found);
        }
        if new.replaces() {
            self.clear(start, end);
            let segment = Segment { end, write: Some(*new), read: None, more: Vec::new() };
            self.segments.insert(start, segment);
        } else {
            self.add(new, start, end, view);
        }
        if self.segments.len() > self.limit {
            self.prune(view);
        }
    }

    /// Adds a use to the segments of a range, and makes segments for the bytes without one.
    fn add(&mut self, new: &Use, start: u64, end: u64, view: &impl View) {
        let (mut gaps, mut next) = (Vec::new(), start);
        for (&from, segment) in self.segments.range_mut(start..end) {
            if next < from {
                gaps.push((next, from));
            }
            segment.add(new, view);
            next = segment.end;
        }
        if next < end {
            gaps.push((next, end));
        }
        for (from, end) in gaps {
            let mut segment = Segment { end, write: None, read: None, more: Vec::new() };
            segment.add(new, view);
            self.segments.insert(from, segment);
        }
    }

    /// Adds the uses of these bytes that are not ordered before the viewer, each once. With `all`
    /// also those that only read.
    pub(super) fn parallel(
        &self,
        (start, end): (u64, u64),
        all: bool,
        view: &impl View,
        found: &mut Vec<Use>,
    ) {
        let segments = self.segments.range(..end).rev().map(|(_, segment)| segment);
        for one in segments.take_while(|segment| segment.end > start).flat_map(Segment::uses) {
            let is_known = |known: &Use| {
                known.at == one.at && known.access == one.access && known.start == one.start
            };
            if (all || one.writes()) && !view.knows(one.at) && !found.iter().any(is_known) {
                found.push(*one);
            }
        }
    }

    /// Whether all threads know of all the uses.
    pub(super) fn is_settled(&self, view: &impl View) -> bool {
        self.segments.values().flat_map(Segment::uses).all(|other| view.is_settled(other.at))
    }

    /// Makes a segment begin at `at`, if `at` is inside of one.
    fn cut(&mut self, at: u64) {
        let Some((_, segment)) = self.segments.range_mut(..at).next_back() else { return };
        if segment.end > at {
            let upper = segment.clone();
            segment.end = at;
            self.segments.insert(at, upper);
        }
    }

    fn clear(&mut self, start: u64, end: u64) {
        while let Some((&from, _)) = self.segments.range(start..end).next() {
            self.segments.remove(&from);
        }
    }

    #[cold]
    fn prune(&mut self, view: &impl View) {
        self.segments.retain(|_, segment| segment.uses().any(|other| !view.is_settled(other.at)));
        if self.segments.len() > MOST {
            let excess = self.segments.len() - MOST / 2;
            let first = *self.segments.keys().nth(excess).expect("there are more");
            self.segments = self.segments.split_off(&first);
        }
        self.limit = (2 * self.segments.len()).max(FEW);
    }
}

/// One conflict for each earlier use: its first and its last byte.
fn note(found: &mut Vec<Conflict>, first: Use, start: u64, end: u64) {
    match found.iter_mut().find(|c| c.first.at == first.at && c.first.access == first.access) {
        Some(known) => {
            known.start = known.start.min(start);
            known.end = known.end.max(end);
        }
        None => found.push(Conflict { first, start, end }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows the agents below its number, and no other.
    struct Below(u32);

    impl View for Below {
        fn knows(&self, epoch: Epoch) -> bool {
            epoch.agent < self.0
        }

        fn is_settled(&self, epoch: Epoch) -> bool {
            epoch.agent == 0
        }
    }

    fn by(agent: u32, access: RacingAccess, start: u64, bytes: u64) -> Use {
        Use {
            start,
            bytes,
            access,
            ..Use::by(Epoch { agent, position: 1 }, None, Called::default())
        }
    }

    fn touch(
        shadow: &mut Shadow,
        agent: u32,
        access: RacingAccess,
        start: u64,
        bytes: u64,
        knows: u32,
    ) -> Vec<(u32, u64, u64)> {
        let mut found = Vec::new();
        shadow.touch(&by(agent, access, start, bytes), &Below(knows), &mut found);
        found.into_iter().map(|c| (c.first.at.agent, c.start, c.end)).collect()
    }

    #[test]
    fn uses_conflict_where_they_overlap_and_one_writes() {
        use RacingAccess::{Read, Write};
        let mut shadow = Shadow::default();
        assert_eq!(touch(&mut shadow, 1, Write, 100, 50, 0), []);
        assert_eq!(touch(&mut shadow, 2, Read, 149, 10, 0), [(1, 149, 150)]);
        assert_eq!(touch(&mut shadow, 3, Read, 150, 50, 0), [], "two reads");
        let all = touch(&mut shadow, 4, Write, 0, 1000, 0);
        assert_eq!(all, [(1, 100, 150), (2, 149, 159), (3, 150, 200)]);
        assert_eq!(touch(&mut shadow, 5, Read, 999, 1, 0), [(4, 999, 1000)]);
        assert_eq!(touch(&mut shadow, 6, Write, 1000, 1, 0), [], "past the end");
    }

    #[test]
    fn a_known_read_is_replaced_and_a_parallel_one_is_kept() {
        use RacingAccess::{Read, Write};
        let mut shadow = Shadow::default();
        for (agent, knows) in [(1, 0), (2, 2), (3, 0)] {
            assert_eq!(touch(&mut shadow, agent, Read, 0, 8, knows), []);
        }
        let parallel = touch(&mut shadow, 9, Write, 0, 8, 0);
        assert_eq!(parallel, [(2, 0, 8), (3, 0, 8)], "2 knew of 1");
        assert_eq!(touch(&mut shadow, 4, Write, 0, 8, 10), []);
    }

    #[test]
    fn a_read_of_all_hides_no_write_of_rows() {
        use RacingAccess::{Read, Write};
        let mut shadow = Shadow::default();
        let rows = Use { rows: Rows::new(4, 16), ..by(1, Write, 0, 52) };
        shadow.touch(&rows, &Below(0), &mut Vec::new());
        assert_eq!(touch(&mut shadow, 2, Read, 0, 52, 2), [], "2 knew of 1");
        assert_eq!(touch(&mut shadow, 3, Read, 4, 12, 0), [], "between the rows");
        assert_eq!(touch(&mut shadow, 3, Read, 0, 52, 0), [(1, 0, 52)]);
    }

    #[test]
    fn a_shadow_forgets_what_everybody_knows_and_never_grows_without_end() {
        use RacingAccess::Write;
        let mut shadow = Shadow::default();
        for at in 0..10_000 {
            touch(&mut shadow, 0, Write, at * 10, 5, 1);
        }
        assert!(shadow.segments.len() <= FEW);
        for at in 0..100_000 {
            touch(&mut shadow, 1, Write, at * 10, 5, 2);
        }
        assert!(shadow.segments.len() <= 2 * MOST);
        assert_eq!(touch(&mut shadow, 2, Write, 999_990, 1, 1), [(1, 999_990, 999_991)]);
    }
}
