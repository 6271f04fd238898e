//! Memory of devices, and memory of the host that is managed.

use std::ffi::{c_uint, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;
use pinlane_emulator::Emulator;

use crate::abi::{Handle, Out};
use crate::driver::contexts::stream;

/// What rows of a pitched allocation are aligned to.
pub const PITCH: usize = 512;

/// Allocates memory of both sides.
pub fn alloc_managed(
    gpu: &Emulator,
    out: Out<*mut c_void>,
    bytes: usize,
    flags: c_uint,
) -> DriverResult<()> {
    out.check()?;
    if ![1, 2].contains(&flags) {
        return Err(CudaCode::INVALID_VALUE);
    }
    out.put(gpu.host_alloc(bytes, flags, true)?)
}

/// Allocates lines. Each begins a pitch after the one before it.
pub fn alloc_lines(
    gpu: &Emulator,
    out: Out<*mut c_void>,
    pitch: Out<usize>,
    (width, height): (usize, usize),
) -> DriverResult<()> {
    out.check()?;
    pitch.check()?;
    let row = width.checked_next_multiple_of(PITCH).ok_or(CudaCode::INVALID_VALUE)?;
    let bytes = row.checked_mul(height).ok_or(CudaCode::MEMORY_ALLOCATION)?;
    out.put(gpu.malloc(bytes)?)?;
    pitch.put(row)
}

cuda! {
    fn cudaMalloc(out: Out<*mut c_void>, bytes: usize) |gpu| {
        out.check()?;
        out.put(gpu.malloc(bytes)?)
    }

    fn [cudaFree, cuMemFree_v2](ptr: *mut c_void) |gpu| {
        gpu.free(ptr)
    }

    fn cudaMallocPitch(
        out: Out<*mut c_void>, pitch: Out<usize>, width: usize, height: usize,
    ) |gpu| {
        alloc_lines(gpu, out, pitch, (width, height))
    }

    fn cudaMallocManaged(out: Out<*mut c_void>, bytes: usize, flags: c_uint) |gpu| {
        alloc_managed(gpu, out, bytes, flags)
    }

    fn [cudaMemGetInfo, cuMemGetInfo_v2](free: Out<usize>, total: Out<usize>) |gpu| {
        let info = gpu.memory_info(gpu.current_device())?;
        free.put_if_any(info.0);
        total.put_if_any(info.1);
        Ok(())
    }

    fn [cudaMallocAsync / cudaMallocAsync_ptsz, cuMemAllocAsync / cuMemAllocAsync_ptsz](
        out: Out<*mut c_void>, bytes: usize, handle: Handle,
    ) |gpu, per_thread| {
        out.check()?;
        let stream = stream(gpu, handle, per_thread)?;
        let pool = gpu.device_pool(stream.device)?;
        out.put(gpu.malloc_async(stream, pool, bytes)?)
    }

    fn [cudaFreeAsync / cudaFreeAsync_ptsz, cuMemFreeAsync / cuMemFreeAsync_ptsz](
        ptr: *mut c_void, handle: Handle,
    ) |gpu, per_thread| {
        gpu.free_async(stream(gpu, handle, per_thread)?, ptr)
    }
}
