//! Buffers in device memory, tracked like those in page-locked memory.

use std::ffi::c_void;

use super::device::pinlane_device;
use super::handle::{self, Handle};
use super::pointer::Out;
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;
use super::table::Table;
use crate::memory::DeviceBuf;

/// A buffer in the memory of a device. Any thread may use it, one at a time: a call that conflicts
/// with another thread's at the same moment gets `PINLANE_STATUS_BUSY`.
pub struct pinlane_device_buffer {
    _opaque: [u8; 0],
}

impl Handle for pinlane_device_buffer {
    type Object = DeviceBuf<u8>;
    const NAME: &'static str = "device buffer";
    fn table() -> &'static Table<Self::Object> {
        static TABLE: Table<DeviceBuf<u8>> = Table::new(6, false);
        &TABLE
    }
}

/// Allocates `bytes` of device memory, aligned to 256, and writes the buffer to `buffer`, which the
/// caller frees with `pinlane_device_buffer_free`. The contents are unspecified. Does not wait for
/// the device.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_alloc";
        let device = handle::get(OPERATION, device)?;
        // SAFETY: the caller's precondition on `buffer`.
        let out = unsafe { Out::new(OPERATION, "buffer", buffer) }?;
        let made = device.alloc::<u8>(bytes)?;
        let address = made.as_device_ptr() as usize;
        out.set(handle::create_noted(made, [bytes, address]));
        Ok(())
    })
}

/// Writes the device address of the buffer to `pointer`, whoever uses the buffer, for the caller's
/// own kernels. Order them behind the allocation and other uses, and tell the buffer of them, with
/// `pinlane_foreign_begin`, or with `pinlane_device_buffer_acquire` and
/// `pinlane_device_buffer_record_use`. NULL for a buffer of 0 bytes.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_address";
        let [_, address] = handle::notes(OPERATION, buffer)?;
        // SAFETY: the caller's precondition on `pointer`.
        let out = unsafe { Out::new(OPERATION, "pointer", pointer) }?;
        out.set(std::ptr::without_provenance_mut(address));
        Ok(())
    })
}

/// Writes the buffer's size in bytes to `bytes`, whoever uses the buffer.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_size";
        let [length, _] = handle::notes(OPERATION, buffer)?;
        // SAFETY: the caller's precondition on `bytes`.
        unsafe { Out::new(OPERATION, "bytes", bytes) }?.set(length);
        Ok(())
    })
}

/// Makes later work of `stream` wait, on the device, for every pending use of the buffer, so that
/// the caller's own work on it may be enqueued there. Does not block.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_buffer_acquire(
    buffer: *mut pinlane_device_buffer,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_acquire";
        let mut buffer = handle::get_mut(OPERATION, buffer)?;
        let stream = handle::get(OPERATION, stream)?;
        stream.acquire(&mut *buffer)
    })
}

/// Tells the buffer that the caller's own work on `stream` uses it, for reading or writing:
/// whatever is on the stream now counts as a use, and everything later waits for it. Call it after
/// enqueuing that work. Does not block. With `BUSY` the use is not recorded, as in
/// `pinlane_buffer_record_use`.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_buffer_record_use(
    buffer: *mut pinlane_device_buffer,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_record_use";
        let mut buffer = handle::get_mut(OPERATION, buffer)?;
        let stream = handle::get(OPERATION, stream)?;
        stream.record_use(&mut *buffer)
    })
}

/// Frees the buffer; NULL is a no-op. Returns at once, even in the middle of a copy: the memory is
/// freed in stream order, behind its last use.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a device buffer.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_buffer_free(buffer: *mut pinlane_device_buffer) -> pinlane_status {
    boundary(|| handle::free("pinlane_device_buffer_free", buffer))
}
