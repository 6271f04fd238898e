//! Copies, fills and checksums.

use std::ffi::c_void;
use std::ops::Range;

use super::buffer::pinlane_buffer;
use super::device_buffer::pinlane_device_buffer;
use super::handle;
use super::pointer::{self, Out};
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;
use super::ticket::{TicketOut, pinlane_ticket};
use crate::driver::{DevicePtr, MAX_PATTERN};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::DeviceBuf;
use crate::stream::Stream;

/// `bytes` from `offset` on; the end is checked against the buffer by whoever slices it.
pub(super) fn range(operation: &'static str, offset: usize, bytes: usize) -> Result<Range<usize>> {
    match offset.checked_add(bytes) {
        Some(end) => Ok(offset..end),
        None => Err(Error::new(
            ErrorKind::OutOfRange,
            operation,
            format!("{bytes} bytes from offset {offset} on do not fit in an address space"),
            "keep offset + bytes within the buffer",
        )),
    }
}

/// The caller's own device memory, for the time of one call.
///
/// # Safety
///
/// * `pointer .. pointer + bytes` is device memory of the stream's device, valid until retired.
pub(super) unsafe fn borrowed(
    operation: &'static str,
    stream: &Stream,
    pointer: *const c_void,
    bytes: usize,
) -> Result<DeviceBuf<u8>> {
    if pointer.is_null() && bytes > 0 {
        return Err(pointer::null(operation, "device_pointer"));
    }
    let address = pointer.addr() as DevicePtr;
    Ok(DeviceBuf::borrowed(stream.timeline.context(), address, bytes))
}

/// Copies `bytes` from `buffer`, from `offset` on, to the caller's own device memory. Does not
/// block; ordered on `stream`, and after device writes to the buffer on other streams. Other work
/// on the device memory is ordered by the caller. `ticket` may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`,
/// `FORKED_PROCESS`, `WRONG_THREAD`: nothing was enqueued; `INVALID_VALUE` if `device_pointer` is
/// NULL; `CUDA`, `DEVICE_LOST`: the contents of the destination are unspecified.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of `bytes` at least, and stays
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
    boundary(|| {
        const OPERATION: &str = "pinlane_upload";
        let stream = handle::get(OPERATION, stream)?;
        let buffer = handle::get(OPERATION, buffer)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let mut device = unsafe { borrowed(OPERATION, &stream, device_pointer, bytes) }?;
        let source = buffer.slice(range(OPERATION, offset, bytes)?)?;
        out.set(stream.upload(source, &mut device)?);
        Ok(())
    })
}

/// Copies `bytes` from the caller's own device memory to `buffer`, from `offset` on. Does not
/// block; ordered on `stream`, and after every use of the buffer on other streams. `ticket` may be
/// NULL.
///
/// Statuses: as for `pinlane_upload`.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of `bytes` at least, and stays
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
    boundary(|| {
        const OPERATION: &str = "pinlane_download";
        let stream = handle::get(OPERATION, stream)?;
        let mut buffer = handle::get_mut(OPERATION, buffer)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let device = unsafe { borrowed(OPERATION, &stream, device_pointer, bytes) }?;
        let destination = buffer.slice_mut(range(OPERATION, offset, bytes)?)?;
        out.set(stream.download(&device, destination)?);
        Ok(())
    })
}

/// Copies `bytes` from `source`, from `source_offset` on, to `destination`, from
/// `destination_offset` on. Does not block; ordered on `stream`, and after conflicting uses of both
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_upload";
        let stream = handle::get(OPERATION, stream)?;
        let source = handle::get(OPERATION, source)?;
        let mut destination = handle::get_mut(OPERATION, destination)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        out.set(stream.upload(
            source.slice(range(OPERATION, source_offset, bytes)?)?,
            destination.slice_mut(range(OPERATION, destination_offset, bytes)?)?,
        )?);
        Ok(())
    })
}

/// Copies `bytes` from `source`, from `source_offset` on, to `destination`, from
/// `destination_offset` on. Does not block; ordered as `pinlane_device_buffer_upload`.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_download";
        let stream = handle::get(OPERATION, stream)?;
        let source = handle::get(OPERATION, source)?;
        let mut destination = handle::get_mut(OPERATION, destination)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        out.set(stream.download(
            source.slice(range(OPERATION, source_offset, bytes)?)?,
            destination.slice_mut(range(OPERATION, destination_offset, bytes)?)?,
        )?);
        Ok(())
    })
}

/// Copies `bytes` between two device buffers, of one device or of two, one of which `stream`
/// belongs to. Does not block; ordered as `pinlane_device_buffer_upload`. `ticket` may be NULL.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_copy";
        let same = std::ptr::eq(source, destination);
        let stream = handle::get(OPERATION, stream)?;
        let source = handle::get(OPERATION, source)?;
        if same {
            return Err(same_buffer(OPERATION));
        }
        let mut destination = handle::get_mut(OPERATION, destination)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        out.set(stream.copy(
            source.slice(range(OPERATION, source_offset, bytes)?)?,
            destination.slice_mut(range(OPERATION, destination_offset, bytes)?)?,
        )?);
        Ok(())
    })
}

/// Repeats the `pattern_bytes` bytes at `pattern`, 1 to 64, over `bytes` of the buffer from
/// `offset` on; `bytes` must be a multiple of `pattern_bytes`. The pattern may be reused as soon as
/// the call returns. Does not block; ordered as `pinlane_device_buffer_upload`. `ticket` may be
/// NULL.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_fill";
        let stream = handle::get(OPERATION, stream)?;
        let mut buffer = handle::get_mut(OPERATION, buffer)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        if pattern.is_null() {
            return Err(pointer::null(OPERATION, "pattern"));
        }
        // One byte too many is enough to be refused, however long the pattern claims to be.
        let length = pattern_bytes.min(MAX_PATTERN + 1);
        // SAFETY: `pattern` has `pattern_bytes` bytes, and `length` is at most that.
        let pattern = unsafe { std::slice::from_raw_parts(pattern.cast::<u8>(), length) };
        let destination = buffer.slice_mut(range(OPERATION, offset, bytes)?)?;
        out.set(stream.fill_bytes(destination, pattern)?);
        Ok(())
    })
}

/// Writes the 64-bit checksum of `bytes` of `buffer`, from `offset` on, to the 8 bytes of `sum`
/// from `sum_offset` on, a multiple of 8; both on the stream's device. It equals `pinlane_checksum`
/// of the same bytes. Does not block; ordered as `pinlane_device_buffer_upload`. `ticket` may be
/// NULL.
///
/// Statuses: as for `pinlane_upload`; `INVALID_VALUE` if `sum_offset` is no multiple of 8, or both
/// are the same buffer.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_checksum";
        let same = std::ptr::eq(buffer, sum);
        let stream = handle::get(OPERATION, stream)?;
        let buffer = handle::get(OPERATION, buffer)?;
        if same {
            return Err(same_buffer(OPERATION));
        }
        let mut sum = handle::get_mut(OPERATION, sum)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        out.set(stream.checksum(
            buffer.slice(range(OPERATION, offset, bytes)?)?,
            sum.slice_mut(range(OPERATION, sum_offset, 8)?)?.cast::<u64>()?,
        )?);
        Ok(())
    })
}

#[cold]
pub(super) fn same_buffer(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::InvalidValue,
        operation,
        "the source and the destination are the same buffer",
        "use two buffers",
    )
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
    boundary(|| {
        const OPERATION: &str = "pinlane_checksum";
        // SAFETY: the caller's precondition on `sum`.
        let out = unsafe { Out::new(OPERATION, "sum", sum) }?;
        let data = match (data.is_null(), bytes) {
            (_, 0) => &[],
            (true, _) => return Err(pointer::null(OPERATION, "data")),
            // SAFETY: the caller's precondition on `data`.
            (false, _) => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) },
        };
        out.set(crate::checksum(data));
        Ok(())
    })
}
