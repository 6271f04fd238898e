//! From ordinary memory and files to the device.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::job::{self, Work};
use super::layout::{Cursor, Layout, Sizes};
use super::portions::IN_FLIGHT;
use super::ring::{Slot, Taken};
use super::{Engine, refuse_inside};
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

struct Upload<'e, 'a> {
    engine: &'e Engine,
    stream: &'e Stream,
    operation: &'static str,
    list: List<'e, 'a>,
    path: Path,
    uses: &'e Uses<'e, 'a>,
    bytes: usize,
    threads: usize,
    task: Task,
    progress: Mutex<Progress>,
    filled: Mutex<Filled<'e>>,
    submitted: AtomicU64,
}

/// Filled slots that are not yet the device's.
#[derive(Default)]
struct Filled<'e> {
    slots: VecDeque<&'e Slot>,
    /// A thread is submitting, and looks here again when it has. Two at once would wait for each
    /// other in the runtime, asleep.
    submitting: bool,
    /// A submission has failed, so that there will be no other.
    failed: bool,
    /// The last portions that have been submitted, the oldest in front.
    submitted: [Option<Ticket>; IN_FLIGHT],
}

impl<'e> Filled<'e> {
    /// The oldest, for the one thread that submits.
    fn next(&mut self) -> Option<&'e Slot> {
        if self.submitting {
            return None;
        }
        let next = self.slots.pop_front();
        self.submitting = next.is_some();
        next
    }

    fn note(&mut self, ticket: Ticket) {
        match self.submitted.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(ticket),
            // Whoever waits for the second waits for the first, too.
            None => {
                self.submitted.rotate_left(1);
                self.submitted[IN_FLIGHT - 1] = Some(ticket);
            }
        }
    }

    /// The oldest of the last portions, if there are as many as may be in flight.
    fn oldest(&mut self) -> Option<Ticket> {
        self.submitted[IN_FLIGHT - 1].as_ref()?;
        self.submitted.rotate_left(1);
        self.submitted[IN_FLIGHT - 1].take()
    }
}

#[derive(Default)]
struct Progress {
    cursor: Cursor,
    done: usize,
}

impl Engine {
    /// Copies entries of ordinary memory or files, and returns when those may be reused. The ticket
    /// is for all of them.
    pub(in crate::transfer) fn upload(
        &self,
        uses: Uses<'_, '_>,
        path: Path,
        task: Task,
    ) -> Result<Ticket> {
        let Uses { stream, operation, list, .. } = uses;
        refuse_inside(operation)?;
        let before = uses.reach()?;
        let bytes = uses.survey.bytes();
        let helpers = self.helpers(&uses, bytes, task)?;
        let upload = Upload {
            engine: self,
            stream,
            operation,
            list,
            path,
            uses: &uses,
            bytes,
            threads: helpers + 1,
            task,
            progress: Mutex::default(),
            filled: Mutex::default(),
            submitted: AtomicU64::new(0),
        };
        let result = job::run(&upload, helpers, &mut || {});
        let submitted = upload.submitted.load(Ordering::Relaxed);
        drop(upload);
        result?;
        let (ticket, fences) = uses.record()?;
        stream.timeline.note_moving(before + submitted + fences);
        Ok(ticket)
    }
}

impl<'e> Upload<'e, '_> {
    /// The items that a kernel reads lie behind the parts; each worker writes those of its own.
    fn item(&self, layout: &Layout, slot: &Slot, number: usize) -> *mut Item {
        slot.address(layout.items_at()).cast::<Item>().wrapping_add(number)
    }

    /// A slot. Where few are to be used, blocks until few portions are in flight.
    fn take_slot(&self, stores: Stores) -> Result<Taken<'e>> {
        let Engine { ring, pool, .. } = self.engine;
        if stores == Stores::Cached {
            let oldest = self.filled.lock().oldest();
            oldest.map_or(Ok(()), |oldest| oldest.wait())?;
        }
        let exposure = self.stream.timeline.exposure();
        Ok(ring.guard(ring.take(pool, exposure, true)?.expect("patience is rewarded")))
    }

    /// Submits what is filled, unless another thread is about to.
    fn submit_filled(&self) -> Result<()> {
        loop {
            let next = self.filled.lock().next();
            let Some(slot) = next else { return Ok(()) };
            let turn = Turn(self);
            let taken = self.engine.ring.guard(slot);
            self.submitted.fetch_add(1, Ordering::Relaxed);
            // SAFETY: all units of the slot are done, and it is no longer in the queue: this thread
            // has it alone.
            let ticket = self.submit(slot, unsafe { slot.layout() })?;
            drop(taken);
            turn.pass_on(ticket);
        }
    }

    fn submit(&self, slot: &Slot, layout: &Layout) -> Result<Ticket> {
        let whole = || slot.host().operand(0..slot.host().len(), Access::Read);
        let (one, two);
        let mut scratch = 0;
        let operands: &[Operand<'_>] = if self.path == Path::Packed {
            let memory = slot.scratch(self.stream)?;
            scratch = memory.ptr();
            two = [whole(), memory.operand(Access::Write)];
            wait_for_conflicts(self.stream, self.operation, &two[1..])?;
            &two
        } else {
            one = [whole()];
            &one
        };
        portion(
            self.stream,
            self.operation,
            operands,
            |driver, raw| self.enqueue(driver, raw, slot, layout, scratch),
            || format!("copying {} bytes from the host", layout.bytes()),
            |fence| self.uses.add(fence),
        )
    }

    fn enqueue(
        &self,
        driver: &dyn Driver,
        raw: RawStream,
        slot: &Slot,
        layout: &Layout,
        scratch: DevicePtr,
    ) -> DriverResult<()> {
        match self.path {
            Path::Copies => layout.runs().iter().try_for_each(|run| {
                let from = slot.address(run.slot.start);
                // SAFETY: the stream is live. The run lies in one slot, page-locked in one piece,
                // and in one allocation; the slot's use and the entries' (`Uses`) keep both valid
                // until retired, and `Ring::take` keeps the host from writing the slot.
                unsafe { driver.copy_h2d(raw, run.device, from, run.slot.len()) }
            }),
            Path::Batch => {
                let copies: Vec<_> = layout
                    .runs()
                    .iter()
                    .map(|run| BatchCopy {
                        dst: run.device,
                        src: slot.address(run.slot.start).addr() as u64,
                        bytes: run.slot.len(),
                    })
                    .collect();
                // SAFETY: as above, for each; no two entries overlap.
                unsafe { driver.copy_batch(raw, BatchKind::H2D, &copies) }
            }
            Path::Packed => {
                let bytes = layout.items_at() + layout.parts() * size_of::<Item>();
                // SAFETY: the stream is live; the slot and its scratch memory are as long, the
                // latter is used on this stream, and both stay valid as above.
                unsafe { driver.copy_h2d(raw, scratch, slot.address(0), bytes)? };
                let items = scratch + layout.items_at() as DevicePtr;
                // SAFETY: the items, which the copy before brings, and the sources lie in the
                // scratch memory, the destinations in the entries' device memory, which do not
                // overlap; all stay valid as above.
                unsafe {
                    driver.move_items(raw, Mover::OnDevice, items, layout.parts(), layout.bytes())
                }
            }
            Path::Pull => {
                let items = self.item(layout, slot, 0).addr() as u64;
                // SAFETY: the stream is live. The items, complete and aligned to 8, and the sources
                // lie in the slot, which `host_alloc` or a registration whose addresses the device
                // can use page-locked (`Machine::kernels`); the destinations in the entries' device
                // memory, which do not overlap; all stay valid as above.
                unsafe { driver.move_items(raw, Mover::Up, items, layout.parts(), layout.bytes()) }
            }
        }
    }
}

/// The right to submit. Dropped, by an error or a panic, it gives back all that is filled: the
/// thread that opens may be waiting for a slot.
struct Turn<'u, 'e, 'a>(&'u Upload<'e, 'a>);

impl Turn<'_, '_, '_> {
    fn pass_on(self, ticket: Ticket) {
        let mut filled = self.0.filled.lock();
        filled.note(ticket);
        filled.submitting = false;
        drop(filled);
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_, '_, '_> {
    fn drop(&mut self) {
        let slots = {
            let mut filled = self.0.filled.lock();
            filled.failed = true;
            std::mem::take(&mut filled.slots)
        };
        slots.into_iter().for_each(|slot| self.0.engine.ring.give_back(slot));
    }
}

impl<'e> Work<'e> for Upload<'e, '_> {
    fn open(&self) -> Result<Option<&'e Slot>> {
        // One thread opens at a time, so that nobody waits for this lock; it is there for the type.
        let mut progress = self.progress.lock();
        let left = self.bytes - progress.done;
        if left == 0 {
            return Ok(None);
        }
        let options = &self.engine.options;
        let piece = options.upload_portion((self.path, self.task), self.bytes, progress.done, left);
        let stores = options.stores_to_slot(self.task, self.bytes);
        let taken = self.take_slot(stores)?;
        let items = self.path.has_items();
        let unit = options.unit(piece, self.threads);
        if self.path == Path::Packed {
            // It is there when the units ask for its address.
            taken.slot().scratch(self.stream)?;
        }
        // SAFETY: just taken, so that this thread has it alone.
        let layout = unsafe { taken.slot().layout_mut() };
        layout.stores = stores;
        let sums = &self.uses.survey.sums;
        layout.fill(&mut progress.cursor, &self.list, sums, Sizes { piece, unit, items });
        progress.done += layout.bytes();
        Ok(Some(taken.hand_over()))
    }

    fn slot(&self, index: usize) -> &'e Slot {
        self.engine.ring.slot(index)
    }

    fn unit(&self, slot: &'e Slot, unit: usize) -> Result<()> {
        // SAFETY: this thread is a worker of the slot.
        let layout = unsafe { slot.layout() };
        for (number, part) in layout.unit(unit, &self.list) {
            let to = slot.address(part.offset);
            let entry = self.list.get(part.entry);
            // SAFETY: an entry of an upload, of ordinary memory or a file, and the part lies in it;
            // the part's bytes of the slot are initialised, as all of the pool's are, and this
            // worker's, and the device is done with the slot (`Ring::take`).
            unsafe { entry.fill(self.operation, part.at, to, part.bytes, layout.stores)? };
            if self.path.has_items() {
                let source = if self.path == Path::Pull {
                    to.addr() as u64
                } else {
                    slot.scratch(self.stream)?.ptr() + part.offset as DevicePtr
                };
                let item = Item { src: source, dst: part.device, bytes: part.bytes as u64 };
                // SAFETY: the place lies in the slot, behind the parts (`Sizes::items`), is
                // aligned, and this worker's.
                unsafe { self.item(layout, slot, number).write(item) };
            }
        }
        Ok(())
    }

    fn finish(&self, slot: &'e Slot) -> Result<()> {
        {
            let mut filled = self.filled.lock();
            if filled.failed {
                drop(filled);
                self.abandon(slot);
                return Ok(());
            }
            filled.slots.push_back(slot);
        }
        self.submit_filled()
    }

    fn abandon(&self, slot: &'e Slot) {
        self.engine.ring.give_back(slot);
    }
}
