//! Launches of work that was captured into a graph of other code.

use super::launch::{Graph, pinlane_graph};
use crate::capi::foreign::{Foreign, Launch};
use crate::capi::table::{Alone, Counted};
use crate::capi::{Out, Result, handle, pinlane_foreign, pinlane_status, pinlane_stream};
use crate::stream::Stream;
use crate::ticket::Ticket;

impl Launch for Counted<Alone<pinlane_graph>> {
    fn end(&mut self, stream: &Stream) -> (bool, Result<Ticket>) {
        let Graph { graph, .. } = &mut **self;
        graph.end_foreign("pinlane_foreign_end", stream)
    }
}

/// Begins a launch of work that was captured into a graph of other code, by `pinlane_capture_join`,
/// and writes a handle for `pinlane_foreign_end` to `foreign`. Launch the other code's graph on the
/// `cudaStream_t` of `stream`, then call `pinlane_foreign_end`. Until then other calls with the
/// graph get `BUSY`. Otherwise as `pinlane_graph_launch`.
///
/// Statuses: as for `pinlane_graph_launch`; `INVALID_VALUE` if `foreign` is NULL.
///
/// # Safety
///
/// - Until `pinlane_foreign_end`, the caller enqueues the graph that the work was captured into, or
///   an executable graph of it, once or more, on the stream; and no other work on the buffers.
/// - `foreign` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_graph_foreign_begin(
    graph: *mut pinlane_graph,
    stream: *const pinlane_stream,
    foreign: *mut *mut pinlane_foreign,
) -> pinlane_status {
    const FUNCTION: &str = "pinlane_graph_foreign_begin";
    // SAFETY: the caller's precondition on `foreign`.
    unsafe { Out::new("foreign", foreign) }.create(FUNCTION, || {
        let stream = handle::get(stream)?;
        let mut graph: Counted<Alone<pinlane_graph>> = handle::get_counted(graph)?;
        graph.launch(|graph| graph.begin_foreign(FUNCTION, &stream))?;
        Ok(Foreign::of_launch(&stream, Box::new(graph)))
    })
}
