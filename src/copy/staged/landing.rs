//! A download of one slice that is too short to hide its beginning and its end.
//!
//! Of a long download the waits between portions are hidden: the device copies the next ones
//! meanwhile. In one of some hundred KiB they are what it takes. So here only the calling thread
//! talks to the driver, whose data stay in its core's cache, and the others never wait for it
//! longer than for the device: it enqueues the next portion while they copy.
//!
//! ```text
//!   device    | copy 0      | copy 1      | copy 2      |
//!   caller    enqueue 0, 1  | 0 landed; enqueue 2; chunk | 1 landed; chunk ...
//!   helper                  | chunk | chunk |            | chunk | chunk ...
//! ```
//!
//! # Invariants
//!
//! * A chunk lies in one portion, and a portion in one slot.
//! * Each chunk is given to one thread, in their order, and is copied only when its bytes have
//!   landed. A chunk is copied by code of this crate alone, so that it always ends.
//! * A slot's address is known before its first bytes land. It changes only after all its chunks
//!   are copied.
//! * After an error or a panic of the caller no chunk is begun. Slots are given back when all
//!   threads have left, with their uses.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::copy::refuse_inside;
use super::options::{Cuts, stores_to_memory};
use super::ring::SlotGuard;
use super::simd::Stores;
use super::team::{self, Helpers, Workload};
use super::{Engine, simd};
use crate::copy::entry::{Direction, Entry};
use crate::copy::order::Door;
use crate::copy::transfer::Transfer;
use crate::error::Result;
use crate::memory::hazard::Access;
use crate::sync::CachePadded;
use crate::ticket::Ticket;
use crate::trace::Kind;

/// The most slots of one download: two of the eight are as fast as four, and leave more to others.
const SLOTS: usize = 2;
/// How many portions are enqueued before the caller looks whether the first has landed.
const AT_FIRST: usize = 2;
/// In place of how much has landed: nothing more will.
const FAILED: usize = usize::MAX;

/// What the threads of one download share.
struct Landing<'e, 'a> {
    transfer: &'e Transfer<'e, 'a>,
    entry: &'e Entry<'a>,
    cuts: Cuts,
    stores: Stores,
    /// The number of the next chunk.
    next: CachePadded<AtomicUsize>,
    /// How many bytes have landed in slots.
    landed: CachePadded<AtomicUsize>,
    slots: [CachePadded<Place>; SLOTS],
}

/// A slot in use.
struct Place {
    address: AtomicPtr<u8>,
    /// How many of its bytes have been copied to the memory.
    copied: AtomicUsize,
}

/// What only the calling thread has.
#[derive(Default)]
struct Enqueued<'e> {
    bytes: usize,
    portions: u64,
    /// Portions that have not landed, the oldest in front: their ends and tickets.
    in_flight: VecDeque<(usize, Ticket)>,
    /// Slots that hold bytes, the oldest in front, and the number of the oldest.
    held: VecDeque<SlotGuard<'e>>,
    oldest: usize,
}

/// Ends the waits for bytes that will not land, if it is dropped by an error or a panic.
struct FailGuard<'l>(&'l AtomicUsize);

impl Drop for FailGuard<'_> {
    fn drop(&mut self) {
        self.0.store(FAILED, Ordering::Release);
    }
}

impl Engine {
    /// Whether a download goes this way: one slice of memory, and not so long that its portions
    /// fill slots.
    pub(super) fn lands(&self, transfer: &Transfer<'_, '_>) -> bool {
        transfer.direction == Direction::Down
            && transfer.survey.group.bytes < 8 * self.options.slot_bytes
            && matches!(transfer.entries, [entry] if entry.is_memory())
    }

    /// Copies one slice to pageable memory. Returns when all bytes have arrived there.
    pub(super) fn land(&self, transfer: Transfer<'_, '_>) -> Result<Ticket> {
        refuse_inside(transfer.door.operation)?;
        let stream = transfer.door.stream;
        let before = transfer.reach()?;
        let bytes = transfer.survey.group.bytes;
        // Helpers do not enqueue, so a thread's default stream has them too.
        let helpers = Helpers::of(stream.context().ordinal(), Workload::Copying);
        let helpers = helpers.at_most(bytes / (32 << 10));
        let landing = Landing {
            transfer: &transfer,
            entry: &transfer.entries[0],
            cuts: self.options.cuts(bytes, helpers.count + 1),
            stores: stores_to_memory(bytes),
            next: CachePadded(AtomicUsize::new(0)),
            landed: CachePadded(AtomicUsize::new(0)),
            slots: std::array::from_fn(|_| {
                let address = AtomicPtr::new(null_mut());
                CachePadded(Place { address, copied: AtomicUsize::new(0) })
            }),
        };
        let mut enqueued = Enqueued::default();
        // The device begins while the team is called.
        landing.enqueue(self, &mut enqueued)?;
        let mut result = Ok(());
        team::run(helpers, &|| landing.help(), &mut || {
            result = landing.drive(self, &mut enqueued);
        });
        // All threads have left. After an error slots may be in flight.
        let portions = enqueued.portions;
        drop(enqueued);
        result?;
        let ticket = transfer.ticket();
        drop(transfer);
        stream.note_moving(before + portions);
        Ok(ticket)
    }
}

impl<'e> Landing<'e, '_> {
    fn bytes(&self) -> usize {
        self.entry.bytes()
    }

    /// The bytes of a chunk; `None` if it is behind the last.
    fn chunk(&self, number: usize) -> Option<Range<usize>> {
        let start = number * self.cuts.chunk;
        (start < self.bytes()).then(|| start..self.bytes().min(start + self.cuts.chunk))
    }

    /// The place of the slot that a byte goes through, and the byte's offset there.
    fn place(&self, at: usize) -> (&Place, usize) {
        (&self.slots[at / self.cuts.slot % SLOTS], at % self.cuts.slot)
    }

    /// Copies chunks as they land, until none are left.
    fn help(&self) {
        while let Some(chunk) = self.chunk(self.next.fetch_add(1, Ordering::Relaxed)) {
            let mut spins = 0u32;
            loop {
                match self.landed.load(Ordering::Acquire) {
                    FAILED => return,
                    landed if landed >= chunk.end => break,
                    _ => {}
                }
                spins += 1;
                // The device needs much less than this, or the caller lost its core.
                if spins < 20_000 { spin_loop() } else { std::thread::yield_now() }
            }
            self.copy(chunk);
        }
    }

    /// Copies the next chunk, if it has landed.
    fn help_once(&self) -> bool {
        let number = self.next.load(Ordering::Relaxed);
        let Some(chunk) = self.chunk(number) else { return false };
        // This thread is the one that lets bytes land.
        if self.landed.load(Ordering::Relaxed) < chunk.end {
            return false;
        }
        let (set, fail) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.next.compare_exchange(number, number + 1, set, fail).is_ok() {
            self.copy(chunk);
        }
        true
    }

    /// Copies a chunk that has landed, and was given to this thread.
    fn copy(&self, chunk: Range<usize>) {
        let Door { stream, operation, .. } = self.transfer.door;
        let _shown = stream.context().recording.begin(Kind::Stage, operation, || chunk.len());
        let (place, offset) = self.place(chunk.start);
        let from = place.address.load(Ordering::Relaxed).wrapping_add(offset);
        // SAFETY: an entry of a download, to pageable memory, and the chunk lies in it. Its bytes
        // were given to this thread alone. They have landed at that address, and no code writes
        // there until they count as copied.
        unsafe { self.entry.drain(chunk.start, from, chunk.len(), self.stores) };
        // The caller of the download reads them on another thread.
        simd::fence();
        place.copied.fetch_add(chunk.len(), Ordering::Release);
    }

    /// The calling thread's part: it enqueues, waits, and copies chunks in between.
    fn drive(&self, engine: &'e Engine, enqueued: &mut Enqueued<'e>) -> Result<()> {
        let guard = FailGuard(&self.landed);
        let operation = self.transfer.door.operation;
        while self.landed.load(Ordering::Relaxed) < self.bytes() {
            if enqueued.in_flight.len() < AT_FIRST && self.enqueue(engine, enqueued)? {
                continue;
            }
            let done = match enqueued.in_flight.front() {
                Some((_, ticket)) => ticket.is_done()?,
                // All slots are full of what other threads are copying.
                None if self.help_once() => continue,
                None => {
                    spin_loop();
                    continue;
                }
            };
            if !done {
                if self.help_once() || self.enqueue(engine, enqueued)? {
                    continue;
                }
                enqueued.in_flight[0].1.wait_in(operation)?;
            }
            self.note_landed(enqueued);
        }
        std::mem::forget(guard);
        self.help();
        Ok(())
    }

    /// The oldest portion in flight has landed.
    fn note_landed(&self, enqueued: &mut Enqueued<'_>) {
        let Some((end, _)) = enqueued.in_flight.pop_front() else { return };
        let start = self.landed.load(Ordering::Relaxed);
        let slot = &enqueued.held[start / self.cuts.slot - enqueued.oldest];
        let offset = start % self.cuts.slot;
        slot.slot().host().announce_access_to(offset..offset + (end - start), Access::Read);
        self.landed.store(end, Ordering::Release);
    }

    /// Enqueues the next portion. `false` if there is none, or no slot for it.
    fn enqueue(&self, engine: &'e Engine, enqueued: &mut Enqueued<'e>) -> Result<bool> {
        let start = enqueued.bytes;
        let end = self.bytes().min(start + self.cuts.portion);
        if start == end || !self.has_slot(engine, enqueued, start)? {
            return Ok(false);
        }
        let slot = enqueued.held[start / self.cuts.slot - enqueued.oldest].slot();
        let offset = start % self.cuts.slot;
        let host = slot.host().operand_of(offset..offset + (end - start), Access::Write);
        let (to, from) = (slot.address(offset), self.entry.device.ptr() + start as u64);
        enqueued.portions += 1;
        let ticket = self.transfer.door.moving(end - start).portion(
            &[host],
            // SAFETY: the stream is live. The range lies in one slot, page-locked in one piece, and
            // in one allocation. The slot's use and the entry's (`Transfer`) keep both valid until
            // retired; the host does not touch the range before it has landed.
            |driver, raw| unsafe { driver.copy_d2h(raw, to, from, end - start) },
            || format!("copying {} bytes by way of page-locked memory", end - start),
            |fence| self.transfer.add(fence),
        )?;
        enqueued.bytes = end;
        enqueued.in_flight.push_back((end, ticket));
        Ok(true)
    }

    /// Makes sure that the slot is held that the byte at `start` goes through. Waits for one only
    /// if none is held.
    fn has_slot(
        &self,
        engine: &'e Engine,
        enqueued: &mut Enqueued<'e>,
        start: usize,
    ) -> Result<bool> {
        let number = start / self.cuts.slot;
        if number < enqueued.oldest + enqueued.held.len() {
            return Ok(true);
        }
        self.give_back_copied(enqueued);
        if enqueued.held.len() == SLOTS {
            return Ok(false);
        }
        let Engine { ring, pool, .. } = engine;
        let Door { stream, operation, .. } = self.transfer.door;
        let patient = enqueued.held.is_empty();
        let Some(slot) = ring.take(pool, stream.exposure(), patient, operation)? else {
            return Ok(false);
        };
        slot.host().announce_access(Access::Write);
        self.place(start).0.address.store(slot.address(0), Ordering::Relaxed);
        enqueued.held.push_back(ring.guard(slot));
        Ok(true)
    }

    /// Gives back the slots all of whose bytes have been copied.
    fn give_back_copied(&self, enqueued: &mut Enqueued<'_>) {
        while let Some(slot) = enqueued.held.pop_front() {
            let start = enqueued.oldest * self.cuts.slot;
            let copied = &self.place(start).0.copied;
            let full = self.bytes().min(start + self.cuts.slot) - start;
            if copied.load(Ordering::Acquire) < full {
                enqueued.held.push_front(slot);
                return;
            }
            copied.store(0, Ordering::Relaxed);
            enqueued.oldest += 1;
        }
    }
}
