//! Copies of rows that lie a pitch apart: `cuMemcpy2DAsync` and `cuMemcpy3DAsync`.
//!
//! They do what the runtime's functions do, which read the program's last error.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use super::driver_api::{
    CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_v2, CUmemorytype, MEMORY_DEVICE, MEMORY_HOST,
    PFN_cuMemcpy2DAsync_v3020, PFN_cuMemcpy3DAsync_v3020,
};
use super::functions::{Function, function, table};
use super::words::stream_of;
use pinlane_driver::{CopyKind, Pitched, RawStream, StridedCopy};

table! {
    /// The driver's two functions, which every driver has.
    plane: c"cuMemcpy2DAsync" 3020 PFN_cuMemcpy2DAsync_v3020;
    volume: c"cuMemcpy3DAsync" 3020 PFN_cuMemcpy3DAsync_v3020;
}

impl Functions {
    /// Enqueues the copy.
    ///
    /// # Safety
    ///
    /// * As for [`Driver::copy_strided`](pinlane_driver::Driver::copy_strided).
    /// * The context of the stream's device is current.
    pub(super) unsafe fn enqueue(
        &self,
        stream: RawStream,
        kind: CopyKind,
        copy: &StridedCopy,
    ) -> c_uint {
        if copy.planes == 1 {
            // SAFETY: a live stream and valid rows: promised by the caller.
            unsafe { (self.plane)(&plane(kind, copy), stream_of(stream)) }
        } else {
            // SAFETY: as above.
            unsafe { (self.volume)(&volume(kind, copy), stream_of(stream)) }
        }
    }
}

/// One side of a copy, as the functions take it.
struct Place {
    memory: CUmemorytype,
    host: *mut c_void,
    device: u64,
}

impl Place {
    fn of(side: Pitched, is_host: bool) -> Place {
        let host = std::ptr::with_exposed_provenance_mut(side.at as usize);
        match is_host {
            true => Place { memory: MEMORY_HOST, host, device: 0 },
            false => Place { memory: MEMORY_DEVICE, host: null_mut(), device: side.at },
        }
    }

    fn both(kind: CopyKind, copy: &StridedCopy) -> (Place, Place) {
        let src = Place::of(copy.src, kind == CopyKind::H2D);
        (src, Place::of(copy.dst, kind == CopyKind::D2H))
    }
}

fn plane(kind: CopyKind, copy: &StridedCopy) -> CUDA_MEMCPY2D_v2 {
    let (src, dst) = Place::both(kind, copy);
    CUDA_MEMCPY2D_v2 {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: src.memory,
        srcHost: src.host,
        srcDevice: src.device,
        srcArray: null_mut(),
        srcPitch: copy.src.pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: dst.memory,
        dstHost: dst.host,
        dstDevice: dst.device,
        dstArray: null_mut(),
        dstPitch: copy.dst.pitch,
        WidthInBytes: copy.row,
        Height: copy.rows,
    }
}

pub(super) fn volume(kind: CopyKind, copy: &StridedCopy) -> CUDA_MEMCPY3D_v2 {
    let (src, dst) = Place::both(kind, copy);
    CUDA_MEMCPY3D_v2 {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: src.memory,
        srcHost: src.host,
        srcDevice: src.device,
        srcArray: null_mut(),
        reserved0: null_mut(),
        srcPitch: copy.src.pitch,
        srcHeight: copy.src.height,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: dst.memory,
        dstHost: dst.host,
        dstDevice: dst.device,
        dstArray: null_mut(),
        reserved1: null_mut(),
        dstPitch: copy.dst.pitch,
        dstHeight: copy.dst.height,
        WidthInBytes: copy.row,
        Height: copy.rows,
        Depth: copy.planes,
    }
}
