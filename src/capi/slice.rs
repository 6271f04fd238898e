//! Copies of ordinary memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::device_buffer::pinlane_device_buffer;
use super::handle;
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;
use super::ticket::{TicketOut, pinlane_ticket};
use super::transfer::{borrowed, range};
use crate::error::{Error, ErrorKind, Result};

/// Memory that a slice can be, whose first byte may be missing if there are none.
pub(super) fn check_memory(
    operation: &'static str,
    memory: *mut u8,
    bytes: usize,
) -> Result<NonNull<u8>> {
    let refuse =
        |what: String, remedy| Err(Error::new(ErrorKind::InvalidValue, operation, what, remedy));
    let end = memory.addr().checked_add(bytes);
    if end.is_none() || isize::try_from(bytes).is_err() {
        return refuse(format!("no memory is {bytes} bytes long"), "pass the size of the memory");
    }
    match NonNull::new(memory) {
        Some(first) => Ok(first),
        None if bytes == 0 => Ok(NonNull::dangling()),
        None => refuse(format!("{bytes} bytes at NULL"), "pass the address of the memory"),
    }
}

/// The caller's memory, to read.
///
/// # Safety
///
/// * `memory` is NULL, or `bytes` from it on can be read, and nobody writes to them, during `'a`.
pub(super) unsafe fn source<'a>(
    operation: &'static str,
    memory: *const c_void,
    bytes: usize,
) -> Result<&'a [u8]> {
    let first = check_memory(operation, memory.cast_mut().cast(), bytes)?;
    // SAFETY: readable and as it is during 'a, by the precondition; not NULL, and no longer than
    // memory can be. Bytes that C has not initialised are copied as what they happen to be.
    Ok(unsafe { std::slice::from_raw_parts(first.as_ptr(), bytes) })
}

/// The caller's memory, to write.
///
/// # Safety
///
/// * `memory` is NULL, or `bytes` from it on can be written, and nobody else accesses them, during
///   `'a`.
pub(super) unsafe fn destination<'a>(
    operation: &'static str,
    memory: *mut c_void,
    bytes: usize,
) -> Result<&'a mut [u8]> {
    let first = check_memory(operation, memory.cast(), bytes)?;
    // SAFETY: as in `source`, and nobody else's; whether C has initialised the bytes does not
    // matter, as none is read before it is written.
    Ok(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), bytes) })
}

/// Copies `bytes` of ordinary memory, from `src` on, to the caller's own device memory. Returns
/// when `src` may be reused; the ticket says when the data has arrived. Ordered on `stream`; other
/// work on the device memory is ordered by the caller. `src` and `device_pointer` may be NULL if
/// `bytes` is 0; `ticket` may be NULL.
///
/// Small copies, of 64 KiB unless `pinlane_device_set_staging` says otherwise, do not block. Larger
/// ones go through page-locked slots, filled by several threads while the device copies: the call
/// first waits until the stream has come to it, and takes until nearly all is on the device.
///
/// Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`,
/// `OUT_OF_HOST_MEMORY` if no memory can be page-locked; `INVALID_VALUE` if a pointer is NULL or
/// the size overflows: nothing was enqueued. `CUDA`, `DEVICE_LOST`: the contents of the destination
/// are unspecified.
///
/// # Safety
///
/// - `src` is NULL or points to `bytes` readable bytes, which nobody writes until the call returns.
/// - `device_pointer` is device memory of the stream's device, of `bytes` at least, and stays
///   allocated until the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_slice(
    stream: *const pinlane_stream,
    src: *const c_void,
    device_pointer: *mut c_void,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_upload_slice";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `src`.
        let source = unsafe { source(OPERATION, src, bytes) }?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let mut device = unsafe { borrowed(OPERATION, &stream, device_pointer, bytes) }?;
        out.set(stream.upload_slice(source, &mut device)?);
        Ok(())
    })
}

/// Copies `bytes` from the caller's own device memory to ordinary memory, from `dst` on, and
/// returns when they have arrived. Ordered on `stream`. Both pointers may be NULL if `bytes` is 0.
///
/// Statuses: as for `pinlane_upload_slice`.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of `bytes` at least.
/// - `dst` is NULL or points to `bytes` writable bytes, which nobody else accesses until the call
///   returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_slice(
    stream: *const pinlane_stream,
    device_pointer: *const c_void,
    dst: *mut c_void,
    bytes: usize,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_download_slice";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let device = unsafe { borrowed(OPERATION, &stream, device_pointer, bytes) }?;
        // SAFETY: the caller's precondition on `dst`.
        let destination = unsafe { destination(OPERATION, dst, bytes) }?;
        stream.download_slice(&device, destination)
    })
}

/// As `pinlane_upload_slice`, to `destination` from `destination_offset` on; also ordered after
/// conflicting uses of the buffer on other streams.
///
/// Statuses: as for `pinlane_upload_slice`; `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`: nothing was
/// enqueued.
///
/// # Safety
///
/// - `src` is NULL or points to `bytes` readable bytes, which nobody writes until the call returns.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_upload_slice(
    stream: *const pinlane_stream,
    src: *const c_void,
    destination: *mut pinlane_device_buffer,
    destination_offset: usize,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_upload_slice";
        let stream = handle::get(OPERATION, stream)?;
        let mut destination = handle::get_mut(OPERATION, destination)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `src`.
        let source = unsafe { source(OPERATION, src, bytes) }?;
        let part = destination.slice_mut(range(OPERATION, destination_offset, bytes)?)?;
        out.set(stream.upload_slice(source, part)?);
        Ok(())
    })
}

/// As `pinlane_download_slice`, from `source` from `source_offset` on; also ordered after
/// conflicting uses of the buffer on other streams.
///
/// Statuses: as for `pinlane_device_buffer_upload_slice`.
///
/// # Safety
///
/// - `dst` is NULL or points to `bytes` writable bytes, which nobody else accesses until the call
///   returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_download_slice(
    stream: *const pinlane_stream,
    source: *const pinlane_device_buffer,
    source_offset: usize,
    dst: *mut c_void,
    bytes: usize,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_download_slice";
        let stream = handle::get(OPERATION, stream)?;
        let source = handle::get(OPERATION, source)?;
        // SAFETY: the caller's precondition on `dst`.
        let destination = unsafe { destination(OPERATION, dst, bytes) }?;
        let part = source.slice(range(OPERATION, source_offset, bytes)?)?;
        stream.download_slice(part, destination)
    })
}
