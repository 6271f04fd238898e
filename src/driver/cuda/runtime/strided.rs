//! The driver's functions for strided copies, in a program of the runtime.

use std::sync::OnceLock;

use super::super::strided::Functions;
use super::batch::with_device_current;
use super::entry;
use super::thread::call_with_device;
use pinlane_driver::{CopyKind, CudaCode, DriverResult, RawStream, StridedCopy};

fn functions() -> DriverResult<&'static Functions> {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let found = Functions::find(|name, version| {
        entry::find(name, version)?.ok_or(CudaCode::NOT_SUPPORTED)
    })?;
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
