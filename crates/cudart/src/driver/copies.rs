//! Copies whose names say the direction, and fills whose names say the width.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, RawStream};
use pinlane_emulator::{Emulator, Plane, Side};

use super::contexts;
use crate::abi::Handle;
use crate::copies::copy;
use crate::driver::contexts::{stream, target};

/// The numbers of the directions (`cudaMemcpyKind`).
const TO_DEVICE: u32 = 1;
const TO_HOST: u32 = 2;
const WITHIN: u32 = 3;
const AS_POINTERS_SAY: u32 = 4;

/// The direction of a copy whose name says it. The driver copies as the pointers show: memory of
/// either side may stand where the name says a device's. Only pageable memory may not, and then the
/// copy contradicts its name.
fn direction(gpu: &Emulator, dst: *mut c_void, src: *const c_void, named: u32) -> u32 {
    let is_pageable = |ptr| gpu.held(ptr).side == Side::Pageable;
    let contradicts = match named {
        TO_DEVICE => is_pageable(dst.cast_const()),
        TO_HOST => is_pageable(src),
        WITHIN => is_pageable(dst.cast_const()) || is_pageable(src),
        _ => false,
    };
    if contradicts { named } else { AS_POINTERS_SAY }
}

/// A copy that the host waits for, as far as CUDA says so.
fn now(
    gpu: &Emulator,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: u32,
    per_thread: bool,
) -> DriverResult<()> {
    copy(gpu, gpu.default_stream(per_thread), Plane::line(dst, src, bytes), kind, true)
}

/// Lines of values. Each begins a pitch, in bytes, after the one before it.
pub struct Fill {
    pub dst: *mut c_void,
    pub pitch: usize,
    pub width: usize,
    pub height: usize,
}

impl Fill {
    fn line(dst: *mut c_void, width: usize) -> Self {
        Fill { dst, pitch: 0, width, height: 1 }
    }
}

/// Writes a value over and over, at multiples of its size.
pub fn fill(
    gpu: &Emulator,
    stream: RawStream,
    Fill { dst, pitch, width, height }: Fill,
    value: &[u8],
    synchronous: bool,
) -> DriverResult<()> {
    let bytes = width.checked_mul(value.len()).ok_or(CudaCode::INVALID_VALUE)?;
    // The pitch of one line does not count.
    let pitch = if height > 1 { pitch } else { bytes };
    let starts = [dst.addr(), pitch];
    if starts.into_iter().any(|start| !start.is_multiple_of(value.len())) {
        return Err(CudaCode::INVALID_VALUE);
    }
    // SAFETY: the program asks for the memory to be overwritten.
    unsafe { gpu.fill(stream, dst, pitch, value, (bytes, height), synchronous) }
}

/// Declares copies in one direction: one that the host waits for, and one that it does not.
macro_rules! copies {
    ($(
        fn $now:ident / $now_of_thread:ident, fn $later:ident / $later_of_thread:ident($kind:ident);
    )*) => { $(
        cuda! {
            fn $now / $now_of_thread(
                dst: *mut c_void, src: *const c_void, bytes: usize,
            ) |gpu, per_thread| {
                now(gpu, dst, src, bytes, direction(gpu, dst, src, $kind), per_thread)
            }

            fn $later / $later_of_thread(
                dst: *mut c_void, src: *const c_void, bytes: usize, handle: Handle,
            ) |gpu, per_thread| {
                let kind = direction(gpu, dst, src, $kind);
                copy(gpu, target(handle, per_thread)?, Plane::line(dst, src, bytes), kind, false)
            }
        }
    )* };
}

copies! {
    fn cuMemcpy / cuMemcpy_ptds,
    fn cuMemcpyAsync / cuMemcpyAsync_ptsz(AS_POINTERS_SAY);

    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds,
    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(TO_DEVICE);

    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds,
    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(TO_HOST);

    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds,
    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(WITHIN);
}

/// Declares fills with values of a type, the same way.
macro_rules! fills {
    ($(
        fn $now:ident / $now_of_thread:ident, fn $later:ident / $later_of_thread:ident($value:ty);
    )*) => { $(
        cuda! {
            fn $now / $now_of_thread(
                dst: *mut c_void, value: $value, count: usize,
            ) |gpu, per_thread| {
                let stream = gpu.default_stream(per_thread);
                fill(gpu, stream, Fill::line(dst, count), &value.to_ne_bytes(), true)
            }

            fn $later / $later_of_thread(
                dst: *mut c_void, value: $value, count: usize, handle: Handle,
            ) |gpu, per_thread| {
                let stream = stream(gpu, handle, per_thread)?;
                fill(gpu, stream, Fill::line(dst, count), &value.to_ne_bytes(), false)
            }
        }
    )* };
}

fills! {
    fn cuMemsetD8_v2 / cuMemsetD8_v2_ptds,
    fn cuMemsetD8Async / cuMemsetD8Async_ptsz(c_uchar);

    fn cuMemsetD16_v2 / cuMemsetD16_v2_ptds,
    fn cuMemsetD16Async / cuMemsetD16Async_ptsz(c_ushort);

    fn cuMemsetD32_v2 / cuMemsetD32_v2_ptds,
    fn cuMemsetD32Async / cuMemsetD32Async_ptsz(c_uint);
}

cuda! {
    fn cuMemcpyPeer / cuMemcpyPeer_ptds(
        dst: *mut c_void, dst_context: Handle, src: *const c_void, src_context: Handle,
        bytes: usize,
    ) |gpu, per_thread| {
        contexts::device_of(dst_context)?;
        contexts::device_of(src_context)?;
        now(gpu, dst, src, bytes, AS_POINTERS_SAY, per_thread)
    }

    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        dst: *mut c_void, dst_context: Handle, src: *const c_void, src_context: Handle,
        bytes: usize, handle: Handle,
    ) |gpu, per_thread| {
        contexts::device_of(dst_context)?;
        contexts::device_of(src_context)?;
        let plane = Plane::line(dst, src, bytes);
        copy(gpu, target(handle, per_thread)?, plane, AS_POINTERS_SAY, false)
    }
}
