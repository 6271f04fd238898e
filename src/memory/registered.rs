//! The user's own memory, page-locked where it lies. Copies from and to it are as fast, as
//! asynchronous and as well tracked as those of a [`PinnedBuf`].
//!
//! ```text
//!   Device::register(owner)           a Registered, which keeps the owner until into_inner or drop
//!   Device::with_registered(slice)    a view while a closure runs: the memory is only borrowed
//! ```
//!
//! # Invariants
//!
//! * The owner gets its memory back, or drops, only when the [`Registration`] has ended.
//! * A guard of borrowed memory could be forgotten, and the memory would be usable again (soundness
//!   rule 2). So the program gets no guard: the buffer is a local of the function that runs the
//!   closure.

use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use super::pinned::{PinnedBuf, PinnedSlice, PinnedSliceMut};
use super::registration::{Purpose, Registration, Terms, page_lock};
use super::{Operand, Tracked, TrackedMut, sealed};
use crate::context::Context;
use crate::error::{Refused, Result};

/// An owner of memory that [`Device::register`](crate::Device::register) can page-lock. `Vec<T>`
/// and `Box<[T]>` implement it.
///
/// ```
/// # use pinlane::{Device, memory::HostMemory};
/// /// A mapping of a file, private and writable.
/// struct Mapping { start: *mut u8, bytes: usize }
///
/// // SAFETY: a mapping belongs to the process, not to a thread.
/// unsafe impl Send for Mapping {}
///
/// // SAFETY: the mapping stays in place until `drop` unmaps it, and no other code has the address.
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
/// The following holds for the slice that [`elements`](Self::elements) gave, until the value is
/// dropped or borrowed again, and also when the value is moved:
///
/// * The slice stays where it is: mapped, readable and writable. It is no part of the value itself.
/// * No other code accesses it, in this process or another.
/// * If [`is_page_locked`](Self::is_page_locked) says so, it is page-locked.
pub unsafe trait HostMemory: Send + 'static {
    /// The type of the elements in the memory.
    type Element: Pod;

    /// All of the memory. Called once, when the memory is registered.
    fn elements(&mut self) -> &mut [Self::Element];

    /// Whether the memory is page-locked already, for all devices (`cudaHostAlloc` or
    /// `cudaHostRegister`). It then stays so, and this crate neither page-locks nor unlocks it.
    fn is_page_locked(&self) -> bool {
        false
    }
}

// SAFETY: the elements are on the heap, where they stay until the vector is used or dropped. The
// vector alone owns them.
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

/// The user's own memory, page-locked by [`Device::register`](crate::Device::register). It has the
/// copies, views and waits of a [`PinnedBuf`].
///
/// Dropping it blocks until the device is done with the memory and the runtime has unregistered it
/// (`cudaHostUnregister`). Then the owner is dropped. In a host function another thread does all of
/// that. If it cannot be known whether the device is done, the owner leaks, and
/// [`Device::quarantined_bytes`](crate::Device::quarantined_bytes) counts it.
pub struct Registered<O: HostMemory> {
    buffer: PinnedBuf<O::Element>,
    registration: Arc<Registration<O>>,
}

impl<O: HostMemory> Registered<O> {
    /// Page-locks the memory of `owner`, or gives it back.
    pub(crate) fn new(context: &Arc<Context>, owner: O) -> Result<Self, Refused<O>> {
        // Boxed, so that the owner does not move from here on. A `Box<[T]>` that moves claims to be
        // the only access to its elements.
        let mut owner = Box::new(owner);
        let elements = NonNull::from(owner.elements());
        let (locked, terms) = if owner.is_page_locked() {
            (context.driver("Device::register").map(drop), Terms::LockedElsewhere)
        } else {
            // SAFETY: the slice is readable and writable, and stays so while the owner is not used
            // (`HostMemory`). This crate does not use it until the memory is unregistered. No
            // operation uses the slice, because only the owner has access to it.
            (
                unsafe { page_lock(context, "Device::register", elements, Purpose::Any) },
                Terms::Owned,
            )
        };
        if let Err(error) = locked {
            return Err(Refused { value: *owner, error });
        }
        let registration = Registration::new(context, elements, owner, terms);
        Ok(Registered { buffer: registration.buffer(elements.len()), registration })
    }
}

/// Page-locks a slice while `work` runs; see
/// [`Device::with_registered`](crate::Device::with_registered).
pub(crate) fn with_registered<T: Pod, R>(
    context: &Arc<Context>,
    slice: &mut [T],
    work: impl FnOnce(PinnedSliceMut<'_, T>) -> R,
) -> Result<R> {
    const OPERATION: &str = "Device::with_registered";
    let elements = NonNull::from(slice);
    // SAFETY: the slice is borrowed until this function returns or unwinds. The registration ends
    // before that, here or in the buffer's drop. If the slice cannot be unregistered, the call
    // fails, and nothing uses the slice. No operation uses the slice, because it is borrowed
    // mutably.
    unsafe { page_lock(context, OPERATION, elements, Purpose::Any) }?;
    let registration = Registration::new(context, elements, Box::new(()), Terms::Lent);
    let mut buffer = registration.buffer(elements.len());
    let result = work(buffer.as_slice_mut());
    registration.end(OPERATION)?;
    Ok(result)
}

#[cfg(feature = "capi")]
impl PinnedBuf<u8> {
    /// Page-locks memory that a caller of the C interface lends, until [`Lent::end`] succeeds.
    ///
    /// # Safety
    ///
    /// * `bytes` bytes from `ptr` on are readable, and stay so until [`Lent::end`] has succeeded.
    ///   Unless they are only to be read, they stay writable, and are accessed only through the
    ///   buffer until then.
    /// * If they are only to be read, they do not change until then, and no operation writes to the
    ///   buffer.
    /// * They are initialised before the host reads them through the buffer.
    /// * The buffer is not dropped before [`Lent::end`] has succeeded.
    pub(crate) unsafe fn register_raw(
        operation: &'static str,
        context: &Arc<Context>,
        ptr: NonNull<u8>,
        bytes: usize,
        purpose: Purpose,
    ) -> Result<(Self, Lent)> {
        let elements = NonNull::slice_from_raw_parts(ptr, bytes);
        // SAFETY: mapped and readable until unregistered, writable or not written to, and not
        // accessed by others that conflict, by the preconditions.
        unsafe { page_lock(context, operation, elements, purpose) }?;
        let registration = Registration::new(context, elements, Box::new(()), Terms::Lent);
        Ok((registration.buffer(bytes), Lent(registration)))
    }
}

/// Memory that a caller of the C interface lends.
#[cfg(feature = "capi")]
pub(crate) struct Lent(Arc<Registration<()>>);

#[cfg(feature = "capi")]
impl Lent {
    /// Blocks until the device is done with the memory, and unregisters it. Called when the buffer
    /// is no longer used. A failure changes nothing.
    pub(crate) fn end(&self, operation: &'static str) -> Result<()> {
        self.0.give_back(operation)
    }
}

impl<O: HostMemory> Registered<O> {
    /// The buffer alone. Dropping it does the same as dropping `self`.
    #[cfg(feature = "capi")]
    pub(crate) fn into_buffer(self) -> PinnedBuf<O::Element> {
        self.buffer
    }

    /// Unregisters the memory and gives its owner back. Blocks until the device is done with it.
    ///
    /// # Errors
    ///
    /// Every error gives the buffer back, still registered:
    ///
    /// * the error of an operation that could not be waited for;
    /// * [`DeviceLost`](crate::ErrorKind::DeviceLost);
    /// * [`ForkedProcess`](crate::ErrorKind::ForkedProcess);
    /// * [`Unsupported`](crate::ErrorKind::Unsupported) inside a host function;
    /// * what `cudaHostUnregister` reports.
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

/// The methods of a buffer that take `&self`. There is no `DerefMut`: it would allow swapping the
/// buffer for another one, which would separate it from its owner.
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
    use crate::device::Device;
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
        // SAFETY: the vector outlives the loan, and is not touched before the loan ends, below.
        let registered =
            unsafe { PinnedBuf::register_raw("test", device.context(), ptr, 100, Purpose::Any) };
        let (mut buffer, lent) = registered.expect("no faults");
        stream.download(&gpu, &mut buffer).expect("no faults");
        assert_eq!(machine.usage().host_blocks, 1);
        lent.end("test").expect("no faults");
        drop(buffer);
        assert_eq!((machine.usage().host_blocks, memory), (0, vec![9; 100]));
        assert_eq!(machine.findings(), []);
    }
}
