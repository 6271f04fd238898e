//! The state of the emulated machine, and what enqueueing means.
//!
//! A [`Machine`] is plain data under one lock; no code of the user ever runs under it. A stream is
//! a queue and two counters:
//!
//! ```text
//!            completed        enqueued
//!               |                |
//!   1  2  3  4  5 [6] [7] [8] [9]          queue = operations completed + 1 ..= enqueued
//! ```
//!
//! * An event's snapshot is a [`Position`]: a stream and how many of its operations to wait for. It
//!   is complete when the stream's counter has got there, and stays so: the counter only grows, and
//!   a stream that is gone has drained (rules 12 and 14).
//! * An operation waits for positions that were enqueued before it, so that waits form no cycle.
//! * The rules of the default streams (10, 11, 15) are such waits too, added when an operation is
//!   enqueued; [`Machine::implicit_waits`] is all there is to them.
//! * The backlog lists the streams whose queue is not empty.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use super::capture::Capturing;
use super::device_memory::DeviceMemory;
use super::fault::Faults;
use super::finding::{FindingKind, Findings};
use super::host_memory::{Access, HostMemory, HostUse};
use super::operation::{Action, HostCall, Operation, Position};
use super::per_thread::PerThread;
use super::rng::{self, Rng};
use super::slots::{Key, Slots};
use super::{Execution, Usage};
use crate::driver::{Call, DriverResult, Ordinal, RawEvent, RawStream};
use crate::error::CudaCode;

const STREAM_TAG: u8 = 0x5;
const EVENT_TAG: u8 = 0xe;

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) execution: Execution,
    pub(super) rng: Rng,
    pub(super) faults: Faults,
    pub(super) findings: Findings,
    pub(super) devices: Vec<Device>,
    pub(super) memory: DeviceMemory,
    pub(super) host: HostMemory,
    pub(super) streams: Slots<Stream>,
    pub(super) events: Slots<Event>,
    pub(super) captures: Slots<Capturing>,
    pub(super) backlog: Vec<Key>,
    /// Host functions that are enqueued and have not returned.
    pub(super) host_functions: usize,
    /// Those whose turn has come, for the host thread to call.
    pub(super) host_ready: VecDeque<(Key, HostCall)>,
    /// Where the others stand, in lazy mode: the host thread waits for them, as nobody else may.
    pub(super) host_targets: Vec<Position>,
    pub(super) host_thread: bool,
    pub(super) shutdown: bool,
    /// Set by whoever makes progress, for the lock to wake those who wait for it.
    pub(super) changed: bool,
    pub(super) host_work: bool,
    pub(super) waiters: usize,
    pub(super) epoch: Instant,
    /// Whether there are batches of copies.
    pub(super) batches: bool,
    operations: u64,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) lost: Option<CudaCode>,
    pub(super) legacy: Key,
    pub(super) per_thread: PerThread,
    /// The devices whose memory this one's kernels may access. All of it is memory of a pool, to
    /// which `cudaMemPoolSetAccess` is the only key.
    pub(super) peers: Vec<Ordinal>,
    /// Time that busy kernels have taken, all of it imagined.
    pub(super) busy_nanoseconds: u64,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) device: Ordinal,
    pub(super) blocking: bool,
    pub(super) queue: VecDeque<Operation>,
    pub(super) enqueued: u64,
    pub(super) completed: u64,
    pub(super) stalled: bool,
    pub(super) destroyed: bool,
    /// The first operation is a host function that the host thread has.
    pub(super) dispatched: bool,
    /// How many more queries say NotReady, lazy mode; 0: not drawn yet.
    pub(super) patience: u8,
    pub(super) capture: Option<Key>,
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) device: Ordinal,
    pub(super) timing: bool,
    pub(super) snapshot: Option<Position>,
    /// When the snapshot was reached, in nanoseconds of the device.
    pub(super) stamp: Option<u64>,
    pub(super) captured: Option<Key>,
    pub(super) patience: u8,
}

impl Stream {
    pub(super) fn new(device: Ordinal, blocking: bool) -> Self {
        Stream {
            device,
            blocking,
            queue: VecDeque::new(),
            enqueued: 0,
            completed: 0,
            stalled: false,
            destroyed: false,
            dispatched: false,
            patience: 0,
            capture: None,
        }
    }
}

impl Machine {
    pub(super) fn new(devices: usize, capacity: usize, execution: Execution, seed: u64) -> Self {
        let mut streams = Slots::new();
        let device = |ordinal| Device {
            lost: None,
            legacy: streams.insert(Stream::new(ordinal as Ordinal, true)),
            per_thread: PerThread::default(),
            peers: Vec::new(),
            busy_nanoseconds: 0,
        };
        Machine {
            execution,
            rng: Rng::new(seed),
            faults: Faults::new(),
            findings: Findings::new(seed),
            devices: (0..devices).map(device).collect(),
            memory: DeviceMemory::new(devices, capacity, seed),
            host: HostMemory::new(seed),
            streams,
            events: Slots::new(),
            captures: Slots::new(),
            backlog: Vec::new(),
            host_functions: 0,
            host_ready: VecDeque::new(),
            host_targets: Vec::new(),
            host_thread: false,
            shutdown: false,
            changed: false,
            host_work: false,
            waiters: 0,
            epoch: Instant::now(),
            batches: true,
            operations: 0,
        }
    }

    /// What every call does first: count, find the device, and fail if it is lost or told to.
    #[inline]
    pub(super) fn enter(&mut self, call: Call, device: Ordinal) -> DriverResult<()> {
        let fault = self.faults.count(call);
        let lost = self.device(device)?.lost;
        let unloads = fault == Err(CudaCode::CUDART_UNLOADING);
        if let Some(code) = lost.filter(|_| !unloads) {
            return Err(self.refuse(code));
        }
        fault.inspect_err(|&code| {
            if unloads || code.is_sticky() {
                self.lose(device, code);
            }
        })
    }

    pub(super) fn device(&mut self, device: Ordinal) -> DriverResult<&mut Device> {
        let device = usize::try_from(device).ok().and_then(|at| self.devices.get_mut(at));
        device.ok_or(CudaCode::INVALID_DEVICE)
    }

    pub(super) fn stream_create(&mut self, device: Ordinal, blocking: bool) -> RawStream {
        let key = self.streams.insert(Stream::new(device, blocking));
        RawStream { device, handle: key.to_handle(STREAM_TAG) }
    }

    /// The stream that a handle names on this thread (rule 11).
    #[inline]
    pub(super) fn resolve(
        &mut self,
        call: impl fmt::Debug,
        stream: RawStream,
    ) -> DriverResult<Key> {
        if stream.handle <= RawStream::LEGACY {
            return Ok(self.device(stream.device)?.legacy);
        }
        if stream.handle == RawStream::PER_THREAD {
            self.device(stream.device)?;
            return Ok(self.per_thread(stream.device));
        }
        match Key::from_handle(stream.handle, STREAM_TAG)
            .and_then(|key| Some((key, self.streams.get(key)?)))
        {
            Some((key, found)) if !found.destroyed && found.device == stream.device => Ok(key),
            _ => {
                let message = format!("{call:?} names {stream:?}, which is no live stream");
                Err(self.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_RESOURCE_HANDLE))
            }
        }
    }

    /// Returns at once; what is enqueued drains (rule 12).
    pub(super) fn stream_destroy(&mut self, key: Key) {
        if let Some(capture) = self.streams.get(key).and_then(|stream| stream.capture) {
            self.drop_capture(capture);
        }
        if let Some(stream) = self.streams.get_mut(key) {
            stream.destroyed = true;
            if stream.queue.is_empty() {
                self.streams.remove(key);
            }
        }
    }

    pub(super) fn event_create(&mut self, device: Ordinal, timing: bool) -> RawEvent {
        let key = self.events.insert(Event {
            device,
            timing,
            snapshot: None,
            stamp: None,
            captured: None,
            patience: 0,
        });
        RawEvent { device, handle: key.to_handle(EVENT_TAG) }
    }

    pub(super) fn resolve_event(&mut self, call: Call, event: RawEvent) -> DriverResult<Key> {
        match Key::from_handle(event.handle, EVENT_TAG)
            .and_then(|key| Some((key, self.events.get(key)?)))
        {
            Some((key, found)) if found.device == event.device => Ok(key),
            _ => {
                let message = format!("{call:?} names {event:?}, which is no live event");
                Err(self.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_RESOURCE_HANDLE))
            }
        }
    }

    /// Enqueues an operation; runs it at once in eager mode, if nothing is ahead of it.
    #[inline]
    pub(super) fn submit(
        &mut self,
        key: Key,
        mut waits: Vec<Position>,
        action: Action,
    ) -> DriverResult<()> {
        if !self.captures.is_empty() && self.capture(key, &action)? {
            return Ok(());
        }
        self.implicit_waits(key, &mut waits);
        waits.retain(|&position| !self.is_complete(position));
        let id = self.next_operation();
        let stream = self.streams.get_mut(key).expect("resolved by the caller");
        stream.enqueued += 1;
        let idle = stream.queue.is_empty() && !stream.stalled && waits.is_empty();
        let position = Position { stream: key, count: stream.enqueued };
        if let Action::Mark { event } = action {
            self.snapshot(event, position);
        }
        if idle && self.execution == Execution::Eager && !matches!(action, Action::HostFunction(_))
        {
            // Nobody can wait for this position yet, so that no other stream becomes ready by it.
            if self.execute(key, action) {
                self.streams.get_mut(key).expect("still there").completed += 1;
            }
            return Ok(());
        }
        self.push(key, Operation { id, waits, action });
        Ok(())
    }

    pub(super) fn next_operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    #[cold]
    fn push(&mut self, key: Key, mut operation: Operation) {
        self.disturb(&mut operation.action);
        for host in operation.action.host_uses() {
            self.host.begin_use(host, operation.id);
        }
        let is_host_function = matches!(operation.action, Action::HostFunction(_));
        let stream = self.streams.get_mut(key).expect("resolved by the caller");
        if stream.queue.is_empty() {
            self.backlog.push(key);
        }
        stream.queue.push_back(operation);
        if is_host_function {
            let target = Position { stream: key, count: stream.enqueued };
            self.host_functions += 1;
            match self.execution {
                Execution::Eager => self.pump(),
                Execution::Lazy => self.host_targets.push(target),
            }
            self.host_work = true;
        }
    }

    /// Makes use of the freedom that CUDA has with an operation that has not run: the contents of
    /// what it writes are indeterminate, and what it reads must stay as it is.
    fn disturb(&mut self, action: &mut Action) {
        for host in action.host_uses_mut() {
            if !self.is_settled(host) {
                continue;
            }
            let (ptr, bytes) = (host.ptr, host.bytes);
            if host.access == Access::Read {
                // SAFETY: the caller has checked that the range is page-locked, or says that it is
                // valid; and the host does not write to what an operation reads until that is
                // retired.
                let contents = unsafe { HostMemory::bytes(ptr, bytes) };
                host.fingerprint = Some(rng::fingerprint(contents));
            } else {
                // SAFETY: the same; and the host does not access what an operation writes at all.
                unsafe { self.host.poison(ptr, bytes) };
            }
        }
    }

    /// Whether no operation that is pending may rightly touch the range in a conflicting way: one
    /// that names it, or a host function, of which nobody knows what it touches.
    pub(super) fn is_settled(&self, host: &HostUse) -> bool {
        let other = if host.access == Access::Read { Access::Write } else { Access::Read };
        self.host_functions == 0 && !self.host.is_pending(host.ptr, host.bytes, other)
    }

    /// The rules of the legacy default stream: its operations wait for all earlier work of the
    /// device's blocking streams, and theirs for its; non-blocking streams are exempt.
    #[inline]
    fn implicit_waits(&mut self, key: Key, waits: &mut Vec<Position>) {
        if self.backlog.is_empty() {
            return;
        }
        let stream = self.streams.get(key).expect("resolved by the caller");
        if !stream.blocking {
            return;
        }
        let legacy = self.devices[stream.device as usize].legacy;
        if key == legacy {
            self.device_waits(stream.device, waits);
        } else {
            waits.push(self.tail(legacy));
        }
    }

    /// All work enqueued so far on the legacy stream and the blocking streams of a device.
    pub(super) fn device_waits(&self, device: Ordinal, waits: &mut Vec<Position>) {
        for &key in &self.backlog {
            let Some(stream) = self.streams.get(key) else { continue };
            if stream.blocking && stream.device == device {
                waits.push(Position { stream: key, count: stream.enqueued });
            }
        }
    }

    fn snapshot(&mut self, event: Key, position: Position) {
        if let Some(event) = self.events.get_mut(event) {
            event.snapshot = Some(position);
            event.stamp = None;
            event.captured = None;
            event.patience = 0;
        }
    }

    /// All work enqueued so far on a stream.
    pub(super) fn tail(&self, key: Key) -> Position {
        let count = self.streams.get(key).map_or(0, |stream| stream.enqueued);
        Position { stream: key, count }
    }

    #[inline]
    pub(super) fn is_complete(&self, position: Position) -> bool {
        self.streams.get(position.stream).is_none_or(|stream| stream.completed >= position.count)
    }

    /// Reports a misuse; gives back the code for the caller to return.
    #[cold]
    pub(super) fn misuse(
        &mut self,
        kind: FindingKind,
        message: impl Into<String>,
        code: CudaCode,
    ) -> CudaCode {
        self.findings.report(kind, message);
        code
    }

    /// The stream as a finding names it.
    pub(super) fn describe(&self, key: Key) -> String {
        let Some(stream) = self.streams.get(key) else { return "a destroyed stream".into() };
        let device = &self.devices[stream.device as usize];
        if key == device.legacy {
            format!("the legacy stream of device {}", stream.device)
        } else if device.per_thread.contains(key) {
            format!("a per-thread stream of device {}", stream.device)
        } else {
            format!("stream {:#x} of device {}", key.to_handle(STREAM_TAG), stream.device)
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let (host_bytes, host_blocks) = self.host.usage();
        let (device_bytes, device_blocks) = self.memory.usage();
        let default_streams = self.devices.iter().map(|device| 1 + device.per_thread.len());
        let live = self.streams.values().filter(|stream| !stream.destroyed).count();
        Usage {
            host_bytes,
            host_blocks,
            quarantined_blocks: self.host.quarantined(),
            device_bytes,
            device_blocks,
            streams: live - default_streams.sum::<usize>(),
            events: self.events.values().count(),
            pending_operations: self.streams.values().map(|stream| stream.queue.len()).sum(),
        }
    }
}
