//! A block of page-locked memory, as its owner keeps it and as a buffer uses it.
//!
//! A [`Block`] is a long-lived descriptor: the owner (a pool) makes it once and hands out the right
//! to it, a [`BlockRef`], again and again. The [`Hazards`] lie in the descriptor, so that
//! allocating a buffer initialises nothing.
//!
//! # Invariants
//!
//! * Whoever has a `BlockRef` has it alone: the type is neither `Copy` nor `Clone`, and the right
//!   moves from the owner to a buffer and back. It is exclusive access to the link and to the
//!   memory.
//! * A copy covers no multiple of a block's `seam`, counted from its start; see
//!   [`parts`](BlockRef::parts).
//! * The owner keeps the descriptor, the memory and itself alive while any `BlockRef` to it exists.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::hazard::Hazards;
use crate::context::Context;
use crate::sync::cell::UnsafeCell;

/// Where a block goes when its buffer drops.
pub(crate) trait BlockOwner: Send + Sync {
    fn context(&self) -> &Context;

    /// Takes the block back; it may be used again once all its hazards are complete. If that ends
    /// the owner, the last reference to it is returned, to be dropped when nobody is inside it any
    /// more. In a forked child the block leaks.
    #[must_use]
    fn reclaim(&self, block: BlockRef) -> Option<Arc<dyn BlockOwner>>;
}

/// The descriptor of a block.
pub(crate) struct Block {
    ptr: NonNull<u8>,
    bytes: usize,
    /// No copy may span a multiple of this many bytes: there another registration begins.
    seam: usize,
    /// The number under which the owner keeps the memory that the block is part of.
    home: u32,
    /// The class under which the owner keeps it, if it does.
    class: Option<u8>,
    hazards: Hazards,
    owner: NonNull<dyn BlockOwner>,
    /// Links free blocks; belongs to whoever has the `BlockRef`.
    next: UnsafeCell<Option<BlockRef>>,
}

// SAFETY: a `Block` is a description; the memory that it names is not tied to a thread, `owner` is
// `Sync`, and `next` is touched only by whoever has the `BlockRef`, which is one thread at a time.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// `owner` must outlive every [`BlockRef`] to the block.
    pub(crate) fn new(
        ptr: NonNull<u8>,
        bytes: usize,
        seam: usize,
        home: u32,
        class: Option<u8>,
        owner: NonNull<dyn BlockOwner>,
    ) -> Self {
        let (hazards, next) = (Hazards::default(), UnsafeCell::new(None));
        Block { ptr, bytes, seam, home, class, hazards, owner, next }
    }

    #[inline]
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// The size of the block in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn hazards(&self) -> &Hazards {
        &self.hazards
    }
}

/// The right to one block.
#[derive(PartialEq, Eq)]
pub(crate) struct BlockRef(NonNull<Block>);

// SAFETY: the right is to a `Block`, which is `Send` and `Sync`.
unsafe impl Send for BlockRef {}
// SAFETY: `&BlockRef` gives `&Block` and nothing that needs the exclusive right.
unsafe impl Sync for BlockRef {}

impl BlockRef {
    /// # Safety
    ///
    /// * `block` stays valid for as long as the right exists.
    /// * No other `BlockRef` to it exists; or, for a block without memory, none of them is linked.
    pub(crate) unsafe fn new(block: NonNull<Block>) -> Self {
        BlockRef(block)
    }

    /// The right as an address, to come back by [`new`](Self::new). What does not come back leaks.
    #[inline]
    #[cfg_attr(not(any(feature = "capi", feature = "allocator-api2")), allow(dead_code))]
    pub(crate) fn into_raw(self) -> NonNull<Block> {
        self.0
    }

    #[inline]
    fn block(&self) -> &Block {
        // SAFETY: valid, by the precondition of `new`.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.block().ptr()
    }

    /// The size of the block in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.block().bytes()
    }

    /// The parts of a range, in bytes from the start of the block, that a copy each may cover.
    pub(crate) fn parts(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let seam = self.block().seam;
        let mut start = range.start;
        std::iter::from_fn(move || {
            let part = start..range.end.min((start / seam + 1).saturating_mul(seam));
            start = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// Whether a range has several parts.
    #[inline]
    pub(crate) fn crosses_seam(&self, range: &Range<usize>) -> bool {
        let seam = self.block().seam;
        // Few blocks have a seam at all, and divisions take long.
        range.end > seam && (range.start / seam + 1).saturating_mul(seam) < range.end
    }

    #[inline]
    pub(crate) fn home(&self) -> u32 {
        self.block().home
    }

    #[inline]
    pub(crate) fn class(&self) -> Option<usize> {
        self.block().class.map(usize::from)
    }

    #[inline]
    pub(crate) fn hazards(&self) -> &Hazards {
        self.block().hazards()
    }

    /// Must not be called once the right has gone back to the owner.
    #[inline]
    pub(crate) fn owner(&self) -> &dyn BlockOwner {
        // SAFETY: the owner outlives the right, by the contract of `Block::new`.
        unsafe { self.block().owner.as_ref() }
    }

    /// Gives the block back to its owner. What is returned is to be dropped.
    #[inline]
    #[must_use]
    pub(crate) fn give_back(self) -> Option<Arc<dyn BlockOwner>> {
        let owner = self.block().owner;
        // SAFETY: the owner outlives the right; and should the right be what keeps it alive, it
        // keeps itself alive by what it returns.
        unsafe { owner.as_ref() }.reclaim(self)
    }

    /// Puts `next` behind this block.
    #[inline]
    pub(crate) fn link(&mut self, next: Option<BlockRef>) {
        // SAFETY: `&mut self` is the exclusive right to the link.
        self.block().next.with_mut(|link| unsafe { *link = next });
    }

    /// Takes away what is behind this block.
    #[inline]
    pub(crate) fn unlink(&mut self) -> Option<BlockRef> {
        // SAFETY: as in `link`.
        self.block().next.with_mut(|link| unsafe { (*link).take() })
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("ptr", &self.ptr()).field("bytes", &self.bytes()).finish()
    }
}
