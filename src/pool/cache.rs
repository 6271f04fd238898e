//! The free blocks that one thread keeps, so that a hit touches nothing that other threads write.
//!
//! ```text
//!   Cache      lane, bytes
//!     shelf 0    256 B:  [o o o . . .]    a stack of free blocks a class: the last one freed is
//!     shelf 1    512 B:                   allocated next, and is the likeliest to be in the
//!     ...                                 processor's caches
//!     shelf 79   1 MiB:  [o .]
//!     outbox             o-o-o-o          freed, but perhaps still used by a device: goes to the
//!                                         pool's books in batches
//! ```
//!
//! A shelf names its blocks without touching their descriptors, so that a block that one thread
//! frees and another allocates, over and over, costs neither a miss in its cache.
//!
//! # Invariants
//!
//! * Shelves and outbox are touched by the owner inside its [`Lane`], by the owner under the pool's
//!   lock, or by anybody under the pool's lock while the gate is closed and the lane is idle.
//! * What is on a shelf is free: nobody uses it, and its hazards are complete.
//! * The first `len` places of a shelf are taken. It has [`shelf_limit`] places, or none as long as
//!   nothing was put there; the shelves together at most `max_bytes`, the outbox at most [`OUTBOX`]
//!   blocks.
//! * Counters are written by whoever may touch what they count, and may be read by anybody.

use super::chain::Chain;
use super::classes::{KEPT_CLASSES, LARGEST_KEPT, class_bytes};
use super::gate::{Gate, InLane, Lane};
use std::mem::MaybeUninit;

use crate::memory::block::BlockRef;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::cell::UnsafeCell;

/// How many blocks wait in a thread for their way to the pool's books.
pub(super) const OUTBOX: usize = 32;

/// How many blocks of `bytes` a thread keeps at most.
pub(super) fn shelf_limit(bytes: usize) -> usize {
    ((2 * LARGEST_KEPT) >> bytes.ilog2()).clamp(2, 64)
}

/// How many more blocks of `bytes` a thread takes from the books when it takes one.
pub(super) fn batch(bytes: usize) -> usize {
    ((64 << 10) >> bytes.ilog2()).min(shelf_limit(bytes) / 2)
}

/// A number with one writer at a time, which may be read at any time.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    #[inline]
    fn sub(&self, less: u64) {
        self.set(self.get().wrapping_sub(less));
    }
}

// One cache line.
#[repr(align(64))]
pub(super) struct Shelf {
    blocks: UnsafeCell<Box<[MaybeUninit<BlockRef>]>>,
    /// The size of a block.
    size: u64,
    /// How many places there are, unless there are none yet.
    limit: u64,
    /// How many places there are.
    places: Counter,
    pub(super) len: Counter,
    pub(super) hits: Counter,
    /// Blocks of this class in the outbox.
    pub(super) posted: Counter,
}

// Two threads' caches never share a cache line, nor a pair of them that is fetched together.
#[repr(align(128))]
pub(super) struct Cache {
    lane: Lane,
    /// The number of the pool.
    pub(super) pool: u64,
    max_bytes: u64,
    pub(super) bytes: Counter,
    shelves: [Shelf; KEPT_CLASSES],
    outbox: UnsafeCell<Chain>,
    /// Written under the pool's lock.
    seen_hits: Counter,
}

// SAFETY: the cells are touched by one thread at a time (first invariant), with the lock or the
// gate ordering the one after the other; what they hold is `Send`.
unsafe impl Sync for Cache {}

impl Shelf {
    fn new(class: usize) -> Self {
        Shelf {
            blocks: UnsafeCell::new(Box::default()),
            size: class_bytes(class) as u64,
            limit: shelf_limit(class_bytes(class)) as u64,
            places: Counter::default(),
            len: Counter::default(),
            hits: Counter::default(),
            posted: Counter::default(),
        }
    }
}

impl Cache {
    pub(super) fn new(pool: u64, max_bytes: usize) -> Self {
        Cache {
            lane: Lane::default(),
            pool,
            max_bytes: max_bytes as u64,
            bytes: Counter::default(),
            shelves: std::array::from_fn(Shelf::new),
            outbox: UnsafeCell::new(Chain::new()),
            seen_hits: Counter::default(),
        }
    }

    pub(super) fn shelves(&self) -> &[Shelf; KEPT_CLASSES] {
        &self.shelves
    }

    /// A free block of `class`. Called by the owner.
    #[inline]
    pub(super) fn take(&self, gate: &Gate, class: usize) -> Option<BlockRef> {
        let inside = gate.enter(&self.lane)?;
        // SAFETY: the owner is in its lane.
        let block = unsafe { self.pop(class) }?;
        self.shelves[class].hits.add(1);
        drop(inside);
        Some(block)
    }

    /// Keeps a free block of `class`, or gives it back. Called by the owner.
    #[inline]
    pub(super) fn put(&self, gate: &Gate, class: usize, block: BlockRef) -> Result<(), BlockRef> {
        let Some(inside) = gate.enter(&self.lane) else { return Err(block) };
        if !self.has_room(class, block.bytes()) {
            return Err(block);
        }
        // SAFETY: the owner is in its lane, and there is a place.
        unsafe { self.push(class, block) };
        // The block is out of our hands: from here on the pool itself may go away.
        drop::<InLane<'_>>(inside);
        Ok(())
    }

    /// Keeps a block of `class` that a device may still use, or gives it back. Called by the owner.
    #[inline]
    pub(super) fn post(&self, gate: &Gate, class: usize, block: BlockRef) -> Result<(), BlockRef> {
        let Some(inside) = gate.enter(&self.lane) else { return Err(block) };
        // SAFETY: the owner is in its lane.
        let taken = self.outbox.with_mut(|outbox| unsafe {
            if (*outbox).len() >= OUTBOX {
                return Err(block);
            }
            (*outbox).push(block);
            Ok(())
        });
        if taken.is_ok() {
            self.shelves[class].posted.add(1);
        }
        drop::<InLane<'_>>(inside);
        taken
    }

    /// Whether anything has been posted; not while the gate is closed, for then it is in the books.
    /// Called by the owner.
    pub(super) fn has_posted(&self, gate: &Gate) -> bool {
        let Some(_inside) = gate.enter(&self.lane) else { return false };
        // SAFETY: the owner is in its lane.
        self.outbox.with_mut(|outbox| unsafe { (*outbox).len() > 0 })
    }

    /// Whether one more block of `class` may be kept, and there is a place for it.
    #[inline]
    fn has_room(&self, class: usize, bytes: usize) -> bool {
        let shelf = &self.shelves[class];
        shelf.len.get() < shelf.places.get() && self.bytes.get() + bytes as u64 <= self.max_bytes
    }

    /// How many more blocks of `class` may be kept; makes the places for the first.
    ///
    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    pub(super) unsafe fn room(&self, class: usize, bytes: usize) -> usize {
        let shelf = &self.shelves[class];
        if shelf.places.get() == 0 {
            let places = std::iter::repeat_with(MaybeUninit::uninit).take(shelf.limit as usize);
            // SAFETY: the caller's precondition.
            shelf.blocks.with_mut(|blocks| unsafe { *blocks = places.collect() });
            shelf.places.set(shelf.limit);
        }
        let places = (shelf.places.get() - shelf.len.get()) as usize;
        places.min((self.max_bytes.saturating_sub(self.bytes.get()) / bytes as u64) as usize)
    }

    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    #[inline]
    unsafe fn pop(&self, class: usize) -> Option<BlockRef> {
        let shelf = &self.shelves[class];
        let last = shelf.len.get().checked_sub(1)?;
        // SAFETY: the caller may touch the shelf, whose first `len` places are taken; this one no
        // longer is.
        let block = shelf.blocks.with_mut(|blocks| unsafe {
            (&*blocks).get_unchecked(last as usize).assume_init_read()
        });
        shelf.len.sub(1);
        self.bytes.sub(shelf.size);
        Some(block)
    }

    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    /// * There is room: [`has_room`](Self::has_room) or [`room`](Self::room) said so.
    #[inline]
    pub(super) unsafe fn push(&self, class: usize, block: BlockRef) {
        let shelf = &self.shelves[class];
        let len = shelf.len.get();
        self.bytes.add(shelf.size);
        // SAFETY: the caller may touch the shelf, and has found that `len` is less than its places.
        shelf.blocks.with_mut(|blocks| unsafe {
            (&mut *blocks).get_unchecked_mut(len as usize).write(block);
        });
        shelf.len.add(1);
    }

    /// Makes room for a block of `class`: gives half of its shelf away if that is full, and
    /// otherwise half of all shelves, so that what is used stays and what is not leaves step by
    /// step.
    ///
    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    pub(super) unsafe fn make_room(&self, class: usize, mut give: impl FnMut(BlockRef)) {
        let shelf = &self.shelves[class];
        let full = shelf.len.get() >= shelf.limit;
        let classes = if full { class..class + 1 } else { 0..KEPT_CLASSES };
        for class in classes {
            for _ in 0..self.shelves[class].len.get().div_ceil(2) {
                // SAFETY: the caller's precondition.
                unsafe { self.pop(class) }.into_iter().for_each(&mut give);
            }
        }
    }

    /// # Safety
    ///
    /// * The caller may touch the outbox (first invariant).
    pub(super) unsafe fn take_outbox(&self) -> Chain {
        for shelf in &self.shelves {
            shelf.posted.set(0);
        }
        // SAFETY: the caller's precondition.
        let newest_first = self.outbox.with_mut(|outbox| unsafe { std::mem::take(&mut *outbox) });
        let mut oldest_first = Chain::new();
        oldest_first.extend(newest_first);
        oldest_first
    }

    /// How many allocations the owner has had from here.
    pub(super) fn hits(&self) -> u64 {
        self.shelves.iter().map(|shelf| shelf.hits.get()).sum()
    }

    /// Whether the owner has not allocated from here since the last call. The caller holds the
    /// pool's lock.
    pub(super) fn is_idle(&self) -> bool {
        let hits = self.hits();
        let idle = hits == self.seen_hits.get();
        self.seen_hits.set(hits);
        idle
    }

    /// Gives all free blocks away. The caller holds the pool's lock and has closed the gate.
    pub(super) fn empty(&self, gate: &Gate, give: impl FnMut(BlockRef)) {
        debug_assert!(gate.is_closed());
        gate.wait_for(&self.lane);
        // SAFETY: the caller has the pool's lock, the gate is closed, and the lane is idle.
        unsafe { self.empty_shelves(give) }
    }

    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    pub(super) unsafe fn empty_shelves(&self, mut give: impl FnMut(BlockRef)) {
        for class in 0..KEPT_CLASSES {
            // SAFETY: the caller's precondition.
            while let Some(block) = unsafe { self.pop(class) } {
                give(block);
            }
        }
    }
}
