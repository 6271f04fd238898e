//! Strided copies in a program of the runtime: by the driver's functions and, between two devices,
//! whose contexts the runtime has, by its own.

use std::ptr::null_mut;
use std::sync::OnceLock;

use super::super::strided::Functions;
use super::batch::with_device_current;
use super::convert::{Address, stream_of};
use super::entry;
use super::sys;
use super::thread::{call_on, call_with_device};
use pinlane_driver::{CopyKind, DriverResult, Ordinal, Pitched, RawStream, StridedCopy};

fn functions() -> DriverResult<&'static Functions> {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let found = Functions::find(entry::must_find)?;
    Ok(FOUND.get_or_init(|| found))
}

/// Enqueues the copy.
///
/// # Safety
///
/// * As for [`Driver::copy_strided`](pinlane_driver::Driver::copy_strided).
pub(super) unsafe fn copy(
    stream: RawStream,
    kind: CopyKind,
    copy: StridedCopy,
) -> DriverResult<()> {
    let functions = functions()?;
    call_with_device(stream, move || {
        // SAFETY: a live stream and valid rows: promised by the caller.
        with_device_current(stream.device, || unsafe { functions.enqueue(stream, kind, &copy) })
    })
}

/// `cudaMemcpy3DPeerAsync`.
///
/// # Safety
///
/// * As for [`Driver::copy_strided_peer`](pinlane_driver::Driver::copy_strided_peer).
pub(super) unsafe fn copy_peer(
    stream: RawStream,
    copy: StridedCopy,
    dst_device: Ordinal,
    src_device: Ordinal,
) -> DriverResult<()> {
    let nowhere = || sys::cudaPos { x: 0, y: 0, z: 0 };
    call_on(stream, move || {
        let side = |side: Pitched| sys::cudaPitchedPtr {
            ptr: Address::device(side.at).get(),
            pitch: side.pitch,
            xsize: copy.row,
            ysize: side.height,
        };
        let parameters = sys::cudaMemcpy3DPeerParms {
            srcArray: null_mut(),
            srcPos: nowhere(),
            srcPtr: side(copy.src),
            srcDevice: src_device,
            dstArray: null_mut(),
            dstPos: nowhere(),
            dstPtr: side(copy.dst),
            dstDevice: dst_device,
            extent: sys::cudaExtent { width: copy.row, height: copy.rows, depth: copy.planes },
        };
        // SAFETY: live stream, valid rows, each side on its device: promised by the caller.
        unsafe { sys::cudaMemcpy3DPeerAsync(&parameters, stream_of(stream)) }
    })
}
