//! Graphs: captured work, and the buffers that it names.

use super::names::Names;
use crate::capi::{
    Out, Result, boundary, freeing, handle, handle_type, pinlane_buffer, pinlane_device_buffer,
    pinlane_status, pinlane_stream, pinlane_ticket,
};
use crate::graph;

/// Captured work that can be launched again and again, as one operation. It holds the buffers that
/// the work names: their memory stays until the graph is freed and its launches are complete, even
/// if the buffers are freed before. Any thread may use it, one at a time.
pub enum pinlane_graph {}

handle_type!(pinlane_graph: Graph, "graph", table 15, shared: false);

/// The object of a graph's handle.
pub struct Graph {
    pub(super) graph: graph::Graph,
    pub(super) hosts: Names<pinlane_buffer>,
    pub(super) devices: Names<pinlane_device_buffer>,
}

impl Graph {
    /// Launches with all buffers. If that fails, what was lent is lent as before.
    pub(super) fn launch<R>(
        &mut self,
        how: impl FnOnce(&mut graph::Graph) -> Result<R>,
    ) -> Result<R> {
        let Graph { graph, hosts, devices } = self;
        hosts.take_back(graph)?;
        if let Err(error) = devices.take_back(graph) {
            hosts.undo(graph);
            return Err(error);
        }
        let launched = how(graph);
        if launched.is_ok() {
            hosts.keep();
            devices.keep();
        } else {
            hosts.undo(graph);
            devices.undo(graph);
        }
        launched
    }
}

/// Launches all captured work on `stream`, any stream of the graph's device, as one operation that
/// reads and writes what the work reads and writes: after conflicting uses of the buffers on any
/// stream, and after earlier launches. Does not block. `ticket` may be NULL.
///
/// First takes back the buffers that were lent. The cost does not depend on how many others there
/// are.
///
/// Statuses: `INVALID_HANDLE`, also if a buffer was freed while it was lent; `BUSY` if a buffer
/// that was lent is in use by another call; `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`; `UNSUPPORTED` if other code has the executable graph: nothing was enqueued, and
/// what was lent still is. `CUDA`, `DEVICE_LOST`: the contents of what the work writes are
/// unspecified.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_graph_launch(
    graph: *mut pinlane_graph,
    stream: *const pinlane_stream,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_graph_launch", stream, |stream| {
        handle::get_mut(graph)?.launch(|graph| graph.launch(stream))
    })
}

/// Lends a buffer of the graph to the program until the next launch: until then every function
/// takes it, as if no graph had it. `pinlane_buffer_read` and `pinlane_buffer_write`, for example,
/// wait for the launches that use it, and copies are ordered after them. The next launch takes the
/// buffer back. Buffers that the work only reads can be read without this. Does not block.
///
/// A buffer that is freed while it is lent is lost to the graph, which can then only be freed. The
/// graph has its address, so its memory stays until then. Memory of the caller's own cannot come
/// back before: `pinlane_buffer_free` returns `BUSY`.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` if the graph does not name
/// the buffer.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_graph_lend_buffer(
    graph: *mut pinlane_graph,
    buffer: *mut pinlane_buffer,
) -> pinlane_status {
    boundary("pinlane_graph_lend_buffer", || {
        let Graph { graph, hosts, .. } = &mut *handle::get_mut(graph)?;
        hosts.lend(graph, buffer)
    })
}

/// As `pinlane_graph_lend_buffer`, for a buffer in device memory.
///
/// Statuses: as for `pinlane_graph_lend_buffer`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_graph_lend_device_buffer(
    graph: *mut pinlane_graph,
    buffer: *mut pinlane_device_buffer,
) -> pinlane_status {
    boundary("pinlane_graph_lend_device_buffer", || {
        let Graph { graph, devices, .. } = &mut *handle::get_mut(graph)?;
        devices.lend(graph, buffer)
    })
}

/// Puts `replacement`, of the same size, in the place of `buffer` in all launches to come. `buffer`
/// is the program's again, and knows of the launches that use it. Two buffers that take turns need
/// one graph. Does not block.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `LENGTH_MISMATCH`, `WRONG_DEVICE`, `FORKED_PROCESS`;
/// `INVALID_VALUE` if the graph does not name `buffer`, or names `replacement`; `UNSUPPORTED` if
/// other work than copies names the buffer, whose addresses are not known, or other code has the
/// executable graph: nothing has changed. `CUDA`: if the addresses that were changed cannot be
/// changed back either, launches get `UNSUPPORTED`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_graph_rebind_buffer(
    graph: *mut pinlane_graph,
    buffer: *mut pinlane_buffer,
    replacement: *mut pinlane_buffer,
) -> pinlane_status {
    boundary("pinlane_graph_rebind_buffer", || {
        let Graph { graph, hosts, .. } = &mut *handle::get_mut(graph)?;
        hosts.rebind(graph, buffer, replacement)
    })
}

/// As `pinlane_graph_rebind_buffer`, for buffers in the memory of one device.
///
/// Statuses: as for `pinlane_graph_rebind_buffer`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_graph_rebind_device_buffer(
    graph: *mut pinlane_graph,
    buffer: *mut pinlane_device_buffer,
    replacement: *mut pinlane_device_buffer,
) -> pinlane_status {
    boundary("pinlane_graph_rebind_device_buffer", || {
        let Graph { graph, devices, .. } = &mut *handle::get_mut(graph)?;
        devices.rebind(graph, buffer, replacement)
    })
}

/// Writes the number of bytes that a launch moves or touches, at most, to `bytes`.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`; `INVALID_VALUE` if `bytes` is NULL.
///
/// # Safety
///
/// - `bytes` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_graph_bytes(
    graph: *const pinlane_graph,
    bytes: *mut usize,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `bytes`.
    unsafe { Out::new("bytes", bytes) }
        .give("pinlane_graph_bytes", || Ok(handle::get(graph)?.graph.bytes()))
}

/// Frees the graph; NULL is a no-op. Returns at once, even in the middle of a launch. Its buffers
/// are the program's again; the memory of those that were freed is reused when the device is done
/// with it. In a host function the graph is destroyed a little later, on another thread: until then
/// calls with its buffers return `BUSY`.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a graph.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_graph_free(graph: *mut pinlane_graph) -> pinlane_status {
    freeing("pinlane_graph_free", || handle::free(graph))
}
