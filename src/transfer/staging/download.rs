//! From the device to ordinary memory.
//!
//! As many slots as can be had are in flight; the team takes them in the order in which they were
//! enqueued, as each lands.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::job::{self, Work};
use super::layout::{Cursor, Layout, Sizes};
use super::portions::stores_to_memory;
use super::ring::{Slot, Taken};
use super::{Engine, refuse_inside, telling};
use crate::driver::{
    BatchCopy, BatchKind, DevicePtr, Driver, DriverResult, Item, Mover, RawStream,
};
use crate::error::Result;
use crate::memory::Operand;
use crate::memory::hazard::Access;
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::ticket::Ticket;
use crate::transfer::entry::List;
use crate::transfer::order::{portion, wait_for_conflicts};
use crate::transfer::path::Path;
use crate::transfer::simd::Stores;
use crate::transfer::team::Task;
use crate::transfer::uses::Uses;

/// How many slots are enqueued for each that is waited for.
const AHEAD: usize = 2;

struct Download<'e, 'a> {
    engine: &'e Engine,
    stream: &'e Stream,
    operation: &'static str,
    list: List<'e, 'a>,
    path: Path,
    uses: &'e Uses<'e, 'a>,
    bytes: usize,
    threads: usize,
    stores: Stores,
    progress: Mutex<Progress<'e>>,
    landed: &'e Landed,
}

struct Progress<'e> {
    cursor: Cursor,
    done: usize,
    /// Oldest in front; each with the ticket of its copy.
    in_flight: VecDeque<(Taken<'e>, Ticket)>,
    submitted: u64,
}

/// Which entries have arrived: all before the end of the last portion of which, and of all before
/// which, every byte has.
#[derive(Default)]
pub(super) struct Landed(Mutex<Portions>);

#[derive(Default)]
struct Portions {
    /// The ends of portions that have arrived, by number from `first` on.
    ends: VecDeque<Option<Cursor>>,
    first: u64,
    up_to: Cursor,
}

impl Landed {
    fn note(&self, number: u64, end: Cursor) {
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
    fn count(&self, list: List<'_, '_>) -> usize {
        let Cursor { entry, at } = self.0.lock().up_to;
        let whole = entry < list.len() && at == list.get(entry).bytes();
        entry + usize::from(whole)
    }
}

impl Engine {
    /// Copies entries to ordinary memory, and returns when they have arrived there. Meanwhile it
    /// calls `each`, on this thread, with the number of every entry that has, in their order.
    pub(in crate::transfer) fn download(
        &self,
        uses: Uses<'_, '_>,
        path: Path,
        each: &mut dyn FnMut(usize),
    ) -> Result<()> {
        let Uses { stream, operation, list, .. } = uses;
        refuse_inside(operation)?;
        let before = uses.reach()?;
        let bytes = uses.survey.bytes();
        let helpers = self.helpers(&uses, bytes, Task::Copying)?;
        let landed = Landed::default();
        let progress = Progress {
            cursor: Cursor::default(),
            done: 0,
            in_flight: VecDeque::with_capacity(8),
            submitted: 0,
        };
        let download = Download {
            engine: self,
            stream,
            operation,
            list,
            path,
            uses: &uses,
            bytes,
            threads: helpers + 1,
            stores: stores_to_memory(bytes),
            progress: Mutex::new(progress),
            landed: &landed,
        };
        let mut told = 0;
        let mut panic = None;
        // A panic of the caller's code waits until slots are given back and uses recorded.
        let mut tell = |count: usize| {
            while told < count && panic.is_none() {
                told += 1;
                panic = telling(|| catch_unwind(AssertUnwindSafe(|| each(told - 1)))).err();
            }
        };
        let result = job::run(&download, helpers, &mut || tell(landed.count(list)));
        let submitted = download.progress.lock().submitted;
        // After an error slots may be in flight.
        drop(download);
        if result.is_ok() {
            tell(list.len());
        }
        let recorded = result.and_then(|()| uses.record());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        let (_, fences) = recorded?;
        stream.timeline.note_moving(before + submitted + fences);
        Ok(())
    }
}

impl<'e> Download<'e, '_> {
    /// Enqueues the next slot's copy.
    fn enqueue(&self, progress: &mut Progress<'e>, taken: Taken<'e>) -> Result<()> {
        let piece =
            self.engine.options.download_portion(self.path, self.bytes, self.bytes - progress.done);
        let items = self.path.has_items();
        let unit = self.engine.options.unit(piece, self.threads);
        // SAFETY: just taken, so that this thread has it alone.
        let layout = unsafe { taken.slot().layout_mut() };
        let sums = &self.uses.survey.sums;
        layout.fill(&mut progress.cursor, &self.list, sums, Sizes { piece, unit, items });
        layout.number = progress.submitted;
        progress.done += layout.bytes();
        progress.submitted += 1;
        let ticket = self.submit(taken.slot(), layout)?;
        progress.in_flight.push_back((taken, ticket));
        Ok(())
    }

    fn submit(&self, slot: &Slot, layout: &Layout) -> Result<Ticket> {
        let whole = slot.host().operand(0..slot.host().len(), Access::Write);
        let mut scratch = None;
        let mut operands: Vec<Operand<'_>> = vec![whole];
        if self.path.has_items() {
            self.write_items(slot, layout)?;
            scratch = Some(slot.scratch(self.stream)?);
        }
        if let Some(scratch) = scratch {
            operands.push(scratch.operand(Access::Write));
            wait_for_conflicts(self.stream, self.operation, &operands[1..])?;
        }
        let at = scratch.map_or(0, |scratch| scratch.ptr());
        portion(
            self.stream,
            self.operation,
            &operands,
            |driver, raw| self.issue(driver, raw, slot, layout, at),
            || format!("copying {} bytes to the host", layout.bytes()),
            |fence| self.uses.add(fence),
        )
    }

    fn issue(
        &self,
        driver: &dyn Driver,
        raw: RawStream,
        slot: &Slot,
        layout: &Layout,
        scratch: DevicePtr,
    ) -> DriverResult<()> {
        match self.path {
            Path::Copies => layout.runs().iter().try_for_each(|run| {
                let to = slot.address(run.slot.start);
                // SAFETY: the stream is live. The run lies in one slot, page-locked in one piece,
                // and in one allocation; the slot's use and the entries' (`Uses`) keep both valid
                // until retired; nobody touches the slot's bytes before `open` has waited for the
                // copy.
                unsafe { driver.copy_d2h(raw, to, run.device, run.slot.len()) }
            }),
            Path::Batch => {
                let copies: Vec<_> = layout
                    .runs()
                    .iter()
                    .map(|run| BatchCopy {
                        dst: slot.address(run.slot.start).addr() as u64,
                        src: run.device,
                        bytes: run.slot.len(),
                    })
                    .collect();
                // SAFETY: as above, for each; no two entries of the slot overlap.
                unsafe { driver.copy_batch(raw, BatchKind::D2H, &copies) }
            }
            // A plan never says `Pull` here.
            Path::Packed | Path::Pull => {
                let items = slot.address(layout.items_at()).addr() as u64;
                // SAFETY: the stream is live. The items, complete and aligned to 8, lie in the
                // slot, which is page-locked so that the device can use its addresses; the sources
                // in the entries' device memory, the destinations in the scratch memory, as the
                // slot is laid out; all stay valid as above.
                unsafe {
                    driver.move_items(
                        raw,
                        Mover::OnDevice,
                        items,
                        layout.parts(),
                        layout.bytes(),
                    )?
                };
                // SAFETY: as for the copies; the scratch memory is as long as the slot.
                unsafe { driver.copy_d2h(raw, slot.address(0), scratch, layout.used()) }
            }
        }
    }

    /// Writes the items behind the place of the parts.
    fn write_items(&self, slot: &Slot, layout: &Layout) -> Result<()> {
        let scratch = slot.scratch(self.stream)?.ptr();
        let items = slot.address(layout.items_at()).cast::<Item>();
        for unit in 0..layout.units() {
            for (number, part) in layout.unit(unit, &self.list) {
                let item = Item {
                    src: part.device,
                    dst: scratch + part.offset as DevicePtr,
                    bytes: part.bytes as u64,
                };
                // SAFETY: the place lies in the slot, behind the parts (`Sizes::items`), and is
                // aligned; this thread has the slot alone, and the device is done with it.
                unsafe { items.add(number).write(item) };
            }
        }
        Ok(())
    }
}

impl<'e> Work<'e> for Download<'e, '_> {
    fn open(&self) -> Result<Option<&'e Slot>> {
        // One thread opens at a time, so that nobody waits for this lock; it is there for the type.
        let mut progress = self.progress.lock();
        // Not all at once: the first is to be unpacked while the device copies the others.
        for _ in 0..AHEAD {
            if progress.done == self.bytes {
                break;
            }
            // Only who has no slot waits for one.
            let patient = progress.in_flight.is_empty();
            let exposure = self.stream.timeline.exposure();
            let Some(slot) = self.engine.ring.take(&self.engine.pool, exposure, patient)? else {
                break;
            };
            self.enqueue(&mut progress, self.engine.ring.guard(slot))?;
        }
        let Some((taken, ticket)) = progress.in_flight.pop_front() else { return Ok(None) };
        drop(progress);
        ticket.wait()?;
        Ok(Some(taken.hand_over()))
    }

    fn slot(&self, index: usize) -> &'e Slot {
        self.engine.ring.slot(index)
    }

    fn unit(&self, slot: &'e Slot, unit: usize) -> Result<()> {
        // SAFETY: this thread is a worker of the slot.
        for (_, part) in unsafe { slot.layout() }.unit(unit, &self.list) {
            let from = slot.address(part.offset);
            // SAFETY: an entry of a download, to ordinary memory, and the part lies in it; its
            // bytes are this worker's, on both sides, and the copy to the slot is complete
            // (`open`).
            unsafe { self.list.get(part.entry).drain(part.at, from, part.bytes, self.stores) };
        }
        Ok(())
    }

    fn finish(&self, slot: &'e Slot) -> Result<()> {
        // SAFETY: all units are done, so that this thread has the slot alone.
        let layout = unsafe { slot.layout() };
        self.landed.note(layout.number, layout.end());
        self.engine.ring.give_back(slot);
        Ok(())
    }

    fn abandon(&self, slot: &'e Slot) {
        self.engine.ring.give_back(slot);
    }
}
