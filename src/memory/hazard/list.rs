//! The uses of one buffer as plain data, without a lock and without a driver.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::rows::Rows;
use crate::timeline::{Fence, Timeline};

/// How many uses a buffer keeps before it checks which of them it still needs.
pub(super) const TIDY_ABOVE: usize = 16;

/// What an operation does with the bytes it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// An asynchronous operation that may still touch a buffer.
#[derive(Clone)]
pub(crate) struct Use {
    pub(crate) stream: Arc<Timeline>,
    pub(crate) fence: Fence,
    pub(crate) range: Range<usize>,
    pub(crate) access: Access,
}

impl Use {
    pub(crate) fn is_retired(&self) -> bool {
        self.stream.is_retired(self.fence.position)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.stream.is_complete(self.fence.position)
    }

    pub(super) fn is_on(&self, stream: &Timeline) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.stream), stream)
    }

    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    /// Makes this use stand for a second one too, if both have the same stream and access and the
    /// completion of one implies that of the other. The second use comes in parts because making a
    /// `Use` counts a reference to its stream: several threads that note thousands of uses would
    /// contend for that counter.
    #[inline]
    fn absorb(
        &mut self,
        stream: &Timeline,
        fence: Fence,
        range: &Range<usize>,
        access: Access,
    ) -> bool {
        if self.access != access || !self.is_on(stream) {
            return false;
        }
        let Some(covering) = self.fence.covering(fence) else { return false };
        self.fence = covering;
        self.range = self.range.start.min(range.start)..self.range.end.max(range.end);
        true
    }

    fn absorb_use(&mut self, new: &Use) -> bool {
        self.absorb(&new.stream, new.fence, &new.range, new.access)
    }
}

/// A list of uses that allocates nothing for up to four of them.
#[derive(Default)]
pub(crate) struct Few {
    places: [Option<Use>; 4],
    more: Vec<Use>,
}

impl Few {
    /// Makes a use that is in the list stand for `new` if possible, and adds `new` otherwise.
    pub(super) fn absorb_or_push(&mut self, new: &Use) {
        if !self.places.iter_mut().flatten().any(|old| old.absorb_use(new)) {
            self.push(new.clone());
        }
    }

    pub(super) fn push(&mut self, new: Use) {
        match self.places.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(new),
            None => self.more.push(new),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places[0].is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Use> {
        self.places.iter().flatten().chain(&self.more)
    }
}

/// The uses that a buffer knows of. Mostly there is one, which is stored inline: to record uses of
/// thousands of buffers touches one cache line of each.
#[derive(Default)]
#[repr(C)]
pub(super) struct List {
    first: Option<Use>,
    /// The others. Made when there are some, and kept.
    more: Option<Box<More>>,
}

/// Reads and writes are in separate lists, so that one of thousands of readers checks only the
/// writes.
#[derive(Default)]
struct More {
    reads: Vec<Use>,
    writes: Vec<Use>,
    /// Both kinds, of rows: the ranges of the uses have gaps.
    rows: Vec<(Use, Rows)>,
    /// How many uses were left after the list was last tidied.
    left: usize,
}

impl More {
    fn of(&mut self, access: Access) -> &mut Vec<Use> {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }

    fn both(&mut self) -> [&mut Vec<Use>; 2] {
        [&mut self.writes, &mut self.reads]
    }
}

impl List {
    pub(super) fn len(&self) -> usize {
        let count = |more: &More| more.reads.len() + more.writes.len() + more.rows.len();
        let more = self.more.as_deref().map_or(0, count);
        usize::from(self.first.is_some()) + more
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Use> {
        let more = self.more.iter().flat_map(|more| {
            more.writes.iter().chain(&more.reads).chain(more.rows.iter().map(|it| &it.0))
        });
        self.first.iter().chain(more)
    }

    /// Whether the list has doubled since it was last tidied. So each new use pays for tidying
    /// about one other use, however long the list is.
    pub(super) fn is_long(&self) -> bool {
        let left = self.more.as_ref().map_or(0, |more| more.left);
        self.len() >= (2 * left).max(TIDY_ABOVE)
    }

    /// Notes how many uses are left after tidying, and shrinks the memory to about as many.
    pub(super) fn finish_tidying(&mut self) {
        let left = self.len();
        let Some(more) = &mut self.more else { return };
        more.left = left;
        for uses in more.both() {
            uses.shrink_to((2 * uses.len()).max(4 * TIDY_ABOVE));
        }
    }

    /// Makes the first use stand for the given one, if it has the same stream and bytes, or if it
    /// is known to be complete. So a buffer that one stream uses in turns needs no memory for a
    /// second use.
    #[inline]
    pub(super) fn renew_first(
        &mut self,
        stream: &Timeline,
        fence: Fence,
        range: &Range<usize>,
        access: Access,
    ) -> bool {
        let Some(first) = self.first.as_mut().filter(|first| first.is_on(stream)) else {
            return false;
        };
        if first.range == *range && first.absorb(stream, fence, range, access) {
            return true;
        }
        let is_gone = first.is_retired();
        if is_gone {
            (first.fence, first.range, first.access) = (fence, range.clone(), access);
        }
        is_gone
    }

    /// Takes out the first use if it is known to be complete.
    pub(super) fn take_retired_first(&mut self) -> Option<Use> {
        self.first.take_if(|first| first.is_retired())
    }

    /// Makes the first use, or one of the last few, stand for the given one, if it has the same
    /// stream and bytes.
    pub(super) fn absorb(
        &mut self,
        stream: &Timeline,
        fence: Fence,
        range: &Range<usize>,
        access: Access,
    ) -> bool {
        let same = |old: &mut Use| old.range == *range && old.absorb(stream, fence, range, access);
        if self.first.as_mut().is_some_and(same) {
            return true;
        }
        let Some(more) = &mut self.more else { return false };
        let uses = more.of(access);
        let few = uses.len().saturating_sub(TIDY_ABOVE);
        uses[few..].iter_mut().any(same)
    }

    pub(super) fn push(&mut self, new: Use) {
        if self.first.is_none() {
            self.first = Some(new);
        } else {
            self.more.get_or_insert_default().of(new.access).push(new);
        }
    }

    /// Makes one of the last few uses of rows stand for the given one, if it has the same stream
    /// and bytes.
    pub(super) fn absorb_rows(&mut self, new: &Use, rows: &Rows) -> bool {
        let Some(more) = &mut self.more else { return false };
        let few = more.rows.len().saturating_sub(TIDY_ABOVE);
        more.rows[few..]
            .iter_mut()
            .any(|(old, theirs)| theirs == rows && old.range == new.range && old.absorb_use(new))
    }

    pub(super) fn push_rows(&mut self, new: Use, rows: Rows) {
        self.more.get_or_insert_default().rows.push((new, rows));
    }

    /// Forgets the gaps of uses of rows if there are many of them, so that they can be merged.
    pub(super) fn fill_gaps(&mut self) {
        if let Some(more) = &mut self.more
            && more.rows.len() > TIDY_ABOVE
        {
            for (user, _) in std::mem::take(&mut more.rows) {
                more.of(user.access).push(user);
            }
            self.merge();
        }
    }

    /// The uses that conflict with an access to `range`, or to these rows of it, and are not known
    /// to be complete; without those of rows.
    pub(super) fn conflicts(
        &self,
        range: &Range<usize>,
        rows: Option<&Rows>,
        access: Access,
    ) -> impl Iterator<Item = &Use> {
        let conflicts = move |old: &&Use| access == Access::Write || old.access == Access::Write;
        let more = self.more.iter().flat_map(move |more| {
            let reads = if access == Access::Write { &more.reads[..] } else { &[] };
            more.writes.iter().chain(reads)
        });
        let uses = self.first.iter().filter(conflicts).chain(more);
        uses.filter(move |old| {
            let meets = |rows: &Rows| rows.meet_range(range.start, &old.range);
            old.overlaps(range) && !old.is_retired() && rows.is_none_or(meets)
        })
    }

    /// The same of the uses of rows.
    pub(super) fn conflicts_of_rows(
        &self,
        range: &Range<usize>,
        rows: Option<&Rows>,
        access: Access,
    ) -> impl Iterator<Item = &Use> {
        let conflicts = move |old: &Use| [access, old.access].contains(&Access::Write);
        let meet = move |old: &Use, theirs: &Rows| match rows {
            Some(rows) => theirs.meet_rows(old.range.start, rows, range.start),
            None => theirs.meet_range(old.range.start, range),
        };
        let uses = self.more.iter().flat_map(|more| &more.rows);
        let uses = uses.filter(move |(old, theirs)| {
            conflicts(old) && old.overlaps(range) && !old.is_retired() && meet(old, theirs)
        });
        uses.map(|(old, _)| old)
    }

    /// Whether there are uses of rows.
    #[inline]
    pub(super) fn has_rows(&self) -> bool {
        self.more.as_ref().is_some_and(|more| !more.rows.is_empty())
    }

    /// Takes out the uses for which `is_gone` is true.
    pub(super) fn extract(&mut self, is_gone: impl Fn(&Use) -> bool) -> Few {
        let mut gone = Few::default();
        self.first.take_if(|old| is_gone(old)).into_iter().for_each(|old| gone.push(old));
        if let Some(more) = &mut self.more {
            for uses in more.both() {
                uses.extract_if(.., |old| is_gone(old)).for_each(|old| gone.push(old));
            }
            let of_rows = more.rows.extract_if(.., |old| is_gone(&old.0));
            of_rows.for_each(|(old, _)| gone.push(old));
            if self.first.is_none() {
                self.first = more.both().into_iter().find_map(Vec::pop);
            }
        }
        gone
    }

    /// Leaves one use for each stream and access, and one more for each use that was fenced at the
    /// same moment as that one.
    pub(super) fn merge(&mut self) {
        let Some(more) = &mut self.more else { return };
        if let Some(first) = self.first.take() {
            more.of(first.access).push(first);
        }
        for uses in more.both() {
            // The first use of each stream then covers the most.
            uses.sort_by_key(|user| Reverse(user.fence.covers));
            let mut first = HashMap::new();
            let mut merged = 0;
            for next in 0..uses.len() {
                let (old, new) = uses.split_at_mut(next);
                let first = *first.entry(Arc::as_ptr(&new[0].stream)).or_insert(merged);
                if first == merged || !old[first].absorb_use(&new[0]) {
                    uses.swap(merged, next);
                    merged += 1;
                }
            }
            // Each of these has been absorbed by a use that keeps its stream alive.
            uses.truncate(merged);
        }
    }
}
