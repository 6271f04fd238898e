//! The portions of a transfer in their order: filled slots of an upload that wait to be submitted,
//! and the entries of a download that have arrived.

use std::collections::VecDeque;

use super::layout::Cursor;
use super::options::IN_FLIGHT;
use super::ring::{Ring, Slot};
use crate::copy::entry::Entry;
use crate::sync::Mutex;
use crate::ticket::Ticket;

/// The queue of one upload.
#[derive(Default)]
pub(super) struct Filled<'e>(Mutex<Submissions<'e>>);

#[derive(Default)]
struct Submissions<'e> {
    slots: VecDeque<&'e Slot>,
    /// A thread is submitting, and looks here again afterwards. Two at once would sleep in the
    /// runtime, waiting for each other.
    submitting: bool,
    /// A submission has failed, so no other follows.
    failed: bool,
    /// The last portions that have been submitted, the oldest in front.
    submitted: [Option<Ticket>; IN_FLIGHT],
}

impl<'e> Filled<'e> {
    /// Adds a slot. `false` if a submission has failed: the slot then still belongs to the caller.
    pub(super) fn push(&self, slot: &'e Slot) -> bool {
        let mut state = self.0.lock();
        if !state.failed {
            state.slots.push_back(slot);
        }
        !state.failed
    }

    /// The right to submit the oldest slot; `None` if there is none, or if another thread is
    /// submitting.
    pub(super) fn begin<'q>(&'q self, ring: &'q Ring) -> Option<(SubmitGuard<'q, 'e>, &'e Slot)> {
        let mut state = self.0.lock();
        if state.submitting {
            return None;
        }
        let slot = state.slots.pop_front()?;
        state.submitting = true;
        Some((SubmitGuard { filled: self, ring }, slot))
    }

    /// The oldest of the last portions, if as many as allowed are in flight.
    pub(super) fn oldest(&self) -> Option<Ticket> {
        let submitted = &mut self.0.lock().submitted;
        submitted[IN_FLIGHT - 1].as_ref()?;
        submitted.rotate_left(1);
        submitted[IN_FLIGHT - 1].take()
    }
}

/// The right to submit. Dropped, by an error or a panic, it gives back all that is filled: the
/// thread that opens the next slot may be waiting for one.
pub(super) struct SubmitGuard<'q, 'e> {
    filled: &'q Filled<'e>,
    ring: &'q Ring,
}

impl SubmitGuard<'_, '_> {
    /// Notes that the slot has been submitted, and allows the next submission.
    pub(super) fn submitted(self, ticket: Ticket) {
        let mut state = self.filled.0.lock();
        match state.submitted.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(ticket),
            // A wait for the second covers the first.
            None => {
                state.submitted.rotate_left(1);
                state.submitted[IN_FLIGHT - 1] = Some(ticket);
            }
        }
        state.submitting = false;
        drop(state);
        std::mem::forget(self);
    }
}

impl Drop for SubmitGuard<'_, '_> {
    fn drop(&mut self) {
        let slots = {
            let mut state = self.filled.0.lock();
            state.failed = true;
            std::mem::take(&mut state.slots)
        };
        slots.into_iter().for_each(|slot| self.ring.give_back(slot));
    }
}

/// Which entries of a download have arrived. They arrive in their order: an entry has arrived when
/// its portion and all earlier portions have.
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
