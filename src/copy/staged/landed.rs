//! Which entries of a download have arrived.

use std::collections::VecDeque;

use super::layout::Cursor;
use crate::copy::entry::Entry;
use crate::sync::Mutex;

/// Entries arrive in their order: an entry has arrived when its portion and all earlier portions
/// have.
#[derive(Default)]
pub(super) struct Landed(Mutex<Ends>);

#[derive(Default)]
struct Ends {
    /// The ends of portions that have arrived, by number from `first` on.
    ends: VecDeque<Option<Cursor>>,
    first: u64,
    up_to: Cursor,
}

impl Landed {
    /// Notes that portion `number`, which ends at `end`, has arrived.
    pub(super) fn note(&self, number: u64, end: Cursor) {
        let mut portions = self.0.lock();
        let at = (number - portions.first) as usize;
        if portions.ends.len() <= at {
            portions.ends.resize(at + 1, None);
        }
        portions.ends[at] = Some(end);
        while let Some(Some(end)) = portions.ends.front().copied() {
            portions.ends.pop_front();
            portions.first += 1;
            portions.up_to = end;
        }
    }

    /// How many entries have arrived, from the first on.
    pub(super) fn count(&self, entries: &[Entry<'_>]) -> usize {
        let Cursor { entry, at } = self.0.lock().up_to;
        entry + usize::from(entries.get(entry).is_some_and(|entry| at == entry.bytes()))
    }
}
