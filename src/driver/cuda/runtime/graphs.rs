//! The driver's functions for graphs, in a program of the runtime.

use std::ffi::c_uint;
use std::sync::OnceLock;

use super::super::graph_table::Functions;
use super::batch::with_device_current;
use super::entry;
use super::thread::call_with_device;
use pinlane_driver::{DriverResult, Ordinal, RawStream};

fn functions() -> DriverResult<&'static Functions> {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let found = Functions::find(entry::must_find)?;
    Ok(FOUND.get_or_init(|| found))
}

/// Calls functions for graphs, with the device current.
pub(in super::super) fn with_graphs(
    device: Ordinal,
    call: impl FnMut(&Functions) -> c_uint + Send,
) -> DriverResult<()> {
    with_graphs_on(RawStream { device, handle: RawStream::LEGACY }, call)
}

/// The same, for calls that name the stream.
pub(in super::super) fn with_graphs_on(
    stream: RawStream,
    mut call: impl FnMut(&Functions) -> c_uint + Send,
) -> DriverResult<()> {
    let functions = functions()?;
    call_with_device(stream, move || with_device_current(stream.device, || call(functions)))
}
