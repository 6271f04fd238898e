//! Collections in page-locked memory, by the crate `allocator-api2`.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use super::PinnedPool;

/// A pool as an allocator of `allocator-api2`, for collections in page-locked memory; from
/// [`PinnedPool::allocator`].
///
/// ```
/// use allocator_api2::vec::Vec;
/// use pinlane::{Device, PinnedPool};
///
/// let device = Device::open_or_emulated()?;
/// let pool = PinnedPool::builder(&device).build()?;
/// let mut samples = Vec::new_in(pool.allocator());
/// samples.extend((0..1000).map(|i| i as f32));
/// assert!(pool.stats().live_bytes >= 4000);
/// # Ok::<(), pinlane::Error>(())
/// ```
///
/// * A `&[T]` of a collection is a slice like any other, but a fast one: the device copies it as it
///   is, by [`upload_slice`](crate::Stream::upload_slice) and the like, and the call returns when
///   that is done.
/// * It gives **plain memory**: the elements do not know which device uses them. Unsafe code that
///   hands their address to CUDA must keep them alive and untouched until the device is done with
///   them. [`PinnedBuf`](crate::PinnedBuf) does that for you.
/// * Allocating blocks as [`PinnedPool::alloc`] does. If it fails, for example because the budget
///   is spent, collections abort the process, as for any memory. Their `try_` functions return an
///   error.
/// * Alignments of more than 2 MiB are refused.
/// * Growing and shrinking happen in place while the block has room and at least half of it stays
///   in use.
/// * The allocator keeps the pool alive. Leaked memory (`Vec::leak`) stays valid.
/// * A **forked child** does not have the memory, so `fork` neither copies it nor moves the parent
///   to pages that the device does not read. An access there ends the child by `SIGSEGV`; nothing
///   ever reads wrong data. The allocator itself accesses nothing: a `Vec` or `Box` of elements
///   without destructors drops quietly, and leaks. A collection whose elements have destructors
///   (`Vec<String>`), and a map or a list, which keep their own links in the memory, access it when
///   they drop. In the child pass those to [`std::mem::forget`], or leave by `exec` or `_exit`.
#[derive(Clone, Debug)]
pub struct PinnedAllocator {
    pool: PinnedPool,
}

impl PinnedPool {
    /// This pool as an allocator for collections.
    #[must_use]
    pub fn allocator(&self) -> PinnedAllocator {
        PinnedAllocator { pool: self.clone() }
    }
}

impl PinnedAllocator {
    /// The pool that the memory comes from.
    #[must_use]
    pub fn pool(&self) -> &PinnedPool {
        &self.pool
    }

    /// The whole block at `ptr`, if it can serve `wanted`.
    fn in_place(&self, ptr: NonNull<u8>, wanted: Layout) -> Option<NonNull<[u8]>> {
        let bytes = self.pool.raw_bytes(ptr.as_ptr())?;
        let fits = wanted.size() <= bytes && ptr.addr().get().is_multiple_of(wanted.align());
        fits.then(|| NonNull::slice_from_raw_parts(ptr, bytes))
    }

    /// Allocates `to`, copies the first `bytes` there, and frees the memory at `ptr`.
    ///
    /// # Safety
    ///
    /// * `ptr` is a block of this allocator that is allocated, and `from` fits it.
    /// * Both `from` and `to` have room for `bytes`.
    unsafe fn move_to(
        &self,
        ptr: NonNull<u8>,
        from: Layout,
        to: Layout,
        bytes: usize,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let new = self.allocate(to)?;
        // SAFETY: both have room for `bytes`, and the blocks are distinct, because the old one is
        // still allocated.
        unsafe { new.cast::<u8>().copy_from_nonoverlapping(ptr, bytes) };
        // SAFETY: the caller's first precondition.
        unsafe { self.deallocate(ptr, from) };
        Ok(new)
    }
}

/// Memory of no bytes, aligned for `layout`.
fn nothing(layout: Layout) -> NonNull<[u8]> {
    let nowhere = NonNull::new(std::ptr::without_provenance_mut(layout.align()));
    NonNull::slice_from_raw_parts(nowhere.expect("an alignment is not 0"), 0)
}

// SAFETY: what `allocate` gives is the caller's until `deallocate`, or forever: the pool's table
// holds it, and the pool does not unmap allocated blocks when it drops. It does not depend on where
// the allocator is, and any clone is the same pool and can deallocate it. Layouts without bytes
// have no block, neither in `allocate` nor in `deallocate`. A block has at least 1 byte, so the
// size of the layout tells the two apart.
unsafe impl Allocator for PinnedAllocator {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(nothing(layout));
        }
        const OPERATION: &str = "PinnedAllocator::allocate";
        self.pool.allocate_raw(OPERATION, layout.size(), layout.align()).map_err(|_| AllocError)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() != 0 {
            // Fails in a forked child, where the memory leaks.
            let _ = self.pool.deallocate_raw("PinnedAllocator::deallocate", ptr.as_ptr());
        }
    }

    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        match self.in_place(ptr, new) {
            Some(block) if old.size() > 0 => Ok(block),
            // SAFETY: `old` fits the block at `ptr`, by the caller's precondition, and is the
            // smaller one.
            _ => unsafe { self.move_to(ptr, old, new, old.size()) },
        }
    }

    unsafe fn grow_zeroed(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the same preconditions.
        let block = unsafe { self.grow(ptr, old, new) }?;
        // SAFETY: the block belongs to this caller, `old.size()` lies in it, and the rest has the
        // given length.
        unsafe {
            block.cast::<u8>().add(old.size()).write_bytes(0, block.len() - old.size());
        }
        Ok(block)
    }

    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let in_place = self.in_place(ptr, new).filter(|_| new.size() > 0);
        if let Some(block) = in_place.filter(|block| new.size() >= block.len() / 2) {
            return Ok(block);
        }
        // SAFETY: `old` fits the block at `ptr`, by the caller's precondition, and is the larger
        // one.
        let moved = unsafe { self.move_to(ptr, old, new, new.size()) };
        moved.or(in_place.ok_or(AllocError))
    }
}
