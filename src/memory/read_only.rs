//! The user's own memory that nothing changes, page-locked where it lies: sources of uploads, and
//! of nothing else.
//!
//! # Invariants
//!
//! * The elements do not change while they are registered: the owner promises it
//!   ([`ReadOnlyMemory`]), and no operation writes to them, since only shared views are given out.
//! * The owner comes back, or drops, only when the [`Registration`] has ended.

use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::panic::RefUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use super::pinned::{PinnedBuf, PinnedSlice};
use super::registration::{Purpose, Registration, Terms, page_lock};
use super::{Operand, Tracked, sealed};
use crate::context::Context;
use crate::error::{Refused, Result};

/// An owner of memory that does not change, for
/// [`Device::register_read_only`](crate::Device::register_read_only). `Vec<T>`, `Box<[T]>`,
/// `Arc<[T]>` and `&'static [T]` implement it. [`ReadOnlyBytes`] makes one of other owners, such as
/// `bytes::Bytes` and `memmap2::Mmap`.
///
/// # Safety
///
/// The following holds for the slice that [`elements`](Self::elements) gave, until the value is
/// dropped, and also when the value is moved:
///
/// * The slice stays where it is, mapped and readable. It is no part of the value itself.
/// * Its bytes do not change: no code writes to them, in this process or another.
/// * If [`is_page_locked`](Self::is_page_locked) says so, it is page-locked.
pub unsafe trait ReadOnlyMemory: Send + 'static {
    /// The type of the elements in the memory.
    type Element: Pod;

    /// All of the memory. Called once, when the memory is registered.
    fn elements(&self) -> &[Self::Element];

    /// Whether the memory is page-locked already, for all devices (`cudaHostAlloc` or
    /// `cudaHostRegister`). It then stays so, and this crate neither page-locks nor unlocks it.
    fn is_page_locked(&self) -> bool {
        false
    }
}

// SAFETY: the elements are on the heap, where they stay until the vector is used or dropped. The
// vector alone owns them.
unsafe impl<T: Pod + Send> ReadOnlyMemory for Vec<T> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

// SAFETY: as for a vector.
unsafe impl<T: Pod + Send> ReadOnlyMemory for Box<[T]> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

// SAFETY: the elements are on the heap until the last owner drops. Only an owner without others can
// change them (`Arc::get_mut`), and a `Pod` has no interior mutability.
unsafe impl<T: Pod + Send + Sync> ReadOnlyMemory for Arc<[T]> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

// SAFETY: the elements are borrowed for ever, and a `Pod` has no interior mutability.
unsafe impl<T: Pod + Sync> ReadOnlyMemory for &'static [T] {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

/// The bytes of an owner of another crate, such as `bytes::Bytes`, `memmap2::Mmap` or
/// `arrow_buffer::Buffer`, as [`ReadOnlyMemory`].
///
/// ```
/// use pinlane::{Device, memory::ReadOnlyBytes};
///
/// /// Stands for `memmap2::Mmap` or `bytes::Bytes`.
/// struct Mmap(std::sync::Arc<[u8]>);
///
/// impl AsRef<[u8]> for Mmap {
///     fn as_ref(&self) -> &[u8] {
///         &self.0
///     }
/// }
///
/// let device = Device::open_or_emulated()?;
/// let mapping = Mmap(vec![7; 10_000].into());
/// // SAFETY: the bytes stay where they are until the mapping is dropped, and nothing writes to
/// // them.
/// let mapping = unsafe { ReadOnlyBytes::new(mapping) };
/// let weights = device.register_read_only(mapping)?;
/// let mut gpu = device.alloc::<u8>(weights.len())?;
/// device.stream()?.upload(&weights, &mut gpu)?; // returns at once
/// let mapping = weights.into_inner()?.into_inner(); // waits for the copy
/// # Ok::<(), pinlane::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadOnlyBytes<O>(O);

impl<O: AsRef<[u8]> + Send + 'static> ReadOnlyBytes<O> {
    /// Takes the owner. Nothing is page-locked yet.
    ///
    /// # Safety
    ///
    /// The following holds for the slice that `owner.as_ref()` gives, until `owner` is dropped or
    /// [taken back](Self::into_inner), and also when it is moved:
    ///
    /// * The slice stays where it is, mapped and readable. It is no part of `owner` itself, as that
    ///   of an array is.
    /// * Its bytes do not change: no code writes to them, in this process or another. For a mapping
    ///   of a file that means that no program writes to the file. If a program truncates it, an
    ///   access ends this process (SIGBUS).
    pub unsafe fn new(owner: O) -> Self {
        ReadOnlyBytes(owner)
    }

    /// The owner.
    #[must_use]
    pub fn into_inner(self) -> O {
        self.0
    }
}

// SAFETY: all three are what the caller of `new` has promised; it is not page-locked.
unsafe impl<O: AsRef<[u8]> + Send + 'static> ReadOnlyMemory for ReadOnlyBytes<O> {
    type Element = u8;

    fn elements(&self) -> &[u8] {
        self.0.as_ref()
    }
}

/// The user's own memory that nothing changes, page-locked by
/// [`Device::register_read_only`](crate::Device::register_read_only). It derefs to the elements,
/// and is a source of uploads like a [`PinnedBuf`]: they return at once, and are tracked. Reading
/// the elements does not wait for uploads, which only read them too.
///
/// | for | use |
/// |---|---|
/// | [`Stream::upload`](crate::Stream::upload) | `&registered`, or [`slice`](Self::slice) of it |
/// | batches, strided copies, rows | [`as_slice`](Self::as_slice), or `slice` |
/// | downloads, fills | nothing: that does not compile |
///
/// Dropping it blocks until the device is done with the memory and the runtime has unregistered it
/// (`cudaHostUnregister`). Then the owner is dropped. In a host function another thread does all of
/// that. If it cannot be known whether the device is done, the owner leaks, and
/// [`Device::quarantined_bytes`](crate::Device::quarantined_bytes) counts it.
pub struct RegisteredReadOnly<O: ReadOnlyMemory> {
    /// Gives out shared views only.
    buffer: PinnedBuf<O::Element>,
    registration: Arc<Registration<O>>,
}

/// A panic leaves nothing half done: the elements do not change, and a lock that a panic has left
/// is usable.
impl<O: ReadOnlyMemory> RefUnwindSafe for RegisteredReadOnly<O> {}

impl PinnedBuf<u8> {
    /// Page-locks memory for uploads, or gives its owner back. The owner drops when the buffer has
    /// dropped and the memory is unregistered.
    ///
    /// # Safety
    ///
    /// * `memory` is mapped and readable until `owner` drops, also when that moves.
    /// * The buffer is a source only: no operation writes to it.
    /// * The host does not read its elements, unless nothing writes to them meanwhile.
    pub(crate) unsafe fn register_source<O: Send + 'static>(
        operation: &'static str,
        context: &Arc<Context>,
        owner: O,
        memory: NonNull<[u8]>,
    ) -> Result<Self, Refused<O>> {
        // SAFETY: mapped and readable until the owner drops, which happens when it is unregistered.
        // No operation uses it yet, and none will write to it.
        match unsafe { page_lock(context, operation, memory, Purpose::ToRead) } {
            Ok(()) => {
                let registration =
                    Registration::new(context, memory, Box::new(owner), Terms::Owned);
                Ok(registration.buffer(memory.len()))
            }
            Err(error) => Err(Refused { value: owner, error }),
        }
    }
}

impl<O: ReadOnlyMemory> RegisteredReadOnly<O> {
    /// Page-locks the memory of `owner`, or gives it back.
    pub(crate) fn new(
        operation: &'static str,
        context: &Arc<Context>,
        owner: O,
    ) -> Result<Self, Refused<O>> {
        // Boxed, so that the owner does not move from here on.
        let owner = Box::new(owner);
        let elements = NonNull::from(owner.elements());
        let (locked, terms) = if owner.is_page_locked() {
            (context.driver(operation).map(drop), Terms::LockedElsewhere)
        } else {
            // SAFETY: the slice is mapped and readable, and stays so while the owner is not dropped
            // (`ReadOnlyMemory`), which happens when it is unregistered. No operation uses it yet,
            // and none will write to it: the first invariant.
            let locked = unsafe { page_lock(context, operation, elements, Purpose::ToRead) };
            (locked, Terms::Owned)
        };
        if let Err(error) = locked {
            return Err(Refused { value: *owner, error });
        }
        let registration = Registration::new(context, elements, owner, terms);
        let buffer = registration.buffer(elements.len());
        Ok(RegisteredReadOnly { buffer, registration })
    }

    /// The buffer alone, as a source only. Dropping it does the same as dropping `self`.
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
        match self.registration.give_back("RegisteredReadOnly::into_inner") {
            Ok(owner) => Ok(owner),
            Err(error) => Err(Refused { value: self, error }),
        }
    }

    /// The elements as a view, for copies.
    #[must_use]
    pub fn as_slice(&self) -> PinnedSlice<'_, O::Element> {
        self.buffer.as_slice()
    }

    /// The elements in `range` as a view, for copies. Does not block.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if the range does not lie in the memory.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<PinnedSlice<'_, O::Element>> {
        self.buffer.slice(range)
    }
}

impl<O: ReadOnlyMemory> Deref for RegisteredReadOnly<O> {
    type Target = [O::Element];

    fn deref(&self) -> &[O::Element] {
        // SAFETY: the slice that the owner gave, which stays where it is, mapped and readable,
        // until the owner is dropped or given back; `self`, which it is borrowed from, is gone
        // before that. Its bytes do not change: the first invariant.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr(), self.buffer.len()) }
    }
}

impl<'a, O: ReadOnlyMemory> From<&'a RegisteredReadOnly<O>> for PinnedSlice<'a, O::Element> {
    fn from(registered: &'a RegisteredReadOnly<O>) -> Self {
        registered.as_slice()
    }
}

impl<O: ReadOnlyMemory> sealed::Sealed for RegisteredReadOnly<O> {
    fn reading(&self) -> Operand<'_> {
        self.buffer.reading()
    }
}

impl<O: ReadOnlyMemory> Tracked for RegisteredReadOnly<O> {}

impl<O: ReadOnlyMemory> fmt::Debug for RegisteredReadOnly<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ptr, len) = (self.buffer.as_ptr(), self.buffer.len());
        f.debug_struct("RegisteredReadOnly").field("ptr", &ptr).field("len", &len).finish()
    }
}
