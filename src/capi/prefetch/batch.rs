//! The parts of a device batch. Its handle is a device buffer's, which holds all slices.

use std::ffi::c_char;

use crate::capi::device_buffer::DeviceBuffer;
use crate::capi::{
    ErrorKind, Out, Result, boundary, handle, invalid, pinlane_device_buffer, pinlane_status,
    pinlane_ticket, pointer, refused,
};
use crate::prefetch::DeviceBatch;

/// Calls `ask` with the batch behind a buffer.
fn with_batch<R>(
    batch: *const pinlane_device_buffer,
    ask: impl FnOnce(&DeviceBatch) -> Result<R>,
) -> Result<R> {
    match &*handle::get(batch)? {
        DeviceBuffer::Batch(batch) => ask(batch),
        DeviceBuffer::Own(_) => Err(invalid(
            "the device buffer is no batch",
            "pass a buffer that pinlane_prefetch_next gave",
        )),
    }
}

/// Writes to `index` the number of the batch, from 0, in the order in which the producer began
/// them.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` if `batch` is not a buffer
/// of a prefetch, or `index` is NULL.
///
/// # Safety
///
/// - `index` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_batch_index(
    batch: *const pinlane_device_buffer,
    index: *mut u64,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `index`.
    unsafe { Out::new("index", index) }
        .give("pinlane_device_batch_index", || with_batch(batch, |batch| Ok(batch.index())))
}

/// Writes to `ticket` a ticket that is complete when the batch is on the device. The caller frees
/// it with `pinlane_ticket_free`. The stream of the prefetch waits for the batch anyway.
///
/// Statuses: as for `pinlane_device_batch_index`.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_batch_ticket(
    batch: *const pinlane_device_buffer,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::new("ticket", ticket) }.create("pinlane_device_batch_ticket", || {
        with_batch(batch, |batch| Ok(batch.ticket().clone()))
    })
}

/// Writes the number of the batch's slices to `count`.
///
/// Statuses: as for `pinlane_device_batch_index`.
///
/// # Safety
///
/// - `count` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_batch_count(
    batch: *const pinlane_device_buffer,
    count: *mut usize,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `count`.
    unsafe { Out::new("count", count) }
        .give("pinlane_device_batch_count", || with_batch(batch, |batch| Ok(batch.names().len())))
}

/// Writes the name of slice `number` to `buffer`: at most `capacity` bytes with the terminating
/// NUL. A longer name is truncated. Writes to `needed`, which may be NULL, how many bytes the whole
/// name needs, with the NUL. `buffer` may be NULL if `capacity` is 0. Slices have the order in
/// which the producer described them.
///
/// Statuses: as for `pinlane_device_batch_index`; `OUT_OF_RANGE` if there are fewer slices;
/// `INVALID_VALUE` also if `buffer` is NULL, or `needed` is misaligned.
///
/// # Safety
///
/// - `buffer` is NULL or points to `capacity` bytes.
/// - `needed` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_batch_name(
    batch: *const pinlane_device_buffer,
    number: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pinlane_status {
    let name = |batch: &DeviceBatch| match batch.names().nth(number) {
        Some((name, _)) => Ok(name.to_owned()),
        None => Err(refused(
            ErrorKind::OutOfRange,
            format!("slice {number} of {}", batch.names().len()),
            "ask pinlane_device_batch_count how many there are",
        )),
    };
    const FUNCTION: &str = "pinlane_device_batch_name";
    // SAFETY: the caller's preconditions on `buffer` and `needed`.
    unsafe { pointer::give_text(FUNCTION, buffer, capacity, needed, || with_batch(batch, name)) }
}

/// Writes to `offset` the offset of the slice with that name in the buffer, a multiple of 256 and
/// of its element's size, and to `bytes` its size. The name of an unnamed slice is its number.
///
/// Statuses: as for `pinlane_device_batch_index`; `INVALID_VALUE` also if the batch has no slice of
/// that name, or a pointer is NULL.
///
/// # Safety
///
/// - `name` is NULL or points to a string.
/// - `offset` and `bytes` are each NULL or point to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_batch_slice(
    batch: *const pinlane_device_buffer,
    name: *const c_char,
    offset: *mut usize,
    bytes: *mut usize,
) -> pinlane_status {
    boundary("pinlane_device_batch_slice", || {
        // SAFETY: the caller's precondition on `offset`.
        let offset = unsafe { Out::new("offset", offset) }.check()?;
        // SAFETY: the caller's precondition on `bytes`.
        let bytes = unsafe { Out::new("bytes", bytes) }.check()?;
        // SAFETY: the caller's precondition on `name`.
        let name = unsafe { pointer::string("name", name) }?;
        let range = with_batch(batch, |batch| batch.range(&name))?;
        offset.set(range.start);
        bytes.set(range.len());
        Ok(())
    })
}
