//! Copies and fills of planes and volumes, as the driver names them: `CUDA_MEMCPY2D` and its kin.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, RawStream};
use pinlane_emulator::{Emulator, Side};

use super::contexts;
use super::copies::{Fill, fill};
use crate::abi::{Handle, In};
use crate::capture::set_copy;
use crate::driver::contexts::stream;
use crate::volumes::{self, Extent, Pitched, Place, Volume};

/// `CUmemorytype`
const ON_HOST: c_uint = 1;
const ON_DEVICE: c_uint = 2;
const ARRAY: c_uint = 3;
const AS_THE_ADDRESS_SAYS: c_uint = 4;

/// One side of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PlaneSide {
    x: usize,
    y: usize,
    of: Memory,
    pitch: usize,
}

/// Where a side lies: its type says which of the others counts.
#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    kind: c_uint,
    host: *mut c_void,
    device: *mut c_void,
    array: Handle,
}

/// `CUDA_MEMCPY2D`
#[repr(C)]
#[derive(Clone, Copy)]
struct PlaneCopy {
    src: PlaneSide,
    dst: PlaneSide,
    width: usize,
    height: usize,
}

/// One side of `CUDA_MEMCPY3D` and, with a context, of `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy)]
struct VolumeSide {
    at: Extent,
    level: usize,
    of: Memory,
    context: Handle,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`, `CUDA_MEMCPY3D_PEER`
#[repr(C)]
#[derive(Clone, Copy)]
struct VolumeCopy {
    src: VolumeSide,
    dst: VolumeSide,
    extent: Extent,
}

impl Memory {
    /// # Errors
    ///
    /// `INVALID_VALUE` for unknown types, NULL, and memory that a device cannot use.
    fn start(&self, gpu: &Emulator) -> DriverResult<*mut c_void> {
        let start = match self.kind {
            ON_HOST => self.host,
            ON_DEVICE if gpu.held(self.device).side == Side::Pageable => {
                return Err(CudaCode::INVALID_VALUE);
            }
            ON_DEVICE | AS_THE_ADDRESS_SAYS => self.device,
            ARRAY if self.array != 0 => return Err(CudaCode::NOT_SUPPORTED),
            _ => return Err(CudaCode::INVALID_VALUE),
        };
        if start.is_null() { Err(CudaCode::INVALID_VALUE) } else { Ok(start) }
    }
}

impl From<PlaneCopy> for VolumeCopy {
    fn from(copy: PlaneCopy) -> Self {
        let side = |side: PlaneSide| VolumeSide {
            at: Extent { x: side.x, y: side.y, z: 0 },
            level: 0,
            of: side.of,
            context: 0,
            pitch: side.pitch,
            height: 0,
        };
        let extent = Extent { x: copy.width, y: copy.height, z: 1 };
        VolumeCopy { src: side(copy.src), dst: side(copy.dst), extent }
    }
}

impl VolumeSide {
    /// A pitch or a height of 0 is as long as it must be.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if what is copied is longer than a line or higher than a plane.
    fn place(&self, gpu: &Emulator, extent: Extent) -> DriverResult<Place> {
        let end = |at: usize, length| at.checked_add(length).ok_or(CudaCode::INVALID_VALUE);
        let (line, lines) = (end(self.at.x, extent.x)?, end(self.at.y, extent.y)?);
        let or = |given, least| if given == 0 { least } else { given };
        let (pitch, height) = (or(self.pitch, line), or(self.height, lines));
        if line > pitch || lines > height {
            return Err(CudaCode::INVALID_VALUE);
        }
        let ptr = self.of.start(gpu)?;
        Ok(Place { array: 0, at: self.at, memory: Pitched { ptr, pitch, width: line, height } })
    }
}

fn copy(gpu: &Emulator, stream: RawStream, copy: VolumeCopy, wait: bool) -> DriverResult<()> {
    let extent = copy.extent;
    if extent.x == 0 || extent.y == 0 || extent.z == 0 {
        return Ok(());
    }
    let (src, dst) = (copy.src.place(gpu, extent)?, copy.dst.place(gpu, extent)?);
    volumes::copy(gpu, stream, Volume { src, dst, extent, kind: volumes::AS_POINTERS_SAY }, wait)
}

/// The contexts must live, where they are named.
fn between_contexts(copy: &VolumeCopy) -> DriverResult<()> {
    let named = [copy.src.context, copy.dst.context].into_iter().filter(|&context| context != 0);
    named.map(contexts::device_of).try_for_each(|device| device.map(drop))
}

cuda! {
    fn [
        cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds,
        cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds
    ](
        plane: In<PlaneCopy>,
    ) |gpu, per_thread| {
        copy(gpu, gpu.default_stream(per_thread), plane.get()?.into(), true)
    }

    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(
        plane: In<PlaneCopy>, handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        copy(gpu, stream, plane.get()?.into(), false)
    }

    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(volume: In<VolumeCopy>) |gpu, per_thread| {
        copy(gpu, gpu.default_stream(per_thread), volume.get()?, true)
    }

    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(
        volume: In<VolumeCopy>, handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        copy(gpu, stream, volume.get()?, false)
    }

    // One line.
    fn cuGraphExecMemcpyNodeSetParams(
        exec: Handle, node: Handle, volume: In<VolumeCopy>, context: Handle,
    ) |gpu| {
        contexts::device_of(context)?;
        let VolumeCopy { src, dst, extent } = volume.get()?;
        if extent.y != 1 || extent.z != 1 {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        let (src, dst) = (src.place(gpu, extent)?, dst.place(gpu, extent)?);
        set_copy(gpu, exec, node, (dst.plane(0)?, src.plane(0)?.cast_const()), extent.x)
    }

    fn cuMemcpy3DPeer / cuMemcpy3DPeer_ptds(volume: In<VolumeCopy>) |gpu, per_thread| {
        let volume = volume.get()?;
        between_contexts(&volume)?;
        copy(gpu, gpu.default_stream(per_thread), volume, true)
    }

    fn cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz(
        volume: In<VolumeCopy>, handle: Handle,
    ) |gpu, per_thread| {
        let volume = volume.get()?;
        between_contexts(&volume)?;
        let stream = stream(gpu, handle, per_thread)?;
        copy(gpu, stream, volume, false)
    }
}

/// Declares fills of planes with values of a type: one that the host waits for, and one that it
/// does not.
macro_rules! fills {
    ($(
        fn $now:ident / $now_of_thread:ident, fn $later:ident / $later_of_thread:ident($value:ty);
    )*) => { $(
        cuda! {
            fn $now / $now_of_thread(
                dst: *mut c_void, pitch: usize, value: $value, width: usize, height: usize,
            ) |gpu, per_thread| {
                let (stream, lines) =
                    (gpu.default_stream(per_thread), Fill { dst, pitch, width, height });
                fill(gpu, stream, lines, &value.to_ne_bytes(), true)
            }

            fn $later / $later_of_thread(
                dst: *mut c_void, pitch: usize, value: $value, width: usize, height: usize,
                handle: Handle,
            ) |gpu, per_thread| {
                let (stream, lines) =
                    (stream(gpu, handle, per_thread)?, Fill { dst, pitch, width, height });
                fill(gpu, stream, lines, &value.to_ne_bytes(), false)
            }
        }
    )* };
}

fills! {
    fn cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds,
    fn cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(c_uchar);

    fn cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds,
    fn cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(c_ushort);

    fn cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds,
    fn cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(c_uint);
}
