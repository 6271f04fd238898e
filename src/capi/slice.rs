//! Copies of host memory that is named by its address: pageable, or of a pool.

use std::ffi::c_void;

use super::memory::{check_memory, destination, device_memory, range, source};
use super::{
    Error, Out, Result, boundary, handle, invalid, pinlane_device_buffer, pinlane_status,
    pinlane_stream, pinlane_ticket,
};
use crate::memory::{DeviceSlice, DeviceSliceMut, PinnedSlice, PinnedSliceMut};
use crate::pool::block_at;
use crate::stream::Stream;
use crate::ticket::Ticket;

/// Copies `bytes` of pageable memory, from `src` on, to the caller's own device memory. Returns
/// when `src` may be reused; the ticket says when the data has arrived. Ordered on `stream`; the
/// caller orders other work on the device memory. `src` and `device_pointer` may be NULL if `bytes`
/// is 0; `ticket` may be NULL.
///
/// A small copy, of at most 64 KiB unless `pinlane_device_set_staging` says otherwise, does not
/// block. A larger one goes through page-locked slots, which several threads fill while the device
/// copies. The call first waits until the stream has reached it, and returns when nearly all of the
/// data is on the device. Memory of a pool (`pinlane_pool_allocate`, or that of a buffer) does not
/// go through slots: the device copies it directly, and the call returns when the copy is complete.
///
/// Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`,
/// `OUT_OF_HOST_MEMORY` if no memory can be page-locked; `INVALID_VALUE` if a pointer is NULL or
/// the size overflows: nothing was enqueued. `CUDA`, `DEVICE_LOST`: the contents of the destination
/// are unspecified.
///
/// # Safety
///
/// - `src` is NULL or points to `bytes` readable bytes, which are not written until the call
///   returns.
/// - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
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
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_slice", stream, |stream| {
        // SAFETY: the caller's precondition on `src`.
        let source = unsafe { source(src, bytes) }?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let mut device = unsafe { device_memory(stream, device_pointer, bytes) }?;
        stream.upload_slice(source, &mut device)
    })
}

/// Copies `bytes` from the caller's own device memory to pageable memory, from `dst` on. Returns
/// when they have arrived. Ordered on `stream`. Both pointers may be NULL if `bytes` is 0. Memory
/// of a pool is written as `pinlane_upload_slice` reads it. If the device is lost while it writes
/// such memory, and every way to wait for it fails, the process aborts.
///
/// Statuses: as for `pinlane_upload_slice`.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of at least `bytes`.
/// - `dst` is NULL or points to `bytes` writable bytes, which no other code accesses until the call
///   returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_slice(
    stream: *const pinlane_stream,
    device_pointer: *const c_void,
    dst: *mut c_void,
    bytes: usize,
) -> pinlane_status {
    boundary("pinlane_download_slice", || {
        let stream = handle::get(stream)?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let device = unsafe { device_memory(&stream, device_pointer, bytes) }?;
        // SAFETY: the caller's precondition on `dst`.
        let destination = unsafe { destination(dst, bytes) }?;
        stream.download_slice(&device, destination)
    })
}

/// As `pinlane_upload_slice`, to `destination` from `destination_offset` on. Also ordered after
/// conflicting uses of the buffer on other streams.
///
/// Statuses: as for `pinlane_upload_slice`; `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`: nothing was
/// enqueued.
///
/// # Safety
///
/// - `src` is NULL or points to `bytes` readable bytes, which are not written until the call
///   returns.
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
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_device_buffer_upload_slice", stream, |stream| {
        let mut destination = handle::get_mut(destination)?;
        // SAFETY: the caller's precondition on `src`.
        let source = unsafe { source(src, bytes) }?;
        stream.upload_slice(source, destination.slice_mut(range(destination_offset, bytes)?)?)
    })
}

/// As `pinlane_download_slice`, from `source` from `source_offset` on. Also ordered after
/// conflicting uses of the buffer on other streams.
///
/// Statuses: as for `pinlane_device_buffer_upload_slice`.
///
/// # Safety
///
/// - `dst` is NULL or points to `bytes` writable bytes, which no other code accesses until the call
///   returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_download_slice(
    stream: *const pinlane_stream,
    source: *const pinlane_device_buffer,
    source_offset: usize,
    dst: *mut c_void,
    bytes: usize,
) -> pinlane_status {
    boundary("pinlane_device_buffer_download_slice", || {
        let stream = handle::get(stream)?;
        let source = handle::get(source)?;
        // SAFETY: the caller's precondition on `dst`.
        let destination = unsafe { destination(dst, bytes) }?;
        stream.download_slice(source.slice(range(source_offset, bytes)?)?, destination)
    })
}

/// Enqueues an upload of memory of a pool.
///
/// # Safety
///
/// * As many bytes as `device` has, from `src` on, are allocated until this returns, if they are
///   memory of a pool. They are not written until the copy is complete.
unsafe fn upload_pinned(
    stream: &Stream,
    src: *const c_void,
    device: DeviceSliceMut<'_, u8>,
) -> Result<Ticket> {
    let first = check_memory(src, device.len())?.as_ptr();
    if device.is_empty() {
        return stream.upload_slice(&[], device);
    }
    // SAFETY: the precondition.
    let block = unsafe { block_at(first, device.len(), device.context()) };
    let block = block.ok_or_else(|| in_no_block(src, device.len()))?;
    // SAFETY: they lie in the block, and are not written, by the precondition.
    stream.upload(unsafe { PinnedSlice::at(block, first, device.len()) }, device)
}

/// Enqueues a download to memory of a pool.
///
/// # Safety
///
/// * As many bytes as `device` has, from `dst` on, are allocated until this returns, if they are
///   memory of a pool. They are not accessed until the copy is complete.
unsafe fn download_pinned(
    stream: &Stream,
    device: DeviceSlice<'_, u8>,
    dst: *mut c_void,
) -> Result<Ticket> {
    let first = check_memory(dst, device.len())?.as_ptr();
    if device.is_empty() {
        return stream.download_slice(device, &mut []).map(|()| Ticket::done());
    }
    // SAFETY: the precondition.
    let block = unsafe { block_at(first, device.len(), device.context()) };
    let block = block.ok_or_else(|| in_no_block(dst, device.len()))?;
    // SAFETY: they lie in the block, and are not accessed, by the precondition.
    let dst = unsafe { PinnedSliceMut::at(block, first, device.len()) };
    stream.download(device, dst)
}

fn in_no_block(memory: *const c_void, bytes: usize) -> Error {
    invalid(
        format!("the {bytes} bytes at {memory:p} do not lie in one block of a pool"),
        "pass memory of pinlane_pool_allocate, or call the function of that name that ends in \
         _slice, which takes any memory",
    )
}

/// Copies `bytes` of memory of a pool, from `src` on, to the caller's own device memory. Does not
/// block. For memory that is known only by its address: memory of `pinlane_pool_allocate`, for
/// example of a container, or of a buffer of a pool. The pool may be of any device. Ordered on
/// `stream`, and after the copies to that memory that pinlane has enqueued before; the caller
/// orders other work on the device memory. `src` and `device_pointer` may be NULL if `bytes` is 0;
/// `ticket` may be NULL.
///
/// The memory may be freed right after the call: the pool reuses it only when the copy is complete.
/// It must not be written before the ticket is complete.
///
/// Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`;
/// `INVALID_VALUE` if a pointer is NULL, the size overflows, or the bytes do not lie in one
/// allocation of a pool: nothing was enqueued. `CUDA`, `DEVICE_LOST`: the contents of the
/// destination are unspecified.
///
/// # Safety
///
/// - `src` is NULL, or `bytes` from `src` on are not freed before the call returns.
/// - They are not written until the copy is complete.
/// - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
///   allocated until the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_pinned(
    stream: *const pinlane_stream,
    src: *const c_void,
    device_pointer: *mut c_void,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_pinned", stream, |stream| {
        // SAFETY: the caller's precondition on `device_pointer`.
        let mut device = unsafe { device_memory(stream, device_pointer, bytes) }?;
        // SAFETY: the caller's precondition on `src`.
        unsafe { upload_pinned(stream, src, device.as_slice_mut()) }
    })
}

/// Copies `bytes` from the caller's own device memory to memory of a pool, from `dst` on. Does not
/// block. The memory must not be read or written before the ticket is complete. Otherwise as
/// `pinlane_upload_pinned`; ordered after all copies from and to that memory that pinlane has
/// enqueued before.
///
/// Statuses: as for `pinlane_upload_pinned`.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
///   allocated until the copy is complete.
/// - `dst` is NULL, or `bytes` from `dst` on are not freed before the call returns.
/// - They are not accessed until the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_pinned(
    stream: *const pinlane_stream,
    device_pointer: *const c_void,
    dst: *mut c_void,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_download_pinned", stream, |stream| {
        // SAFETY: the caller's precondition on `device_pointer`.
        let device = unsafe { device_memory(stream, device_pointer, bytes) }?;
        // SAFETY: the caller's precondition on `dst`.
        unsafe { download_pinned(stream, device.as_slice(), dst) }
    })
}

/// As `pinlane_upload_pinned`, to `destination` from `destination_offset` on. Also ordered after
/// conflicting uses of the buffer on other streams.
///
/// Statuses: as for `pinlane_upload_pinned`; `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`: nothing was
/// enqueued.
///
/// # Safety
///
/// - `src` is NULL, or `bytes` from `src` on are not freed before the call returns.
/// - They are not written until the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_upload_pinned(
    stream: *const pinlane_stream,
    src: *const c_void,
    destination: *mut pinlane_device_buffer,
    destination_offset: usize,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue(
        "pinlane_device_buffer_upload_pinned",
        stream,
        |stream| {
            let mut destination = handle::get_mut(destination)?;
            let device = destination.slice_mut(range(destination_offset, bytes)?)?;
            // SAFETY: the caller's precondition on `src`.
            unsafe { upload_pinned(stream, src, device) }
        },
    )
}

/// As `pinlane_download_pinned`, from `source` from `source_offset` on. Also ordered after
/// conflicting uses of the buffer on other streams.
///
/// Statuses: as for `pinlane_device_buffer_upload_pinned`.
///
/// # Safety
///
/// - `dst` is NULL, or `bytes` from `dst` on are not freed before the call returns.
/// - They are not accessed until the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_download_pinned(
    stream: *const pinlane_stream,
    source: *const pinlane_device_buffer,
    source_offset: usize,
    dst: *mut c_void,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue(
        "pinlane_device_buffer_download_pinned",
        stream,
        |stream| {
            let source = handle::get(source)?;
            let device = source.slice(range(source_offset, bytes)?)?;
            // SAFETY: the caller's precondition on `dst`.
            unsafe { download_pinned(stream, device, dst) }
        },
    )
}
