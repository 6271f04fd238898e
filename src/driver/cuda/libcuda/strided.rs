//! Copies of rows that lie a pitch apart between two devices: `cuMemcpy3DPeerAsync`.

use std::ptr::null_mut;

use super::super::driver_api::{CUDA_MEMCPY3D_PEER_v1, CUcontext, MEMORY_DEVICE};
use pinlane_driver::StridedCopy;

/// The copy as the function takes it; `there` and `here` are the contexts of the destination and of
/// the source.
pub(super) fn between_devices(
    copy: &StridedCopy,
    there: CUcontext,
    here: CUcontext,
) -> CUDA_MEMCPY3D_PEER_v1 {
    CUDA_MEMCPY3D_PEER_v1 {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: MEMORY_DEVICE,
        srcHost: null_mut(),
        srcDevice: copy.src.at,
        srcArray: null_mut(),
        srcContext: here,
        srcPitch: copy.src.pitch,
        srcHeight: copy.src.height,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: MEMORY_DEVICE,
        dstHost: null_mut(),
        dstDevice: copy.dst.at,
        dstArray: null_mut(),
        dstContext: there,
        dstPitch: copy.dst.pitch,
        dstHeight: copy.dst.height,
        WidthInBytes: copy.row,
        Height: copy.rows,
        Depth: copy.planes,
    }
}
