//! The state of the emulated machine.
//!
//! A [`Machine`] is plain data under one lock. User code never runs under that lock. A stream is
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
//! * The rules of the default streams (10, 11, 15) are such waits too. `Machine::implicit_waits`
//!   adds them when an operation is enqueued.
//! * The backlog lists the streams whose queue is not empty. Each knows its place there.
//! * On an eager machine, a stream whose first operation is ready is awake: whatever makes it ready
//!   wakes it. So a change costs what it changes, however many streams are waiting.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Weak;
use std::time::{Duration, Instant};

use super::fault::Faults;
use super::finding::{FindingKind, Findings};
use super::forks::Forks;
use super::memory::device::DeviceMemory;
use super::memory::foreign::Opened;
use super::memory::host::{HostMemory, HostUse};
use super::memory::pools::Pools;
use super::memory::prefetched::Prefetched;
use super::operation::{Action, HostCall, Operation, Position};
use super::per_thread::PerThread;
use super::races::{Agent, Epoch, Kind, Knowledge, Races, Snapshot};
use super::schedule::execution::Execution;
use super::schedule::{Schedule, Slow, Standing};
use super::watch::{Destinations, Sides};
use super::words::name::{Liberties, Names, StreamName};
use super::words::slots::{Key, Slots};
use pinlane_base::sanitizer::Tag;
use pinlane_driver::CudaCode;
use pinlane_driver::{Driver, DriverResult, Ordinal, Poll, StreamFlags};

/// The flags of default streams.
pub(super) const BLOCKING: StreamFlags = StreamFlags { blocking: true, priority: 0 };

/// What is allocated and pending, for tests that look for leaks.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Bytes of page-locked memory: allocated and not freed, or registered and not unregistered.
    pub host_bytes: usize,
    /// The same in blocks; a registered range is one.
    pub host_blocks: usize,
    /// Blocks that were freed while pending operations named them. Their memory is never given
    /// back.
    pub quarantined_blocks: usize,
    /// Bytes of device memory, on all devices, that were allocated and that no call has freed.
    pub device_bytes: usize,
    /// The same in blocks.
    pub device_blocks: usize,
    /// Streams created and not destroyed.
    pub streams: usize,
    /// Events created and not destroyed.
    pub events: usize,
    /// Operations enqueued that have not run.
    pub pending_operations: usize,
    /// Graphs and executable graphs, made and not destroyed.
    pub graphs: usize,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) schedule: Schedule,
    pub(super) names: Names,
    pub(super) liberties: Liberties,
    pub(super) faults: Faults,
    pub(super) findings: Findings,
    pub(super) races: Races,
    pub(super) devices: Vec<Device>,
    pub(super) memory: DeviceMemory,
    pub(super) host: HostMemory,
    pub(super) pools: Pools,
    /// Where a program wants its managed memory.
    pub(super) prefetched: Prefetched,
    /// The memory of other processes that a program has opened.
    pub(super) opened: Vec<Opened>,
    /// The host's sides of copies that have run.
    pub(super) sides: Sides,
    /// What operations write to that cannot be closed.
    pub(super) destinations: Destinations,
    pub(super) streams: Slots<Stream>,
    pub(super) events: Slots<Event>,
    pub(super) captures: Slots<Capturing>,
    pub(super) graphs: Slots<Graph>,
    pub(super) backlog: Vec<Key>,
    /// Of an eager machine: the streams that are to be looked at, because they may have become
    /// ready.
    pub(super) awake: BTreeSet<Key>,
    /// Host functions that are enqueued and have not returned.
    pub(super) host_functions: usize,
    /// Host functions whose turn has come, for the host thread to call.
    pub(super) host_ready: VecDeque<(Key, HostCall)>,
    /// Unless the machine is eager, the positions of the others: the host thread waits for them.
    pub(super) host_targets: Vec<Position>,
    pub(super) host_thread: bool,
    pub(super) host_calling: Option<Calling>,
    /// Whether they are to be called now.
    pub(super) due: Due,
    /// How long a call may wait for one host function.
    pub(super) host_function_limit: Option<Duration>,
    pub(super) shutdown: bool,
    /// Set when there is progress: the lock then wakes the threads that wait for it.
    pub(super) changed: bool,
    pub(super) host_work: bool,
    pub(super) waiters: usize,
    /// What every handle gives as the driver: drivers are compared by address.
    pub(super) driver: Option<Weak<dyn Driver>>,
    /// How many streams are slow.
    pub(super) slow_streams: usize,
    pub(super) epoch: Instant,
    /// Whether findings name the lines of the program.
    pub(super) sites: bool,
    /// Whether there are batches of copies.
    pub(super) batches: bool,
    /// Whether an asynchronous upload has read a pageable source when its call returns.
    pub(super) stages_pageable: bool,
    pub(super) has_memory_pools: bool,
    /// Whether kernels can use page-locked memory at the host's addresses.
    pub(super) host_addresses: bool,
    /// Whether memory can be registered that is mapped for reading only.
    pub(super) registers_read_only: bool,
    /// How many operations calls have enqueued.
    pub(super) submitted: u64,
    /// The last number of an operation in a queue or a capture.
    pub(super) operations: u64,
    /// The tags that a thread sanitizer of the program knows.
    pub(super) tags: Tags,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) lost: Option<CudaCode>,
    pub(super) legacy: Key,
    pub(super) per_thread: PerThread,
    /// The devices whose pools this one's kernels may access, by `cudaMemPoolSetAccess`.
    pub(super) peers: Vec<Ordinal>,
    /// The same by `cudaDeviceEnablePeerAccess`, for memory of `cudaMalloc`.
    pub(super) mapped_peers: Vec<Ordinal>,
    /// Those of its limits that programs set and read back (`cudaDeviceSetLimit`).
    pub(super) limits: Limits,
    /// Time that busy kernels would have taken.
    pub(super) busy_nanoseconds: u64,
}

/// The stack of a thread, the buffer of `printf`, and the heap of `malloc`, in bytes.
pub(super) type Limits = [usize; 3];

/// Those of a new device.
pub(super) const LIMITS: Limits = [1 << 10, 1 << 20, 8 << 20];

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) device: Ordinal,
    pub(super) flags: StreamFlags,
    pub(super) queue: VecDeque<Operation>,
    /// Its place in the backlog, while its queue is not empty.
    pub(super) backlog_at: usize,
    /// Of an eager machine: the streams whose first operation waits for this one to complete so
    /// many operations.
    pub(super) followers: BTreeSet<(u64, Key)>,
    pub(super) enqueued: u64,
    /// How many operations it was given by calls.
    pub(super) submitted: u64,
    pub(super) completed: u64,
    pub(super) stalled: bool,
    /// How many steps each operation takes, and the first one still does.
    pub(super) slow: Slow,
    pub(super) destroyed: bool,
    /// The first operation is a host function that the host thread has.
    pub(super) dispatched: bool,
    /// How many queries still say NotReady, plus one; 0 if that is not drawn yet.
    pub(super) patience: u8,
    pub(super) capture: Option<Key>,
    /// What the race checker calls it.
    pub(super) agent: Agent,
    pub(super) standing: Standing,
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) device: Ordinal,
    pub(super) timing: bool,
    pub(super) snapshot: Option<Position>,
    /// When the snapshot was reached, in nanoseconds of the device.
    pub(super) stamp: Option<u64>,
    pub(super) captured: Option<Key>,
    /// Whether its program says that other processes use it.
    pub(super) for_others: bool,
    pub(super) patience: u8,
    pub(super) order: Snapshot,
}

impl Stream {
    pub(super) fn new(
        device: Ordinal,
        flags: StreamFlags,
        agent: Agent,
        standing: Standing,
    ) -> Self {
        Stream {
            device,
            flags,
            queue: VecDeque::new(),
            backlog_at: 0,
            followers: BTreeSet::new(),
            enqueued: 0,
            submitted: 0,
            completed: 0,
            stalled: false,
            slow: Slow::default(),
            destroyed: false,
            dispatched: false,
            patience: 0,
            capture: None,
            agent,
            standing,
        }
    }
}

/// A host function that is being called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calling {
    pub(super) stream: Key,
    /// Its number in its stream, from 1.
    pub(super) number: u64,
    pub(super) since: Instant,
}

/// Whether host functions are due ([`due`](super::schedule::due)).
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) now: bool,
    /// How many calls were made while functions were pending, and the thread of the last one.
    pub(super) calls: u64,
    pub(super) thread: libc::pid_t,
}

/// The tags that a thread sanitizer knows ([`sanitized`](super::sanitized)).
#[derive(Debug)]
pub(super) struct Tags {
    /// Has one part for each stream, for the launches of functions there.
    pub(super) launches: Tag,
    /// The functions that have returned, the last one first.
    pub(super) returned: VecDeque<(Epoch, Tag)>,
}

/// Which calls a capture forbids (`cudaStreamCaptureMode`; rule 33).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// Those that are potentially unsafe, on every thread.
    #[default]
    Global,
    /// The same, on the thread that has begun it.
    ThreadLocal,
    /// None of them.
    Relaxed,
}

/// What a capture has recorded, in the order of the calls.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Of an executable graph: what it was made of, and how it is launched.
    pub(super) executable: Option<Executable>,
}

/// An operation of a graph.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// No operation of the machine has the same, except that of an executable graph.
    pub(super) number: u64,
    pub(super) action: Action,
    /// What it was captured for.
    pub(super) label: u32,
    /// Which of the capture's streams it was captured on; 0 is the one where the capture began.
    pub(super) branch: usize,
    /// The numbers of the nodes that it directly depends on.
    pub(super) after: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Executable {
    pub(super) graph: Key,
    /// What it holds for its life: its replays use it (rule 34).
    pub(super) held: Vec<(HostUse, u64)>,
    /// Whether a launch frees first what an earlier one has allocated and nothing has freed.
    pub(super) frees_on_launch: bool,
    /// The latest launch. The next one comes after it, on whatever stream.
    pub(super) launched: Option<(Position, Option<Knowledge>)>,
}

/// A capture under way.
#[derive(Debug)]
pub(super) struct Capturing {
    pub(super) origin: Key,
    pub(super) thread: u64,
    pub(super) mode: CaptureMode,
    /// The graph that the capture makes.
    pub(super) graph: Key,
    /// How many operations it has recorded, those included that only order others.
    pub(super) recorded: usize,
    pub(super) invalidated: bool,
    pub(super) held: Vec<(HostUse, u64)>,
    pub(super) forks: Forks,
    /// What each stream was last told of its dependencies ([`CaptureInfo`](super::CaptureInfo)).
    pub(super) told: HashMap<Key, Box<[usize]>>,
}

impl Machine {
    pub(super) fn new(devices: usize, capacity: usize, execution: Execution, seed: u64) -> Self {
        let (mut streams, mut races) = (Slots::new(0x5), Races::new());
        let schedule = Schedule::new(execution, seed);
        let mut legacy = |device| {
            let agent = races.stream_created(device, Kind::Legacy);
            let standing = schedule.standing(StreamName::Legacy(device));
            streams.insert(Stream::new(device, BLOCKING, agent, standing))
        };
        let device = |ordinal| Device {
            lost: None,
            legacy: legacy(ordinal as Ordinal),
            per_thread: PerThread::default(),
            peers: Vec::new(),
            mapped_peers: Vec::new(),
            limits: LIMITS,
            busy_nanoseconds: 0,
        };
        let made = (0..devices).map(device).collect();
        Machine {
            schedule,
            names: Names::default(),
            liberties: Liberties::default(),
            faults: Faults::new(),
            findings: Findings::new(execution, seed),
            devices: made,
            races,
            memory: DeviceMemory::new(devices, capacity, seed),
            host: HostMemory::new(seed),
            pools: Pools::new(devices),
            prefetched: Prefetched::default(),
            opened: Vec::new(),
            sides: Sides::default(),
            destinations: Destinations::default(),
            streams,
            events: Slots::new(0xe),
            captures: Slots::new(0),
            graphs: Slots::new(0x9),
            backlog: Vec::new(),
            awake: BTreeSet::new(),
            host_functions: 0,
            host_ready: VecDeque::new(),
            host_targets: Vec::new(),
            host_thread: false,
            host_calling: None,
            due: Due::default(),
            host_function_limit: None,
            shutdown: false,
            changed: false,
            host_work: false,
            waiters: 0,
            driver: None,
            slow_streams: 0,
            epoch: Instant::now(),
            sites: false,
            batches: true,
            stages_pageable: false,
            has_memory_pools: true,
            host_addresses: true,
            registers_read_only: true,
            submitted: 0,
            operations: 0,
            tags: Tags { launches: Tag::new(), returned: VecDeque::new() },
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
        self.report(kind, message);
        code
    }

    /// Reports something; with the line of the call, if that is known.
    #[cold]
    pub(super) fn report(&mut self, kind: FindingKind, message: impl Into<String>) {
        let site = self.races.called_at();
        let label = self.races.called_for();
        self.findings.report(kind, message, site, label);
    }

    /// All that a stream has been given so far, for the race checker.
    pub(super) fn knowledge(&self, key: Key) -> Option<Knowledge> {
        self.races.tail(self.streams.get(key)?.agent)
    }

    /// The calling thread has asked whether something is complete (rule 16).
    pub(super) fn learn_from(&mut self, answer: DriverResult<Poll>, knowledge: Option<Knowledge>) {
        if let (Ok(Poll::Done), Some(knowledge)) = (answer, knowledge) {
            self.host_learns(&knowledge);
            self.settle_host();
        }
    }

    /// The calling thread has learned that this is complete.
    pub(super) fn host_learns(&mut self, knowledge: &Knowledge) {
        self.look_at_known(knowledge);
        self.races.synchronized(knowledge);
        self.tell_known(knowledge);
    }

    /// Reports what the race checker has found.
    #[cold]
    pub(super) fn report_races(&mut self) {
        for race in self.races.take_found() {
            self.findings.report_race(FindingKind::Race, race);
        }
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
            format!("stream {:#x} of device {}", self.streams.handle(key), stream.device)
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
            graphs: self.graphs.values().count(),
            pending_operations: self.streams.values().map(|stream| stream.queue.len()).sum(),
        }
    }
}
