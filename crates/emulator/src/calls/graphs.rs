//! Captures and graphs (rules 32 to 34).
//!
//! A replay of a graph runs the operations in the order in which they were captured, on the stream
//! of the launch. CUDA may run them in any order that the captured streams and events allow; races
//! within a graph are not looked for.

use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::{CaptureMode, Graph, Machine};
use crate::memory::host::HostUse;
use crate::operation::Action;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, Capture, DriverResult, RawStream};

/// What the handle of a node ends with; before it stands the node's number.
const NODE_TAG: usize = 0xd;

impl Emulator {
    /// Whether a stream is capturing. `cudaStreamIsCapturing`
    ///
    /// # Errors
    ///
    /// As for [`stream_query`](Self::stream_query), except that a capture is no error.
    pub fn stream_capture(&self, stream: RawStream) -> DriverResult<Capture> {
        self.on_stream(Call::StreamCapture, stream, |machine, key| machine.capture_status(key))
    }

    /// Starts a capture. `cudaStreamBeginCapture`
    ///
    /// # Errors
    ///
    /// As for [`Emulator::begin_capture`](crate::Emulator::begin_capture).
    pub fn stream_begin_capture(&self, stream: RawStream, mode: CaptureMode) -> DriverResult<()> {
        self.with(|machine| {
            let key = machine.resolve(self.call_name(), stream)?;
            machine.begin_capture(key, mode)
        })
    }

    /// Ends a capture; gives the handle of its graph. `cudaStreamEndCapture`
    ///
    /// # Errors
    ///
    /// As for [`Emulator::end_capture`](crate::Emulator::end_capture).
    pub fn stream_end_capture(&self, stream: RawStream) -> DriverResult<usize> {
        self.with(|machine| {
            let key = machine.resolve(self.call_name(), stream)?;
            let nodes = machine.end_capture(key)?;
            // What orders the nodes while they are captured is not replayed.
            let is_work = |node: &Action| !matches!(node, Action::Mark { .. } | Action::Join);
            let nodes = nodes.into_iter().filter(is_work).collect();
            Ok(machine.keep_graph(nodes, Vec::new()))
        })
    }

    /// If a capture under way forbids calls that are potentially unsafe, fails and invalidates it.
    /// Such calls are those that allocate and free other than in stream order, and queries of
    /// events.
    ///
    /// # Errors
    ///
    /// [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`], with a finding.
    pub fn refuse_unsafe(&self) -> DriverResult<()> {
        let (call, mode) = (self.call_name(), self.capture_mode());
        self.with(|machine| machine.refuse_unsafe(call, mode))
    }

    /// The same, for a call that asks about a stream, or waits for it.
    ///
    /// # Errors
    ///
    /// As for [`refuse_unsafe`](Self::refuse_unsafe); and if the stream is captured itself, or one
    /// that the legacy stream waits for.
    pub fn refuse_unsafe_on(&self, stream: RawStream) -> DriverResult<()> {
        let (call, mode) = (self.call_name(), self.capture_mode());
        self.with(|machine| {
            let key = machine.resolve(call, stream)?;
            machine.refuse_capturing(key)?;
            machine.refuse_unsafe(call, mode)
        })
    }

    /// For calls that cannot be captured: if the stream is captured, fails and invalidates the
    /// capture.
    ///
    /// # Errors
    ///
    /// [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`], with a finding.
    pub fn refuse_captured(&self, stream: RawStream) -> DriverResult<()> {
        if !self.is_capturing(stream) {
            return Ok(());
        }
        let message = format!("{} on {stream:?}, which is capturing", self.call_name());
        self.with(|machine| {
            machine.report(FindingKind::Capture, message);
            let key = machine.resolve(self.call_name(), stream)?;
            machine.refuse_capturing(key)
        })
    }

    /// Whether a stream is captured.
    pub fn is_capturing(&self, stream: RawStream) -> bool {
        self.capture_id(stream).is_some()
    }

    /// The number of a stream's capture, which no other capture of the machine has.
    /// `cudaStreamGetCaptureInfo`
    pub fn capture_id(&self, stream: RawStream) -> Option<u64> {
        self.with(|machine| {
            let key = machine.resolve(self.call_name(), stream).ok();
            let stream = key.and_then(|key| machine.streams.get(key))?;
            Some(machine.captures.handle(stream.capture?) as u64)
        })
    }

    /// The handles of a graph's nodes, in the order of their capture. `cudaGraphGetNodes`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if there is no such graph.
    pub fn graph_nodes(&self, graph: usize) -> DriverResult<Vec<usize>> {
        self.with(|machine| {
            let key = machine.graph(self.call_name(), graph)?;
            let graph = machine.graphs.get(key).expect("just found");
            let numbers = graph.first..graph.first + graph.nodes.len() as u64;
            Ok(numbers.map(|number| (number as usize) << 4 | NODE_TAG).collect())
        })
    }

    /// The call that a node was captured from. `cudaGraphNodeGetType`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such node.
    pub fn graph_node(&self, node: usize) -> DriverResult<Call> {
        self.with(|machine| {
            let of = |graph: &Graph| {
                let at = ((node >> 4) as u64).checked_sub(graph.first)?;
                graph.nodes.get(at as usize).map(Action::call)
            };
            let mut graphs = machine.graphs.values().filter(|_| node & 0xf == NODE_TAG);
            graphs.find_map(of).ok_or(CudaCode::INVALID_VALUE)
        })
    }

    /// Makes an executable graph. It holds the page-locked memory that it uses until it is
    /// destroyed. `cudaGraphInstantiate`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if there is no such graph.
    pub fn graph_instantiate(&self, graph: usize) -> DriverResult<usize> {
        self.with(|machine| {
            let key = machine.graph(self.call_name(), graph)?;
            let nodes = machine.graphs.get(key).expect("just found").nodes.clone();
            let id = machine.next_operation();
            let uses = nodes.iter().flat_map(Action::host_claims).filter(|host| !host.pageable);
            let held: Vec<(HostUse, u64)> = uses.map(|host| (host.clone(), id)).collect();
            held.iter().for_each(|(host, id)| machine.host.begin_use(host, *id));
            Ok(machine.keep_graph(nodes, held))
        })
    }

    /// Runs an executable graph. `cudaGraphLaunch`
    ///
    /// # Errors
    ///
    /// As for [`graph_instantiate`](Self::graph_instantiate), and the errors of the stream.
    ///
    /// # Safety
    ///
    /// * What its operations use is as valid as at the calls that were captured.
    pub unsafe fn graph_launch(&self, graph: usize, stream: RawStream) -> DriverResult<()> {
        self.on_stream(Call::Busy, stream, |machine, key| {
            let graph = machine.graph(self.call_name(), graph)?;
            let nodes = machine.graphs.get(graph).expect("just found").nodes.clone();
            nodes.into_iter().try_for_each(|node| machine.submit(key, Vec::new(), node))
        })
    }

    /// Destroys a graph, or an executable one. What is launched drains.
    ///
    /// # Errors
    ///
    /// As for [`graph_instantiate`](Self::graph_instantiate).
    pub fn graph_destroy(&self, graph: usize) -> DriverResult<()> {
        self.with(|machine| {
            let key = machine.graph(self.call_name(), graph)?;
            let graph = machine.graphs.remove(key).expect("just found");
            machine.end_uses(&graph.held);
            Ok(())
        })
    }
}

impl Machine {
    fn graph(&mut self, call: &str, handle: usize) -> DriverResult<Key> {
        match self.graphs.find(handle) {
            Some((key, _)) => Ok(key),
            None if handle == 0 => Err(CudaCode::INVALID_VALUE),
            None => {
                let message = format!("{call} names {handle:#x}, which is no live graph");
                Err(self.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_VALUE))
            }
        }
    }

    /// Gives the handle of a new graph, which holds that memory.
    fn keep_graph(&mut self, nodes: Vec<Action>, held: Vec<(HostUse, u64)>) -> usize {
        let first = self.operations + 1;
        self.operations += nodes.len() as u64;
        let key = self.graphs.insert(Graph { nodes, first, held });
        self.graphs.handle(key)
    }
}
