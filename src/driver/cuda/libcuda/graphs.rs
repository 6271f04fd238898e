//! The driver's functions for graphs, with the context of a device current.

use std::ffi::c_uint;

use super::super::graph_table::Functions;
use super::library::Library;
use pinlane_driver::{DriverResult, Ordinal, RawStream};

/// Calls functions for graphs, with the device current.
pub(in super::super) fn with_graphs(
    device: Ordinal,
    mut call: impl FnMut(&Functions) -> c_uint,
) -> DriverResult<()> {
    let library = Library::get()?;
    library.on(device, |_| call(&library.graphs))
}

/// The same, for calls that name the stream.
pub(in super::super) fn with_graphs_on(
    stream: RawStream,
    call: impl FnMut(&Functions) -> c_uint,
) -> DriverResult<()> {
    with_graphs(stream.device, call)
}
