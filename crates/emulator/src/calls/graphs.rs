//! Captures and graphs (rules 32 to 34).

use super::ranges::transfer;
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::{CaptureMode, Machine, Node};
use crate::memory::host::{Access, HostPtr, HostUse};
use crate::operation::Transfer;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, Capture, CopyKind, DriverResult, Item, RawNode, RawStream};

/// What the handle of a node ends with; before it stands the node's number.
const NODE_TAG: usize = 0xd;

/// What a capture has of a stream so far.
#[derive(Debug)]
pub struct CaptureInfo {
    /// The graph that the capture makes.
    pub graph: usize,
    /// The nodes that the stream's next one depends on, and behind them as many zeros: what CUDA's
    /// graphs say of plain dependencies. They are there until the next such question about the
    /// stream, or the end of the capture.
    pub dependencies: *const usize,
    /// How many nodes these are.
    pub count: usize,
}

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
            let (graph, _) = machine.end_capture(key)?;
            Ok(machine.graphs.handle(graph))
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

    /// What the capture of a stream has so far. `cudaStreamGetCaptureInfo`
    pub fn capture_info(&self, stream: RawStream) -> Option<CaptureInfo> {
        self.with(|machine| {
            let key = machine.resolve(self.call_name(), stream).ok()?;
            let capture = machine.streams.get(key)?.capture?;
            let state = machine.captures.get_mut(capture)?;
            let nodes = state.forks.before_next(key);
            let count = nodes.len();
            let zeros = std::iter::repeat_n(0, count);
            let told = nodes.iter().map(|&node| handle_of(node)).chain(zeros).collect();
            state.told.insert(key, told);
            let dependencies = state.told[&key].as_ptr();
            Some(CaptureInfo { graph: machine.graphs.handle(state.graph), dependencies, count })
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
            let nodes = machine.graphs.get(key).expect("just found").nodes.iter();
            Ok(nodes.map(|node| handle_of(node.number)).collect())
        })
    }

    /// The call that a node was captured from. `cudaGraphNodeGetType`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such node.
    pub fn graph_node(&self, node: usize) -> DriverResult<Call> {
        self.with(|machine| {
            let mut nodes = machine.graphs.values().flat_map(|graph| &graph.nodes);
            let found = nodes.find(|one| handle_of(one.number) == node);
            found.map(|node| node.action.call()).ok_or(CudaCode::INVALID_VALUE)
        })
    }

    /// Makes an executable graph. It holds the page-locked memory that it uses until it is
    /// destroyed. `frees_on_launch` says what becomes of memory that an earlier launch has
    /// allocated and nothing has freed. `cudaGraphInstantiate`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if there is no such graph; without a finding if
    /// it allocates or frees memory and has an executable graph already.
    pub fn graph_instantiate(&self, graph: usize, frees_on_launch: bool) -> DriverResult<usize> {
        self.with(|machine| {
            let key = machine.graph(self.call_name(), graph)?;
            let made = machine.instantiate(key, frees_on_launch)?;
            Ok(machine.graphs.handle(made))
        })
    }

    /// Runs an executable graph, after all its earlier launches. `cudaGraphLaunch`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if there is no such graph; without a finding if
    /// memory that an earlier launch has allocated is not freed.
    /// [`CudaCode::MEMORY_ALLOCATION`] if there is not enough memory. [`CudaCode::NOT_SUPPORTED`]
    /// on a capturing stream, if it allocates or frees memory. The errors of the stream.
    ///
    /// # Safety
    ///
    /// * What its operations use is as valid as at the calls that were captured.
    pub unsafe fn graph_launch(&self, graph: usize, stream: RawStream) -> DriverResult<()> {
        self.on_stream(Call::GraphLaunch, stream, |machine, key| {
            let graph = machine.graph(self.call_name(), graph)?;
            machine.launch_graph(graph, key)
        })
    }

    /// Gives a copy of an executable graph other addresses of the same kinds of memory, for the
    /// launches to come. `node` is the handle of its node in the graph that was captured.
    /// `cudaGraphExecMemcpyNodeSetParams1D`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if there is no such node, or it is no copy of this kind and
    /// length. With a finding: there is no such graph, or the copy itself would be refused.
    pub fn graph_set_copy(
        &self,
        graph: usize,
        node: usize,
        kind: CopyKind,
        copy: Item,
    ) -> DriverResult<()> {
        self.with(|machine| {
            let graph = machine.graph(self.call_name(), graph)?;
            machine.set_copy_of(graph, node, kind, copy)
        })
    }

    /// Destroys a graph, or an executable one. What is launched drains.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if there is no such graph; without a finding if
    /// its capture is under way.
    pub fn graph_destroy(&self, graph: usize) -> DriverResult<()> {
        self.with(|machine| {
            let key = machine.graph(self.call_name(), graph)?;
            if machine.captures.values().any(|capture| capture.graph == key) {
                return Err(CudaCode::INVALID_VALUE);
            }
            machine.drop_graph(key);
            Ok(())
        })
    }
}

/// The handle of a node.
fn handle_of(number: u64) -> usize {
    (number as usize) << 4 | NODE_TAG
}

impl Machine {
    /// The only node that the next one of a captured stream depends on.
    pub(crate) fn captured_last(&self, key: Key) -> Option<RawNode> {
        let capture = self.captures.get(self.streams.get(key)?.capture?)?;
        match capture.forks.before_next(key) {
            [only] => Some(RawNode(handle_of(*only))),
            _ => None,
        }
    }

    pub(crate) fn set_copy_of(
        &mut self,
        graph: Key,
        node: usize,
        kind: CopyKind,
        copy: Item,
    ) -> DriverResult<()> {
        let stream = self.devices[0].legacy; // for messages
        let bytes = copy.bytes as usize;
        let host =
            |address: u64| HostPtr(std::ptr::with_exposed_provenance_mut::<u8>(address as usize));
        let (call, transfer) = match kind {
            CopyKind::H2D => {
                let host = HostUse::new(host(copy.src), bytes, Access::Read);
                self.check_page_locked(Call::CopyH2D, stream, &host)?;
                (Call::CopyH2D, transfer(host, copy.dst))
            }
            CopyKind::D2H => {
                let host = HostUse::new(host(copy.dst), bytes, Access::Write);
                self.check_page_locked(Call::CopyD2H, stream, &host)?;
                (Call::CopyD2H, transfer(host, copy.src))
            }
            CopyKind::D2D => {
                let (dst, src) = (copy.dst, copy.src);
                let device = self.memory.device_of(src).ok_or(CudaCode::INVALID_VALUE)?;
                let call = Call::CopyD2D;
                self.check_across(call, stream, (dst, device), (src, device), bytes)?;
                (call, Transfer::Across { dst, src, bytes })
            }
        };
        let is_it = |one: &&Node| handle_of(one.number) == node;
        let nodes = &self.graphs.get(graph).expect("found by the caller").nodes;
        let node = nodes.iter().find(is_it).ok_or(CudaCode::INVALID_VALUE)?.number;
        self.set_copy(graph, node, call, transfer)
    }

    pub(crate) fn graph(&mut self, call: &str, handle: usize) -> DriverResult<Key> {
        match self.graphs.find(handle) {
            Some((key, _)) => Ok(key),
            None if handle == 0 => Err(CudaCode::INVALID_VALUE),
            None => {
                let message = format!("{call} names {handle:#x}, which is no live graph");
                Err(self.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_VALUE))
            }
        }
    }
}
