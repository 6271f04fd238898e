//! Memory that C names by its address, and ranges of buffers.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;

use super::pointer;
use super::status::{invalid, refused};
use crate::driver::DevicePtr;
use crate::error::{ErrorKind, Result};
use crate::memory::DeviceBuf;
use crate::stream::Stream;

/// The first of `bytes` bytes of host memory. It may be NULL if there are none.
pub(super) fn check_memory(memory: *const c_void, bytes: usize) -> Result<NonNull<u8>> {
    let end = memory.addr().checked_add(bytes);
    let (what, remedy) = match NonNull::new(memory.cast_mut().cast()) {
        _ if end.is_none() || isize::try_from(bytes).is_err() => {
            (format!("no memory is {bytes} bytes long"), "pass the size of the memory")
        }
        Some(first) => return Ok(first),
        None if bytes == 0 => return Ok(NonNull::dangling()),
        None => (format!("{bytes} bytes at NULL"), "pass the address of the memory"),
    };
    Err(invalid(what, remedy))
}

/// The caller's memory, to read.
///
/// # Safety
///
/// * `memory` is NULL, or its first `bytes` bytes can be read, and are not written, during `'a`.
pub(super) unsafe fn source<'a>(memory: *const c_void, bytes: usize) -> Result<&'a [u8]> {
    let first = check_memory(memory, bytes)?;
    // SAFETY: readable and unchanged during 'a, by the precondition; not NULL, and no longer than
    // memory can be, as just found. Bytes that C has not initialised are only copied.
    Ok(unsafe { std::slice::from_raw_parts(first.as_ptr(), bytes) })
}

/// The caller's memory, to write.
///
/// # Safety
///
/// * `memory` is NULL, or its first `bytes` bytes can be written, and no other code accesses them,
///   during `'a`.
pub(super) unsafe fn destination<'a>(memory: *mut c_void, bytes: usize) -> Result<&'a mut [u8]> {
    let first = check_memory(memory, bytes)?;
    // SAFETY: as in `source`, and no other code accesses it, by the precondition. No byte is read
    // before it is written, so C need not have initialised them.
    Ok(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), bytes) })
}

/// The caller's own device memory, for the time of a call.
///
/// # Safety
///
/// * `pointer .. pointer + bytes` is memory of the stream's device, valid until what the call
///   enqueues is complete.
pub(super) unsafe fn device_memory(
    stream: &Stream,
    pointer: *const c_void,
    bytes: usize,
) -> Result<DeviceBuf<u8>> {
    if pointer.is_null() && bytes > 0 {
        return Err(pointer::null("device_pointer", "pass an address in the memory of the device"));
    }
    let address = pointer.addr() as DevicePtr;
    DeviceBuf::borrowed(stream.timeline.context(), address, bytes)
}

/// `bytes` bytes of a buffer from `offset` on. Slicing the buffer checks that it has them.
#[inline]
pub(super) fn range(offset: usize, bytes: usize) -> Result<Range<usize>> {
    match offset.checked_add(bytes) {
        Some(end) => Ok(offset..end),
        None => Err(refused(
            ErrorKind::OutOfRange,
            format!("{bytes} bytes from offset {offset} on are more than an address space has"),
            "keep offset + bytes within the buffer",
        )),
    }
}
