//! Buffers in device memory.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use super::memory::check_memory;
use super::{
    Out, boundary, freeing, handle, handle_type, pinlane_device, pinlane_status, pinlane_stream,
};
use crate::driver::DevicePtr;
use crate::memory::DeviceBuf;
use crate::prefetch::DeviceBatch;

/// A buffer in the memory of a device. It tracks the work that uses it, as a `pinlane_buffer` does.
/// Any thread may use it, one at a time: a call that conflicts with another thread's at the same
/// moment gets `PINLANE_STATUS_BUSY`.
pub enum pinlane_device_buffer {}

handle_type!(pinlane_device_buffer: DeviceBuffer, "device buffer", table 6, shared: false);

/// The object of a device buffer's handle.
pub enum DeviceBuffer {
    /// Memory that was allocated for the program, or that it lends.
    Own(DeviceBuf<u8>),
    /// A batch of a pipeline.
    Batch(DeviceBatch),
}

impl DeviceBuffer {
    /// The handle's notes are the size and the address.
    pub(super) fn into_handle(self) -> *mut pinlane_device_buffer {
        let notes = [self.len(), self.as_device_ptr() as usize];
        handle::create_noted(ManuallyDrop::new(self), notes)
    }
}

impl Deref for DeviceBuffer {
    type Target = DeviceBuf<u8>;

    #[inline]
    fn deref(&self) -> &DeviceBuf<u8> {
        match self {
            DeviceBuffer::Own(buffer) => buffer,
            DeviceBuffer::Batch(batch) => batch.buffer(),
        }
    }
}

impl DerefMut for DeviceBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut DeviceBuf<u8> {
        match self {
            DeviceBuffer::Own(buffer) => buffer,
            DeviceBuffer::Batch(batch) => batch.buffer_mut(),
        }
    }
}

/// Allocates `bytes` of device memory, aligned to 256, and writes the buffer to `buffer`. The
/// caller frees it with `pinlane_device_buffer_free`. The contents are unspecified. Does not wait
/// for the device.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_DEVICE_MEMORY`, `FORKED_PROCESS`; `INVALID_VALUE` if
/// `buffer` is NULL.
///
/// # Safety
///
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_alloc(
    device: *const pinlane_device,
    bytes: usize,
    buffer: *mut *mut pinlane_device_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }.give("pinlane_device_buffer_alloc", || {
        Ok(DeviceBuffer::Own(handle::get(device)?.alloc(bytes)?).into_handle())
    })
}

/// Makes a buffer of `bytes` of the caller's own device memory, at `pointer`, and writes it to
/// `buffer`. It works as a buffer that pinlane has allocated: its uses are ordered and waited for.
/// The caller frees it with `pinlane_device_buffer_free`, which does not free the memory. Does not
/// block. `pointer` may be NULL if `bytes` is 0.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `pointer` or `buffer` is NULL,
/// or the size exceeds the address space.
///
/// # Safety
///
/// - `bytes` from `pointer` on lie in one allocation on this device. It stays allocated until
///   everything that was enqueued through the buffer is complete, even after the buffer is freed.
/// - Work on the memory that was enqueued elsewhere before this call is complete, or ordered before
///   the streams that the buffer is used on. The caller orders later work that is enqueued
///   elsewhere, with `pinlane_foreign_begin` for example.
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_borrow(
    device: *const pinlane_device,
    pointer: *mut c_void,
    bytes: usize,
    buffer: *mut *mut pinlane_device_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }.give("pinlane_device_buffer_borrow", || {
        let device = handle::get(device)?;
        check_memory(pointer, bytes)?;
        let address = pointer.addr() as DevicePtr;
        // SAFETY: the caller's first two preconditions; bytes need no alignment.
        let borrowed = unsafe { device.borrow_memory(address, bytes) }?;
        Ok(DeviceBuffer::Own(borrowed).into_handle())
    })
}

/// Writes the device address of the buffer to `pointer`, for the caller's own kernels, even while
/// other calls use the buffer. NULL for a buffer of 0 bytes. Order the kernels with
/// `pinlane_foreign_begin`, or with `pinlane_device_buffer_acquire` before they are enqueued and
/// `pinlane_device_buffer_record_use` afterwards.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `pointer` is NULL.
///
/// # Safety
///
/// - `pointer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_address(
    buffer: *const pinlane_device_buffer,
    pointer: *mut *mut c_void,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `pointer`.
    unsafe { Out::new("pointer", pointer) }.give("pinlane_device_buffer_address", || {
        let [_, address] = handle::notes(buffer)?;
        Ok(std::ptr::without_provenance_mut(address))
    })
}

/// Writes the buffer's size in bytes to `bytes`, even while other calls use the buffer.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `bytes` is NULL.
///
/// # Safety
///
/// - `bytes` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_size(
    buffer: *const pinlane_device_buffer,
    bytes: *mut usize,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `bytes`.
    unsafe { Out::new("bytes", bytes) }
        .give("pinlane_device_buffer_size", || Ok(handle::notes(buffer)?[0]))
}

/// Makes later work of `stream` wait, on the device, for every pending use of the buffer. Then the
/// caller's own work on the buffer may be enqueued on the stream. Does not block.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_buffer_acquire(
    buffer: *mut pinlane_device_buffer,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary("pinlane_device_buffer_acquire", || {
        let mut buffer = handle::get_mut(buffer)?;
        handle::get(stream)?.acquire(&mut **buffer)
    })
}

/// Records that the caller's own work on `stream` reads or writes the buffer. Everything on the
/// stream now counts as a use, and later uses wait for it. Call it after that work is enqueued.
/// Does not block. With `BUSY` the use is not recorded, as in `pinlane_buffer_record_use`.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_buffer_record_use(
    buffer: *mut pinlane_device_buffer,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary("pinlane_device_buffer_record_use", || {
        let mut buffer = handle::get_mut(buffer)?;
        handle::get(stream)?.record_use(&mut **buffer)
    })
}

/// Frees the buffer; NULL is a no-op. Returns at once, even in the middle of a copy: the memory is
/// freed in stream order, after its last use. The memory of a batch is reused for a later batch.
/// The caller's own memory, of `pinlane_device_buffer_borrow`, is not freed.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a device buffer.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_buffer_free(buffer: *mut pinlane_device_buffer) -> pinlane_status {
    freeing("pinlane_device_buffer_free", || handle::free(buffer))
}
