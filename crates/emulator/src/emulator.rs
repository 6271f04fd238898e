//! The public side of the emulated device: how a test builds a machine and looks into it.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::fault::Fault;
use super::finding::Finding;
use super::machine::{CaptureMode, Machine, Usage};
use super::memory::device::MAX_DEVICES;
use super::races::{Knowledge, Lines, label_calls};
use super::schedule::execution::Execution;
use super::schedule::{Path, Replay};
use super::shared::Shared;
use super::watch::{Watcher, note_by};
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, Driver, DriverResult, Ordinal, RawStream};

/// An emulated machine. Clones are handles on the same one.
pub struct Emulator {
    pub(super) shared: Arc<Shared>,
}

impl Clone for Emulator {
    fn clone(&self) -> Self {
        self.shared.add_handle();
        Emulator { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.drop_handle();
    }
}

/// What a thread knew to be complete when it called [`Emulator::hand_over`].
#[derive(Clone, Debug)]
pub struct HandOver(Knowledge);

/// The settings of an [`Emulator`].
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct Builder {
    devices: usize,
    memory_bytes: usize,
    execution: Execution,
    seed: u64,
    batches: bool,
    stages_pageable: bool,
    memory_pools: bool,
    host_addresses: bool,
    read_only_registration: bool,
    page_lock_limit: Option<(usize, CudaCode)>,
    races: bool,
    threads_apart: bool,
    sites: bool,
    host_function_limit: Option<Duration>,
    watch_host: bool,
    faults: Vec<Fault>,
    replay: Option<Replay>,
    record: bool,
    operations: Option<u64>,
    path: Option<Vec<usize>>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            devices: 1,
            memory_bytes: 4 << 30,
            execution: Execution::Eager,
            seed: 0,
            batches: true,
            stages_pageable: false,
            memory_pools: true,
            host_addresses: true,
            read_only_registration: true,
            page_lock_limit: None,
            races: true,
            threads_apart: false,
            sites: false,
            host_function_limit: None,
            watch_host: false,
            faults: Vec::new(),
            replay: None,
            record: false,
            operations: None,
            path: None,
        }
    }
}

impl Builder {
    /// How many devices: 1 by default, at least 1 and at most 256.
    pub fn devices(mut self, devices: usize) -> Self {
        self.devices = devices.clamp(1, MAX_DEVICES);
        self
    }

    /// The memory of each device in bytes, 4 GiB by default. It takes real memory only as far as it
    /// is allocated.
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// When operations run; [`Execution::Eager`] by default.
    pub fn execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// The seed of every choice that the emulator makes; 0 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether the machine makes [batches](Driver::copy_batch) of copies, as drivers of CUDA 12.8
    /// and later do; on by default.
    pub fn batches(mut self, batches: bool) -> Self {
        self.batches = batches;
        self
    }

    /// Whether an asynchronous copy of pageable memory is done with that memory when its call
    /// returns: an upload has read its source, a download has written its destination. Off by
    /// default. CUDA promises no such thing (rule 4 of docs/semantics.md), but many programs rely
    /// on it, because GPUs were seen to do so: of uploads up to 1 MiB, and of all downloads. Then
    /// nothing is found of a source that is written to or given back after the call, nor of a
    /// destination that is used after it. A captured copy uses the memory at each replay even so.
    pub fn stage_pageable(mut self, stages: bool) -> Self {
        self.stages_pageable = stages;
        self
    }

    /// Whether devices have memory pools (`cudaMallocAsync`); on by default. Some virtual GPUs have
    /// none: then the calls that take memory from a pool fail with [`CudaCode::NOT_SUPPORTED`].
    pub fn memory_pools(mut self, memory_pools: bool) -> Self {
        self.memory_pools = memory_pools;
        self
    }

    /// Whether kernels can use page-locked memory at the addresses that the host uses; on by
    /// default. When it is off, a kernel that does so loses its device.
    pub fn host_addresses(mut self, host_addresses: bool) -> Self {
        self.host_addresses = host_addresses;
        self
    }

    /// Whether memory can be page-locked that is mapped for reading only
    /// (`cudaHostRegisterReadOnly`); on by default. Older drivers refuse the flag with
    /// [`CudaCode::NOT_SUPPORTED`], and the memory without it with [`CudaCode::INVALID_VALUE`].
    pub fn read_only_registration(mut self, supported: bool) -> Self {
        self.read_only_registration = supported;
        self
    }

    /// The most that one call of `cudaHostAlloc` or `cudaHostRegister` page-locks, in bytes, and
    /// the error that a larger one gets. No limit by default. Drivers from R580 on refuse 512 GiB,
    /// Linux 6.11 to 6.13 more than 2 GiB, with [`CudaCode::MEMORY_ALLOCATION`].
    pub fn page_lock_limit(mut self, bytes: usize, code: CudaCode) -> Self {
        self.page_lock_limit = Some((bytes, code));
        self
    }

    /// Whether the machine looks for [races](super::FindingKind::Race); on by default.
    pub fn races(mut self, races: bool) -> Self {
        self.races = races;
        self
    }

    /// Whether a thread knows only of work that it has waited for itself, for the search for races.
    ///
    /// It is off by default. Then work that any thread has waited for counts as known to all
    /// threads from then on: the machine cannot see locks and channels, by which one thread may
    /// have informed the others. With it on, a thread learns of what others have waited for at its
    /// first call, when they have ended, and by [`Emulator::hand_over`]. That finds a thread that
    /// uses what another has waited for, without learning of it.
    pub fn threads_apart(mut self, apart: bool) -> Self {
        self.threads_apart = apart;
        self
    }

    /// Whether findings of races name the lines of the program that made the calls. It is off by
    /// default, because it makes a call a thousand times slower. It needs debug information.
    pub fn sites(mut self, sites: bool) -> Self {
        self.sites = sites;
        self
    }

    /// How long a call may wait for one host function to return. There is no limit by default: a
    /// host function may be slow. After that time the two wait for each other, as far as the
    /// machine can tell: that is a [finding](super::FindingKind::Deadlock) instead of a hang. The
    /// device is then lost with [`CudaCode::LAUNCH_TIMEOUT`], so that the program comes to its end.
    pub fn host_function_limit(mut self, limit: Duration) -> Self {
        self.host_function_limit = Some(limit);
        self
    }

    /// Whether the machine sees what the host itself does to memory of `cudaHostAlloc`, and looks
    /// for [races](super::FindingKind::Race) with that. It is off by default.
    ///
    /// Pages that an operation uses are closed to the host until it knows that the operation is
    /// complete. A load or store that comes too early faults; it is reported, with its line, and
    /// then done. So this takes the process's handlers of SIGSEGV and SIGTRAP, and passes signals
    /// that are not about such pages to the handlers that were there before. If other code takes
    /// its place later, the next call of the driver opens all pages, and says so once on standard
    /// error; the host's sides of copies are hashed then, as below. A debugger stops at those
    /// faults. A system call on a page that is closed fails with `EFAULT`;
    /// [`Emulator::host_writes`] opens it.
    ///
    /// Pools of such a machine allocate their memory, so that it is watched, whatever their
    /// `PageLocking` is. Blocks aligned to more than a page are
    /// registered.
    ///
    /// Pages of pageable and registered memory are the program's own, and are not closed. The
    /// host's side of an asynchronous copy is hashed instead, when the copy has run and when the
    /// program learns of that (docs/drop-in.md says more). What differs then is a
    /// [`SourceChanged`](super::FindingKind::SourceChanged) or a
    /// [`DestinationChanged`](super::FindingKind::DestinationChanged).
    ///
    /// What stand-ins for kernels use is seen too ([`Emulator::launch`]). Nothing
    /// is watched without [`races`](Self::races).
    pub fn watch_host(mut self, watch: bool) -> Self {
        self.watch_host = watch;
        self
    }

    /// Adds a fault, as [`Emulator::inject`] does.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// About how many [operations](Emulator::operations) the program enqueues, for
    /// [`Execution::Pct`]. By default it takes any number below 65,536 for possible.
    pub fn operations(mut self, operations: u64) -> Self {
        self.operations = Some(operations);
        self
    }

    /// Repeats a run: its seed, and the decisions in which it differs from an eager run. The
    /// machine then counts as eager; what [`execution`](Self::execution) and [`seed`](Self::seed)
    /// say does not matter.
    ///
    /// A program with one thread and without host functions runs exactly as it did. With more
    /// threads the decisions are the same ones, each for the operation of the same number in the
    /// same stream; but the timing of the threads is not repeated.
    pub fn replay(mut self, replay: Replay) -> Self {
        self.replay = Some(replay);
        self
    }

    /// Whether the machine writes its decisions down, for [`Emulator::replay`]. It is off by
    /// default: it takes some dozens of bytes for each operation that does not run at once.
    pub fn record(mut self, record: bool) -> Self {
        self.record = record;
        self
    }

    /// The machine takes this path through all orders, and the first choice after its end.
    pub(super) fn path(mut self, path: Vec<usize>) -> Self {
        self.path = Some(path);
        self
    }

    /// Builds the machine.
    #[must_use]
    pub fn build(self) -> Emulator {
        let (execution, seed) = match &self.replay {
            Some(replay) => (Execution::Eager, replay.seed()),
            None => (self.execution, self.seed),
        };
        let mut machine = Machine::new(self.devices, self.memory_bytes, execution, seed);
        machine.schedule.configure(self.replay, self.record, self.operations);
        machine.schedule.path = self.path.map(Path::new);
        machine.batches = self.batches;
        machine.stages_pageable = self.stages_pageable;
        machine.has_memory_pools = self.memory_pools;
        machine.host_addresses = self.host_addresses;
        machine.registers_read_only = self.read_only_registration;
        machine.host.largest_call = self.page_lock_limit;
        machine.host_function_limit = self.host_function_limit;
        machine.sites = self.sites;
        machine.races.configure(self.races, self.threads_apart);
        self.faults.into_iter().for_each(|fault| machine.faults.inject(fault));
        let shared = Arc::new(Shared::new(machine));
        if self.watch_host && self.races {
            let watcher = Watcher::new(&shared);
            shared.with(|machine| machine.host.watcher = watcher);
        }
        Emulator { shared }
    }
}

impl Builder {
    /// Builds the machine for a program that calls CUDA itself: device memory lies at addresses of
    /// the process, so that stand-ins for kernels can use them. Its devices have less memory than
    /// was said, if the process has room for few addresses (`ulimit -v`, `ulimit -f`, valgrind);
    /// `None` if it has no room for the least, 256 MiB three times.
    #[must_use]
    pub fn build_for_program(self) -> Option<Emulator> {
        let emulator = self.build();
        emulator.with(|machine| machine.memory.use_host_addresses()).then_some(emulator)
    }
}

impl Emulator {
    /// Findings name the lines of calls, by their [`Callers`](super::Callers), and of accesses by
    /// the host. The functions are called under the machine's lock, and make no call.
    pub fn look_up_lines(&self, lines: Lines) {
        note_by(lines.note);
        self.with(|machine| machine.races.look_up_sites(lines));
    }

    /// What the calling thread's calls do for the user from now on, on all machines, in the words
    /// of a library that makes them; `None` if nothing is known. [Races](super::RacingUse::label)
    /// carry it. Texts are compared by their addresses first.
    pub fn label_calls(label: Option<&'static str>) {
        label_calls(label);
    }

    /// A machine with one device that runs everything at once.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins to set up a machine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The machine as a driver: the same one for every handle, as long as it is in use.
    #[must_use]
    pub fn driver(&self) -> Arc<dyn Driver> {
        self.shared.with(|machine| {
            machine.driver.as_ref().and_then(Weak::upgrade).unwrap_or_else(|| {
                let driver: Arc<dyn Driver> = Arc::new(self.clone());
                machine.driver = Some(Arc::downgrade(&driver));
                driver
            })
        })
    }

    /// The machine that is this driver; `None` for a driver of GPUs.
    #[doc(hidden)]
    pub fn of(driver: Arc<dyn Driver>) -> Option<Self> {
        let driver: Arc<dyn Any + Send + Sync> = driver;
        driver.downcast::<Emulator>().ok().map(|emulator| (*emulator).clone())
    }

    /// When operations run.
    #[must_use]
    pub fn execution(&self) -> Execution {
        self.with(|machine| machine.schedule.execution)
    }

    /// The seed that the machine was built with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.with(|machine| machine.findings.seed)
    }

    /// How many operations have been enqueued so far on all streams.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.with(|machine| machine.submitted)
    }

    /// The decisions of the run so far, if they are [written down](Builder::record).
    #[must_use]
    pub fn replay(&self) -> Option<Replay> {
        self.with(|machine| machine.replay())
    }

    /// The choices made on a [path](Builder::path), each with how many there were.
    pub(super) fn path(&self) -> Vec<(usize, usize)> {
        self.with(|machine| machine.schedule.path.as_ref().map_or(vec![], |path| path.taken()))
    }

    /// Makes a call to come fail.
    pub fn inject(&self, fault: Fault) {
        self.with(|machine| machine.faults.inject(fault));
    }

    /// Forgets all faults that have not struck, and ends those that last.
    pub fn clear_faults(&self) {
        self.with(|machine| machine.faults.clear());
    }

    /// Limits how much memory may be page-locked at a time, allocated and registered together. More
    /// gets [`CudaCode::MEMORY_ALLOCATION`]; what there is stays. [`usize::MAX`] lifts the limit.
    pub fn limit_page_locked(&self, bytes: usize) {
        self.with(|machine| machine.host.capacity = bytes);
    }

    /// Changes how much memory each device has; what there is stays.
    pub fn limit_device_memory(&self, bytes: usize) {
        self.with(|machine| machine.memory.set_capacity(bytes));
    }

    /// How many devices the machine has.
    #[must_use]
    pub fn device_count(&self) -> usize {
        self.with(|machine| machine.devices.len())
    }

    /// Loses a device with a sticky error, as a faulty kernel does: what is enqueued on it never
    /// runs. The seed decides whether streams of other devices that wait for its events continue.
    /// [`CudaCode::CUDART_UNLOADING`] loses all devices, as the end of the process does.
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

    /// The findings since the last time that they were taken.
    #[must_use]
    pub fn take_findings(&self) -> Vec<Finding> {
        self.with(|machine| machine.findings.take_new())
    }

    /// How many findings there are; cheaper than asking for them.
    #[must_use]
    pub fn finding_count(&self) -> usize {
        self.with(|machine| machine.findings.len())
    }

    /// Says that the calling thread, or the host function that it is in, reads host memory now. The
    /// machine cannot see that by itself. It looks for [races](super::FindingKind::Race), and does
    /// not touch the memory.
    pub fn host_reads(&self, ptr: *const u8, bytes: usize) {
        Driver::host_access(self, ptr, bytes, false);
    }

    /// Says that the calling thread, or the host function that it is in, writes to host memory now;
    /// otherwise as [`host_reads`](Self::host_reads).
    pub fn host_writes(&self, ptr: *const u8, bytes: usize) {
        Driver::host_access(self, ptr, bytes, true);
    }

    /// What the calling thread knows to be complete, for another thread to take over. For machines
    /// whose [threads are apart](Builder::threads_apart); on others it changes nothing.
    #[must_use]
    pub fn hand_over(&self) -> HandOver {
        HandOver(self.with(|machine| machine.races.hand_over()))
    }

    /// From now on the calling thread knows what another knew.
    pub fn take_over(&self, told: &HandOver) {
        self.with(|machine| {
            machine.races.take_over(&told.0);
            machine.settle_host();
        });
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
            machine.begin_capture(key, CaptureMode::Global)
        })
    }

    /// Ends a capture, on the thread that began it, and says how many operations it recorded. The
    /// graph is not kept.
    ///
    /// # Errors
    ///
    /// [`CudaCode::STREAM_CAPTURE_INVALIDATED`] if a forbidden call has killed the capture, 401 if
    /// the stream is not capturing, 903 if the capture began on another stream, 904 if others have
    /// captured what it has not waited for, 908 on another thread.
    pub fn end_capture(&self, stream: RawStream) -> DriverResult<usize> {
        self.with(|machine| {
            let key = machine.resolve("end_capture", stream)?;
            let (graph, recorded) = machine.end_capture(key)?;
            machine.drop_graph(graph);
            Ok(recorded)
        })
    }

    /// Makes a stream stuck: none of its operations starts until it is [released](Self::release).
    /// The operations also start when the driver destroys the stream, and when the thread ends
    /// whose default stream it is.
    ///
    /// A `pinlane::Stream` that is dropped while it is stuck is destroyed only when its work is
    /// done, so it is never destroyed. Keep its [`RawStream`], which still names it and can release
    /// it.
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

    /// Makes a stream slow: each of its operations takes so many steps more before it is complete.
    /// A step is a call that any thread makes on the machine. A wait lets as many pass as it takes;
    /// so does a host function for what is ahead of it. 0 makes the stream as fast as others.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`] if the stream is not live.
    pub fn slow(&self, stream: RawStream, steps: u32) -> DriverResult<()> {
        self.with(|machine| {
            let key = machine.resolve("slow", stream)?;
            machine.make_slow(key, steps);
            Ok(())
        })
    }

    /// Releases a stalled stream: its operations start again.
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

    /// Releases a stream, if it is stalled, because the last handle on it is gone.
    #[doc(hidden)]
    pub fn abandon(&self, stream: RawStream) {
        self.with(|machine| {
            if let Some((key, stream)) = machine.streams.find(stream.handle)
                && stream.stalled
            {
                machine.release(key);
            }
        });
    }

    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        self.shared.with(work)
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
            .field("execution", &self.execution())
            .field("seed", &self.seed())
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}
