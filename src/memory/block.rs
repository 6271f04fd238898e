//! A block of page-locked memory. Its owner keeps it; a buffer uses it.
//!
//! A [`Block`] is a long-lived descriptor. The owner (a pool) makes it once, and hands out the
//! right to it, a [`BlockRef`], again and again. The [`Hazards`] are part of the descriptor, so
//! that allocating a buffer initialises nothing.
//!
//! # Invariants
//!
//! * There is one `BlockRef` to a block. The type is neither `Copy` nor `Clone`; it moves from the
//!   owner to a buffer and back. It stands for exclusive access to the link and to the memory.
//! * No copy crosses a multiple of the block's `seam`, counted from the block's start; see
//!   [`parts`](BlockRef::parts).
//! * While a `BlockRef` exists, the owner keeps the descriptor, the memory and itself alive.

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

    /// Takes the block back. It may be reused once all its hazards are complete. If this ends the
    /// owner, the last reference to it is returned; the caller drops it when no call is inside the
    /// owner any more. In a forked child the block leaks.
    #[must_use]
    fn reclaim(&self, block: BlockRef) -> Option<Arc<dyn BlockOwner>>;
}

/// The descriptor of a block.
pub(crate) struct Block {
    ptr: NonNull<u8>,
    bytes: usize,
    /// At each multiple of this many bytes another registration begins. No copy may cross it.
    seam: usize,
    /// The owner's number for the memory that the block is part of.
    home: u32,
    /// The owner's size class for the block, if it has one.
    class: Option<u8>,
    hazards: Hazards,
    owner: NonNull<dyn BlockOwner>,
    /// The next free block. Only the holder of the `BlockRef` touches it.
    next: UnsafeCell<Option<BlockRef>>,
}

// SAFETY: a `Block` is a description; the memory that it names is not tied to a thread, `owner` is
// `Sync`, and only the holder of the `BlockRef` touches `next`, which is one thread at a time.
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

    /// The right as an address. [`new`](Self::new) takes it back; otherwise the block leaks.
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

    /// Splits a range at the seams, into parts that one copy each may cover. In bytes from the
    /// start of the block.
    pub(crate) fn parts(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let seam = self.block().seam;
        let mut start = range.start;
        std::iter::from_fn(move || {
            let part = start..range.end.min((start / seam + 1).saturating_mul(seam));
            start = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// Whether a range has more than one part.
    #[inline]
    pub(crate) fn crosses_seam(&self, range: &Range<usize>) -> bool {
        let seam = self.block().seam;
        // Most blocks have no seam, and a division is slow.
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

    /// Must not be called after the right has gone back to the owner.
    #[inline]
    pub(crate) fn owner(&self) -> &dyn BlockOwner {
        // SAFETY: the owner outlives the right, by the contract of `Block::new`.
        unsafe { self.block().owner.as_ref() }
    }

    /// Gives the block back to its owner. The caller drops what is returned.
    #[inline]
    #[must_use]
    pub(crate) fn give_back(self) -> Option<Arc<dyn BlockOwner>> {
        let owner = self.block().owner;
        // SAFETY: the owner outlives the right. If the right is what keeps the owner alive, the
        // reference that it returns does so from here on.
        unsafe { owner.as_ref() }.reclaim(self)
    }

    /// Puts `next` behind this block.
    #[inline]
    pub(crate) fn link(&mut self, next: Option<BlockRef>) {
        // SAFETY: `&mut self` is the exclusive right to the link.
        self.block().next.with_mut(|link| unsafe { *link = next });
    }

    /// Takes away the block behind this one.
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
