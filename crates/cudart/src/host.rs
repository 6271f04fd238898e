//! Page-locked memory of the host.

use std::ffi::{c_uint, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::{Emulator, Side};

use crate::abi::Out;

/// `cudaHostAllocPortable`, `Mapped`, `WriteCombined`
const ALLOC_FLAGS: c_uint = 7;
/// `cudaHostRegisterPortable`, `Mapped`, `IoMemory`, `ReadOnly`
const REGISTER_FLAGS: c_uint = 15;

/// Allocates page-locked memory.
pub fn alloc(
    gpu: &Emulator,
    out: Out<*mut c_void>,
    bytes: usize,
    flags: c_uint,
) -> DriverResult<()> {
    out.check()?;
    if flags & !ALLOC_FLAGS != 0 {
        return Err(CudaCode::INVALID_VALUE);
    }
    out.put(gpu.host_alloc(bytes, flags, false)?)
}

cuda! {
    fn cudaMallocHost(out: Out<*mut c_void>, bytes: usize) |gpu| {
        alloc(gpu, out, bytes, 0)
    }

    fn cudaHostAlloc(out: Out<*mut c_void>, bytes: usize, flags: c_uint) |gpu| {
        alloc(gpu, out, bytes, flags)
    }

    fn [cudaFreeHost, cuMemFreeHost](ptr: *mut c_void) |gpu| {
        gpu.free_host(ptr, false)
    }

    fn [cudaHostRegister, cuMemHostRegister_v2](
        ptr: *mut c_void, bytes: usize, flags: c_uint,
    ) |gpu| {
        if flags & !REGISTER_FLAGS != 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        // SAFETY: the CUDA runtime demands of its callers that the range is mapped.
        unsafe { gpu.register(ptr, bytes, flags) }
    }

    fn [cudaHostUnregister, cuMemHostUnregister](ptr: *mut c_void) |gpu| {
        gpu.unregister(ptr)
    }

    fn [cudaHostGetDevicePointer, cuMemHostGetDevicePointer_v2](
        out: Out<*mut c_void>, ptr: *mut c_void, flags: c_uint,
    ) |gpu| {
        out.check()?;
        let side = gpu.held(ptr).side;
        if flags != 0 || !matches!(side, Side::PageLocked | Side::Managed) {
            return Err(CudaCode::INVALID_VALUE);
        }
        // One address space for the host and all devices.
        out.put(ptr)
    }

    fn [cudaHostGetFlags, cuMemHostGetFlags](out: Out<c_uint>, ptr: *mut c_void) |gpu| {
        out.check()?;
        let held = gpu.held(ptr);
        match held.side {
            // Mapped, as all page-locked memory under unified addressing.
            Side::PageLocked => out.put(held.flags | 2),
            Side::Managed => out.put(0),
            _ => Err(CudaCode::INVALID_VALUE),
        }
    }
}
