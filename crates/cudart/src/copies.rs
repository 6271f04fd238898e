//! Copies and fills.

use std::ffi::{c_int, c_uint, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, RawStream};
use pinlane_emulator::{Emulator, Kind, Plane, Target};

use crate::abi::Handle;
use crate::driver::contexts::{stream, target};

/// `cudaErrorInvalidMemcpyDirection`
const INVALID_DIRECTION: CudaCode = CudaCode(21);

/// `cudaErrorInvalidPitchValue`
pub const INVALID_PITCH: CudaCode = CudaCode(12);

/// `cudaMemcpyDeviceToDevice`
const WITHIN: c_uint = 3;

/// Lines are no longer than the pitches. Copies of no bytes are not checked, nor is the pitch of
/// one line if it is 0.
fn check_pitch(pitch: usize, (width, height): (usize, usize)) -> DriverResult<()> {
    match height {
        0 => Ok(()),
        1 if width > pitch && pitch != 0 => Err(CudaCode::INVALID_VALUE),
        1 => Ok(()),
        _ if width > pitch => Err(INVALID_PITCH),
        _ => Ok(()),
    }
}

/// The same for fills.
fn check_fill_pitch(pitch: usize, extent: (usize, usize)) -> DriverResult<()> {
    check_pitch(pitch, extent).map_err(|_| CudaCode::INVALID_VALUE)
}

/// Copies, in the direction that C's number says.
pub fn copy(
    gpu: &Emulator,
    stream: impl Into<Target>,
    plane: Plane,
    kind: c_uint,
    synchronous: bool,
) -> DriverResult<()> {
    let is_of_nothing = plane.width == 0 || plane.height == 0;
    let kind =
        Kind::of(kind).or(is_of_nothing.then_some(Kind::Default)).ok_or(INVALID_DIRECTION)?;
    // SAFETY: the CUDA runtime demands of its callers that host memory can be accessed.
    unsafe { gpu.copy(stream, plane, kind, synchronous) }
}

pub fn fill(
    gpu: &Emulator,
    stream: RawStream,
    (dst, pitch): (*mut c_void, usize),
    value: c_int,
    extent: (usize, usize),
    synchronous: bool,
) -> DriverResult<()> {
    // SAFETY: the program asks for the memory to be overwritten.
    unsafe { gpu.fill(stream, dst, pitch, &[value as u8], extent, synchronous) }
}

cuda! {
    fn cudaMemcpy / cudaMemcpy_ptds(
        dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_uint,
    ) |gpu, per_thread| {
        copy(gpu, gpu.default_stream(per_thread), Plane::line(dst, src, bytes), kind, true)
    }

    fn cudaMemcpyAsync / cudaMemcpyAsync_ptsz(
        dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_uint, handle: Handle,
    ) |gpu, per_thread| {
        copy(gpu, target(handle, per_thread)?, Plane::line(dst, src, bytes), kind, false)
    }

    fn cudaMemcpy2D / cudaMemcpy2D_ptds(
        dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize,
        width: usize, height: usize, kind: c_uint,
    ) |gpu, per_thread| {
        check_pitch(dst_pitch.min(src_pitch), (width, height))?;
        let plane = Plane { dst, dst_pitch, src, src_pitch, width, height };
        copy(gpu, gpu.default_stream(per_thread), plane, kind, true)
    }

    fn cudaMemcpy2DAsync / cudaMemcpy2DAsync_ptsz(
        dst: *mut c_void, dst_pitch: usize, src: *const c_void, src_pitch: usize,
        width: usize, height: usize, kind: c_uint, handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        check_pitch(dst_pitch.min(src_pitch), (width, height))?;
        let plane = Plane { dst, dst_pitch, src, src_pitch, width, height };
        copy(gpu, stream, plane, kind, false)
    }

    fn cudaMemcpyPeer(
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, bytes: usize,
    ) |gpu| {
        check_devices(gpu, (dst_device, src_device), bytes)?;
        let stream = gpu.default_stream(false);
        copy(gpu, stream, Plane::line(dst, src, bytes), WITHIN, false)
    }

    fn cudaMemcpyPeerAsync(
        dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, bytes: usize,
        handle: Handle,
    ) |gpu| {
        check_devices(gpu, (dst_device, src_device), bytes)?;
        let stream = stream(gpu, handle, false)?;
        gpu.refuse_captured(stream)?;
        copy(gpu, stream, Plane::line(dst, src, bytes), WITHIN, false)
    }

    fn cudaMemset / cudaMemset_ptds(
        dst: *mut c_void, value: c_int, bytes: usize,
    ) |gpu, per_thread| {
        let stream = gpu.default_stream(per_thread);
        fill(gpu, stream, (dst, bytes), value, (bytes, 1), true)
    }

    fn cudaMemsetAsync / cudaMemsetAsync_ptsz(
        dst: *mut c_void, value: c_int, bytes: usize, handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        fill(gpu, stream, (dst, bytes), value, (bytes, 1), false)
    }

    fn cudaMemset2D / cudaMemset2D_ptds(
        dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize,
    ) |gpu, per_thread| {
        let stream = gpu.default_stream(per_thread);
        check_fill_pitch(pitch, (width, height))?;
        fill(gpu, stream, (dst, pitch), value, (width, height), true)
    }

    fn cudaMemset2DAsync / cudaMemset2DAsync_ptsz(
        dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        check_fill_pitch(pitch, (width, height))?;
        fill(gpu, stream, (dst, pitch), value, (width, height), false)
    }
}

/// Both devices exist. Copies of no bytes are not checked.
fn check_devices(gpu: &Emulator, (dst, src): (c_int, c_int), bytes: usize) -> DriverResult<()> {
    let count = gpu.devices()?;
    let there = (0..count).contains(&dst) && (0..count).contains(&src);
    if there || bytes == 0 { Ok(()) } else { Err(CudaCode::INVALID_DEVICE) }
}
