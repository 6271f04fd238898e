//! The emulated device: a CUDA runtime in pure Rust, for machines without a GPU and for finding
//! bugs.
//!
//! It is a [`Driver`] like any other; nothing above the seam can tell. What it
//! adds is reached through [`Emulator`]: it runs operations when a seed says so, within what CUDA's
//! documents allow; it makes calls fail on request; and it reports, as [`Finding`]s, what a correct
//! program never does and what a real GPU answers with torn data.
//!
//! ```text
//!  Emulator --+
//!             +--> driver::Runtime --> runtime::Shared: one lock --> machine::Machine
//!  dyn Driver-+                          ^                             streams, events, backlog
//!                                        |                             device_memory, host_memory
//!                             host_thread: host functions              fault, finding, rng
//!
//!  machine: enqueue    schedule: when    execute: what    capture: what a graph capture forbids
//!  loss: what becomes of the work of a device that is lost
//!  copies: what the copies with choices (pageable, batches) come to
//! ```
//!
//! # Invariants
//!
//! * All state is under one lock. Host functions, the only code of the user's, run on a thread of
//!   their own with nothing locked.
//! * No operation touches memory unchecked: a bad device address costs the device, a bad host range
//!   the call, and host memory freed in flight is kept for ever. A program that breaks the rules of
//!   CUDA learns of it, and stays defined as long as it keeps the safety contract of [`Driver`].
//! * A run that uses one thread and no host function depends on the seed alone.
//!
//! # What it takes for granted
//!
//! Where CUDA's documents leave a choice, the least is promised: a synchronize of the legacy stream
//! waits for that stream only, allocation and free synchronize nothing, device addresses are never
//! given out twice. A busy kernel takes no real time: it has its place in the stream, and counts in
//! [`event_elapsed`](Driver::event_elapsed). Host memory that is still allocated when the last
//! handle goes is leaked, because somebody may hold a pointer into it. There is no last-error slot.

use std::fmt;
use std::sync::Arc;

use crate::driver::{Call, Driver, DriverResult, Ordinal, RawStream};
use crate::error::CudaCode;

mod capture;
mod copies;
mod device_memory;
mod driver;
mod execute;
mod fault;
mod finding;
mod host_memory;
mod host_thread;
mod kernels;
mod loss;
mod machine;
mod operation;
mod per_thread;
mod rng;
mod runtime;
mod schedule;
mod slots;

pub use fault::{Fault, Repeat};
pub use finding::{Finding, FindingKind};

use device_memory::MAX_DEVICES;
use driver::Runtime;
use machine::Machine;
use runtime::Shared;

/// When operations run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Execution {
    /// As soon as they are ready, usually inside the call that enqueues them.
    #[default]
    Eager,
    /// Only when somebody waits for them. A query says no up to four times first; a wait lets
    /// other streams get ahead or not, as the seed decides. Until a copy to the host runs, its
    /// destination holds poison; if the source of a copy changes before it runs, that is a finding.
    ///
    /// A host function counts as somebody who waits for the work ahead of it.
    Lazy,
}

/// What is allocated and pending, for tests that look for leaks.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Bytes of page-locked memory: allocated and not freed, or registered and not unregistered.
    pub host_bytes: usize,
    /// The same in blocks; a registered range is one.
    pub host_blocks: usize,
    /// Blocks that were freed while pending operations named them; their memory is kept for ever.
    pub quarantined_blocks: usize,
    /// Bytes of device memory allocated, and not freed by a call, on all devices.
    pub device_bytes: usize,
    /// The same in blocks.
    pub device_blocks: usize,
    /// Streams created and not destroyed.
    pub streams: usize,
    /// Events created and not destroyed.
    pub events: usize,
    /// Operations enqueued that have not run.
    pub pending_operations: usize,
}

/// An emulated machine. Clones are handles on the same one.
#[derive(Clone)]
pub struct Emulator {
    runtime: Arc<Runtime>,
    execution: Execution,
    seed: u64,
}

/// How an [`Emulator`] is to be.
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct Builder {
    devices: usize,
    memory_bytes: usize,
    execution: Execution,
    seed: u64,
    batches: bool,
    page_lock_limit: Option<(usize, CudaCode)>,
    faults: Vec<Fault>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            devices: 1,
            memory_bytes: 4 << 30,
            execution: Execution::Eager,
            seed: 0,
            batches: true,
            page_lock_limit: None,
            faults: Vec::new(),
        }
    }
}

impl Builder {
    /// How many devices; 1 unless said, at least 1 and at most 256.
    pub fn devices(mut self, devices: usize) -> Self {
        self.devices = devices.clamp(1, MAX_DEVICES);
        self
    }

    /// The memory of each device in bytes; 4 GiB unless said. It takes real memory only as far as
    /// it is allocated.
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// When operations run; [`Execution::Eager`] unless said.
    pub fn execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// The seed of every choice that the emulator makes; 0 unless said.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether the machine makes [batches](Driver::copy_batch) of copies, as drivers of CUDA 12.8
    /// and later do; it does unless said.
    pub fn batches(mut self, batches: bool) -> Self {
        self.batches = batches;
        self
    }

    /// The most that one call of `cudaHostAlloc` or `cudaHostRegister` page-locks, in bytes, and
    /// the error that a larger one gets. Not limited unless said. Drivers from R580 on refuse 512
    /// GiB, Linux 6.11 to 6.13 more than 2 GiB, with [`CudaCode::MEMORY_ALLOCATION`].
    pub fn page_lock_limit(mut self, bytes: usize, code: CudaCode) -> Self {
        self.page_lock_limit = Some((bytes, code));
        self
    }

    /// Adds a fault, as [`Emulator::inject`] does.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Builds the machine.
    #[must_use]
    pub fn build(self) -> Emulator {
        let mut machine = Machine::new(self.devices, self.memory_bytes, self.execution, self.seed);
        machine.batches = self.batches;
        machine.host.largest_call = self.page_lock_limit;
        self.faults.into_iter().for_each(|fault| machine.faults.inject(fault));
        Emulator {
            runtime: Arc::new(Runtime { shared: Arc::new(Shared::new(machine)) }),
            execution: self.execution,
            seed: self.seed,
        }
    }
}

impl Emulator {
    /// A machine with one device that runs everything at once.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts to say how the machine is to be.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The machine as a driver. All of them are the same machine.
    #[must_use]
    pub fn driver(&self) -> Arc<dyn Driver> {
        Arc::clone(&self.runtime) as Arc<dyn Driver>
    }

    /// When operations run.
    #[must_use]
    pub fn execution(&self) -> Execution {
        self.execution
    }

    /// The seed that the machine was built with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Makes a call to come fail.
    pub fn inject(&self, fault: Fault) {
        self.with(|machine| machine.faults.inject(fault));
    }

    /// Forgets all faults that have not struck, and ends those that last.
    pub fn clear_faults(&self) {
        self.with(|machine| machine.faults.clear());
    }

    /// Loses a device with a sticky error, as a faulty kernel does: what is enqueued on it never
    /// runs. Streams of other devices that wait for its events go on, or never do; the seed
    /// decides. [`CudaCode::CUDART_UNLOADING`] loses all devices, as the end of the process does.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn lose_device(&self, device: Ordinal, code: CudaCode) -> DriverResult<()> {
        self.with(|machine| {
            machine.device(device)?;
            machine.lose(device, code);
            Ok(())
        })
    }

    /// How many calls of a kind were made, those that failed included.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.with(|machine| machine.faults.calls(call))
    }

    /// The misuses seen so far, the first thousand of them.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.with(|machine| machine.findings.list())
    }

    /// What is allocated and pending now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.with(|machine| machine.usage())
    }

    /// Starts a graph capture of the stream in global mode, as `cudaStreamBeginCapture` does.
    ///
    /// # Errors
    ///
    /// [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`] for the legacy stream, 401 if the stream is
    /// capturing, [`CudaCode::INVALID_RESOURCE_HANDLE`] if it is not live.
    pub fn begin_capture(&self, stream: RawStream) -> DriverResult<()> {
        self.with(|machine| {
            let key = machine.resolve("begin_capture", stream)?;
            machine.begin_capture(key)
        })
    }

    /// Ends a capture, on the thread that began it, and says how many operations it recorded. The
    /// graph is not kept.
    ///
    /// # Errors
    ///
    /// [`CudaCode::STREAM_CAPTURE_INVALIDATED`] if a forbidden call has killed the capture, 401 if
    /// the stream is not capturing, 903 if the capture began on another stream, 908 on another
    /// thread.
    pub fn end_capture(&self, stream: RawStream) -> DriverResult<usize> {
        self.with(|machine| {
            let key = machine.resolve("end_capture", stream)?;
            machine.end_capture(key)
        })
    }

    /// Makes a stream stuck: none of its operations starts until it is [released](Self::release).
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`] if the stream is not live.
    pub fn stall(&self, stream: RawStream) -> DriverResult<()> {
        self.with(|machine| {
            let key = machine.resolve("stall", stream)?;
            machine.streams.get_mut(key).expect("just resolved").stalled = true;
            Ok(())
        })
    }

    /// Lets a stalled stream go on.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`] if the stream is not live.
    pub fn release(&self, stream: RawStream) -> DriverResult<()> {
        self.with(|machine| {
            let key = machine.resolve("release", stream)?;
            machine.release(key);
            Ok(())
        })
    }

    fn with<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        self.runtime.shared.with(work)
    }
}

impl Default for Emulator {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator")
            .field("execution", &self.execution)
            .field("seed", &self.seed)
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
