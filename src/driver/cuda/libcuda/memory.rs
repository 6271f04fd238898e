//! Device memory.

use super::super::words::stream_of;
use super::context::relaxed;
use super::library::Library;
use pinlane_driver::{DevicePtr, DriverResult, Ordinal, RawStream};

/// `cuMemAlloc`
pub(in super::super) fn malloc(device: Ordinal, bytes: usize) -> DriverResult<DevicePtr> {
    let mut memory = 0;
    Library::get()?.on(device, |functions| {
        // SAFETY: `memory` is a live number for the call to write.
        relaxed(functions, || unsafe { (functions.malloc)(&mut memory, bytes) })
    })?;
    Ok(memory)
}

/// `cuMemFree`
///
/// # Safety
///
/// * `ptr` came from [`malloc`] on that device, has not been freed, and is not in use.
pub(in super::super) unsafe fn free(device: Ordinal, ptr: DevicePtr) -> DriverResult<()> {
    Library::get()?.on(device, |functions| {
        // SAFETY: memory that is not freed, and not in use: promised by the caller.
        relaxed(functions, || unsafe { (functions.free)(ptr) })
    })
}

/// `cuMemAllocAsync`
///
/// # Safety
///
/// * As for `early::alloc`.
pub(in super::super) unsafe fn malloc_async(
    stream: RawStream,
    bytes: usize,
) -> DriverResult<DevicePtr> {
    let mut memory = 0;
    Library::get()?.on(stream.device, |functions| {
        relaxed(functions, || {
            // SAFETY: `memory` is a live number for the call to write; the stream is live: promised
            // by the caller.
            unsafe { (functions.malloc_async)(&mut memory, bytes, stream_of(stream)) }
        })
    })?;
    Ok(memory)
}

/// `cuMemFreeAsync`
///
/// # Safety
///
/// * As for `early::free`.
pub(in super::super) unsafe fn free_async(stream: RawStream, ptr: DevicePtr) -> DriverResult<()> {
    Library::get()?.on(stream.device, |functions| {
        // SAFETY: live stream, memory that is not freed and whose uses are ordered before: promised
        // by the caller.
        relaxed(functions, || unsafe { (functions.free_async)(ptr, stream_of(stream)) })
    })
}
