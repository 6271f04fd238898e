//! Graph capture, as far as it matters to a program that must not disturb one (rules 32 to 34).
//!
//! A capturing stream's operations are recorded instead of run, and the page-locked memory that
//! they name is held until the capture ends; then by the executable graphs made of it
//! (`calls/graphs.rs`). The calls that a capture forbids fail with the code that CUDA documents,
//! and invalidate it.

use std::collections::HashMap;

use super::finding::FindingKind;
use super::forks::Forks;
use super::machine::{CaptureMode, Capturing, Graph, Machine, Node, Stream};
use super::memory::host::HostUse;
use super::operation::{Action, Position};
use super::words::slots::Key;
use super::words::thread::this_thread;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, Capture, DriverResult, Ordinal};

/// Codes of captures that nothing but the emulated device returns (`cudaErrorIllegalState`,
/// `cudaErrorStreamCapture{Merge,Unmatched,Unjoined,Isolation}`).
const ILLEGAL_STATE: CudaCode = CudaCode(401);
const MERGE: CudaCode = CudaCode(902);
const UNMATCHED: CudaCode = CudaCode(903);
const UNJOINED: CudaCode = CudaCode(904);
const ISOLATION: CudaCode = CudaCode(905);

impl Machine {
    /// Starts a capture.
    pub(super) fn begin_capture(&mut self, key: Key, mode: CaptureMode) -> DriverResult<()> {
        let stream = self.streams.get(key).expect("resolved by the caller");
        if self.is_legacy(key) {
            return Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let capture = self.captures.insert(Capturing {
            origin: key,
            thread: this_thread(),
            mode,
            graph: self.graphs.insert(Graph::default()),
            recorded: 0,
            invalidated: false,
            held: Vec::new(),
            forks: Forks::new(key),
            told: HashMap::new(),
        });
        self.streams.get_mut(key).expect("resolved by the caller").capture = Some(capture);
        Ok(())
    }

    /// Ends a capture; gives its graph, and how many operations it has recorded.
    pub(super) fn end_capture(&mut self, key: Key) -> DriverResult<(Key, usize)> {
        let capture = self.streams.get(key).and_then(|stream| stream.capture);
        let capture = capture.ok_or(ILLEGAL_STATE)?;
        let state = self.captures.get(capture).expect("its streams outlive it");
        if state.origin != key {
            return Err(UNMATCHED);
        }
        let code = if state.mode != CaptureMode::Relaxed && state.thread != this_thread() {
            // Seen on an H100: the capture has ended all the same.
            CudaCode::STREAM_CAPTURE_WRONG_THREAD
        } else if state.invalidated {
            CudaCode::STREAM_CAPTURE_INVALIDATED
        } else if !state.forks.is_joined(key) {
            UNJOINED
        } else {
            let state = self.take_capture(capture);
            self.end_captured_memory(state.graph);
            return Ok((state.graph, state.recorded));
        };
        self.drop_capture(capture);
        Err(code)
    }

    /// Ends a capture that makes no graph.
    pub(super) fn drop_capture(&mut self, capture: Key) {
        let state = self.take_capture(capture);
        self.end_captured_memory(state.graph);
        self.drop_graph(state.graph);
    }

    fn take_capture(&mut self, capture: Key) -> Capturing {
        for stream in self.streams.values_mut() {
            stream.capture = stream.capture.filter(|&of| of != capture);
        }
        let state = self.captures.remove(capture).expect("its streams outlive it");
        self.end_uses(&state.held);
        state
    }

    /// A capture or a graph does not hold this memory any more.
    pub(super) fn end_uses(&mut self, held: &[(HostUse, u64)]) {
        for (host, id) in held {
            // If the memory is gone, that was reported when it went.
            let _ = self.host.end_use(host, *id);
        }
    }

    pub(super) fn capture_status(&self, key: Key) -> DriverResult<Capture> {
        let stream = self.streams.get(key).expect("resolved by the caller");
        match stream.capture.and_then(|capture| self.captures.get(capture)) {
            Some(state) if state.invalidated => Ok(Capture::Invalidated),
            Some(_) => Ok(Capture::Active),
            None if self.blocking_captures(key).next().is_some() => {
                Err(CudaCode::STREAM_CAPTURE_IMPLICIT)
            }
            None => Ok(Capture::None),
        }
    }

    /// Records an operation, if its stream is capturing.
    pub(super) fn capture(&mut self, key: Key, action: &Action) -> DriverResult<bool> {
        let Some(capture) = self.streams.get(key).and_then(|stream| stream.capture) else {
            return self.refuse_implicit(key).map(|()| false);
        };
        let id = self.next_operation();
        let state = self.captures.get_mut(capture).expect("its streams outlive it");
        if state.invalidated {
            return Err(CudaCode::STREAM_CAPTURE_INVALIDATED);
        }
        state.recorded += 1;
        match *action {
            Action::Mark { event } => state.forks.records(key, event),
            Action::Join => {}
            _ => {
                // What only orders the nodes while they are captured is not replayed.
                let graph = self.graphs.get_mut(state.graph).expect("lives as long as its capture");
                let (action, label) = (action.clone(), self.races.called().label);
                let (branch, after) =
                    (state.forks.branch(key), state.forks.before_next(key).to_vec());
                graph.nodes.push(Node { number: id, action, label, branch, after });
                state.forks.captures(key, id);
            }
        }
        for host in action.host_claims() {
            state.held.push((host.clone(), id));
            self.host.begin_use(host, id);
        }
        if let Action::Mark { event } = *action
            && let Some(event) = self.events.get_mut(event)
        {
            event.captured = Some(capture);
            event.snapshot = None;
            event.order.knowledge = None;
        }
        Ok(true)
    }

    /// Makes a stream wait for a captured event, which draws it into the capture, or refuses a wait
    /// that would cross a capture's boundary. True if that was all there is to do.
    pub(super) fn capture_wait(&mut self, key: Key, event: Key) -> DriverResult<bool> {
        let of_stream = self.streams.get(key).expect("resolved by the caller").capture;
        let found = self.events.get(event).expect("resolved by the caller");
        match (of_stream, found.captured) {
            (None, None) => Ok(false),
            (Some(_), None) if found.snapshot.is_none() => Ok(true),
            (Some(capture), None) => Err(self.invalidate(capture, ISOLATION)),
            (Some(capture), Some(other)) if capture != other => {
                self.invalidate(other, MERGE);
                Err(self.invalidate(capture, MERGE))
            }
            (Some(capture), Some(_)) => self.capture_join(key, capture, event),
            (None, Some(_)) if self.is_legacy(key) => {
                self.refuse_implicit(key)?;
                Err(CudaCode::CAPTURED_EVENT)
            }
            (None, Some(capture)) => {
                // The capture may have ended, and the event not been recorded again.
                self.captures.get(capture).ok_or(CudaCode::CAPTURED_EVENT)?;
                self.streams.get_mut(key).expect("resolved by the caller").capture = Some(capture);
                self.capture_join(key, capture, event)
            }
        }
    }

    fn capture_join(&mut self, key: Key, capture: Key, event: Key) -> DriverResult<bool> {
        let captured = self.capture(key, &Action::Join)?;
        self.captures.get_mut(capture).expect("just captured").forks.waits(key, event);
        Ok(captured)
    }

    /// Fails, and kills the capture, if the stream is capturing: a query or a synchronize of it.
    pub(super) fn refuse_capturing(&mut self, key: Key) -> DriverResult<()> {
        match self.streams.get(key).and_then(|stream| stream.capture) {
            Some(capture) => Err(self.invalidate(capture, CudaCode::STREAM_CAPTURE_UNSUPPORTED)),
            None => self.refuse_implicit(key),
        }
    }

    /// As [`refuse_capturing`](Self::refuse_capturing), and a finding: for calls that the driver's
    /// contract forbids on a capturing stream.
    pub(super) fn refuse_in_capture(&mut self, call: Call, key: Key) -> DriverResult<()> {
        if self.streams.get(key).is_some_and(|stream| stream.capture.is_some()) {
            let message = format!("{call:?} on {}, which is capturing", self.describe(key));
            self.report(FindingKind::Capture, message);
        }
        self.refuse_capturing(key)
    }

    /// What an event waits for, unless it was last recorded in a capture.
    pub(super) fn event_target(&mut self, event: Key) -> DriverResult<Option<Position>> {
        let event = self.events.get(event).expect("resolved by the caller");
        match event.captured {
            // Seen on an H100.
            Some(capture) if self.captures.get(capture).is_none() => Err(CudaCode::INVALID_VALUE),
            Some(capture) => Err(self.invalidate(capture, CudaCode::CAPTURED_EVENT)),
            None => Ok(event.snapshot),
        }
    }

    /// Fails, and kills the captures, if this is a legacy stream with which a capturing stream
    /// would synchronize.
    pub(super) fn refuse_implicit(&mut self, key: Key) -> DriverResult<()> {
        let captures: Vec<Key> = self.blocking_captures(key).collect();
        let code = CudaCode::STREAM_CAPTURE_IMPLICIT;
        for &capture in &captures {
            self.invalidate(capture, code);
        }
        if captures.is_empty() { Ok(()) } else { Err(code) }
    }

    /// The captures of the blocking streams that a legacy stream synchronizes with.
    fn blocking_captures(&self, key: Key) -> impl Iterator<Item = Key> {
        let may_disturb = !self.captures.is_empty() && self.is_legacy(key);
        let device = self.streams.get(key).filter(|_| may_disturb).map(|stream| stream.device);
        let of_device = |device| {
            let is_its = move |stream: &&Stream| stream.flags.blocking && stream.device == device;
            self.streams.values().filter(is_its).filter_map(|stream| stream.capture)
        };
        device.into_iter().flat_map(of_device)
    }

    pub(super) fn is_legacy(&self, key: Key) -> bool {
        self.devices.iter().any(|device| device.legacy == key)
    }

    /// Fails, and invalidates the captures under way, if the call is potentially unsafe during one
    /// of them (rule 33). `mode` is that of the calling thread.
    pub(super) fn refuse_unsafe(&mut self, call: &str, mode: CaptureMode) -> DriverResult<()> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let here = this_thread();
        let forbids = |capture: &Capturing| {
            let is_own = capture.thread == here && capture.mode != CaptureMode::Relaxed;
            match mode {
                CaptureMode::Global => is_own || capture.mode == CaptureMode::Global,
                CaptureMode::ThreadLocal => is_own,
                CaptureMode::Relaxed => false,
            }
        };
        let captures = self.captures.keys_of(forbids);
        let Some(&first) = captures.first() else { return Ok(()) };
        let origin = self.captures.get(first).expect("just found").origin;
        let message = format!("{call} kills the capture of {}", self.describe(origin));
        self.report(FindingKind::Capture, message);
        let code = CudaCode::STREAM_CAPTURE_UNSUPPORTED;
        for capture in captures {
            self.invalidate(capture, code);
        }
        Err(code)
    }

    /// Invalidates the captures of a device, because a call synchronizes with it.
    pub(super) fn invalidate_all(&mut self, device: Ordinal) {
        let of_device = self.streams.values().filter(|stream| stream.device == device);
        let captures: Vec<Key> = of_device.filter_map(|stream| stream.capture).collect();
        for capture in captures {
            self.invalidate(capture, CudaCode::STREAM_CAPTURE_UNSUPPORTED);
        }
    }

    fn invalidate(&mut self, capture: Key, code: CudaCode) -> CudaCode {
        if let Some(state) = self.captures.get_mut(capture) {
            state.invalidated = true;
        }
        code
    }
}
