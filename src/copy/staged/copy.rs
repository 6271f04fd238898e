//! One copy through slots, in either direction.
//!
//! ```text
//!   up      take a slot, lay it out -> units: memory to slot -> submit the slot's copy
//!   down    take slots, lay them out -> units: items -> submit
//!                                    -> wait for the oldest -> units: slot to memory
//! ```
//!
//! Down, as many slots as are available are in flight. The team empties each when it has landed, in
//! the order in which they were enqueued. Before that, it writes the list for a kernel: the device
//! waits for it, and one thread would take longer than the device. The thread that opens a slot
//! writes a short list itself: sharing it would take longer.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Engine;
use super::layout::{Cursor, Sizes, room_for};
use super::options::stores_to_memory;
use super::parts::Work;
use super::queue::{Filled, InFlight, Landed};
use super::ring::{Slot, SlotGuard};
use super::simd::Stores;
use super::team::Workload;
use super::units::{self, Portions};
use crate::copy::entry::{Direction, PIECE, Side};
use crate::copy::issue::{Items, issue};
use crate::copy::order::Door;
use crate::copy::route::Route;
use crate::copy::transfer::Transfer;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::hazard::Access;
use crate::sync::Mutex;
use crate::ticket::Ticket;
use crate::trace::Kind;

/// How many slots of a download are enqueued for each slot that is waited for.
const AHEAD: usize = 2;

struct StagedTransfer<'e, 'a> {
    engine: &'e Engine,
    transfer: &'e Transfer<'e, 'a>,
    route: Route,
    workload: Workload,
    threads: usize,
    /// How the units are written: to slots, or to the caller's memory.
    stores: Stores,
    progress: Mutex<LaidOut>,
    submitted: AtomicU64,
    /// The filled slots of an upload.
    filled: Filled<'e>,
    /// The slots of a download that have not arrived.
    in_flight: InFlight<'e>,
    /// The arrived entries of a download.
    landed: Landed,
}

#[derive(Default)]
struct LaidOut {
    cursor: Cursor,
    /// How many bytes have been laid out, and in how many portions.
    done: usize,
    portions: u64,
    /// How many portions of a download have been begun since one was last waited for.
    begun: usize,
}

impl Engine {
    /// Copies entries of pageable memory or files. An upload returns when these may be reused, a
    /// download when all bytes have arrived there. The ticket is for all entries.
    pub(crate) fn copy(
        &self,
        transfer: Transfer<'_, '_>,
        route: Route,
        workload: Workload,
    ) -> Result<Ticket> {
        if self.lands(&transfer, route) {
            return self.land(transfer, route);
        }
        if self.fills(&transfer, route, workload) {
            return self.fill(transfer, route);
        }
        self.staged(transfer, route, workload, &mut |_| {})
    }

    /// As [`copy`](Self::copy), for a download. Calls `each`, on this thread, with the number of
    /// every entry that has arrived, in order.
    pub(crate) fn download_each(
        &self,
        transfer: Transfer<'_, '_>,
        route: Route,
        workload: Workload,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let entries = transfer.entries;
        let mut told = 0;
        let mut panic = None;
        // A panic of the caller's code is held back until slots are given back and uses are
        // recorded.
        let mut tell = |count: usize| {
            while told < count && panic.is_none() {
                told += 1;
                panic = telling(|| catch_unwind(AssertUnwindSafe(|| each(told - 1)))).err();
            }
        };
        let done = self.staged(transfer, route, workload, &mut |landed: &Landed| {
            tell(landed.count(entries));
        });
        if done.is_ok() {
            tell(entries.len());
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        done.map(drop)
    }

    /// This thread calls `after_unit` after each of its units.
    fn staged(
        &self,
        transfer: Transfer<'_, '_>,
        route: Route,
        workload: Workload,
        after_unit: &mut dyn FnMut(&Landed),
    ) -> Result<Ticket> {
        refuse_inside(transfer.door.operation)?;
        let stream = transfer.door.stream;
        let before = transfer.reach()?;
        let bytes = transfer.survey.group.bytes;
        self.make_room(transfer.door, bytes)?;
        let helpers = self.helpers(stream, bytes, workload);
        let staged = StagedTransfer {
            engine: self,
            transfer: &transfer,
            route,
            workload,
            threads: helpers.count + 1,
            stores: match transfer.direction {
                Direction::Up => self.options.stores_to_slot(workload, bytes),
                Direction::Down => stores_to_memory(bytes),
            },
            progress: Mutex::default(),
            submitted: AtomicU64::new(0),
            filled: Filled::default(),
            in_flight: InFlight::default(),
            landed: Landed::default(),
        };
        let result = units::run(&staged, helpers, &mut || after_unit(&staged.landed));
        let submitted = staged.submitted.load(Ordering::Relaxed);
        // After an error slots of a download may be in flight.
        drop(staged);
        result?;
        let ticket = transfer.ticket();
        drop(transfer);
        stream.note_moving(before + submitted);
        Ok(ticket)
    }
}

impl<'e> StagedTransfer<'e, '_> {
    /// The next slot, with the next portion laid out in it. `None` if no bytes are left, or if no
    /// slot is free and the caller does not wait for one.
    fn next_slot(&self, progress: &mut LaidOut, waits: bool) -> Result<Option<SlotGuard<'e>>> {
        let Engine { options, ring, pool, .. } = self.engine;
        let Door { stream, operation, .. } = self.transfer.door;
        let (route, group) = (self.route, self.transfer.survey.group);
        let left = group.bytes - progress.done;
        if left == 0 {
            return Ok(None);
        }
        if self.stores == Stores::Cached {
            // An upload waits here, so that few slots are used.
            self.filled.oldest().map_or(Ok(()), |oldest| oldest.wait_in(operation))?;
        }
        let Some(slot) = ring.take(pool, stream.exposure(), waits, operation)? else {
            assert!(!waits, "a patient taker gets one");
            return Ok(None);
        };
        let taken = ring.guard(slot);
        slot.host().announce_access(Access::Write);
        let portion = match self.transfer.direction {
            Direction::Up => {
                options.upload_portion((route, self.workload), group.bytes, progress.done, left)
            }
            Direction::Down => options.download_portion(route, group.bytes, left),
        };
        let items = route == Route::Kernel;
        let unit = options.unit(portion, self.threads);
        // One warp moves an item.
        let unit = if items { unit.min(2 * PIECE) } else { unit };
        let entries = self.transfer.entries.len() - progress.cursor.entry;
        let piece = if entries > 1 || items {
            let average = (left / entries).clamp(1, unit);
            room_for(portion, average, items).min(options.slot_bytes)
        } else {
            portion
        };
        let sizes = Sizes { piece, unit, items };
        // SAFETY: this thread has taken the slot, and has exclusive access.
        let layout = unsafe { slot.layout_mut() };
        layout.fill(&mut progress.cursor, self.transfer.entries, &self.transfer.survey.sums, sizes);
        layout.number = progress.portions;
        layout.awaits_items = items && self.transfer.direction == Direction::Down;
        progress.portions += 1;
        progress.done += layout.bytes;
        Ok(Some(taken))
    }

    /// What a thread does with a unit.
    fn work(&self) -> Work<'_, '_> {
        let Transfer { direction, entries, door, .. } = *self.transfer;
        let items = self.route == Route::Kernel;
        Work { operation: door.operation, direction, entries, stores: self.stores, items }
    }

    /// Enqueues the copy between a slot, which this thread has alone, and the device.
    fn submit(&self, slot: &Slot) -> Result<Ticket> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        // SAFETY: this thread has the slot alone.
        let layout = unsafe { slot.layout() };
        let direction = self.transfer.direction;
        let whole = slot.host().operand(0..slot.host().len(), direction.access(Side::Host));
        let items = Items {
            at: slot.address(layout.items_at()).expose_provenance() as u64,
            count: layout.parts,
            bytes: layout.bytes,
        };
        self.transfer.door.moving(layout.bytes).portion(
            &[whole],
            |driver, raw| {
                let copies = layout.runs.iter().map(|run| {
                    direction.item(slot.address(run.slot.start), run.device, run.slot.len())
                });
                // SAFETY: the stream is live. Each run lies in one slot, page-locked in one piece,
                // and in one allocation; no two entries overlap where they are written: they are
                // views of one exclusive view, or were found apart (`check_disjoint`). The items,
                // complete and aligned to 8, lie in the slot, whose addresses the device can use
                // where the kernel's route is allowed (`Abilities::allow`). The slot's use and the
                // entries' (`Transfer`) keep all valid until retired; `Ring::take`, and the wait in
                // `open`, keep the host from the slot until then.
                unsafe { issue(driver, raw, direction.kind(), self.route, copies, items) }
            },
            || format!("copying {} bytes by way of page-locked memory", layout.bytes),
            |fence| self.transfer.add(fence),
        )
    }

    /// Begins more portions of a download. Returns a slot whose items must be written first; a copy
    /// with few items, or none, is enqueued.
    fn begin_down(&self, progress: &mut LaidOut) -> Result<Option<SlotGuard<'e>>> {
        // Not all at once: threads empty the first while the device copies the others.
        while progress.begun < AHEAD {
            // Only a transfer that has no slot waits for one.
            let patient = self.in_flight.is_empty();
            let Some(taken) = self.next_slot(progress, patient)? else { break };
            progress.begun += 1;
            self.in_flight.begin();
            let slot = taken.slot();
            // SAFETY: this thread has taken the slot, and has exclusive access.
            let layout = unsafe { slot.layout_mut() };
            if layout.awaits_items {
                if layout.parts > self.engine.options.items_of_one() {
                    return Ok(Some(taken));
                }
                layout.awaits_items = false;
                // SAFETY: as above, to all units. The device is done with the slot (`Ring::take`).
                (0..layout.units()).for_each(|unit| unsafe { self.work().write_items(slot, unit) });
            }
            self.in_flight.submit(taken, |slot| self.submit(slot))?;
        }
        progress.begun = 0;
        Ok(None)
    }

    /// The oldest slot of a download that is in flight, when it has arrived.
    fn wait_for_oldest(&self) -> Result<Option<SlotGuard<'e>>> {
        let Some((taken, ticket)) = self.in_flight.oldest() else { return Ok(None) };
        ticket.wait_in(self.transfer.door.operation)?;
        taken.slot().host().announce_access(Access::Read);
        Ok(Some(taken))
    }
}

impl<'e> Portions<'e> for StagedTransfer<'e, '_> {
    fn open(&self) -> Result<Option<&'e Slot>> {
        // One thread opens at a time, so this lock is never contended. It only makes the type
        // `Sync`.
        let mut progress = self.progress.lock();
        let taken = match self.transfer.direction {
            Direction::Up => self.next_slot(&mut progress, true)?,
            Direction::Down => match self.begin_down(&mut progress)? {
                None => {
                    drop(progress);
                    self.wait_for_oldest()?
                }
                awaits_items => awaits_items,
            },
        };
        Ok(taken.map(SlotGuard::hand_over))
    }

    fn slot(&self, index: usize) -> &'e Slot {
        self.engine.ring.slot(index)
    }

    fn unit(&self, slot: &'e Slot, unit: usize) -> Result<()> {
        // SAFETY: this thread is a worker of the slot.
        let layout = unsafe { slot.layout() };
        let work = self.work();
        if layout.awaits_items {
            // SAFETY: the unit belongs to this worker.
            unsafe { work.write_items(slot, unit) };
            return Ok(());
        }
        let Door { stream, operation, .. } = self.transfer.door;
        let recording = &stream.context().recording;
        let _shown = recording
            .begin(Kind::Stage, operation, || layout.bytes_of(unit, self.transfer.entries));
        match self.transfer.direction {
            // SAFETY: the unit belongs to this worker, and the device is done with the slot
            // (`Ring::take`).
            Direction::Up => unsafe { work.fill(slot, unit) },
            Direction::Down => {
                // SAFETY: the unit belongs to this worker, and the copy to the slot is complete
                // (`open`).
                unsafe { work.drain(slot, unit) };
                Ok(())
            }
        }
    }

    fn finish(&self, slot: &'e Slot) -> Result<()> {
        if self.transfer.direction == Direction::Down {
            // SAFETY: all units are done, so that this thread has the slot alone.
            let layout = unsafe { slot.layout_mut() };
            if std::mem::take(&mut layout.awaits_items) {
                let taken = self.engine.ring.guard(slot);
                return self.in_flight.submit(taken, |slot| self.submit(slot));
            }
            self.landed.note(layout.number, layout.end());
            self.abandon(slot);
            return Ok(());
        }
        if !self.filled.push(slot) {
            self.abandon(slot);
            return Ok(());
        }
        while let Some((guard, slot)) = self.filled.begin(&self.engine.ring) {
            // All units of the slot are done, and it is no longer in the queue: this thread has it
            // alone.
            let taken = self.engine.ring.guard(slot);
            let ticket = self.submit(slot)?;
            drop(taken);
            guard.submitted(ticket);
        }
        Ok(())
    }

    fn abandon(&self, slot: &'e Slot) {
        // SAFETY: the caller has the slot alone.
        if unsafe { slot.layout() }.awaits_items {
            self.in_flight.give_up();
        }
        self.engine.ring.give_back(slot);
    }
}

thread_local! {
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Calls the caller's code while this thread's transfer has slots.
fn telling<R>(tell: impl FnOnce() -> R) -> R {
    TELLING.set(true);
    let told = tell();
    TELLING.set(false);
    told
}

/// Refuses a copy that might wait for slots of the transfer that the thread is in.
pub(crate) fn refuse_inside(operation: &'static str) -> Result<()> {
    if !TELLING.get() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        operation,
        "called from inside the function that is called for each copy that has arrived",
        "note the copy there, and copy when the call that tells of it has returned, or on another \
         thread",
    ))
}
