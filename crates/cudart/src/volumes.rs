//! Copies and fills in three dimensions, plane after plane. There are no arrays.

use std::ffi::{c_int, c_uint, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, RawStream};
use pinlane_emulator::{Emulator, Plane};

use crate::abi::{Handle, In, Out};
use crate::copies::{INVALID_PITCH, copy as copy_plane, fill};
use crate::driver::contexts::stream;
use crate::memory::PITCH;

/// The direction of a copy that says none.
pub const AS_POINTERS_SAY: c_uint = 4;

/// `cudaPitchedPtr`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pitched {
    pub ptr: *mut c_void,
    pub pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `cudaExtent`, `cudaPos`: along a line, across lines, across planes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// One side of `cudaMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Place {
    pub array: Handle,
    pub at: Extent,
    pub memory: Pitched,
}

/// `cudaMemcpy3DParms`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Volume {
    pub src: Place,
    pub dst: Place,
    pub extent: Extent,
    pub kind: c_uint,
}

/// `cudaMemcpy3DPeerParms`
#[repr(C)]
#[derive(Clone, Copy)]
struct PeerVolume {
    src: Place,
    src_device: c_int,
    dst: Place,
    dst_device: c_int,
    extent: Extent,
}

impl PeerVolume {
    /// # Errors
    ///
    /// `INVALID_DEVICE` for unknown devices.
    fn checked(self, gpu: &Emulator) -> DriverResult<Volume> {
        gpu.check_device(self.src_device)?;
        gpu.check_device(self.dst_device)?;
        let PeerVolume { src, dst, extent, .. } = self;
        Ok(Volume { src, dst, extent, kind: AS_POINTERS_SAY })
    }
}

impl Extent {
    fn is_empty(self) -> bool {
        self.x == 0 || self.y == 0 || self.z == 0
    }
}

/// Lines are no longer than the pitch, and planes no higher than the memory says; what is copied
/// does not begin so late that a line or a plane ends in the next.
fn check_place(at: Extent, memory: Pitched, extent: Extent) -> DriverResult<()> {
    if extent.y == 1 && extent.z == 1 {
        return Ok(());
    }
    let planes = extent.z > 1;
    if extent.x > memory.pitch || (planes && extent.y > memory.height) {
        return Err(INVALID_PITCH);
    }
    let line_ends = at.x.saturating_add(extent.x) <= memory.pitch;
    let plane_ends = !planes || at.y.saturating_add(extent.y) <= memory.height;
    if line_ends && plane_ends { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
}

impl Pitched {
    /// The address of a place.
    fn at(&self, place: Extent) -> DriverResult<*mut c_void> {
        let line = place.z.checked_mul(self.height).and_then(|lines| lines.checked_add(place.y));
        let offset = line.and_then(|line| line.checked_mul(self.pitch)?.checked_add(place.x));
        let offset = offset.ok_or(CudaCode::INVALID_VALUE)?;
        Ok(self.ptr.cast::<u8>().wrapping_add(offset).cast())
    }
}

impl Place {
    pub fn plane(&self, z: usize) -> DriverResult<*mut c_void> {
        self.memory.at(Extent { z: self.at.z + z, ..self.at })
    }
}

pub fn copy(gpu: &Emulator, stream: RawStream, volume: Volume, wait: bool) -> DriverResult<()> {
    let Volume { src, dst, extent, kind } = volume;
    if src.array != 0 || dst.array != 0 {
        return Err(CudaCode::NOT_SUPPORTED);
    }
    if extent.is_empty() {
        return Ok(());
    }
    if src.memory.ptr.is_null() || dst.memory.ptr.is_null() {
        return Err(CudaCode::INVALID_VALUE);
    }
    check_place(src.at, src.memory, extent)?;
    check_place(dst.at, dst.memory, extent)?;
    (0..extent.z).try_for_each(|z| {
        let plane = Plane {
            dst: dst.plane(z)?,
            dst_pitch: dst.memory.pitch,
            src: src.plane(z)?,
            src_pitch: src.memory.pitch,
            width: extent.x,
            height: extent.y,
        };
        copy_plane(gpu, stream, plane, kind, wait)
    })
}

fn fill_volume(
    gpu: &Emulator,
    stream: RawStream,
    memory: Pitched,
    value: c_int,
    extent: Extent,
    synchronous: bool,
) -> DriverResult<()> {
    if extent.z > 1 && extent.y > memory.height {
        return Err(CudaCode::INVALID_VALUE);
    }
    (0..extent.z).try_for_each(|z| {
        let plane = memory.at(Extent { x: 0, y: 0, z })?;
        fill(gpu, stream, (plane, memory.pitch), value, (extent.x, extent.y), synchronous)
    })
}

cuda! {
    fn cudaMalloc3D(out: Out<Pitched>, extent: Extent) |gpu| {
        out.check()?;
        let Extent { x: width, y: height, z: depth } = extent;
        let pitch = width.checked_next_multiple_of(PITCH).ok_or(CudaCode::INVALID_VALUE)?;
        let bytes = pitch.checked_mul(height).and_then(|plane| plane.checked_mul(depth));
        let ptr = gpu.malloc(bytes.ok_or(CudaCode::MEMORY_ALLOCATION)?)?;
        out.put(Pitched { ptr, pitch, width, height })
    }

    fn cudaMemcpy3D / cudaMemcpy3D_ptds(volume: In<Volume>) |gpu, per_thread| {
        copy(gpu, gpu.default_stream(per_thread), volume.get()?, true)
    }

    fn cudaMemcpy3DAsync / cudaMemcpy3DAsync_ptsz(
        volume: In<Volume>, handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        copy(gpu, stream, volume.get()?, false)
    }

    fn cudaMemcpy3DPeer / cudaMemcpy3DPeer_ptds(volume: In<PeerVolume>) |gpu, per_thread| {
        let volume = volume.get()?.checked(gpu)?;
        copy(gpu, gpu.default_stream(per_thread), volume, true)
    }

    fn cudaMemcpy3DPeerAsync / cudaMemcpy3DPeerAsync_ptsz(
        volume: In<PeerVolume>, handle: Handle,
    ) |gpu, per_thread| {
        let volume = volume.get()?.checked(gpu)?;
        let stream = stream(gpu, handle, per_thread)?;
        copy(gpu, stream, volume, false)
    }

    fn cudaMemset3D / cudaMemset3D_ptds(
        memory: Pitched, value: c_int, extent: Extent,
    ) |gpu, per_thread| {
        fill_volume(gpu, gpu.default_stream(per_thread), memory, value, extent, true)
    }

    fn cudaMemset3DAsync / cudaMemset3DAsync_ptsz(
        memory: Pitched, value: c_int, extent: Extent, handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        fill_volume(gpu, stream, memory, value, extent, false)
    }
}
