//! Device memory.

use super::convert::{Address, stream_of};
use super::sys;
use super::thread::{call_on_device, call_with_device, relaxed};
use pinlane_driver::{DevicePtr, DriverResult, Ordinal, RawStream};

/// `cudaMalloc`
pub(in super::super) fn malloc(device: Ordinal, bytes: usize) -> DriverResult<DevicePtr> {
    let mut memory = Address::null();
    // SAFETY: the slot is a live pointer for the call to write.
    call_on_device(device, || unsafe { sys::cudaMalloc(memory.slot(), bytes) })?;
    Ok(memory.number())
}

/// `cudaFree`
///
/// # Safety
///
/// * `ptr` came from [`malloc`] on that device, has not been freed, and is not in use.
pub(in super::super) unsafe fn free(device: Ordinal, ptr: DevicePtr) -> DriverResult<()> {
    let memory = Address::device(ptr);
    // SAFETY: memory that is not freed, and not in use: promised by the caller.
    call_on_device(device, move || unsafe { sys::cudaFree(memory.get()) })
}

/// `cudaMallocAsync`
///
/// # Safety
///
/// * As for `early::alloc`.
pub(in super::super) unsafe fn malloc_async(
    stream: RawStream,
    bytes: usize,
) -> DriverResult<DevicePtr> {
    let mut memory = Address::null();
    call_with_device(stream, || {
        relaxed(|| {
            // SAFETY: the slot is a live pointer for the call to write; the stream is live:
            // promised by the caller.
            unsafe { sys::cudaMallocAsync(memory.slot(), bytes, stream_of(stream)) }
        })
    })?;
    Ok(memory.number())
}

/// `cudaFreeAsync`
///
/// # Safety
///
/// * As for `early::free`.
pub(in super::super) unsafe fn free_async(stream: RawStream, ptr: DevicePtr) -> DriverResult<()> {
    let memory = Address::device(ptr);
    call_with_device(stream, move || {
        // SAFETY: live stream, memory of `cudaMalloc` or `cudaMallocAsync` that is not freed and
        // whose uses are ordered before: promised by the caller.
        relaxed(|| unsafe { sys::cudaFreeAsync(memory.get(), stream_of(stream)) })
    })
}
