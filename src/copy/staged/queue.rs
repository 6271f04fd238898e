//! The portions of a transfer in their order: filled slots of an upload that wait to be submitted,
//! and the slots of a download that are in flight, and its entries that have arrived.

use std::collections::VecDeque;

use super::layout::Cursor;
use super::options::IN_FLIGHT;
use super::ring::{Ring, Slot, SlotGuard};
use crate::copy::entry::Entry;
use crate::error::Result;
use crate::sync::{Mutex, spin};
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

/// The slots of a download that have been begun and have not arrived.
#[derive(Default)]
pub(super) struct InFlight<'e>(Mutex<Begun<'e>>);

#[derive(Default)]
struct Begun<'e> {
    /// How many will be submitted, or given up, by threads that write their items.
    prepared: usize,
    /// The others, in the order in which they were enqueued; each with the ticket of its copy.
    enqueued: VecDeque<(SlotGuard<'e>, Ticket)>,
}

impl<'e> InFlight<'e> {
    /// Counts a slot, which is then [submitted](Self::submit) or [given up](Self::give_up).
    pub(super) fn begin(&self) {
        self.0.lock().prepared += 1;
    }

    /// Notes that a slot will not be submitted.
    pub(super) fn give_up(&self) {
        self.0.lock().prepared -= 1;
    }

    /// Enqueues the copy to a slot by `enqueue`. One thread at a time does so.
    pub(super) fn submit(
        &self,
        taken: SlotGuard<'e>,
        enqueue: impl FnOnce(&'e Slot) -> Result<Ticket>,
    ) -> Result<()> {
        let mut begun = self.0.lock();
        begun.prepared -= 1;
        let ticket = enqueue(taken.slot())?;
        begun.enqueued.push_back((taken, ticket));
        Ok(())
    }

    /// Whether none has been begun.
    pub(super) fn is_empty(&self) -> bool {
        let begun = self.0.lock();
        begun.prepared == 0 && begun.enqueued.is_empty()
    }

    /// Takes the oldest. Waits until it is enqueued: all its units have been given out, so that
    /// takes a moment. `None` if there is none.
    pub(super) fn oldest(&self) -> Option<(SlotGuard<'e>, Ticket)> {
        let mut spins = 0;
        loop {
            let mut begun = self.0.lock();
            if !begun.enqueued.is_empty() || begun.prepared == 0 {
                return begun.enqueued.pop_front();
            }
            drop(begun);
            spin(&mut spins);
        }
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

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::device::Device;
    use crate::error::Error;
    use crate::pool::PinnedPool;
    use crate::timeline::Exposure;

    #[test]
    fn the_oldest_is_waited_for_until_it_is_enqueued_or_given_up() {
        let device = Device::emulated().expect("an emulated device");
        let pool = PinnedPool::builder(&device).build().expect("a pool");
        let ring = Ring::new(4096, 2);
        let take = || {
            let slot = ring.take(&pool, Exposure::Sealed, true, "test").expect("memory");
            ring.guard(slot.expect("patient"))
        };
        let in_flight = InFlight::default();
        assert!(in_flight.is_empty() && in_flight.oldest().is_none());
        let (slot, later) = (take(), Duration::from_millis(20));
        in_flight.begin();
        assert!(!in_flight.is_empty());
        thread::scope(|threads| {
            threads.spawn(|| {
                thread::sleep(later);
                in_flight.submit(slot, |_| Ok(Ticket::done())).expect("enqueued");
            });
            assert!(in_flight.oldest().is_some());
        });
        in_flight.begin();
        thread::scope(|threads| {
            threads.spawn(|| {
                thread::sleep(later);
                in_flight.give_up();
            });
            assert!(in_flight.oldest().is_none());
        });
        in_flight.begin();
        let refused = |_: &_| Err(Error::invalid("test", "refused".to_owned(), "none"));
        in_flight.submit(take(), refused).expect_err("refused");
        assert!(in_flight.is_empty() && in_flight.oldest().is_none());
        let _all = (take(), take()); // none is lost
    }
}
