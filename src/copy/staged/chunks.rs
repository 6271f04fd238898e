//! A copy of few slices, or of long ones, cut into chunks that threads take in turns.
//!
//! The slices lie in slots one right after the other, and are cut as if they were one. A portion of
//! them is a copy for each run: for bytes that are contiguous in the slot and on the device.
//!
//! ```text
//!   entries    |aaaaaaaaaaaaaa|bbbbbbb|cc|ddddddddddddd|
//!   chunks     |   |   |   |   |   |   |   |   |   |   |    a thread copies one
//!   portions   |           |                           |    the device copies one
//!   copies     |     a     |a |   b   |      c, d      |    c and d follow each other there
//! ```
//!
//! Such a copy is too short to hide its beginning and its end, so only the calling thread talks to
//! the driver, whose data stay in its core's cache. The other threads copy chunks, and wait for it
//! as long as it waits itself: for the device, or for a slot that another copy has.
//! [`landing`](super::landing) and [`filling`](super::filling) say what it does in each direction.
//!
//! # Invariants
//!
//! * A chunk lies in one slot.
//! * Each chunk is given to one thread, in their order, and is copied only when the calling thread
//!   has [opened](Chunks::open_to) its bytes. A chunk is copied by code of this crate alone, so
//!   that it always ends.
//! * A slot's address is known before its first bytes are opened. It changes only after all its
//!   chunks are copied.
//! * The calling thread waits for a slot only if it holds none. Then no chunk is open: it waits for
//!   no thread of its own copy meanwhile, so those who wait for it hold up nobody.
//! * Whoever waits for another thread yields its core after a while: that thread may need it.
//! * After an error of the caller, or a panic of any thread, no helper begins a chunk, and nobody
//!   waits for one. Slots are given back when all threads have left, with their uses. A panic
//!   continues then, in the calling thread.

use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::options::LANDING;
use super::ring::{Slot, SlotGuard};
use super::simd::Stores;
use super::team::pause;
use super::{Engine, simd};
use crate::copy::entry::{Direction, Entry, Side};
use crate::copy::issue::{Items, issue};
use crate::copy::order::Door;
use crate::copy::route::Route;
use crate::copy::transfer::Transfer;
use crate::driver::{DevicePtr, Item};
use crate::error::Result;
use crate::memory::hazard::Access;
use crate::sync::CachePadded;
use crate::ticket::Ticket;
use crate::trace::Kind;

/// So many entries are few.
const FEW: usize = 64;
/// More are few as well, of a download, if each has so many bytes on average. Uploads of them are
/// as fast the other way, or faster.
const LONG: usize = 64 << 10;
/// The most slots of a copy: two of the eight are as fast as four, and leave more to others.
const SLOTS: usize = 2;
/// In place of how many bytes are open: no more will be.
const FAILED: usize = usize::MAX;

/// What the threads of one copy share.
pub(super) struct Chunks<'e, 'a> {
    pub(super) transfer: &'e Transfer<'e, 'a>,
    /// How portions of several runs are enqueued: not by the kernel.
    route: Route,
    /// Up to which byte each entry goes.
    ends: Box<[usize]>,
    /// What a thread copies at a time, in bytes.
    chunk: usize,
    /// What goes through a slot before it is used again: a multiple of `chunk`.
    slot: usize,
    stores: Stores,
    /// The number of the next chunk.
    next: CachePadded<AtomicUsize>,
    /// Up to which byte chunks may be copied, or [`FAILED`].
    open: CachePadded<AtomicUsize>,
    slots: [CachePadded<AtomicPtr<u8>>; SLOTS],
    /// A bit for each chunk that has been copied.
    copied: Box<[AtomicU64]>,
}

/// What only the calling thread has.
#[derive(Default)]
pub(super) struct Held<'e> {
    /// Slots that hold bytes, the oldest in front, and the number of the oldest.
    slots: VecDeque<SlotGuard<'e>>,
    oldest: usize,
    /// How many chunks, from the first on, are known to be copied.
    copied: usize,
    /// Up to which byte chunks may be copied.
    pub(super) opened: usize,
    /// How many bytes have been enqueued, and in how many portions.
    pub(super) enqueued: usize,
    pub(super) portions: u64,
}

/// Ends the waits for other threads of the copy, if it is dropped by an error or a panic.
pub(super) struct FailGuard<'c>(&'c AtomicUsize);

impl Drop for FailGuard<'_> {
    fn drop(&mut self) {
        // What the thread wrote, before a slot has another owner.
        simd::fence();
        self.0.store(FAILED, Ordering::Release);
    }
}

impl<'e, 'a> Chunks<'e, 'a> {
    /// Whether a copy by that route can be cut into chunks: entries of memory that are few, or long
    /// enough, and no kernel moves them.
    pub(super) fn are_for(transfer: &Transfer<'_, '_>, route: Route) -> bool {
        let entries = transfer.entries;
        let few = match transfer.direction {
            Direction::Up => FEW,
            Direction::Down => FEW.max(transfer.survey.group.bytes / LONG),
        };
        route != Route::Kernel && entries.len() <= few && entries.iter().all(Entry::is_memory)
    }

    /// For a transfer that these [are for](Self::are_for).
    pub(super) fn new(
        transfer: &'e Transfer<'e, 'a>,
        route: Route,
        chunk: usize,
        slot: usize,
        stores: Stores,
    ) -> Self {
        let bytes = transfer.survey.group.bytes;
        let mut end = 0;
        let ends = transfer.entries.iter().map(|entry| {
            end += entry.bytes();
            end
        });
        let words = bytes.div_ceil(chunk).div_ceil(u64::BITS as usize);
        Chunks {
            transfer,
            route,
            ends: ends.collect(),
            chunk,
            slot,
            stores,
            next: CachePadded(AtomicUsize::new(0)),
            open: CachePadded(AtomicUsize::new(0)),
            slots: std::array::from_fn(|_| CachePadded(AtomicPtr::new(null_mut()))),
            copied: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// What goes through a slot before it is used again, in bytes.
    pub(super) fn slot_bytes(&self) -> usize {
        self.slot
    }

    /// The bytes of a chunk; `None` if it is behind the last.
    fn chunk(&self, number: usize) -> Option<Range<usize>> {
        let start = number * self.chunk;
        (start < self.bytes()).then(|| start..self.bytes().min(start + self.chunk))
    }

    /// The entries that these bytes belong to, each with its own part of them.
    fn parts(
        &self,
        bytes: Range<usize>,
    ) -> impl Iterator<Item = (&'e Entry<'a>, Range<usize>)> + use<'_, 'e, 'a> {
        let first = self.ends.partition_point(|&end| end <= bytes.start);
        let entries = self.transfer.entries[first..].iter().zip(&self.ends[first..]);
        let parts = entries.map_while(move |(entry, &end)| {
            let start = end - entry.bytes();
            let part = bytes.start.max(start)..bytes.end.min(end);
            (start < bytes.end).then(|| (entry, part.start - start..part.end - start))
        });
        parts.filter(|(_, part)| !part.is_empty())
    }

    /// The copies of a portion, one for each run. Its bytes lie at `host` in a slot.
    fn copies(
        &self,
        portion: Range<usize>,
        mut host: *mut u8,
    ) -> impl Iterator<Item = Item> + use<'_, 'e, 'a> {
        let direction = self.transfer.direction;
        let mut parts = self.parts(portion).peekable();
        std::iter::from_fn(move || {
            let (first, part) = parts.next()?;
            let device = first.device.ptr() + part.start as DevicePtr;
            let (mut last, mut bytes) = (first, part.len());
            // A part that another one comes after ends with its entry.
            while let Some((next, part)) =
                parts.next_if(|(next, _)| last.device.is_followed_by(&next.device))
            {
                (last, bytes) = (next, bytes + part.len());
            }
            let item = direction.item(host, device, bytes);
            host = host.wrapping_add(bytes);
            Some(item)
        })
    }

    /// Lets threads copy chunks up to that byte, unless one has panicked. All the slots of these
    /// bytes are held.
    pub(super) fn open_to(&self, held: &mut Held<'e>, end: usize) {
        let (set, fail) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.open.compare_exchange(held.opened, end, set, fail);
        held.opened = end;
    }

    /// Whether a thread has panicked, so that there is no use in waiting for it.
    pub(super) fn has_failed(&self) -> bool {
        self.open.load(Ordering::Relaxed) == FAILED
    }

    /// How many bytes have been given out to threads.
    pub(super) fn given_out(&self) -> usize {
        self.bytes().min(self.next.load(Ordering::Relaxed) * self.chunk)
    }

    /// Until it is forgotten, an error or a panic ends the waits of all threads.
    pub(super) fn guard(&self) -> FailGuard<'_> {
        FailGuard(&self.open)
    }

    /// Copies chunks as they are opened, until none are left.
    pub(super) fn help(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = self.chunk(number) else { return };
            let mut spins = 0u32;
            loop {
                match self.open.load(Ordering::Acquire) {
                    FAILED => return,
                    open if open >= chunk.end => break,
                    _ => {}
                }
                pause(&mut spins);
            }
            self.copy(number, chunk);
        }
    }

    /// Copies the next chunk, if it is open. For the calling thread, which opens chunks.
    pub(super) fn help_once(&self, held: &Held<'e>) -> bool {
        let number = self.next.load(Ordering::Relaxed);
        let Some(chunk) = self.chunk(number) else { return false };
        if held.opened < chunk.end {
            return false;
        }
        let (set, fail) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.next.compare_exchange(number, number + 1, set, fail).is_ok() {
            self.copy(number, chunk);
        }
        true
    }

    /// Copies a chunk that is open, and was given to this thread.
    fn copy(&self, number: usize, chunk: Range<usize>) {
        let Door { stream, operation, .. } = self.transfer.door;
        let _shown = stream.context().recording.begin(Kind::Stage, operation, || chunk.len());
        // The caller would wait for the chunk forever.
        let guard = self.guard();
        let slot = self.slots[chunk.start / self.slot % SLOTS].load(Ordering::Relaxed);
        let mut in_slot = slot.wrapping_add(chunk.start % self.slot);
        for (entry, part) in self.parts(chunk) {
            let (at, bytes) = (part.start, part.len());
            #[cfg(all(test, feature = "emulated"))]
            tests::copying(entry.host().wrapping_add(at));
            match self.transfer.direction {
                // SAFETY: an entry of an upload, of pageable memory (`are_for`), and the part lies
                // in it. The slot's bytes are initialised, as all of the pool's memory is, and were
                // given to this thread alone; the device reads them only when they count as copied.
                Direction::Up => unsafe { entry.put(at, in_slot, bytes, self.stores) },
                // SAFETY: an entry of a download, to pageable memory (`are_for`), and the part lies
                // in it. Its bytes were given to this thread alone. They have landed at that
                // address, and no code writes there until they count as copied.
                Direction::Down => unsafe { entry.drain(at, in_slot, bytes, self.stores) },
            }
            in_slot = in_slot.wrapping_add(bytes);
        }
        std::mem::forget(guard);
        // Another thread reads them: the caller of a download, or the one that lets the device.
        simd::fence();
        let bit = 1 << (number % u64::BITS as usize);
        self.copied[number / u64::BITS as usize].fetch_or(bit, Ordering::Release);
    }

    /// How many bytes have been copied, from the first on.
    pub(super) fn copied(&self, held: &mut Held<'e>) -> usize {
        let bits = u64::BITS as usize;
        while let Some(word) = self.copied.get(held.copied / bits) {
            let ones = (word.load(Ordering::Acquire) >> (held.copied % bits)).trailing_ones();
            held.copied += ones as usize;
            if ones == 0 || !held.copied.is_multiple_of(bits) {
                break;
            }
        }
        self.bytes().min(held.copied * self.chunk)
    }

    /// Makes sure that the slot is held that the byte at `start` goes through. Gives back the slots
    /// of the bytes before `done`. Waits for a slot only if none is held.
    pub(super) fn has_slot(
        &self,
        engine: &'e Engine,
        held: &mut Held<'e>,
        start: usize,
        done: usize,
    ) -> Result<bool> {
        let number = start / self.slot;
        if number < held.oldest + held.slots.len() {
            return Ok(true);
        }
        while !held.slots.is_empty() && done >= self.bytes().min((held.oldest + 1) * self.slot) {
            held.slots.pop_front();
            held.oldest += 1;
        }
        if held.slots.len() == SLOTS {
            return Ok(false);
        }
        let Engine { ring, pool, .. } = engine;
        let Door { stream, operation, .. } = self.transfer.door;
        let patient = held.slots.is_empty();
        let is_short = self.bytes() < self.slot / 4;
        let least = match self.transfer.direction {
            Direction::Down if !is_short => LANDING.max(2 * self.bytes().div_ceil(self.slot)),
            _ => 0,
        };
        let Some(slot) = ring.take_of(least, pool, stream.exposure(), patient, operation)? else {
            return Ok(false);
        };
        slot.host().announce_access(Access::Write);
        self.slots[number % SLOTS].store(slot.address(0), Ordering::Relaxed);
        held.slots.push_back(ring.guard(slot));
        Ok(true)
    }

    /// Enqueues the copy of the next portion, which ends at `end`. Its slot is held, and has the
    /// bytes of an upload.
    pub(super) fn enqueue(&self, held: &mut Held<'e>, end: usize) -> Result<Ticket> {
        let portion = held.enqueued..end;
        let (bytes, direction) = (portion.len(), self.transfer.direction);
        let (slot, offset) = self.slot_of(held, portion.start);
        let host = slot.host().operand_of(offset..offset + bytes, direction.access(Side::Host));
        let copies = self.copies(portion, slot.address(offset));
        let ticket = self.transfer.door.moving(bytes).portion(
            &[host],
            |driver, raw| {
                // SAFETY: the stream is live. Each run lies in one slot, page-locked in one piece,
                // and in one allocation; no two entries overlap where they are written: they are
                // views of one exclusive view, or were found apart (`check_disjoint`). It is not
                // the kernel's route (`are_for`). The slot's use and the entries' (`Transfer`) keep
                // all valid until retired. Until then the host does not touch the slot's range: the
                // bytes of an upload have been filled, and the slot is written again only when it
                // has been taken again (`Ring::take`); those of a download are read when they have
                // landed.
                unsafe {
                    issue(driver, raw, direction.kind(), self.route, copies, Items::default())
                }
            },
            || format!("copying {bytes} bytes by way of page-locked memory"),
            |fence| self.transfer.add(fence),
        );
        held.portions += 1;
        held.enqueued = end;
        ticket
    }

    /// The slot that a byte goes through, which is held, and the byte's offset there.
    pub(super) fn slot_of<'h>(&self, held: &'h Held<'e>, at: usize) -> (&'h Slot, usize) {
        (held.slots[at / self.slot - held.oldest].slot(), at % self.slot)
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests;
