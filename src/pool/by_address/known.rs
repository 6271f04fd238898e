//! Finds the block, of any pool, that a plain pointer points into.
//!
//! Memory of a pool often comes back to the crate as a slice: from a `Vec` with an allocator of a
//! pool, from `PinnedBuf::read`, or as an address from C. It is page-locked, so the device can copy
//! it directly. For that the crate must find the block, which records the uses of the memory.
//!
//! # Invariants
//!
//! * A slab enters the index before its first block is given out. It leaves the index after its
//!   last block has come back for good, and before its memory is released.
//! * So every address in memory that a pool has given out is found. An address in other memory is
//!   not: while a slab is in the index, no other memory lies at its addresses. But where other
//!   memory ends, a slab may begin: so no block is found for an empty range, which borrows nothing.
//! * A forked child has an index of its own, without the slabs of its parent: their memory does not
//!   exist there.

use std::ptr::NonNull;

use super::index::{Extent, Index};
use crate::context::Context;
use crate::memory::PinnedBytes;
use crate::memory::block::Block;
use crate::process::PerProcess;

/// All slabs of all pools.
static INDEX: PerProcess<Index> = PerProcess::new();

/// A slab is in the index until this drops.
pub(crate) struct Known(Extent);

impl Known {
    /// Memory from `begin` on, in blocks of `each` bytes. `blocks` are their descriptors, in order.
    pub(crate) fn new(begin: NonNull<u8>, each: usize, blocks: NonNull<[Block]>) -> Self {
        let begin = begin.addr().get();
        let end = begin + each * blocks.len();
        let slab = Extent { begin, end, each, blocks: blocks.cast() };
        INDEX.get().insert(slab);
        Known(slab)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        INDEX.get().remove(self.0);
    }
}

/// The block in which the `bytes` bytes at `address` lie: of any pool of the driver. `None` if they
/// do not lie in a pool's memory, or lie in several blocks, or if there are none. Takes no lock.
///
/// # Safety
///
/// * The bytes stay allocated during `'a`. If a pool gave them out, they are not given back.
#[inline]
pub(crate) unsafe fn block_at<'a>(
    address: *const u8,
    bytes: usize,
    context: &Context,
) -> Option<PinnedBytes<'a>> {
    if bytes == 0 {
        return None;
    }
    let address = address.addr();
    let slab = INDEX.get().find(address)?;
    let (number, offset) = ((address - slab.begin) / slab.each, (address - slab.begin) % slab.each);
    if bytes > slab.each - offset {
        return None;
    }
    // SAFETY: the address lies in the slab, which has that many blocks. The block is allocated, by
    // the precondition, so the slab stays until `'a` ends, and a `BlockRef` to the block exists.
    let found = unsafe { PinnedBytes::of(slab.blocks.add(number).as_ref()) };
    found.context().same_driver(context).then_some(found)
}

#[cfg(test)]
mod tests;
