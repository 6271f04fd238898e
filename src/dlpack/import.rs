//! Imports tensors as buffers.
//!
//! # Invariants
//!
//! * The deleter is called once: when the buffer has been dropped and no use of it is pending.
//! * A call that fails leaves the tensor to its caller, who may still call the deleter.

use std::ptr::NonNull;

use super::check::{Need, bytes_of, rows_of};
use super::export::place_of;
use super::{ManagedTensor, Place, delete};
use crate::driver::DevicePtr;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{DeviceBuf, HostMemory, ReadOnlyMemory, Strides};
use crate::process::call_user;
use crate::stream::Stream;
use crate::sync::sanitizer::theirs;

/// The tensor of a producer, until it is no longer needed.
struct Owned(NonNull<ManagedTensor>);

// SAFETY: a deleter may be called on any thread, by the precondition of the import.
unsafe impl Send for Owned {}
// SAFETY: `&Owned` gives access to nothing.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: live until here, by the precondition of the import.
        call_user(|| theirs(|| unsafe { delete(self.0) }));
    }
}

/// A tensor of another library in host memory: give it to
/// [`Device::register`](crate::Device::register), which makes it a buffer. Memory that is not
/// page-locked (`kDLCPU`) is page-locked in place. Dropping it calls the tensor's deleter.
pub struct Imported {
    first: NonNull<u8>,
    bytes: usize,
    page_locked: bool,
    tensor: Owned,
}

// SAFETY: the producer keeps the memory in place until the deleter is called, and the memory is not
// tied to a thread.
unsafe impl Send for Imported {}

impl Imported {
    /// Takes over a tensor of DLPack version 1. It must be in host memory, without gaps, and
    /// writable.
    ///
    /// # Safety
    ///
    /// * `tensor` is live, the caller owns it, and its deleter may be called on any thread.
    /// * Until the deleter is called, no other code accesses its elements. They are initialised.
    /// * If it is of type `kDLCUDAHost`, it is page-locked until then, for all devices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidValue`] for any other tensor, which the caller keeps.
    pub unsafe fn new(tensor: NonNull<ManagedTensor>) -> Result<Self> {
        const OPERATION: &str = "Imported::new";
        // SAFETY: live, by the precondition.
        let managed = unsafe { tensor.as_ref() };
        // SAFETY: as above.
        let memory = unsafe { bytes_of(OPERATION, managed, Need::Writable) }?;
        Self::of(OPERATION, tensor, memory)
    }

    /// As [`new`](Self::new), of a tensor that may have gaps: all bytes from its first element to
    /// its last one, and where its rows lie in them, in bytes, in the order of its elements.
    /// Contiguous dimensions count as one:
    ///
    /// * Neighbours in the last dimension follow each other, as in `m[:, 2:5]` of NumPy: they are a
    ///   row, and at most two other dimensions are its [`rows`](Strides::rows) and
    ///   [`planes`](Strides::planes).
    /// * They lie apart, as in `m[:, 2]` and `m.T`: each element is a row, and there are at most
    ///   two dimensions. Those of `m[:, 2]` lie the length of a row of `m` apart.
    ///
    /// Lengths of 1 do not count, whatever their stride.
    ///
    /// ```
    /// # use pinlane::{Device, dlpack::{Imported, ManagedTensor}};
    /// # unsafe fn strided(tensor: std::ptr::NonNull<ManagedTensor>) -> pinlane::Result<()> {
    /// use pinlane::Strided;
    ///
    /// let device = Device::open_or_emulated()?;
    /// // SAFETY: as the caller promises.
    /// let (tensor, strides) = unsafe { Imported::with_strides(tensor) }?;
    /// let host = device.register(tensor).map_err(|refused| refused.error)?;
    /// let rows = Strided::new(host.as_slice(), strides)?;
    /// let mut gpu = device.alloc::<u8>(strides.row * strides.rows * strides.planes)?;
    /// device.stream()?.upload_strided(rows, &mut gpu)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    ///
    /// * As for [`new`](Self::new). The gaps count as elements: they are initialised, and no other
    ///   code accesses them.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub unsafe fn with_strides(tensor: NonNull<ManagedTensor>) -> Result<(Self, Strides)> {
        const OPERATION: &str = "Imported::with_strides";
        // SAFETY: live, by the precondition.
        let managed = unsafe { tensor.as_ref() };
        // SAFETY: as above.
        let (first, rows) = unsafe { rows_of(OPERATION, managed, Need::Writable) }?;
        let bytes = rows.extent().unwrap_or(0);
        Ok((Self::of(OPERATION, tensor, (first, bytes))?, rows))
    }

    /// The tensor, whose memory is `bytes` bytes from `first` on.
    fn of(
        operation: &'static str,
        tensor: NonNull<ManagedTensor>,
        (first, bytes): (*mut u8, usize),
    ) -> Result<Self> {
        // SAFETY: live, by the precondition of both callers.
        let place = unsafe { tensor.as_ref() }.tensor.device;
        let page_locked = match place.device_type {
            Place::CPU => false,
            Place::CUDA_HOST => true,
            other => {
                let what = format!("a tensor on a device of type {other}, not in host memory");
                let remedy = "import it as a device buffer, or copy it";
                return Err(Error::invalid(operation, what, remedy));
            }
        };
        let first = NonNull::new(first).unwrap_or(NonNull::dangling());
        Ok(Imported { first, bytes, page_locked, tensor: Owned(tensor) })
    }

    /// Gives the tensor back to the caller.
    #[must_use]
    pub fn into_raw(self) -> NonNull<ManagedTensor> {
        let tensor = self.tensor.0;
        std::mem::forget(self);
        tensor
    }
}

// SAFETY: the producer keeps the memory in place until the deleter is called, which dropping does.
// No other code accesses it, by the precondition of `new`.
unsafe impl HostMemory for Imported {
    type Element = u8;

    fn elements(&mut self) -> &mut [u8] {
        // SAFETY: the bytes of the tensor are initialised and accessed only here, by the
        // precondition of `new`; `bytes_of` has checked their number.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.bytes) }
    }

    fn is_page_locked(&self) -> bool {
        self.page_locked
    }
}

/// A tensor of another library in host memory that is only read, such as one with the flag
/// [`READ_ONLY`](ManagedTensor::READ_ONLY): give it to
/// [`Device::register_read_only`](crate::Device::register_read_only). Otherwise as [`Imported`].
pub struct ImportedReadOnly(Imported);

impl ImportedReadOnly {
    /// Takes over a tensor of DLPack version 1. It must be in host memory, and without gaps.
    ///
    /// # Safety
    ///
    /// * `tensor` is live, the caller owns it, and its deleter may be called on any thread.
    /// * Until the deleter is called, its elements do not change. They are initialised.
    /// * If it is of type `kDLCUDAHost`, it is page-locked until then, for all devices.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidValue`] for any other tensor, which the caller keeps.
    pub unsafe fn new(tensor: NonNull<ManagedTensor>) -> Result<Self> {
        const OPERATION: &str = "ImportedReadOnly::new";
        // SAFETY: live, by the precondition.
        let managed = unsafe { tensor.as_ref() };
        // SAFETY: as above.
        let memory = unsafe { bytes_of(OPERATION, managed, Need::Readable) }?;
        Imported::of(OPERATION, tensor, memory).map(ImportedReadOnly)
    }

    /// As [`new`](Self::new), of a tensor that may have gaps, as [`Imported::with_strides`].
    ///
    /// # Safety
    ///
    /// * As for [`new`](Self::new). The gaps count as elements: they are initialised, and do not
    ///   change.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub unsafe fn with_strides(tensor: NonNull<ManagedTensor>) -> Result<(Self, Strides)> {
        const OPERATION: &str = "ImportedReadOnly::with_strides";
        // SAFETY: live, by the precondition.
        let managed = unsafe { tensor.as_ref() };
        // SAFETY: as above.
        let (first, rows) = unsafe { rows_of(OPERATION, managed, Need::Readable) }?;
        let bytes = rows.extent().unwrap_or(0);
        let imported = Imported::of(OPERATION, tensor, (first, bytes))?;
        Ok((ImportedReadOnly(imported), rows))
    }

    /// Gives the tensor back to the caller.
    #[must_use]
    pub fn into_raw(self) -> NonNull<ManagedTensor> {
        self.0.into_raw()
    }
}

// SAFETY: the producer keeps the memory in place until the deleter is called, which dropping does.
// Its bytes do not change, by the precondition of `new`.
unsafe impl ReadOnlyMemory for ImportedReadOnly {
    type Element = u8;

    fn elements(&self) -> &[u8] {
        // SAFETY: the bytes of the tensor are initialised and do not change, by the precondition of
        // `new`; `bytes_of` has checked their number.
        unsafe { std::slice::from_raw_parts(self.0.first.as_ptr(), self.0.bytes) }
    }

    fn is_page_locked(&self) -> bool {
        self.0.page_locked
    }
}

impl Stream {
    /// Takes over a tensor of another library in device memory, as bytes. Later uses of the buffer
    /// wait for all work on this stream, so use the stream that you passed to the producer. The
    /// tensor must be of DLPack version 1, on this stream's device, without gaps, and writable.
    ///
    /// Dropping the buffer blocks until no use of it is pending, then calls the deleter.
    ///
    /// # Safety
    ///
    /// * `tensor` is live, the caller owns it, and its deleter may be called on any thread.
    /// * The producer's work on the elements is complete, or ordered into this stream. Until the
    ///   deleter is called, no other code uses them.
    ///
    /// # Errors
    ///
    /// The caller keeps the tensor: [`ErrorKind::InvalidValue`] for any other tensor;
    /// [`ErrorKind::WrongDevice`], [`ErrorKind::StreamCapturing`], [`ErrorKind::ForkedProcess`].
    pub unsafe fn import_dlpack(&self, tensor: NonNull<ManagedTensor>) -> Result<DeviceBuf<u8>> {
        const OPERATION: &str = "Stream::import_dlpack";
        // SAFETY: live, by the precondition.
        let managed = unsafe { tensor.as_ref() };
        // SAFETY: as above.
        let memory = unsafe { bytes_of(OPERATION, managed, Need::Writable) }?;
        self.import_memory(OPERATION, tensor, managed.tensor.device, memory)
    }

    /// As [`import_dlpack`](Self::import_dlpack), of a tensor that may have gaps, as
    /// [`Imported::with_strides`].
    ///
    /// # Safety
    ///
    /// * As for [`import_dlpack`](Self::import_dlpack). The gaps count as elements: no other code
    ///   uses them.
    ///
    /// # Errors
    ///
    /// As for [`import_dlpack`](Self::import_dlpack).
    pub unsafe fn import_dlpack_with_strides(
        &self,
        tensor: NonNull<ManagedTensor>,
    ) -> Result<(DeviceBuf<u8>, Strides)> {
        const OPERATION: &str = "Stream::import_dlpack_with_strides";
        // SAFETY: live, by the precondition.
        let managed = unsafe { tensor.as_ref() };
        // SAFETY: as above.
        let (first, rows) = unsafe { rows_of(OPERATION, managed, Need::Writable) }?;
        let memory = (first, rows.extent().unwrap_or(0));
        let buffer = self.import_memory(OPERATION, tensor, managed.tensor.device, memory)?;
        Ok((buffer, rows))
    }

    /// The tensor of a device as a buffer, whose memory is `bytes` bytes from `first` on.
    fn import_memory(
        &self,
        operation: &'static str,
        tensor: NonNull<ManagedTensor>,
        theirs: Place,
        (first, bytes): (*mut u8, usize),
    ) -> Result<DeviceBuf<u8>> {
        let context = self.timeline.context();
        let ours = place_of(context);
        if theirs != ours {
            let what = format!("the tensor is on {theirs:?}, the stream on {ours:?}");
            let remedy = "import it with a stream of the tensor's device";
            return Err(Error::new(ErrorKind::WrongDevice, operation, what, remedy));
        }
        let mut buffer = DeviceBuf::borrowed(context, first.addr() as DevicePtr, bytes)?;
        self.record_use(&mut buffer)?;
        Ok(buffer.keeping(Box::new(Owned(tensor))))
    }
}
