//! The free blocks that one thread keeps, so that a hit touches nothing that other threads write.
//!
//! ```text
//!   Cache      busy, bytes
//!     shelf 0    256 B:  [o o o . . .]    a stack of free blocks for each size class. The block
//!     shelf 1    512 B:                   freed last is allocated next: it is the likeliest to be
//!     ...                                 in the processor's caches
//!     shelf 79   1 MiB:  [o .]
//!     outbox             [o o o o]        freed, but a device may still use them: free ones go to
//!                                         a shelf when it and the books have none; when the
//!                                         outbox is full, all go to the books
//! ```
//!
//! This file has the work under the pool's lock. The hit itself is in `hit.rs`.
//!
//! A shelf names its blocks without touching their descriptors. So a block that one thread frees
//! and another allocates, over and over, costs neither of them a cache miss here.
//!
//! # Invariants
//!
//! * Three parties may touch shelves and outbox: the owner inside its [lane](super::gate), the
//!   owner under the pool's lock, and any thread under the pool's lock while the gate is closed and
//!   the lane is idle.
//! * A block on a shelf is free: it is not in use, and its hazards are complete. It has the shelf's
//!   size.
//! * No stack grows in a lane. A shelf has room for [`shelf_limit`] blocks, or for none until
//!   [`Cache::room`] has been asked; the outbox has room for [`OUTBOX`].
//! * All shelves together hold at most `max_bytes`.
//! * A counter is written only by a party that may touch what it counts. Any thread may read it.

use super::stack::Stack;
use crate::memory::block::BlockRef;
use crate::pool::classes::{KEPT_CLASSES, LARGEST_KEPT, Size, class_bytes};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::sync::cell::UnsafeExclusive;

/// How many blocks wait in a thread before they go to the books, at most.
const OUTBOX: usize = 64;

/// How many of `bytes` do: more than a [`batch`], so that the thread has used up a batch, and looks
/// at them, before there are too many; and at most 32 MiB.
fn outbox_limit(bytes: usize) -> usize {
    ((256 << 10) >> bytes.ilog2()).clamp(OUTBOX / 2, OUTBOX)
}

/// How many blocks of `bytes` a thread keeps at most.
fn shelf_limit(bytes: usize) -> usize {
    ((2 * LARGEST_KEPT) >> bytes.ilog2()).clamp(2, 64)
}

/// How many more blocks of `bytes` a thread takes from the books when it takes one.
pub(crate) fn batch(bytes: usize) -> usize {
    ((128 << 10) >> bytes.ilog2()).min(shelf_limit(bytes) / 2)
}

// One cache line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Shelf {
    pub(crate) blocks: UnsafeExclusive<Stack<BlockRef>>,
    /// The size of a block.
    pub(crate) size: u64,
    /// The number of `blocks`. Any thread may read it.
    pub(crate) len: AtomicU64,
    pub(crate) hits: AtomicU64,
    /// Blocks of this class in the outbox.
    pub(crate) posted: AtomicU64,
}

// Two threads' caches never share a cache line, nor a pair of lines that is fetched together. A hit
// touches the first line, which ends where the shelves begin, and the line of one shelf.
#[repr(C, align(128))]
pub(crate) struct Cache {
    /// The owner is in its lane.
    pub(crate) busy: AtomicBool,
    /// The number of the pool.
    pub(crate) pool: u64,
    pub(crate) max_bytes: u64,
    /// The bytes on the shelves.
    pub(crate) bytes: AtomicU64,
    /// The number of blocks in `outbox`. Any thread may read it.
    pub(crate) posted: AtomicU64,
    pub(crate) outbox: UnsafeExclusive<Stack<BlockRef>>,
    pub(crate) shelves: [Shelf; KEPT_CLASSES],
    /// Written under the pool's lock.
    seen_hits: AtomicU64,
}

// SAFETY: one party at a time touches the cells (first invariant), and the lock or the gate orders
// one after the other. What they hold is `Send`.
unsafe impl Sync for Cache {}

impl Cache {
    pub(crate) fn new(pool: u64, max_bytes: usize) -> Self {
        let shelf = |class| Shelf { size: class_bytes(class) as u64, ..Shelf::default() };
        Cache {
            busy: AtomicBool::new(false),
            pool,
            max_bytes: max_bytes as u64,
            bytes: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            outbox: UnsafeExclusive::new(Stack::with_limit(OUTBOX)),
            shelves: std::array::from_fn(shelf),
            seen_hits: AtomicU64::new(0),
        }
    }

    /// Whether a block for a request of `size` may be here: free, or in flight.
    pub(crate) fn may_have(&self, size: Size) -> bool {
        let free = |class: usize| self.shelves[class].len.load(Relaxed) > 0;
        self.posted.load(Relaxed) > 0 || size.class().is_some_and(free)
    }

    /// How many more blocks of `class` fit. The first call makes the shelf's room.
    ///
    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    pub(crate) unsafe fn room(&self, class: usize) -> usize {
        let shelf = &self.shelves[class];
        // SAFETY: the caller's precondition.
        let blocks = unsafe { &mut *shelf.blocks.get() };
        if blocks.limit() == 0 {
            *blocks = Stack::with_limit(shelf_limit(shelf.size as usize));
        }
        let bytes = self.max_bytes.saturating_sub(self.bytes.load(Relaxed));
        (blocks.limit() - blocks.len()).min((bytes / shelf.size) as usize)
    }

    /// Puts a free block on a shelf that has [room](Self::room).
    ///
    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    pub(crate) unsafe fn push(&self, class: usize, block: BlockRef) {
        let shelf = &self.shelves[class];
        // SAFETY: the caller's precondition.
        let blocks = unsafe { &mut *shelf.blocks.get() };
        blocks.push(block);
        shelf.len.store(blocks.len() as u64, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + shelf.size, Relaxed);
    }

    /// Makes room for a block of `class`. If its shelf is full, half of that shelf goes; otherwise
    /// half of every shelf. So used blocks stay, and unused ones leave step by step.
    ///
    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    pub(crate) unsafe fn make_room(&self, class: usize, mut give: impl FnMut(BlockRef)) {
        let shelf = &self.shelves[class];
        let full = shelf.len.load(Relaxed) as usize >= shelf_limit(shelf.size as usize);
        let shelves = if full { std::slice::from_ref(shelf) } else { &self.shelves[..] };
        for shelf in shelves {
            // SAFETY: the caller's precondition.
            unsafe { self.keep_only(shelf, shelf.len.load(Relaxed) as usize / 2, &mut give) };
        }
    }

    /// Gives away all blocks of a shelf but the first `kept`.
    ///
    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    unsafe fn keep_only(&self, shelf: &Shelf, kept: usize, give: &mut impl FnMut(BlockRef)) {
        // SAFETY: the caller's precondition.
        let blocks = unsafe { &mut *shelf.blocks.get() };
        let bytes = (blocks.len() - kept) as u64 * shelf.size;
        while blocks.len() > kept {
            blocks.pop().into_iter().for_each(&mut *give);
        }
        shelf.len.store(kept as u64, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) - bytes, Relaxed);
    }

    /// Gives away all free blocks.
    ///
    /// # Safety
    ///
    /// * The caller may touch the shelves (first invariant).
    pub(crate) unsafe fn empty_shelves(&self, mut give: impl FnMut(BlockRef)) {
        for shelf in &self.shelves {
            // SAFETY: the caller's precondition.
            unsafe { self.keep_only(shelf, 0, &mut give) };
        }
    }

    /// The blocks in the outbox, the oldest first.
    ///
    /// # Safety
    ///
    /// * The caller may touch the outbox (first invariant), as long as the result is used.
    pub(crate) unsafe fn posted(&self) -> &[BlockRef] {
        // SAFETY: the caller's precondition.
        unsafe { &*self.outbox.get() }.as_slice()
    }

    /// Takes the blocks from the outbox, the oldest first.
    ///
    /// # Safety
    ///
    /// * The caller may touch the outbox (first invariant).
    pub(crate) unsafe fn take_outbox(&self) -> Vec<BlockRef> {
        if self.posted.load(Relaxed) == 0 {
            return Vec::new();
        }
        self.posted.store(0, Relaxed);
        // SAFETY: the caller's precondition.
        let blocks = unsafe { &mut *self.outbox.get() }.take_all();
        for class in blocks.iter().filter_map(|block| block.class) {
            self.shelves[usize::from(class)].posted.store(0, Relaxed);
        }
        blocks
    }

    /// Puts a block of `class` into the outbox, or returns it if that is full.
    ///
    /// # Safety
    ///
    /// * The caller may touch the outbox (first invariant).
    #[inline]
    pub(crate) unsafe fn post(&self, class: usize, block: BlockRef) -> Result<(), BlockRef> {
        // SAFETY: the caller's precondition.
        let outbox = unsafe { &mut *self.outbox.get() };
        let Shelf { size, posted, .. } = &self.shelves[class];
        if outbox.len() >= outbox_limit(*size as usize) {
            return Err(block);
        }
        outbox.push(block);
        posted.store(posted.load(Relaxed) + 1, Relaxed);
        self.posted.store(outbox.len() as u64, Relaxed);
        Ok(())
    }

    /// How many allocations the owner has had from here.
    pub(crate) fn hits(&self) -> u64 {
        self.shelves.iter().map(|shelf| shelf.hits.load(Relaxed)).sum()
    }

    /// Returns whether the owner has allocated nothing since the last call. The caller holds the
    /// pool's lock.
    pub(crate) fn note_idle(&self) -> bool {
        let hits = self.hits();
        let idle = hits == self.seen_hits.load(Relaxed);
        self.seen_hits.store(hits, Relaxed);
        idle
    }
}
