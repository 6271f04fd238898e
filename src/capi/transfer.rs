//! Copies between page-locked and device memory, fills and checksums.

use std::ffi::c_void;

use super::memory::{device_memory, range};
use super::{
    Error, Out, handle, invalid, pinlane_buffer, pinlane_device_buffer, pinlane_status,
    pinlane_stream, pinlane_ticket, pointer,
};
use crate::driver::MAX_PATTERN;

/// Copies `bytes` from `buffer`, from `offset` on, to the caller's own device memory. Does not
/// block. Ordered on `stream`, and after device writes to the buffer on other streams; the caller
/// orders other work on the device memory. `ticket` may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`,
/// `FORKED_PROCESS`, `WRONG_THREAD`: nothing was enqueued; `INVALID_VALUE` if `device_pointer` is
/// NULL; `CUDA`, `DEVICE_LOST`: the contents of the destination are unspecified.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
///   allocated until the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload(
    stream: *const pinlane_stream,
    buffer: *const pinlane_buffer,
    offset: usize,
    device_pointer: *mut c_void,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload", stream, |stream| {
        let buffer = handle::get(buffer)?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let mut device = unsafe { device_memory(stream, device_pointer, bytes) }?;
        stream.upload(buffer.buffer().slice(range(offset, bytes)?)?, &mut device)
    })
}

/// Copies `bytes` from the caller's own device memory to `buffer`, from `offset` on. Does not
/// block. Ordered on `stream`, and after every use of the buffer on other streams. `ticket` may be
/// NULL.
///
/// Statuses: as for `pinlane_upload`.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
///   allocated until the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download(
    stream: *const pinlane_stream,
    device_pointer: *const c_void,
    buffer: *mut pinlane_buffer,
    offset: usize,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_download", stream, |stream| {
        let mut buffer = handle::get_mut(buffer)?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let device = unsafe { device_memory(stream, device_pointer, bytes) }?;
        stream.download(&device, buffer.writable()?.slice_mut(range(offset, bytes)?)?)
    })
}

/// Copies `bytes` from `source`, from `source_offset` on, to `destination`, from
/// `destination_offset` on. Does not block. Ordered on `stream`, and after conflicting uses of both
/// buffers on any stream. `ticket` may be NULL.
///
/// Statuses: as for `pinlane_upload`.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_upload(
    stream: *const pinlane_stream,
    source: *const pinlane_buffer,
    source_offset: usize,
    destination: *mut pinlane_device_buffer,
    destination_offset: usize,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_device_buffer_upload", stream, |stream| {
        let source = handle::get(source)?;
        let mut destination = handle::get_mut(destination)?;
        let part = source.buffer().slice(range(source_offset, bytes)?)?;
        stream.upload(part, destination.slice_mut(range(destination_offset, bytes)?)?)
    })
}

/// Copies `bytes` from `source`, from `source_offset` on, to `destination`, from
/// `destination_offset` on. Does not block. Ordered as `pinlane_device_buffer_upload`.
/// `pinlane_buffer_read` of the destination waits for the copy. `ticket` may be NULL.
///
/// Statuses: as for `pinlane_upload`.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_download(
    stream: *const pinlane_stream,
    source: *const pinlane_device_buffer,
    source_offset: usize,
    destination: *mut pinlane_buffer,
    destination_offset: usize,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_device_buffer_download", stream, |stream| {
        let source = handle::get(source)?;
        let mut destination = handle::get_mut(destination)?;
        let part = source.slice(range(source_offset, bytes)?)?;
        stream.download(part, destination.writable()?.slice_mut(range(destination_offset, bytes)?)?)
    })
}

/// Copies `bytes` between two device buffers, of one device or of two; `stream` belongs to one of
/// them. Does not block. Ordered as `pinlane_device_buffer_upload`. `ticket` may be NULL.
///
/// Statuses: as for `pinlane_upload`; `INVALID_VALUE` if both are the same buffer.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_copy(
    stream: *const pinlane_stream,
    source: *const pinlane_device_buffer,
    source_offset: usize,
    destination: *mut pinlane_device_buffer,
    destination_offset: usize,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_device_buffer_copy", stream, |stream| {
        let same = std::ptr::eq(source, destination);
        let source = handle::get(source)?;
        if same {
            return Err(same_buffer());
        }
        let mut destination = handle::get_mut(destination)?;
        let part = source.slice(range(source_offset, bytes)?)?;
        stream.copy(part, destination.slice_mut(range(destination_offset, bytes)?)?)
    })
}

/// Repeats the `pattern_bytes` bytes at `pattern`, 1 to 64, over `bytes` of the buffer from
/// `offset` on; `bytes` must be a multiple of `pattern_bytes`. The pattern may be reused when the
/// call returns. Does not block. Ordered as `pinlane_device_buffer_upload`. `ticket` may be NULL.
///
/// Statuses: as for `pinlane_upload`; `LENGTH_MISMATCH`; `INVALID_VALUE` if `pattern` is NULL;
/// `UNSUPPORTED` for patterns of more than 64 bytes.
///
/// # Safety
///
/// - `pattern` is NULL or points to `pattern_bytes` bytes.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_fill(
    stream: *const pinlane_stream,
    buffer: *mut pinlane_device_buffer,
    offset: usize,
    bytes: usize,
    pattern: *const c_void,
    pattern_bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_device_buffer_fill", stream, |stream| {
        let mut buffer = handle::get_mut(buffer)?;
        if pattern.is_null() {
            return Err(pointer::null("pattern", pointer::ARRAY));
        }
        // A pattern of one byte too many is refused, so no more bytes are read.
        let length = pattern_bytes.min(MAX_PATTERN + 1);
        // SAFETY: `pattern` has `pattern_bytes` bytes, and `length` is at most that.
        let pattern = unsafe { std::slice::from_raw_parts(pattern.cast::<u8>(), length) };
        stream.fill_bytes(buffer.slice_mut(range(offset, bytes)?)?, pattern)
    })
}

/// Writes the 64-bit checksum of `bytes` of `buffer`, from `offset` on, to the 8 bytes of `sum`
/// from `sum_offset` on, a multiple of 8. Both buffers are on the stream's device. The result
/// equals `pinlane_checksum` of the same bytes. Does not block. Ordered as
/// `pinlane_device_buffer_upload`. `ticket` may be NULL.
///
/// Statuses: as for `pinlane_upload`; `INVALID_VALUE` if `sum_offset` is not a multiple of 8, or
/// both are the same buffer, or `sum` is borrowed or imported memory whose address is not a
/// multiple of 8.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_checksum(
    stream: *const pinlane_stream,
    buffer: *const pinlane_device_buffer,
    offset: usize,
    bytes: usize,
    sum: *mut pinlane_device_buffer,
    sum_offset: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_device_buffer_checksum", stream, |stream| {
        let same = std::ptr::eq(buffer, sum);
        let buffer = handle::get(buffer)?;
        if same {
            return Err(same_buffer());
        }
        let mut sum = handle::get_mut(sum)?;
        let part = buffer.slice(range(offset, bytes)?)?;
        stream.checksum(part, sum.slice_mut(range(sum_offset, 8)?)?.cast::<u64>()?)
    })
}

#[cold]
pub(super) fn same_buffer() -> Error {
    invalid("the source and the destination are the same buffer", "use two buffers")
}

/// Writes the 64-bit checksum of the `bytes` bytes at `data`, in host memory, to `sum`. Runs on the
/// calling thread. `data` may be NULL if `bytes` is 0.
///
/// Statuses: `INVALID_VALUE` if `data` or `sum` is NULL.
///
/// # Safety
///
/// - `data` is NULL or points to `bytes` readable bytes.
/// - `sum` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_checksum(
    data: *const c_void,
    bytes: usize,
    sum: *mut u64,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `sum`.
    unsafe { Out::new("sum", sum) }.give("pinlane_checksum", || {
        // SAFETY: the caller's precondition on `data`.
        Ok(crate::checksum(unsafe { pointer::inputs("data", data.cast::<u8>(), bytes) }?))
    })
}
