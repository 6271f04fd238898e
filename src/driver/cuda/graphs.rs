//! Graphs, by functions of the driver API ([`graph_table`](super::graph_table)).

use std::ffi::c_uint;
use std::ptr::null_mut;

use super::driver_api::*;
use super::graph_table::Functions;
use super::instance::CudaDriver;
use super::strided::volume;
use super::way::graphs::{with_graphs, with_graphs_on};
use super::words::stream_of;
use pinlane_driver::{
    CopyKind, DriverResult, Graphs, Item, Pitched, RawGraph, RawNode, RawStream, StridedCopy,
};

fn graph_of(handle: usize) -> CUgraph {
    std::ptr::with_exposed_provenance_mut(handle)
}

fn executable_of(handle: usize) -> CUgraphExec {
    std::ptr::with_exposed_provenance_mut(handle)
}

/// A graph, until it is given out.
struct Captured(usize);

impl Captured {
    /// The graph of a capture, which ends.
    fn end(functions: &Functions, stream: RawStream) -> Result<Self, c_uint> {
        let mut graph = null_mut();
        // SAFETY: a live stream, and a live place for the call to write.
        let code = unsafe { (functions.end)(stream_of(stream), &mut graph) };
        if code == 0 { Ok(Captured(graph.expose_provenance())) } else { Err(code) }
    }

    /// The executable graph of it, or nothing at all.
    fn instantiate(self, functions: &Functions) -> Result<(usize, usize), c_uint> {
        let mut executable: CUgraphExec = null_mut();
        // SAFETY: a live graph, and a live place for the call to write; no flags.
        let code = unsafe { (functions.instantiate)(&mut executable, graph_of(self.0), 0) };
        if code == 0 {
            return Ok((self.0, executable.expose_provenance()));
        }
        // SAFETY: a live graph that nothing else has.
        let _ = unsafe { (functions.destroy)(graph_of(self.0)) };
        Err(code)
    }
}

/// One row of bytes, as the function takes it.
fn parameters(kind: CopyKind, copy: Item) -> CUDA_MEMCPY3D_v2 {
    let row = copy.bytes as usize;
    let side = |at| Pitched { at, pitch: row, height: 1 };
    let (src, dst) = (side(copy.src), side(copy.dst));
    volume(kind, &StridedCopy { src, dst, row, rows: 1, planes: 1 })
}

// SAFETY: each method makes the calls that the trait names for it, and returns success only if they
// do.
unsafe impl Graphs for CudaDriver {
    unsafe fn capture_begin(&self, stream: RawStream) -> DriverResult<()> {
        // SAFETY: a live stream that may be captured: promised by the caller.
        with_graphs(stream.device, |functions| unsafe {
            (functions.begin)(stream_of(stream), CAPTURE_RELAXED)
        })
    }

    unsafe fn capture_node(&self, stream: RawStream) -> DriverResult<Option<RawNode>> {
        let mut node = None;
        with_graphs(stream.device, |functions| {
            let (mut status, mut id, mut graph) = (CAPTURE_NONE, 0, null_mut());
            let (mut nodes, mut count) = (std::ptr::null(), 0);
            // SAFETY: a live stream, promised by the caller, and live places for the call to write.
            let code = unsafe {
                (functions.info)(
                    stream_of(stream),
                    &mut status,
                    &mut id,
                    &mut graph,
                    &mut nodes,
                    &mut count,
                )
            };
            if code == 0 && status == CAPTURE_ACTIVE && count == 1 {
                // SAFETY: after success there is one node, until the next call for the stream.
                node = Some(RawNode(unsafe { *nodes }.expose_provenance()));
            }
            code
        })?;
        Ok(node)
    }

    unsafe fn capture_end(&self, stream: RawStream) -> DriverResult<RawGraph> {
        let mut made = (0, 0);
        with_graphs(stream.device, |functions| {
            let ended = Captured::end(functions, stream);
            match ended.and_then(|captured| captured.instantiate(functions)) {
                Ok(handles) => {
                    made = handles;
                    0
                }
                Err(code) => code,
            }
        })?;
        Ok(RawGraph { device: stream.device, graph: made.0, executable: made.1 })
    }

    unsafe fn graph_set_copy(
        &self,
        graph: RawGraph,
        node: RawNode,
        kind: CopyKind,
        copy: Item,
    ) -> DriverResult<()> {
        with_graphs(graph.device, |functions| {
            let parameters = parameters(kind, copy);
            let node: CUgraphNode = std::ptr::with_exposed_provenance_mut(node.0);
            let mut context = null_mut();
            // SAFETY: a live place for the call to write.
            match unsafe { (functions.current)(&mut context) } {
                // SAFETY: a live graph and a node of it, and a copy of the node's kind: promised by
                // the caller; the device's context.
                0 => unsafe {
                    let graph = executable_of(graph.executable);
                    (functions.set_copy)(graph, node, &parameters, context)
                },
                code => code,
            }
        })
    }

    unsafe fn graph_launch(&self, graph: RawGraph, stream: RawStream) -> DriverResult<()> {
        // SAFETY: a live graph and a live stream of its device: promised by the caller.
        with_graphs_on(stream, |functions| unsafe {
            (functions.launch)(executable_of(graph.executable), stream_of(stream))
        })
    }

    unsafe fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()> {
        with_graphs(graph.device, |functions| {
            // SAFETY: live, and not used afterwards: promised by the caller.
            let code = unsafe { (functions.destroy_executable)(executable_of(graph.executable)) };
            // SAFETY: as above.
            match (code, unsafe { (functions.destroy)(graph_of(graph.graph)) }) {
                (0, code) | (code, _) => code,
            }
        })
    }
}
