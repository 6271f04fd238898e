//! Graphs: work that is captured once and launched many times.

use super::types::{DriverResult, Item, Ordinal, RawStream};
use crate::CopyKind;

/// An executable graph, and the graph that it was made of (`cudaGraphExec_t` and `cudaGraph_t` as
/// numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawGraph {
    /// The device of the stream that was captured.
    pub device: Ordinal,
    /// The `cudaGraph_t`. Its nodes name what can be changed in the executable graph.
    pub graph: usize,
    /// The `cudaGraphExec_t`.
    pub executable: usize,
}

/// A node of a graph (`cudaGraphNode_t` as a number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawNode(pub usize);

/// The part of a [`Driver`](super::Driver) that captures and launches graphs.
///
/// # Safety
///
/// As for [`Driver`](super::Driver): a call that returns success has the effect that the CUDA
/// documents give for the function that the method names.
///
/// Terms of the preconditions, besides those of [`Driver`](super::Driver):
///
/// * **live graph**: given by [`capture_end`](Graphs::capture_end) of this driver, and not
///   destroyed.
pub unsafe trait Graphs {
    /// Begins a capture, in relaxed mode: it forbids no call of any thread, and any thread may end
    /// it. `cuStreamBeginCapture`
    ///
    /// # Safety
    ///
    /// * `stream` is live, and neither capturing nor the legacy default stream.
    unsafe fn capture_begin(&self, stream: RawStream) -> DriverResult<()>;

    /// The node that the next work of a capturing stream will depend on, if there is exactly one:
    /// the node of the work that was captured last. `cuStreamGetCaptureInfo`
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    unsafe fn capture_node(&self, stream: RawStream) -> DriverResult<Option<RawNode>>;

    /// Ends a capture, and makes an executable graph of it. After an error there is no graph, and
    /// the capture may be under way until the stream is destroyed. `cuStreamEndCapture`,
    /// `cuGraphInstantiateWithFlags`
    ///
    /// # Safety
    ///
    /// * `stream` is live, and a capture has [begun](Graphs::capture_begin) on it.
    unsafe fn capture_end(&self, stream: RawStream) -> DriverResult<RawGraph>;

    /// Gives a copy other addresses, for all launches to come. `cuGraphExecMemcpyNodeSetParams`
    ///
    /// # Safety
    ///
    /// * `graph` is live, and not launched or changed by another thread during the call.
    /// * `node` is a node of it that was captured from a copy of this kind and of as many bytes,
    ///   within one device.
    /// * Both sides are as the method demands that makes such a copy; they stay so until no launch
    ///   to come uses them.
    unsafe fn graph_set_copy(
        &self,
        graph: RawGraph,
        node: RawNode,
        kind: CopyKind,
        copy: Item,
    ) -> DriverResult<()>;

    /// Enqueues all work of the graph; it begins when earlier work of the stream, and earlier
    /// launches of the same graph on any stream, are complete. `cuGraphLaunch`
    ///
    /// # Safety
    ///
    /// * `graph` is live, and not launched or changed by another thread during the call.
    /// * `stream` is live, of the graph's device, and not capturing.
    /// * What the captured work names is as valid as at the calls that were captured, until
    ///   retired.
    unsafe fn graph_launch(&self, graph: RawGraph, stream: RawStream) -> DriverResult<()>;

    /// Destroys the graph; returns at once, and launches under way drain. `cuGraphExecDestroy`,
    /// `cuGraphDestroy`
    ///
    /// # Safety
    ///
    /// * `graph` is live, and not used afterwards.
    unsafe fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()>;
}
