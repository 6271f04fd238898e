//! Memory of the user's own, page-locked where it lies: copies from and to it are as fast, as
//! asynchronous and as well tracked as those of a [`PinnedBuf`].
//!
//! ```text
//!   Device::register(owner)           a Registered: has the owner until into_inner, or drop
//!   Device::with_registered(slice)    a view, while a closure runs: the memory is only borrowed
//! ```
//!
//! # Invariants
//!
//! * An owner is alone with its memory again, or drops, only when the [`Registration`] has ended.
//! * Memory that is borrowed could be had back by forgetting whatever guards it (soundness rule 2).
//!   So nobody gets a guard: the buffer is a local of the function that runs the closure.

use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use super::pinned::{PinnedBuf, PinnedSlice, PinnedSliceMut};
use super::registration::{Registration, page_lock};
use super::{Operand, Tracked, TrackedMut, sealed};
use crate::device::Device;
use crate::error::{Error, Result};

/// Owns memory that [`Device::register`] can page-lock. Implemented for `Vec<T>` and `Box<[T]>`.
///
/// ```
/// # use pinlane::{Device, HostMemory};
/// /// A mapping of a file, private and writable.
/// struct Mapping { start: *mut u8, bytes: usize }
///
/// // SAFETY: a mapping belongs to the process, not to a thread.
/// unsafe impl Send for Mapping {}
///
/// // SAFETY: the mapping stays where it is until `drop` unmaps it, and nobody else has the address.
/// unsafe impl HostMemory for Mapping {
///     type Element = u8;
///     fn elements(&mut self) -> &mut [u8] {
///         unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
///     }
/// }
///
/// impl Drop for Mapping {
///     fn drop(&mut self) {
///         unsafe { libc::munmap(self.start.cast(), self.bytes) };
///     }
/// }
///
/// # let (read_write, private) =
/// #     (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
/// # let bytes = 8192;
/// # let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, read_write, private, -1, 0) };
/// # assert_ne!(start, libc::MAP_FAILED);
/// # let mapping = Mapping { start: start.cast(), bytes };
/// let device = Device::open_or_emulated()?;
/// let weights = device.register(mapping)?;
/// let mut gpu = device.alloc::<u8>(weights.len())?;
/// device.stream()?.upload(&weights, &mut gpu)?; // returns at once
/// drop(weights); // waits for the copy, then unmaps
/// # Ok::<(), pinlane::Error>(())
/// ```
///
/// # Safety
///
/// Until the value is dropped or borrowed again, and also when it is moved, the slice that
/// [`elements`](Self::elements) gave
///
/// * stays where it is, mapped, readable and writable; it is no part of the value itself;
/// * is accessed by nobody else, in this process or another.
pub unsafe trait HostMemory: Send + 'static {
    /// What the memory holds.
    type Element: Pod;

    /// All of the memory. Called once, when it is registered.
    fn elements(&mut self) -> &mut [Self::Element];
}

// SAFETY: the elements are on the heap, where they stay until the vector is used or dropped; the
// vector owns them alone.
unsafe impl<T: Pod + Send> HostMemory for Vec<T> {
    type Element = T;

    fn elements(&mut self) -> &mut [T] {
        self
    }
}

// SAFETY: as for a vector.
unsafe impl<T: Pod + Send> HostMemory for Box<[T]> {
    type Element = T;

    fn elements(&mut self) -> &mut [T] {
        self
    }
}

/// A call that was given a value and could not do its work: the value, back, and why. `?` makes an
/// [`Error`] of it.
pub struct Refused<V> {
    /// What the call was given.
    pub value: V,
    /// Why it failed.
    pub error: Error,
}

impl<V> From<Refused<V>> for Error {
    fn from(refused: Refused<V>) -> Self {
        refused.error
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<V> std::error::Error for Refused<V> {}

/// Page-locked memory of the user's own, from [`Device::register`]. A [`PinnedBuf`], with the same
/// copies, views and waits, that came from somewhere else.
///
/// Dropping it blocks until the device is done with the memory and the runtime has unregistered it
/// (`cudaHostUnregister`), and then drops the owner; in a host function another thread does that.
/// If the device cannot say whether it is done, the owner leaks, and [`Device::quarantined_bytes`]
/// counts it.
pub struct Registered<O: HostMemory> {
    buffer: PinnedBuf<O::Element>,
    registration: Arc<Registration<O>>,
}

impl Device {
    /// Page-locks memory that exists already, for all devices of the process (`cudaHostRegister`).
    /// Blocks: it takes about as long as allocating page-locked memory of that size does. No
    /// elements are no work.
    ///
    /// # Errors
    ///
    /// All give the owner back. [`InvalidValue`](crate::ErrorKind::InvalidValue) if some of the
    /// memory is page-locked already, and for memory that cannot be: shared mappings of files;
    /// [`OutOfHostMemory`](crate::ErrorKind::OutOfHostMemory);
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess);
    /// [`Unsupported`](crate::ErrorKind::Unsupported) inside a host function.
    pub fn register<O: HostMemory>(&self, owner: O) -> Result<Registered<O>, Refused<O>> {
        // Boxed, so that moving the owner from here on touches nothing of it: a `Box<[T]>` that
        // moves claims to be the only way to its elements.
        let mut owner = Box::new(owner);
        let elements = NonNull::from(owner.elements());
        // SAFETY: the slice is readable and writable, and stays so for as long as the owner is left
        // alone (`HostMemory`), which it is until the memory is unregistered, or for ever.
        match unsafe { page_lock(self.context(), "Device::register", elements) } {
            Ok(()) => {
                let registration = Registration::new(self.context(), elements, owner, false);
                Ok(Registered { buffer: registration.buffer(elements.len()), registration })
            }
            Err(error) => Err(Refused { value: *owner, error }),
        }
    }

    /// Page-locks a slice while `work` runs, which gets it as a view for copies. Blocks to
    /// page-lock it, as [`register`](Self::register), and at the end, also when `work` panics,
    /// until the device is done with the slice.
    ///
    /// ```
    /// # use pinlane::Device;
    /// let device = Device::open_or_emulated()?;
    /// let stream = device.stream()?;
    /// let mut gpu = device.alloc::<u32>(1000)?;
    /// let mut values = vec![7; 1000];
    /// device.with_registered(&mut values, |view| stream.upload(view.as_slice(), &mut gpu))??;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Aborts
    ///
    /// If a copy may still be under way and every way to wait for it fails, also because the device
    /// is lost: the device may still write to the slice, and when this function returns the slice
    /// belongs to the caller again. Memory that must survive the loss of a device goes to
    /// [`register`](Self::register), which keeps it.
    ///
    /// # Errors
    ///
    /// As for [`register`](Self::register): `work` was not called. When the runtime does not
    /// unregister the slice, `work` was called and its result is dropped; the slice can be used,
    /// but not be registered again.
    pub fn with_registered<T: Pod, R>(
        &self,
        slice: &mut [T],
        work: impl FnOnce(PinnedSliceMut<'_, T>) -> R,
    ) -> Result<R> {
        const OPERATION: &str = "Device::with_registered";
        let elements = NonNull::from(slice);
        // SAFETY: the slice is borrowed until this function returns, or unwinds. Before that the
        // registration ends, here or by the buffer's drop; what cannot be unregistered is an error,
        // and nothing uses it.
        unsafe { page_lock(self.context(), OPERATION, elements) }?;
        let registration = Registration::new(self.context(), elements, Box::new(()), true);
        let mut buffer = registration.buffer(elements.len());
        let result = work(buffer.as_slice_mut());
        registration.end(OPERATION)?;
        Ok(result)
    }
}

#[cfg(feature = "capi")]
impl PinnedBuf<u8> {
    /// Page-locks memory that a caller of the C interface lends, until the end of what is returned.
    ///
    /// # Safety
    ///
    /// * `bytes` from `ptr` on are readable and writable, and stay so until [`Lent::end`] has
    ///   succeeded; until then they are accessed through the buffer only.
    /// * They are initialised before the host reads them through the buffer.
    /// * The buffer is not dropped before.
    pub(crate) unsafe fn register_raw(
        operation: &'static str,
        device: &Device,
        ptr: NonNull<u8>,
        bytes: usize,
    ) -> Result<(Self, Lent)> {
        let elements = NonNull::slice_from_raw_parts(ptr, bytes);
        // SAFETY: mapped, readable and writable until unregistered, by the precondition.
        unsafe { page_lock(device.context(), operation, elements) }?;
        let registration = Registration::new(device.context(), elements, Box::new(()), true);
        Ok((registration.buffer(bytes), Lent(registration)))
    }
}

/// Memory that a caller of the C interface lends.
#[cfg(feature = "capi")]
pub(crate) struct Lent(Arc<Registration<()>>);

#[cfg(feature = "capi")]
impl Lent {
    /// Blocks until the device is done with the memory, and unregisters it. Called once nobody uses
    /// the buffer any more. If it fails all is as it was.
    pub(crate) fn end(&self, operation: &'static str) -> Result<()> {
        self.0.give_back(operation)
    }
}

impl<O: HostMemory> Registered<O> {
    /// Unregisters the memory and gives its owner back. Blocks until the device is done with it.
    ///
    /// # Errors
    ///
    /// All give the buffer back, registered as it was. The error of an operation that could not be
    /// waited for; [`DeviceLost`](crate::ErrorKind::DeviceLost);
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess);
    /// [`Unsupported`](crate::ErrorKind::Unsupported) inside a host function; what
    /// `cudaHostUnregister` reports.
    pub fn into_inner(self) -> Result<O, Refused<Self>> {
        match self.registration.give_back("Registered::into_inner") {
            Ok(owner) => Ok(owner),
            Err(error) => Err(Refused { value: self, error }),
        }
    }

    /// As [`PinnedBuf::write`].
    ///
    /// # Errors
    ///
    /// As for [`PinnedBuf::read`].
    pub fn write(&mut self) -> Result<&mut [O::Element]> {
        self.buffer.write()
    }

    /// As [`PinnedBuf::try_write`].
    ///
    /// # Errors
    ///
    /// As for [`PinnedBuf::try_write`].
    pub fn try_write(&mut self) -> Result<&mut [O::Element]> {
        self.buffer.try_write()
    }

    /// As [`PinnedBuf::slice_mut`].
    ///
    /// # Errors
    ///
    /// As for [`PinnedBuf::slice_mut`].
    pub fn slice_mut(
        &mut self,
        range: impl RangeBounds<usize>,
    ) -> Result<PinnedSliceMut<'_, O::Element>> {
        self.buffer.slice_mut(range)
    }

    /// As [`PinnedBuf::as_slice_mut`].
    #[must_use]
    pub fn as_slice_mut(&mut self) -> PinnedSliceMut<'_, O::Element> {
        self.buffer.as_slice_mut()
    }
}

/// All that a buffer does without being changed. There is no `DerefMut`: with it the buffer could
/// be swapped for another one, and parted from its owner.
impl<O: HostMemory> Deref for Registered<O> {
    type Target = PinnedBuf<O::Element>;

    fn deref(&self) -> &PinnedBuf<O::Element> {
        &self.buffer
    }
}

impl<'a, O: HostMemory> From<&'a Registered<O>> for PinnedSlice<'a, O::Element> {
    fn from(registered: &'a Registered<O>) -> Self {
        registered.buffer.as_slice()
    }
}

impl<'a, O: HostMemory> From<&'a mut Registered<O>> for PinnedSliceMut<'a, O::Element> {
    fn from(registered: &'a mut Registered<O>) -> Self {
        registered.buffer.as_slice_mut()
    }
}

impl<O: HostMemory> sealed::Sealed for Registered<O> {
    fn reading(&self) -> Operand<'_> {
        self.buffer.reading()
    }
}

impl<O: HostMemory> sealed::SealedMut for Registered<O> {
    fn writing(&mut self) -> Operand<'_> {
        self.buffer.writing()
    }
}

impl<O: HostMemory> Tracked for Registered<O> {}
impl<O: HostMemory> TrackedMut for Registered<O> {}

impl<O: HostMemory> fmt::Debug for Registered<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("ptr", &self.as_ptr()).field("len", &self.len()).finish()
    }
}

#[cfg(all(test, feature = "capi", feature = "emulated"))]
mod tests {
    use super::*;
    use crate::driver::emulated::{Emulator, Execution};

    #[test]
    fn lent_memory_is_free_when_its_loan_has_ended() {
        let machine = Emulator::builder().execution(Execution::Lazy).build();
        let device = Device::of_emulator(&machine, 0).expect("no faults");
        let stream = device.stream().expect("no faults");
        let mut gpu = device.alloc::<u8>(100).expect("no faults");
        stream.fill(&mut gpu, 9).expect("no faults");
        let mut memory = vec![1u8; 100];
        let ptr = NonNull::from(&mut memory[..]).cast();
        // SAFETY: the vector outlives the loan and is not touched before that has ended, below.
        let registered = unsafe { PinnedBuf::register_raw("test", &device, ptr, 100) };
        let (mut buffer, lent) = registered.expect("no faults");
        stream.download(&gpu, &mut buffer).expect("no faults");
        assert_eq!(machine.usage().host_blocks, 1);
        lent.end("test").expect("no faults");
        drop(buffer);
        assert_eq!((machine.usage().host_blocks, memory), (0, vec![9; 100]));
        assert_eq!(machine.findings(), []);
    }
}
