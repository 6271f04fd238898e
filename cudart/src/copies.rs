//! Copies and fills.

use std::ffi::{c_int, c_uint, c_void};

use pinlane::CudaCode;
use pinlane::driver::emulated::{Face, Kind, Plane};
use pinlane::driver::{DriverResult, RawStream};

use crate::abi::{Handle, stream};

/// `cudaErrorInvalidMemcpyDirection`
const INVALID_DIRECTION: CudaCode = CudaCode(21);

/// `cudaErrorInvalidPitchValue`
const INVALID_PITCH: CudaCode = CudaCode(12);

/// Lines are no longer than the pitches. Of nothing nobody asks.
fn check_pitch(pitch: usize, (width, height): (usize, usize)) -> DriverResult<()> {
    if height != 0 && width > pitch { Err(INVALID_PITCH) } else { Ok(()) }
}

/// Copies, in the direction that C's number says.
pub fn copy(
    face: &Face,
    stream: RawStream,
    plane: Plane,
    kind: c_uint,
    synchronous: bool,
) -> DriverResult<()> {
    let kind = Kind::of(kind).ok_or(INVALID_DIRECTION)?;
    // SAFETY: the CUDA runtime demands of its callers that host memory can be accessed.
    unsafe { face.copy(stream, plane, kind, synchronous) }
}

pub fn fill(
    face: &Face,
    stream: RawStream,
    (dst, pitch): (*mut c_void, usize),
    value: c_int,
    extent: (usize, usize),
    synchronous: bool,
) -> DriverResult<()> {
    // SAFETY: the program asks for the memory to be overwritten.
    unsafe { face.fill(stream, dst, pitch, &[value as u8], extent, synchronous) }
}

cuda! {
    fn cudaMemcpy / cudaMemcpy_ptds(
        dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_uint,
    ) |face, per_thread| {
        copy(face, face.default_stream(per_thread), Plane::line(dst, src, bytes), kind, true)
    }

    fn cudaMemcpyAsync / cudaMemcpyAsync_ptsz(
        dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_uint, handle: Handle,
    ) |face, per_thread| {
        let stream = stream(face, handle, per_thread)?;
        copy(face, stream, Plane::line(dst, src, bytes), kind, false)
    }

    fn cudaMemcpy2D / cudaMemcpy2D_ptds(
        dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize,
        width: usize, height: usize, kind: c_uint,
    ) |face, per_thread| {
        check_pitch(dst_pitch.min(src_pitch), (width, height))?;
        let plane = Plane { dst, dst_pitch, src, src_pitch, width, height };
        copy(face, face.default_stream(per_thread), plane, kind, true)
    }

    fn cudaMemcpy2DAsync / cudaMemcpy2DAsync_ptsz(
        dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize,
        width: usize, height: usize, kind: c_uint, handle: Handle,
    ) |face, per_thread| {
        let stream = stream(face, handle, per_thread)?;
        check_pitch(dst_pitch.min(src_pitch), (width, height))?;
        let plane = Plane { dst, dst_pitch, src, src_pitch, width, height };
        copy(face, stream, plane, kind, false)
    }

    fn cudaMemcpyPeer(
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, bytes: usize,
    ) |face| {
        check_devices(face, dst_device, src_device)?;
        let stream = face.default_stream(false);
        copy(face, stream, Plane::line(dst, src, bytes), 4, false)
    }

    fn cudaMemcpyPeerAsync(
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, bytes: usize,
        handle: Handle,
    ) |face| {
        check_devices(face, dst_device, src_device)?;
        let stream = stream(face, handle, false)?;
        copy(face, stream, Plane::line(dst, src, bytes), 4, false)
    }

    fn cudaMemset / cudaMemset_ptds(
        dst: *mut c_void, value: c_int, bytes: usize,
    ) |face, per_thread| {
        let stream = face.default_stream(per_thread);
        fill(face, stream, (dst, bytes), value, (bytes, 1), true)
    }

    fn cudaMemsetAsync / cudaMemsetAsync_ptsz(
        dst: *mut c_void, value: c_int, bytes: usize, handle: Handle,
    ) |face, per_thread| {
        let stream = stream(face, handle, per_thread)?;
        fill(face, stream, (dst, bytes), value, (bytes, 1), false)
    }

    fn cudaMemset2D / cudaMemset2D_ptds(
        dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize,
    ) |face, per_thread| {
        let stream = face.default_stream(per_thread);
        check_pitch(pitch, (width, height))?;
        fill(face, stream, (dst, pitch), value, (width, height), true)
    }

    fn cudaMemset2DAsync / cudaMemset2DAsync_ptsz(
        dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, handle: Handle,
    ) |face, per_thread| {
        let stream = stream(face, handle, per_thread)?;
        check_pitch(pitch, (width, height))?;
        fill(face, stream, (dst, pitch), value, (width, height), false)
    }
}

fn check_devices(face: &Face, dst: c_int, src: c_int) -> DriverResult<()> {
    let count = face.emulator().driver().device_count()?;
    let there = (0..count).contains(&dst) && (0..count).contains(&src);
    if there { Ok(()) } else { Err(CudaCode::INVALID_DEVICE) }
}
