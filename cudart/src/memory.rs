//! Memory of devices, and memory of the host that is managed.

use std::ffi::{c_int, c_uint, c_void};

use pinlane::CudaCode;

use crate::abi::{Handle, Out, stream};

/// What rows of a pitched allocation are aligned to.
const PITCH: usize = 512;

cuda! {
    fn cudaMalloc(out: Out<*mut c_void>, bytes: usize) |face| {
        out.check()?;
        out.put(face.malloc(bytes)?)
    }

    fn cudaFree(ptr: *mut c_void) |face| {
        face.free(ptr)
    }

    fn cudaMallocPitch(
        out: Out<*mut c_void>, pitch: Out<usize>, width: usize, height: usize,
    ) |face| {
        out.check()?;
        pitch.check()?;
        let row = width.checked_next_multiple_of(PITCH).ok_or(CudaCode::INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(CudaCode::MEMORY_ALLOCATION)?;
        out.put(face.malloc(bytes)?)?;
        pitch.put(row)
    }

    fn cudaMallocManaged(out: Out<*mut c_void>, bytes: usize, flags: c_uint) |face| {
        out.check()?;
        if bytes == 0 || ![1, 2].contains(&flags) {
            return Err(CudaCode::INVALID_VALUE);
        }
        out.put(face.host_alloc(bytes, flags, true)?)
    }

    fn cudaMemGetInfo(free: Out<usize>, total: Out<usize>) |face| {
        let info = face.emulator().driver().memory_info(face.current_device())?;
        free.put(info.0)?;
        total.put(info.1)
    }

    fn cudaMallocAsync / cudaMallocAsync_ptsz(
        out: Out<*mut c_void>, bytes: usize, handle: Handle,
    ) |face, per_thread| {
        out.check()?;
        let stream = stream(face, "cudaMallocAsync", handle, per_thread)?;
        let pool = face.device_pool(stream.device)?;
        out.put(face.malloc_async(stream, pool, bytes)?)
    }

    fn cudaFreeAsync / cudaFreeAsync_ptsz(
        ptr: *mut c_void, handle: Handle,
    ) |face, per_thread| {
        face.free_async(stream(face, "cudaFreeAsync", handle, per_thread)?, ptr)
    }

    /// Managed memory is the host's here, so that there is nothing to move.
    fn cudaMemPrefetchAsync / cudaMemPrefetchAsync_ptsz(
        ptr: *const c_void, bytes: usize,
    ) |face, _per_thread| {
        advised(face, ptr, bytes)
    }

    fn cudaMemPrefetchAsync_v2 / cudaMemPrefetchAsync_v2_ptsz(
        ptr: *const c_void, bytes: usize,
    ) |face, _per_thread| {
        advised(face, ptr, bytes)
    }

    fn cudaMemAdvise(ptr: *const c_void, bytes: usize, _advice: c_int) |face| {
        advised(face, ptr, bytes)
    }

    fn cudaMemAdvise_v2(ptr: *const c_void, bytes: usize, _advice: c_int) |face| {
        advised(face, ptr, bytes)
    }
}

/// Advice and prefetching are for managed memory.
fn advised(
    face: &pinlane::driver::emulated::Face,
    ptr: *const c_void,
    bytes: usize,
) -> pinlane::driver::DriverResult<()> {
    use pinlane::driver::emulated::Side;
    let held = face.held(ptr);
    let offset = ptr.addr() - held.base.addr();
    let inside = held.side == Side::Managed && bytes <= held.bytes - offset;
    if inside { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
}
