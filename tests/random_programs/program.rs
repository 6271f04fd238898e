//! Random programs that use the safe interface, and the plain sequential model that they must agree
//! with.
//!
//! A program is a list of [`Op`]s. Their numbers are taken modulo the number of existing objects,
//! so every list is a program, and shrinking works. The model applies each operation to vectors at
//! once, in program order. The crate promises this result for all streams, devices and schedules.
//!
//! ```text
//!  op        the operations of programs         model     the vectors
//!  device_work, ordinary, lists, parts, lent, tensors, tasks: operations on buffers and vectors
//!  trouble   stalls, lost devices, unloading    behind    the work that these may affect
//!  watch     finds programs that hang           last_resort  a borrow that cannot end
//!  graphs    captured copies
//!  forks     a forked child in the middle
//! ```

mod behind;
mod device_work;
mod forks;
mod graphs;
mod host_work;
mod last_resort;
mod lent;
mod lists;
mod model;
mod op;
mod ordinary;
mod parts;
mod releases;
mod strided;
mod tasks;
mod tensors;
mod trouble;
mod watch;

use std::ops::{Deref, Range};
use std::time::Duration;

use pinlane::dlpack::Imported;
use pinlane::emulated::Emulator;
use pinlane::pool::PageLocking;
use pinlane::{
    CudaCode, Device, DeviceBuf, Error, ErrorKind, PinnedBuf, PinnedPool, Registered, Result,
    Stream, StreamOptions, Ticket, staging::Staging,
};

use crate::common::{Pages, pages};
use behind::{Behind, Kind, Set, Uses};
use graphs::OfGraph;
use lent::{Lent, Returned};
use model::{Model, Part, agrees, assert_agrees, paint, paint_model, pick};
use releases::Releases;
use tasks::Tasks;
use trouble::Trouble;

pub use forks::Others;
pub use op::{Family, Op, program};
pub use watch::Watch;

/// Page-locked memory: the pool's, or the program's own.
enum Memory {
    Pool(PinnedBuf<u8>),
    Registered(Registered<Vec<u8>>),
    /// A tensor of DLPack.
    Tensor(Registered<Imported>),
}

impl Deref for Memory {
    type Target = PinnedBuf<u8>;

    fn deref(&self) -> &PinnedBuf<u8> {
        match self {
            Memory::Pool(buffer) => buffer,
            Memory::Registered(buffer) => buffer,
            Memory::Tensor(buffer) => buffer,
        }
    }
}

impl Memory {
    fn slice_mut(&mut self, range: Range<usize>) -> Result<pinlane::PinnedSliceMut<'_, u8>> {
        match self {
            Memory::Pool(buffer) => buffer.slice_mut(range),
            Memory::Registered(buffer) => buffer.slice_mut(range),
            Memory::Tensor(buffer) => buffer.slice_mut(range),
        }
    }
}

struct Host {
    buffer: Memory,
    model: Model,
    uses: Uses,
}

struct OnDevice {
    device: usize,
    buffer: DeviceBuf<u8>,
    model: Model,
    uses: Uses,
}

struct Lane {
    device: usize,
    kind: Kind,
    stream: Stream,
    /// Its number in [`Behind`].
    number: usize,
}

/// The machine of a program.
pub struct Setup {
    pub devices: Vec<Device>,
    /// The scale of the programs. The budget is small enough that some programs spend it.
    pub scale: usize,
    /// The pool's budget in bytes, divided by `scale`.
    pub budget: usize,
    /// Whether there are streams of all kinds.
    pub default_streams: bool,
    pub page_locking: PageLocking,
    /// Whether calls may fail, because faults are injected.
    pub faulty: bool,
    /// The machine that stalls streams and loses devices.
    pub emulator: Option<Emulator>,
}

/// Runs one program.
pub struct Machine {
    devices: Vec<Device>,
    pool: PinnedPool,
    /// The streams that may still use blocks that are back in the pool.
    pool_uses: Set,
    lanes: Vec<Lane>,
    hosts: Vec<Host>,
    on_device: Vec<OnDevice>,
    graphs: Vec<OfGraph>,
    tickets: Vec<(Ticket, Set)>,
    lent: Option<Lent>,
    returned: Vec<Returned>,
    tasks: Tasks,
    releases: Releases,
    behind: Behind,
    trouble: Trouble,
}

/// Whether the machine refuses to register memory (`PINLANE_TEST_PAGES`).
fn is_refused(error: &Error) -> bool {
    pages() == Pages::Refused && error.cuda_code() == Some(CudaCode::NOT_SUPPORTED)
}

impl Machine {
    pub fn new(setup: Setup) -> Result<Self> {
        let Setup { devices, scale, budget, default_streams, page_locking, faulty, emulator } =
            setup;
        // Small slots, so that a buffer goes through several.
        let slot = 4096 * scale;
        let staging = Staging::new().slot_bytes(slot).ring_bytes(3 * slot).first_bytes(slot / 4);
        for device in &devices {
            device.set_staging(staging.clone().unit_bytes(slot / 4).direct_bytes(slot / 64))?;
        }
        let pool = PinnedPool::builder(&devices[0]).page_locking(page_locking);
        let pool = pool.max_bytes(budget * scale).build()?;
        let mut machine = Machine {
            behind: Behind::new(devices.len()),
            trouble: Trouble::new(emulator, devices.len(), faulty),
            devices,
            pool,
            pool_uses: Set::default(),
            lanes: Vec::new(),
            hosts: Vec::new(),
            on_device: Vec::new(),
            graphs: Vec::new(),
            tickets: Vec::new(),
            lent: None,
            returned: Vec::new(),
            tasks: Tasks::default(),
            releases: Releases::default(),
        };
        let mut kinds = vec![Kind::Plain; 4 / machine.devices.len()];
        if default_streams {
            kinds.extend([Kind::Blocking, Kind::Legacy, Kind::PerThread]);
        }
        for device in 0..machine.devices.len() {
            for &kind in &kinds {
                let stream = machine.open(device, kind)?;
                let number = machine.behind.add(device, kind).expect("the first few");
                machine.lanes.push(Lane { device, kind, stream, number });
            }
        }
        Ok(machine)
    }

    fn open(&self, device: usize, kind: Kind) -> Result<Stream> {
        let device = &self.devices[device];
        let options = StreamOptions::new().blocking(kind == Kind::Blocking);
        match kind {
            Kind::Plain | Kind::Blocking => device.stream_with(options),
            Kind::Legacy => Ok(device.legacy_stream()),
            Kind::PerThread => Ok(device.per_thread_stream()),
        }
    }

    /// Runs the program, then compares all remaining buffers with the model.
    pub fn run(&mut self, program: &[Op]) {
        for (step, op) in program.iter().enumerate() {
            self.step(op, step);
            self.note_losses();
        }
        self.release();
        self.give_back_all();
        self.check_all();
        self.on_device.clear();
        self.hosts.clear();
        self.finish_tasks();
        self.drain();
        self.check_returned();
        self.check_lost();
    }

    fn check_all(&mut self) {
        for device in 0..self.on_device.len() {
            self.check_device(device);
        }
        self.note_losses();
        for host in 0..self.hosts.len() {
            self.check_read(host, 0..self.hosts[host].model.len());
        }
    }

    /// The result of the call if it succeeded. Asserts that an error comes from the budget, from a
    /// machine that refuses to register memory, from an injected fault, or from a lost device that
    /// the work may have to wait for.
    fn accept<T>(&self, result: Result<T>, behind: Set) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) if error.kind() == ErrorKind::BudgetExhausted => None,
            Err(error) if is_refused(&error) => None,
            Err(error) if self.releases.explains(&error) => None,
            Err(error) => {
                assert!(self.trouble.explains(&error, behind, &self.behind), "no reason: {error}");
                None
            }
        }
    }

    /// Compares a read of the host buffer with the model. A read may fail under faults; the next
    /// one must not return garbage either.
    fn check_read(&mut self, index: usize, range: Range<usize>) {
        let behind = self.hosts[index].uses.for_reading();
        self.may_wait_for(behind);
        for _ in 0..3 {
            let host = &self.hosts[index];
            let view = host.buffer.slice(range.clone()).expect("in range");
            if let Some(bytes) = self.accept(view.read(), behind) {
                assert_agrees(bytes, &host.model[range.clone()], "a host buffer");
                if range.len() == host.model.len() {
                    self.hosts[index].uses.settled_to_read();
                }
                return;
            }
        }
    }

    fn check_device(&mut self, index: usize) {
        self.may_wait_for(self.pool_uses);
        let len = self.on_device[index].model.len();
        let host = self.pool.alloc::<u8>(len);
        let Some(mut host) = self.accept(host, self.behind.own(0)) else { return };
        let lane = self.lane_of(0, self.on_device[index].device);
        let stream = self.lanes[lane].stream.clone();
        let behind = self.enqueue(lane, self.on_device[index].uses.for_reading());
        let download = stream.download(&self.on_device[index].buffer, &mut host);
        if self.accept(download, behind).is_some()
            && let Some(bytes) = self.accept(host.read(), behind)
        {
            self.note_losses();
            assert_agrees(bytes, &self.on_device[index].model, "a device buffer");
        }
    }

    /// The lane of a stream of that device.
    fn lane_of(&self, number: usize, device: usize) -> usize {
        let all = self.lanes.iter().enumerate();
        let mine: Vec<_> = all.filter(|(_, lane)| lane.device == device).collect();
        mine[number % mine.len()].0
    }

    /// Enqueues work on the lane's stream. Returns all streams that it may have to wait for.
    fn enqueue(&mut self, lane: usize, conflicts: Set) -> Set {
        self.behind.enqueue(self.lanes[lane].number, conflicts)
    }

    fn note_ticket(&mut self, result: Result<Ticket>, behind: Set) {
        let ticket = self.accept(result, behind);
        self.tickets.extend(ticket.map(|ticket| (ticket, behind)));
    }

    fn step(&mut self, op: &Op, step: usize) {
        match op {
            Op::AllocHost { len, byte } => self.alloc_host(*len, *byte),
            Op::Register { device, len, byte } => self.register(*device, *len, *byte),
            Op::ImportTensor { device, elements, len, byte } => {
                self.import_tensor(*device, *elements, *len, *byte);
            }
            Op::ExportTensor { host, device, elements } => {
                self.export_tensor(*host, *device, *elements);
            }
            Op::AllocDevice { device, len, byte } => self.alloc_device(*device, *len, *byte, step),
            Op::Write { host, part, byte } => self.write(*host, *part, *byte),
            Op::Read { host, part } => {
                let Some(index) = pick(*host, &self.hosts) else { return };
                self.check_read(index, part.of(self.hosts[index].model.len()));
            }
            Op::TryRead { host } => self.try_read(*host),
            Op::ReadOnThread { host } => self.read_on_thread(*host),
            Op::Upload { stream, host, from, device, to } => {
                self.upload(*stream, *host, *from, *device, *to);
            }
            Op::Download { stream, device, from, host, to } => {
                self.download(*stream, *device, *from, *host, *to);
            }
            Op::Copy { stream, src, from, dst, to } => self.copy(*stream, *src, *from, *dst, *to),
            Op::UploadSlice { stream, device, part, byte, pooled } => {
                self.upload_slice(*stream, *device, *part, *byte, *pooled);
            }
            Op::UploadToRead { stream, device, part, byte, drops } => {
                self.upload_to_read(*stream, *device, *part, *byte, *drops);
            }
            Op::DownloadSlice { stream, device, part, pooled } => {
                self.download_slice(*stream, *device, *part, *pooled);
            }
            Op::UploadBatch { stream, device, pieces, host, byte } => {
                self.upload_batch(*stream, *device, *pieces, *host, *byte);
            }
            Op::DownloadBatch { stream, device, pieces } => {
                self.download_batch(*stream, *device, *pieces);
            }
            Op::UploadRows { stream, host, device, numbers, pageable } => {
                self.upload_rows(*stream, *host, *device, numbers, *pageable);
            }
            Op::DownloadRows { stream, device, host, numbers, pageable } => {
                self.download_rows(*stream, *device, *host, numbers, *pageable);
            }
            Op::UploadStrided { stream, host, device, shape, pageable } => {
                self.upload_strided(*stream, *host, *device, *shape, *pageable);
            }
            Op::DownloadStrided { stream, device, host, shape, pageable } => {
                self.download_strided(*stream, *device, *host, *shape, *pageable);
            }
            Op::CopyStrided { stream, src, dst, shape } => {
                self.copy_strided(*stream, *src, *dst, *shape);
            }
            Op::SwapPairs { stream, host, device, pieces, byte } => {
                self.swap_pairs(*stream, *host, *device, *pieces, *byte);
            }
            Op::Parts(step) => self.copy_parts(step),
            Op::Fill { stream, device, part, pattern } => {
                self.fill(*stream, *device, *part, pattern);
            }
            Op::Checksum { stream, device, part } => self.checksum(*stream, *device, *part),
            Op::DropHost { host } => self.drop_host(*host),
            Op::DropDevice { device } => {
                if let Some(index) = pick(*device, &self.on_device) {
                    self.on_device.swap_remove(index);
                }
            }
            Op::ReplaceStream { stream } => self.replace_stream(*stream),
            Op::Busy { stream, micros } => {
                let lane = stream % self.lanes.len();
                let behind = self.enqueue(lane, Set::default());
                let busy = self.lanes[lane].stream.busy(Duration::from_micros(*micros));
                self.note_ticket(busy, behind);
            }
            Op::Wait { ticket } => {
                if let Some(index) = pick(*ticket, &self.tickets) {
                    let (ticket, behind) = self.tickets.swap_remove(index);
                    self.may_wait_for(behind);
                    self.accept(ticket.wait(), behind);
                }
            }
            Op::Poll { ticket } => {
                if let Some(index) = pick(*ticket, &self.tickets) {
                    let (ticket, behind) = &self.tickets[index];
                    self.accept(ticket.is_done(), *behind);
                }
            }
            Op::Synchronize { stream } => self.synchronize(stream % self.lanes.len()),
            Op::HostFunction { stream } => {
                let lane = stream % self.lanes.len();
                let behind = self.enqueue(lane, Set::default());
                let launched = self.lanes[lane].stream.launch_host(std::thread::yield_now);
                self.note_ticket(launched, behind);
            }
            Op::Borrow { device, len, byte, inner, panics } => {
                self.borrow(*device, *len, *byte, inner, *panics, step);
            }
            Op::Lose { device } => self.trouble.lose(*device),
            Op::LoseInside { call, nth } => self.trouble.lose_inside(*call, *nth),
            Op::Unload => self.trouble.unload(),
            Op::UnloadInside { call, nth } => self.trouble.unload_inside(*call, *nth),
            Op::Stall { stream } => self.stall(stream % self.lanes.len()),
            Op::StallLegacy { device } => self.stall_legacy(device % self.devices.len()),
            Op::Release => self.release(),
            Op::UploadElsewhere { stream, len, byte } => {
                self.upload_elsewhere(stream % self.lanes.len(), *len, *byte);
            }
            Op::Releases(step) => self.releases_step(step),
            Op::Graphs(step) => self.graph_step(step),
            Op::Task { awaits, then, by } => self.start_task(*awaits, *then, *by),
        }
    }

    fn replace_stream(&mut self, stream: usize) {
        let index = stream % self.lanes.len();
        let Lane { device, kind, .. } = self.lanes[index];
        let new = self.open(device, kind);
        let Some(new) = self.accept(new, self.behind.own(device)) else { return };
        // A default stream is always the same one.
        let is_new = matches!(kind, Kind::Plain | Kind::Blocking);
        if is_new && let Some(number) = self.behind.add(device, kind) {
            self.lanes[index].number = number;
        }
        self.lanes[index].stream = new;
    }

    fn synchronize(&mut self, lane: usize) {
        let behind = self.behind.of(self.lanes[lane].number);
        self.may_wait_for(behind);
        if self.accept(self.lanes[lane].stream.synchronize(), behind).is_some() {
            self.behind.drained(self.lanes[lane].number);
        }
        self.check_returned();
    }
}
