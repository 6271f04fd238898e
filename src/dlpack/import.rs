//! Imports tensors as buffers.
//!
//! # Invariants
//!
//! * The deleter is called once: when the buffer has been dropped and no use of it is pending.
//! * A call that fails leaves the tensor to its caller, who may still call the deleter.

use std::ptr::NonNull;

use super::check::bytes_of;
use super::export::place_of;
use super::{ManagedTensor, Place, delete};
use crate::driver::DevicePtr;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{DeviceBuf, HostMemory};
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
        let (first, bytes) = unsafe { bytes_of(OPERATION, managed) }?;
        let page_locked = match managed.tensor.device.device_type {
            Place::CPU => false,
            Place::CUDA_HOST => true,
            other => {
                let what = format!("a tensor on a device of type {other}, not in host memory");
                let remedy = "import it as a device buffer, or copy it";
                return Err(Error::invalid(OPERATION, what, remedy));
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
        let (first, bytes) = unsafe { bytes_of(OPERATION, managed) }?;
        let context = self.timeline.context();
        let (theirs, ours) = (managed.tensor.device, place_of(context));
        if theirs != ours {
            let what = format!("the tensor is on {theirs:?}, the stream on {ours:?}");
            let remedy = "import it with a stream of the tensor's device";
            return Err(Error::new(ErrorKind::WrongDevice, OPERATION, what, remedy));
        }
        let mut buffer = DeviceBuf::borrowed(context, first.addr() as DevicePtr, bytes)?;
        self.record_use(&mut buffer)?;
        Ok(buffer.keeping(Box::new(Owned(tensor))))
    }
}
