//! `cuMemcpyBatchAsync` in a program of the runtime.
//!
//! The function belongs to the driver API. Unlike a runtime call, it does not make a device current
//! on a thread that has made no call yet.

use std::ffi::c_uint;
use std::sync::OnceLock;

use super::super::batch::{Batch, CopyBatch, NAME, VERSION};
use super::super::driver_api::PFN_cuMemcpyBatchAsync_v12080;
use super::super::functions::function;
use super::entry;
use super::sys;
use super::thread::call_with_device;
use crate::error::CudaCode;
use pinlane_driver::{DriverResult, Item, Ordinal, RawStream};

/// What the call returns if no device is current on the thread: `CUDA_ERROR_INVALID_VALUE` or
/// `CUDA_ERROR_INVALID_CONTEXT`. Nothing was then enqueued.
const PERHAPS_NO_CONTEXT: [c_uint; 2] = [1, 201];

/// Whether the driver has the function.
pub(super) fn exist() -> DriverResult<bool> {
    entry_point().map(|found| found.is_some())
}

/// The driver's function, or `None` if the driver is too old.
fn entry_point() -> DriverResult<Option<CopyBatch>> {
    static FOUND: OnceLock<Option<CopyBatch>> = OnceLock::new();
    if let Some(&found) = FOUND.get() {
        return Ok(found);
    }
    // A failure is not cached: the driver may come up later.
    let found = entry::find(NAME, VERSION)?;
    // SAFETY: the driver's function of this name and version has this signature.
    let found = found.map(|at| unsafe { function::<PFN_cuMemcpyBatchAsync_v12080>(at) });
    Ok(*FOUND.get_or_init(|| found))
}

/// `cuMemcpyBatchAsync` of all copies that are not empty.
///
/// # Safety
///
/// * `stream` is live.
/// * All ranges are valid until retired; destinations overlap no other range.
pub(super) unsafe fn copy(stream: RawStream, copies: &[Item]) -> DriverResult<()> {
    let Some(mut batch) = Batch::of(copies) else { return Ok(()) };
    let function = entry_point()?.ok_or(CudaCode::NOT_SUPPORTED)?;
    call_with_device(stream, move || {
        // SAFETY: live stream, valid ranges that do not overlap: promised by the caller.
        with_device_current(stream.device, || unsafe { batch.enqueue(function, stream) })
    })
}

/// Makes a call of the driver API; if the thread may have no device, makes one current and calls
/// again.
pub(super) fn with_device_current(
    device: Ordinal,
    mut call: impl FnMut() -> c_uint,
) -> sys::cudaError {
    match call() {
        code if PERHAPS_NO_CONTEXT.contains(&code) => {
            // No device was current, so there is nothing to restore. Any runtime call would have
            // made one current too. SAFETY: takes a number and checks it.
            match unsafe { sys::cudaSetDevice(device) } {
                sys::cudaError::cudaSuccess => sys::cudaError(call()),
                code => code,
            }
        }
        code => sys::cudaError(code),
    }
}
