//! Page-locked memory that is only read from now on, as an owner of its bytes.
//!
//! # Invariants
//!
//! * No device write to the buffer is pending, and none can be enqueued: that needs `&mut` on the
//!   buffer, which [`into_inner`](FrozenBuf::into_inner) gives out after the last borrow of the
//!   elements has ended.
//! * The elements stay where they are when the value moves.

use std::fmt;
use std::ops::Deref;
use std::panic::RefUnwindSafe;

use bytemuck::Pod;

use super::hazard::Access;
use super::pinned::{How, PinnedBuf, PinnedSlice};
use super::range::in_bytes;
use super::{Operand, Tracked, sealed};
use crate::error::{Refused, Result};

/// A [`PinnedBuf`] whose contents no longer change, from [`PinnedBuf::freeze`]. It owns the memory,
/// derefs to the elements, and is `AsRef<[u8]> + Send + Sync + 'static`. So other crates can take
/// page-locked memory without a copy:
///
/// | to make | from `frozen` |
/// |---|---|
/// | `bytes::Bytes`, for hyper, tonic and other network crates | `Bytes::from_owner(frozen)` |
/// | `arrow_buffer::Buffer` | `Buffer::from(Bytes::from_owner(frozen))` |
/// | a buffer with many owners | `Arc::new(frozen)` |
///
/// Copies read it like a [`PinnedBuf`]. Dropping it, even in the middle of a copy, returns the
/// block to the pool, which reuses it only when the device is done with it.
/// [`into_inner`](Self::into_inner) gives the buffer back.
///
/// In a forked child the memory does not exist: an access to an element ends the child by SIGSEGV.
///
/// ```
/// use pinlane::{Device, PinnedPool};
///
/// let device = Device::open_or_emulated()?;
/// let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build()?;
/// let stream = device.stream()?;
///
/// let mut gpu = device.alloc::<u32>(1000)?;
/// stream.fill(&mut gpu, 7)?;
/// let mut host = pool.alloc::<u32>(1000)?;
/// stream.download(&gpu, &mut host)?;
/// let frozen = host.freeze()?; // waits for the download
/// stream.upload(&frozen, &mut gpu)?; // returns at once
/// let owner: Box<dyn AsRef<[u8]> + Send> = Box::new(frozen);
/// assert_eq!((*owner).as_ref()[..4], 7_u32.to_ne_bytes());
/// # Ok::<(), pinlane::Error>(())
/// ```
pub struct FrozenBuf<T: Pod>(PinnedBuf<T>);

/// A panic leaves nothing half done: the elements do not change, and a lock that a panic has left
/// is usable.
impl<T: Pod> RefUnwindSafe for FrozenBuf<T> {}

impl<T: Pod> PinnedBuf<T> {
    /// Makes the buffer an owner of elements that only change again after
    /// [`FrozenBuf::into_inner`]. Blocks until every pending device write to the buffer is
    /// complete, like [`read`](Self::read). To avoid that in an asynchronous task, await the
    /// [`Ticket`](crate::Ticket) of the last copy first.
    ///
    /// # Errors
    ///
    /// Every error gives the buffer back: those of [`read`](Self::read).
    pub fn freeze(self) -> Result<FrozenBuf<T>, Refused<Self>> {
        let all = in_bytes::<T>(&(0..self.len()));
        match self.region().settle("PinnedBuf::freeze", all, Access::Read, How::Waiting) {
            Ok(()) => Ok(FrozenBuf(self)),
            Err(error) => Err(Refused { value: self, error }),
        }
    }
}

impl<T: Pod> FrozenBuf<T> {
    /// The buffer, which can be written again. Does not block: [`PinnedBuf::write`] waits for the
    /// copies that still read it.
    #[must_use]
    pub fn into_inner(self) -> PinnedBuf<T> {
        self.0
    }

    /// The elements as a view, for copies of a part of them.
    #[must_use]
    pub fn as_slice(&self) -> PinnedSlice<'_, T> {
        self.0.as_slice()
    }
}

impl<T: Pod> Deref for FrozenBuf<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the elements are the buffer's own: initialised, valid for any `T: Pod`, and
        // aligned for `T` (`PinnedBuf::new`). No device write to them is pending, and none can be
        // enqueued while `self`, which they are borrowed from, lives: the first invariant.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.len()) }
    }
}

/// The bytes of the elements.
impl<T: Pod> AsRef<[u8]> for FrozenBuf<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl<'a, T: Pod> From<&'a FrozenBuf<T>> for PinnedSlice<'a, T> {
    fn from(frozen: &'a FrozenBuf<T>) -> Self {
        frozen.as_slice()
    }
}

impl<T: Pod> sealed::Sealed for FrozenBuf<T> {
    fn reading(&self) -> Operand<'_> {
        self.0.reading()
    }
}

impl<T: Pod> Tracked for FrozenBuf<T> {}

impl<T: Pod> fmt::Debug for FrozenBuf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrozenBuf").field(&self.0).finish()
    }
}
