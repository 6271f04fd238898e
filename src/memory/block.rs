//! A block of page-locked memory, as its owner keeps it and as a buffer uses it.
//!
//! A [`Block`] is a long-lived descriptor. Its owner (a pool) makes it once and hands out the right
//! to it, a [`BlockRef`], again and again. The [`Hazards`] lie in the descriptor, so an allocation
//! initialises nothing.
//!
//! # Invariants
//!
//! * A block has at most one `BlockRef`: the type is neither `Copy` nor `Clone`, and it moves from
//!   the owner to a buffer and back. It is exclusive access to the memory.
//! * No copy crosses a multiple of a block's `seam`, counted from its start; see
//!   [`parts`](Block::parts).
//! * The owner keeps the descriptor, the memory and itself alive while a `BlockRef` to it exists.

use std::any::Any;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use super::hazard::Hazards;
use crate::context::Context;

/// Where a block goes when its buffer drops.
pub(crate) trait BlockOwner: Send + Sync {
    fn context(&self) -> &Context;

    /// The handle of the owner that programs have, if one still exists and the owner makes blocks
    /// for them.
    fn held(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Takes the block back; it may be reused once all its hazards are complete. If that ends the
    /// owner, it returns the last reference, which the caller drops after it has left the owner's
    /// code. In a forked child the block leaks.
    #[must_use]
    fn reclaim(&self, block: BlockRef) -> Option<Arc<dyn BlockOwner>>;
}

/// The descriptor of a block: two cache lines, of which the first is rarely written.
#[repr(C, align(64))]
pub(crate) struct Block {
    ptr: NonNull<u8>,
    bytes: usize,
    /// A new registration begins at each multiple of this many bytes. No copy may cross such a
    /// boundary.
    seam: usize,
    owner: NonNull<dyn BlockOwner>,
    /// The number of the owner's memory that the block is part of.
    pub(crate) home: usize,
    /// The size class under which threads keep the block, if they do.
    pub(crate) class: Option<u8>,
    pub(crate) hazards: Hazards,
}

// SAFETY: a `Block` is a description. The memory that it names is not tied to a thread, and `owner`
// is `Send` and `Sync`.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// `owner` must outlive every [`BlockRef`] to the block.
    pub(crate) fn new(
        ptr: NonNull<u8>,
        bytes: usize,
        seam: usize,
        home: usize,
        class: Option<u8>,
        owner: NonNull<dyn BlockOwner>,
    ) -> Self {
        Block { ptr, bytes, seam, owner, home, class, hazards: Hazards::default() }
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

    /// Splits a range at the seams, into parts that one copy each may cover. In bytes from the
    /// start of the block.
    pub(crate) fn parts(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let seam = self.seam;
        let mut start = range.start;
        std::iter::from_fn(move || {
            // The first test avoids the division: few blocks have a seam.
            let end =
                if range.end <= seam { seam } else { (start / seam + 1).saturating_mul(seam) };
            let part = start..range.end.min(end);
            start = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// Whether a range has several parts.
    #[inline]
    pub(crate) fn crosses_seam(&self, range: &Range<usize>) -> bool {
        // The first test is for speed, as above.
        range.end > self.seam && (range.start / self.seam + 1).saturating_mul(self.seam) < range.end
    }

    /// Whether both blocks have one owner. It must be alive.
    #[inline]
    pub(crate) fn has_owner_of(&self, other: &Block) -> bool {
        std::ptr::addr_eq(self.owner.as_ptr(), other.owner.as_ptr())
    }

    /// # Safety
    ///
    /// * A [`BlockRef`] to the block exists while the result is used. Any owner will do.
    #[inline]
    pub(crate) unsafe fn owner(&self) -> &dyn BlockOwner {
        // SAFETY: the owner outlives the right, by the contract of `new`.
        unsafe { self.owner.as_ref() }
    }
}

/// The right to one block.
#[derive(PartialEq, Eq)]
pub(crate) struct BlockRef(NonNull<Block>);

// SAFETY: the right is to a `Block`, which is `Send` and `Sync`.
unsafe impl Send for BlockRef {}
// SAFETY: `&BlockRef` gives `&Block` and nothing that needs the exclusive right.
unsafe impl Sync for BlockRef {}

impl Deref for BlockRef {
    type Target = Block;

    #[inline]
    fn deref(&self) -> &Block {
        // SAFETY: the descriptor is valid, by the precondition of `new`.
        unsafe { self.0.as_ref() }
    }
}

impl BlockRef {
    /// # Safety
    ///
    /// * `block` stays valid for as long as the right exists.
    /// * No other `BlockRef` to it exists; or it has no memory.
    pub(crate) unsafe fn new(block: NonNull<Block>) -> Self {
        BlockRef(block)
    }

    /// The right as an address; [`new`](Self::new) makes it a right again. Otherwise the block
    /// leaks.
    #[inline]
    #[cfg_attr(not(any(feature = "capi", feature = "allocator-api2")), allow(dead_code))]
    pub(crate) fn into_raw(self) -> NonNull<Block> {
        self.0
    }

    #[inline]
    pub(crate) fn owner(&self) -> &dyn BlockOwner {
        // SAFETY: this is the right.
        unsafe { Block::owner(self) }
    }

    /// Gives the block back to its owner. The caller drops what is returned.
    #[inline]
    #[must_use]
    pub(crate) fn give_back(self) -> Option<Arc<dyn BlockOwner>> {
        let owner = self.owner;
        // SAFETY: the owner outlives the right. If the right is what keeps the owner alive, the
        // returned reference keeps it alive from then on.
        unsafe { owner.as_ref() }.reclaim(self)
    }
}
