//! Page-locked host memory from a pool.
//!
//! ```text
//!   PinnedBuf<f32>            PinnedSlice<'_, f32>
//!        |                          | offset, len
//!        v                          v
//!   PinnedRegion { block }
//!        |                           drop: the block with its pending uses -> owner
//!        v
//!   block: page-locked, initialised
//! ```
//!
//! # Invariants
//!
//! * From allocation until the region drops, its bytes are initialised and belong to it alone.
//! * `&[T]` is given out only when no device write to those bytes is pending. `&mut [T]` is given
//!   out only when no device use of them is pending. While either lives, the borrow checker refuses
//!   every operation that conflicts.
//! * Dropping never waits and never frees. The pool gets the block with its pending uses.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::Operand;
use super::block::{Block, BlockOwner, BlockRef};
use super::hazard::{Access, Hazards};
use super::range::in_bytes;
use crate::context::Context;
use crate::driver::Poll;
use crate::error::{Error, ErrorKind, Found, Result};
use crate::sync::sanitizer;

/// An untyped tracked block.
pub(crate) struct PinnedRegion {
    /// Taken only by drop.
    block: ManuallyDrop<BlockRef>,
}

impl PinnedRegion {
    /// The memory of `block` must be initialised, and its hazards complete.
    #[inline]
    pub(crate) fn new(block: BlockRef) -> Self {
        sanitizer::acquire(block.ptr().addr().get());
        PinnedRegion { block: ManuallyDrop::new(block) }
    }
}

impl Drop for PinnedRegion {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `block` is taken once, here, and not used afterwards.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        sanitizer::release(block.ptr().addr().get());
        if let Some(owner) = block.give_back() {
            end(owner);
        }
    }
}

/// The buffer was its owner's last. Out of line: a drop that usually ends nothing would pass the
/// owner through memory.
#[cold]
fn end(owner: Arc<dyn BlockOwner>) {
    drop(owner);
}

/// Page-locked memory that a copy names, without its type: where to record its uses. A [`BlockRef`]
/// to the block exists during `'a`.
#[derive(Clone, Copy)]
pub(crate) struct PinnedBytes<'a>(&'a Block);

impl<'a> PinnedBytes<'a> {
    /// # Safety
    ///
    /// * A [`BlockRef`] to the block exists during `'a`. Any owner will do.
    pub(crate) unsafe fn of(block: &'a Block) -> Self {
        PinnedBytes(block)
    }

    /// Bytes `ptr .. ptr + bytes`, counted from the start of the block. They must lie in it.
    #[inline]
    pub(crate) fn range(&self, ptr: *const u8, bytes: usize) -> Range<usize> {
        let start = ptr.addr() - self.0.ptr().addr().get();
        start..start + bytes
    }

    #[inline]
    pub(crate) fn hazards(&self) -> &'a Hazards {
        &self.0.hazards
    }

    /// Those bytes, as a part of an operation.
    #[inline]
    pub(crate) fn operand_at(&self, ptr: *const u8, bytes: usize, access: Access) -> Operand<'a> {
        self.operand(self.range(ptr, bytes), access)
    }

    /// A range of the block, as a part of an operation.
    #[inline]
    pub(super) fn operand(&self, range: Range<usize>, access: Access) -> Operand<'a> {
        Operand { context: self.context(), hazards: self.hazards(), range, rows: None, access }
    }

    /// Splits that range at the seams, into parts that one copy each may cover. In bytes from the
    /// start of the range.
    pub(crate) fn parts(
        &self,
        ptr: *const u8,
        bytes: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let range = self.range(ptr, bytes);
        let start = range.start;
        let parts = self.0.parts(range);
        parts.map(move |part| part.start - start..part.end - start)
    }

    /// Whether that range has more than one part.
    #[inline]
    pub(crate) fn crosses_seam(&self, ptr: *const u8, bytes: usize) -> bool {
        self.0.crosses_seam(&self.range(ptr, bytes))
    }

    pub(crate) fn context(&self) -> &'a Context {
        // SAFETY: the right exists, by the precondition of `of`.
        unsafe { self.0.owner() }.context()
    }

    /// Whether both blocks have one owner, and so one context.
    #[inline]
    pub(crate) fn has_owner_of(&self, other: &PinnedBytes<'_>) -> bool {
        self.0.has_owner_of(other.0)
    }

    pub(crate) fn is_same_block(&self, other: &PinnedBytes<'_>) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// Makes sure that the host may access the bytes.
    pub(super) fn settle(
        self,
        operation: &'static str,
        range: Range<usize>,
        access: Access,
        how: How,
    ) -> Result<()> {
        self.context().check_process(operation)?;
        match how {
            How::Waiting => self.hazards().wait(&range, access, operation)?,
            How::Asking if self.hazards().poll(&range, access)? == Poll::Done => {}
            How::Asking => return Err(still_used(operation, &range)),
        }
        self.announce_access(range, access);
        Ok(())
    }

    /// Announces that the host accesses the bytes now.
    #[inline]
    fn announce_access(self, range: Range<usize>, access: Access) {
        let start = self.0.ptr().as_ptr().wrapping_add(range.start);
        self.context().host_access(start, range.len(), access == Access::Write);
    }
}

/// What a call does about uses that are pending.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// It blocks until they are complete.
    Waiting,
    /// It fails.
    Asking,
}

#[cold]
fn still_used(operation: &'static str, range: &Range<usize>) -> Error {
    let text = |[start, end]: [usize; 2]| format!("the device still uses bytes {start} .. {end}");
    let what = Found::Numbers(text, [range.start, range.end]);
    let remedy = "try again later, or make the call without try_ in its name, which waits";
    Error::new(ErrorKind::NotReady, operation, what, remedy)
}

/// A buffer of `len` elements in page-locked host memory, from a [`PinnedPool`](crate::PinnedPool).
///
/// The buffer knows which asynchronous copies still use it. [`read`](Self::read) and
/// [`write`](Self::write) wait for those copies, not for their whole streams. On an idle buffer
/// that costs one load. Dropping the buffer, even in the middle of a copy, returns the block to the
/// pool, which reuses it only when the device is done with it.
pub struct PinnedBuf<T: Pod> {
    region: PinnedRegion,
    len: usize,
    element: PhantomData<T>,
}

// SAFETY: a `PinnedBuf<T>` owns its elements as a `Vec<T>` does, and `T: Send` is required. The
// region's other parts are `Send` by themselves.
unsafe impl<T: Pod + Send> Send for PinnedBuf<T> {}
// SAFETY: `&PinnedBuf<T>` gives `&[T]`, and `T: Sync` is required; recording uses through `&self`
// goes through the lock of `Hazards`.
unsafe impl<T: Pod + Sync> Sync for PinnedBuf<T> {}

impl<T: Pod> PinnedBuf<T> {
    /// The owner of its block.
    pub(crate) fn owner(&self) -> &dyn BlockOwner {
        self.region.block.owner()
    }

    /// The region's block must hold `len` elements, and be aligned for `T`.
    #[inline]
    pub(crate) fn new(region: PinnedRegion, len: usize) -> Self {
        PinnedBuf { region, len, element: PhantomData }
    }

    /// Announces that the host accesses all elements now, by their address.
    pub(crate) fn announce_access(&self, access: Access) {
        self.announce_access_to(0..self.len * size_of::<T>(), access);
    }

    /// As [`announce_access`](Self::announce_access), of a range of the bytes.
    pub(crate) fn announce_access_to(&self, bytes: Range<usize>, access: Access) {
        self.region().announce_access(bytes, access);
    }

    #[inline]
    pub(super) fn region(&self) -> PinnedBytes<'_> {
        // SAFETY: the region has the right to the block.
        unsafe { PinnedBytes::of(&self.region.block) }
    }

    /// A range of bytes, as a part of an operation.
    pub(crate) fn operand_of(&self, bytes: Range<usize>, access: Access) -> Operand<'_> {
        self.region().operand(bytes, access)
    }

    /// Whether one copy may cover that range of bytes.
    pub(crate) fn is_one_piece(&self, bytes: Range<usize>) -> bool {
        !self.region.block.crosses_seam(&bytes)
    }

    /// Its address, as CUDA takes it.
    pub(crate) fn exposed_address(&self) -> u64 {
        self.as_ptr().expose_provenance() as u64
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of the first element, for foreign code that takes raw pointers. Report such use
    /// to the buffer with [`Stream::foreign`](crate::Stream::foreign).
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.region.block.ptr().as_ptr().cast::<T>()
    }

    /// The elements, to read. Blocks until every pending device write to the buffer is complete.
    ///
    /// # Errors
    ///
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess), or the error of a copy that failed. No
    /// contents are then returned, and a later call queries the copy again.
    pub fn read(&self) -> Result<&[T]> {
        self.as_slice().read_in("PinnedBuf::read", How::Waiting)
    }

    /// The elements, to write. Blocks until every pending device use of the buffer is complete.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn write(&mut self) -> Result<&mut [T]> {
        self.as_slice_mut().write_in("PinnedBuf::write", How::Waiting)
    }

    /// As [`read`](Self::read), but does not block.
    ///
    /// # Errors
    ///
    /// [`NotReady`](crate::ErrorKind::NotReady) where `read` would wait; otherwise as for `read`.
    pub fn try_read(&self) -> Result<&[T]> {
        self.as_slice().read_in("PinnedBuf::try_read", How::Asking)
    }

    /// As [`write`](Self::write), but does not block.
    ///
    /// # Errors
    ///
    /// [`NotReady`](crate::ErrorKind::NotReady) where `write` would wait; otherwise as for `read`.
    pub fn try_write(&mut self) -> Result<&mut [T]> {
        self.as_slice_mut().write_in("PinnedBuf::try_write", How::Asking)
    }
}

impl PinnedBuf<u8> {
    /// Takes the block with its uses, instead of returning it to its owner.
    #[cfg(feature = "capi")]
    pub(crate) fn into_block(self) -> BlockRef {
        let mut region = ManuallyDrop::new(self.region);
        // SAFETY: taken once, here; the region does not drop.
        unsafe { ManuallyDrop::take(&mut region.block) }
    }

    /// A part of the buffer, for callers that share the buffer; see
    /// [`wait_until_idle`](Self::wait_until_idle).
    pub(crate) fn operand(&self, part: Range<usize>, access: Access) -> Operand<'_> {
        self.region().operand(part, access)
    }

    /// Blocks until no device use of the buffer is pending. `operation` is the call that waits.
    pub(crate) fn wait_until_idle(&self, operation: &'static str) -> Result<()> {
        self.region().settle(operation, 0..self.len, Access::Write, How::Waiting)
    }

    /// Whether no device use of the buffer is pending. Does not block.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        Ok(self.region.block.hazards.poll(&(0..self.len), Access::Write)? == Poll::Done)
    }
}

impl<T: Pod> fmt::Debug for PinnedBuf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuf").field("ptr", &self.as_ptr()).field("len", &self.len).finish()
    }
}

/// A shared view of a part of a [`PinnedBuf`].
pub struct PinnedSlice<'a, T: Pod> {
    pub(super) region: PinnedBytes<'a>,
    pub(super) range: Range<usize>,
    pub(super) element: PhantomData<&'a [T]>,
}

/// An exclusive view of a part of a [`PinnedBuf`].
pub struct PinnedSliceMut<'a, T: Pod> {
    /// Several views share it. Their ranges are disjoint, and each view is exclusive.
    pub(super) region: PinnedBytes<'a>,
    pub(super) range: Range<usize>,
    pub(super) element: PhantomData<&'a mut [T]>,
}

#[cfg(feature = "capi")]
impl<'a> PinnedSlice<'a, u8> {
    /// A view of `bytes` bytes from `ptr` on, which lie in the block.
    ///
    /// # Safety
    ///
    /// * During `'a` the host does not write to them.
    pub(crate) unsafe fn at(region: PinnedBytes<'a>, ptr: *const u8, bytes: usize) -> Self {
        PinnedSlice { range: region.range(ptr, bytes), region, element: PhantomData }
    }
}

#[cfg(feature = "capi")]
impl<'a> PinnedSliceMut<'a, u8> {
    /// An exclusive view of `bytes` bytes from `ptr` on, which lie in the block.
    ///
    /// # Safety
    ///
    /// * During `'a` there is no other view of them, and the host does not access them otherwise.
    pub(crate) unsafe fn at(region: PinnedBytes<'a>, ptr: *mut u8, bytes: usize) -> Self {
        PinnedSliceMut { range: region.range(ptr, bytes), region, element: PhantomData }
    }
}

impl<'a, T: Pod> PinnedSlice<'a, T> {
    pub(crate) fn bytes(&self) -> PinnedBytes<'a> {
        self.region
    }

    /// The address of the first element; see [`PinnedBuf::as_ptr`].
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.region.0.ptr().as_ptr().cast::<T>().wrapping_add(self.range.start)
    }

    /// The elements, to read. Blocks until every pending device write to them is complete.
    ///
    /// # Errors
    ///
    /// As for [`PinnedBuf::read`].
    pub fn read(&self) -> Result<&'a [T]> {
        self.read_in("PinnedSlice::read", How::Waiting)
    }

    /// As [`read`](Self::read), but does not block.
    ///
    /// # Errors
    ///
    /// As for [`PinnedBuf::try_read`].
    pub fn try_read(&self) -> Result<&'a [T]> {
        self.read_in("PinnedSlice::try_read", How::Asking)
    }

    /// The elements, in a call of that name.
    fn read_in(&self, operation: &'static str, how: How) -> Result<&'a [T]> {
        self.region.settle(operation, in_bytes::<T>(&self.range), Access::Read, how)?;
        // SAFETY: the elements lie in the region, since `range` was resolved against its length.
        // The region's bytes are initialised, valid for any `T: Pod`, and aligned for `T`
        // (`PinnedBuf::new`). No device write to them is pending, since the range is settled. None
        // can be enqueued while 'a, which borrows the buffer, lives.
        Ok(unsafe { std::slice::from_raw_parts(self.as_ptr(), self.range.len()) })
    }
}

impl<'a, T: Pod> PinnedSliceMut<'a, T> {
    /// Consumes the exclusive view, so the result is used exclusively too.
    pub(crate) fn into_bytes(self) -> PinnedBytes<'a> {
        self.region
    }

    /// The address of the first element; see [`PinnedBuf::as_ptr`].
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.region.0.ptr().as_ptr().cast::<T>().wrapping_add(self.range.start)
    }

    /// The elements, to write, for as long as the view was borrowed. Blocks until every pending
    /// device use of them is complete.
    ///
    /// # Errors
    ///
    /// As for [`PinnedBuf::write`].
    pub fn into_write(self) -> Result<&'a mut [T]> {
        self.write_in("PinnedSliceMut::into_write", How::Waiting)
    }

    /// As [`into_write`](Self::into_write), but does not block.
    ///
    /// # Errors
    ///
    /// As for [`PinnedBuf::try_write`].
    pub fn try_into_write(self) -> Result<&'a mut [T]> {
        self.write_in("PinnedSliceMut::try_into_write", How::Asking)
    }

    /// The elements, in a call of that name.
    fn write_in(mut self, operation: &'static str, how: How) -> Result<&'a mut [T]> {
        self.region.settle(operation, in_bytes::<T>(&self.range), Access::Write, how)?;
        // SAFETY: as for `PinnedSlice::read_in`. Moreover, no device use of the elements is pending
        // at all. The view borrows the buffer exclusively for 'a, so there is no other reference to
        // them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.range.len()) })
    }
}
