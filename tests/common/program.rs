//! Random programs over the safe interface, and the plain sequential model that they must agree with.
//!
//! A program is a list of [`Op`]s; numbers in them are taken modulo what there is, so that every list is
//! a program and shrinking just works. The model applies each operation to vectors at once, in program
//! order, which is what the crate promises whatever the streams, devices and schedule are.
//!
//! A byte of the model is `None` where the contents are unspecified: after an operation that failed.

mod ordinary;

use std::time::Duration;

use pinlane::{
    Device, DeviceBuf, ErrorKind, PinnedBuf, PinnedPool, Result, Staging, Stream, Ticket,
};
use proptest::prelude::*;

pub const STREAMS: usize = 4;

#[derive(Clone, Debug)]
pub enum Op {
    AllocHost { len: usize, byte: u8 },
    AllocDevice { device: usize, len: usize, byte: u8 },
    Write { host: usize, part: Part, byte: u8 },
    Read { host: usize, part: Part },
    TryRead { host: usize },
    ReadOnThread { host: usize },
    Upload { stream: usize, host: usize, from: Part, device: usize, to: usize },
    Download { stream: usize, device: usize, from: Part, host: usize, to: usize },
    Copy { stream: usize, src: usize, from: Part, dst: usize, to: usize },
    UploadSlice { stream: usize, device: usize, part: Part, byte: u8 },
    DownloadSlice { stream: usize, device: usize, part: Part },
    UploadBatch { stream: usize, device: usize, pieces: usize, host: usize, byte: u8 },
    DownloadBatch { stream: usize, device: usize, pieces: usize },
    Fill { stream: usize, device: usize, part: Part, pattern: Vec<u8> },
    Checksum { stream: usize, device: usize, part: Part },
    DropHost { host: usize },
    DropDevice { device: usize },
    ReplaceStream { stream: usize },
    Busy { stream: usize, micros: u64 },
    Wait { ticket: usize },
    Poll { ticket: usize },
    Synchronize { stream: usize },
    HostFunction { stream: usize },
}

/// A part of a buffer, in 1/256 of its length.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    start: u8,
    len: u8,
}

impl Part {
    fn of(self, whole: usize) -> std::ops::Range<usize> {
        let start = whole * self.start as usize / 256;
        let len = (whole - start) * (self.len as usize + 1) / 256;
        start..start + len
    }
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        Just(Part { start: 0, len: 255 }),
        any::<(u8, u8)>().prop_map(|(start, len)| Part { start, len }),
    ]
}

fn op(scale: usize) -> impl Strategy<Value = Op> {
    let index = || 0..8usize;
    // Few sizes, so that blocks of the pool are really used again.
    let len = || prop_oneof![4 => Just(100), 2 => Just(300), 1 => 0..1500usize];
    let len = move || len().prop_map(move |len| len * scale);
    prop_oneof![
        4 => (len(), any::<u8>()).prop_map(|(len, byte)| Op::AllocHost { len, byte }),
        3 => (index(), len(), any::<u8>())
            .prop_map(|(device, len, byte)| Op::AllocDevice { device, len, byte }),
        4 => (index(), part(), any::<u8>())
            .prop_map(|(host, part, byte)| Op::Write { host, part, byte }),
        3 => (index(), part()).prop_map(|(host, part)| Op::Read { host, part }),
        1 => index().prop_map(|host| Op::TryRead { host }),
        1 => index().prop_map(|host| Op::ReadOnThread { host }),
        8 => (index(), index(), part(), index(), index()).prop_map(
            |(stream, host, from, device, to)| Op::Upload { stream, host, from, device, to }
        ),
        8 => (index(), index(), part(), index(), index()).prop_map(
            |(stream, device, from, host, to)| Op::Download { stream, device, from, host, to }
        ),
        5 => (index(), index(), part(), index(), index())
            .prop_map(|(stream, src, from, dst, to)| Op::Copy { stream, src, from, dst, to }),
        4 => (index(), index(), part(), any::<u8>()).prop_map(
            |(stream, device, part, byte)| Op::UploadSlice { stream, device, part, byte }
        ),
        3 => (index(), index(), part())
            .prop_map(|(stream, device, part)| Op::DownloadSlice { stream, device, part }),
        3 => (index(), index(), 1..12usize, index(), any::<u8>()).prop_map(
            |(stream, device, pieces, host, byte)| Op::UploadBatch {
                stream,
                device,
                pieces,
                host,
                byte,
            }
        ),
        2 => (index(), index(), 1..12usize)
            .prop_map(|(stream, device, pieces)| Op::DownloadBatch { stream, device, pieces }),
        2 => (index(), index(), part(), prop::collection::vec(any::<u8>(), 1..=16))
            .prop_map(|(stream, device, part, pattern)| Op::Fill { stream, device, part, pattern }),
        2 => (index(), index(), part())
            .prop_map(|(stream, device, part)| Op::Checksum { stream, device, part }),
        3 => index().prop_map(|host| Op::DropHost { host }),
        2 => index().prop_map(|device| Op::DropDevice { device }),
        1 => index().prop_map(|stream| Op::ReplaceStream { stream }),
        2 => (index(), 1..50u64).prop_map(|(stream, micros)| Op::Busy { stream, micros }),
        1 => any::<usize>().prop_map(|ticket| Op::Wait { ticket }),
        1 => any::<usize>().prop_map(|ticket| Op::Poll { ticket }),
        1 => index().prop_map(|stream| Op::Synchronize { stream }),
        1 => index().prop_map(|stream| Op::HostFunction { stream }),
    ]
}

/// Programs whose buffers have up to `1500 * scale` bytes.
pub fn program(scale: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(scale), 1..60)
}

type Model = Vec<Option<u8>>;

struct Host {
    buffer: PinnedBuf<u8>,
    model: Model,
}

struct OnDevice {
    device: usize,
    buffer: DeviceBuf<u8>,
    model: Model,
}

/// Runs one program.
pub struct Machine {
    devices: Vec<Device>,
    pool: PinnedPool,
    streams: Vec<(usize, Stream)>,
    hosts: Vec<Host>,
    on_device: Vec<OnDevice>,
    tickets: Vec<Ticket>,
    /// Whether calls may fail, because faults are injected.
    faulty: bool,
}

impl Machine {
    /// `scale` is that of the programs: their budget is small enough that some meet its end.
    pub fn new(devices: Vec<Device>, scale: usize, faulty: bool) -> Result<Self> {
        // Slots so small that a buffer goes through several.
        let slot = 4096 * scale;
        let staging = Staging::new().slot_bytes(slot).ring_bytes(3 * slot).first_bytes(slot / 4);
        for device in &devices {
            device.set_staging(staging.clone().unit_bytes(slot / 4).direct_bytes(slot / 64))?;
        }
        let pool = PinnedPool::builder(&devices[0]).max_bytes(8192 * scale).build()?;
        let streams = (0..STREAMS)
            .map(|number| number % devices.len())
            .map(|device| Ok((device, devices[device].stream()?)))
            .collect::<Result<_>>()?;
        let (hosts, on_device, tickets) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Machine { devices, pool, streams, hosts, on_device, tickets, faulty })
    }

    /// Runs the program, then compares all that is left with the model.
    pub fn run(&mut self, program: &[Op]) {
        for (step, op) in program.iter().enumerate() {
            self.step(op, step);
        }
        for device in 0..self.on_device.len() {
            self.check_device(device);
        }
        for host in &self.hosts {
            self.check_read(host, 0..host.model.len());
        }
    }

    /// Whether the call succeeded; a failure is one of the injected ones.
    fn accept<T>(&self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) if error.kind() == ErrorKind::BudgetExhausted => None,
            Err(error) => {
                assert!(self.faulty, "a call failed without a fault: {error}");
                None
            }
        }
    }

    /// Compares a read of the host buffer with the model. A read may fail under faults; the one after it
    /// must not give garbage either.
    fn check_read(&self, host: &Host, range: std::ops::Range<usize>) {
        let view = host.buffer.slice(range.clone()).expect("in range");
        for _ in 0..3 {
            if let Some(bytes) = self.accept(view.read()) {
                assert_agrees(bytes, &host.model[range], "a host buffer");
                return;
            }
        }
    }

    fn check_device(&mut self, index: usize) {
        let on_device = &self.on_device[index];
        let len = on_device.model.len();
        let Some(mut host) = self.accept(self.pool.alloc::<u8>(len)) else { return };
        let stream = self.stream_of(0, on_device.device).clone();
        let download = stream.download(&on_device.buffer, &mut host);
        if self.accept(download).is_some()
            && let Some(bytes) = self.accept(host.read())
        {
            assert_agrees(bytes, &on_device.model, "a device buffer");
        }
    }

    fn stream_of(&self, number: usize, device: usize) -> &Stream {
        let mine: Vec<_> = self.streams.iter().filter(|(of, _)| *of == device).collect();
        &mine[number % mine.len()].1
    }

    fn step(&mut self, op: &Op, step: usize) {
        match op {
            Op::AllocHost { len, byte } => self.alloc_host(*len, *byte),
            Op::AllocDevice { device, len, byte } => self.alloc_device(*device, *len, *byte, step),
            Op::Write { host, part, byte } => {
                let Some(index) = pick(*host, &self.hosts) else { return };
                let range = part.of(self.hosts[index].model.len());
                let host = &mut self.hosts[index];
                let view = host.buffer.slice_mut(range.clone()).expect("in range");
                match view.into_write() {
                    Ok(bytes) => {
                        paint(bytes, *byte);
                        paint_model(&mut host.model[range], *byte);
                    }
                    Err(error) => assert!(self.faulty, "{error}"),
                }
            }
            Op::Read { host, part } => {
                let Some(index) = pick(*host, &self.hosts) else { return };
                let host = &self.hosts[index];
                self.check_read(host, part.of(host.model.len()));
            }
            Op::TryRead { host } => {
                let Some(index) = pick(*host, &self.hosts) else { return };
                let host = &self.hosts[index];
                match host.buffer.try_read() {
                    Ok(bytes) => assert_agrees(bytes, &host.model, "try_read"),
                    Err(error) => {
                        assert!(error.kind() == ErrorKind::NotReady || self.faulty, "{error}");
                    }
                }
            }
            Op::ReadOnThread { host } => {
                let Some(index) = pick(*host, &self.hosts) else { return };
                let host = self.hosts.swap_remove(index);
                let (host, agrees) = std::thread::spawn(move || {
                    let agrees =
                        host.buffer.read().map(|bytes| agrees(bytes, &host.model)).unwrap_or(true);
                    (host, agrees)
                })
                .join()
                .expect("the thread does not panic");
                assert!(agrees, "a buffer read on another thread differs from the model");
                self.hosts.push(host);
            }
            Op::Upload { stream, host, from, device, to } => {
                self.upload(*stream, *host, *from, *device, *to);
            }
            Op::Download { stream, device, from, host, to } => {
                self.download(*stream, *device, *from, *host, *to);
            }
            Op::Copy { stream, src, from, dst, to } => self.copy(*stream, *src, *from, *dst, *to),
            Op::UploadSlice { stream, device, part, byte } => {
                self.upload_slice(*stream, *device, *part, *byte);
            }
            Op::DownloadSlice { stream, device, part } => {
                self.download_slice(*stream, *device, *part);
            }
            Op::UploadBatch { stream, device, pieces, host, byte } => {
                self.upload_batch(*stream, *device, *pieces, *host, *byte);
            }
            Op::DownloadBatch { stream, device, pieces } => {
                self.download_batch(*stream, *device, *pieces);
            }
            Op::Fill { stream, device, part, pattern } => {
                self.fill(*stream, *device, *part, pattern);
            }
            Op::Checksum { stream, device, part } => self.checksum(*stream, *device, *part),
            Op::DropHost { host } => {
                if let Some(index) = pick(*host, &self.hosts) {
                    self.hosts.swap_remove(index);
                }
            }
            Op::DropDevice { device } => {
                if let Some(index) = pick(*device, &self.on_device) {
                    self.on_device.swap_remove(index);
                }
            }
            Op::ReplaceStream { stream } => {
                let index = stream % STREAMS;
                let new = self.devices[self.streams[index].0].stream();
                if let Some(new) = self.accept(new) {
                    self.streams[index].1 = new;
                }
            }
            Op::Busy { stream, micros } => {
                let busy = self.streams[stream % STREAMS].1.busy(Duration::from_micros(*micros));
                self.tickets.extend(self.accept(busy));
            }
            Op::Wait { ticket } => {
                if let Some(index) = pick(*ticket, &self.tickets) {
                    let ticket = self.tickets.swap_remove(index);
                    self.accept(ticket.wait());
                }
            }
            Op::Poll { ticket } => {
                if let Some(index) = pick(*ticket, &self.tickets) {
                    self.accept(self.tickets[index].is_done());
                }
            }
            Op::Synchronize { stream } => {
                self.accept(self.streams[stream % STREAMS].1.synchronize());
            }
            Op::HostFunction { stream } => {
                let launched = self.streams[stream % STREAMS].1.launch_host(|| {
                    std::thread::yield_now();
                });
                self.tickets.extend(self.accept(launched));
            }
        }
    }

    fn alloc_host(&mut self, len: usize, byte: u8) {
        let Some(mut buffer) = self.accept(self.pool.alloc::<u8>(len)) else { return };
        let mut model = vec![None; len];
        // The first write to a recycled block: garbage in somebody's copy if it was recycled too early.
        if let Some(bytes) = self.accept(buffer.write()) {
            paint(bytes, byte);
            paint_model(&mut model, byte);
        }
        self.hosts.push(Host { buffer, model });
    }

    fn alloc_device(&mut self, device: usize, len: usize, byte: u8, stream: usize) {
        let device = device % self.devices.len();
        let Some(mut buffer) = self.accept(self.devices[device].alloc::<u8>(len)) else { return };
        let filled = self.accept(self.stream_of(stream, device).fill(&mut buffer, byte)).is_some();
        let model = vec![filled.then_some(byte); len];
        self.on_device.push(OnDevice { device, buffer, model });
    }

    fn upload(&mut self, stream: usize, host: usize, from: Part, device: usize, to: usize) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(device) = pick(device, &self.on_device) else { return };
        let stream = self.stream_of(stream, self.on_device[device].device).clone();
        let (host, device) = (&self.hosts[host], &mut self.on_device[device]);
        let (from, to) = fit(from.of(host.model.len()), to, device.model.len());
        let uploaded = stream.upload(
            host.buffer.slice(from.clone()).expect("in range"),
            device.buffer.slice_mut(to.clone()).expect("in range"),
        );
        if uploaded.is_ok() {
            device.model[to].copy_from_slice(&host.model[from]);
        } else {
            device.model[to].fill(None);
        }
        self.tickets.extend(self.accept(uploaded));
    }

    fn download(&mut self, stream: usize, device: usize, from: Part, host: usize, to: usize) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(device) = pick(device, &self.on_device) else { return };
        let stream = self.stream_of(stream, self.on_device[device].device).clone();
        let (host, device) = (&mut self.hosts[host], &self.on_device[device]);
        let (from, to) = fit(from.of(device.model.len()), to, host.model.len());
        let downloaded = stream.download(
            device.buffer.slice(from.clone()).expect("in range"),
            host.buffer.slice_mut(to.clone()).expect("in range"),
        );
        if downloaded.is_ok() {
            host.model[to].copy_from_slice(&device.model[from]);
        } else {
            host.model[to].fill(None);
        }
        self.tickets.extend(self.accept(downloaded));
    }

    fn copy(&mut self, stream: usize, src: usize, from: Part, dst: usize, to: usize) {
        let Some(src) = pick(src, &self.on_device) else { return };
        let Some(dst) = pick(dst, &self.on_device) else { return };
        if src == dst {
            return;
        }
        let home = if stream.is_multiple_of(2) { src } else { dst };
        let stream = self.stream_of(stream, self.on_device[home].device).clone();
        let [src, dst] =
            self.on_device.get_disjoint_mut([src, dst]).expect("two different buffers");
        let (from, to) = fit(from.of(src.model.len()), to, dst.model.len());
        let copied = stream.copy(
            src.buffer.slice(from.clone()).expect("in range"),
            dst.buffer.slice_mut(to.clone()).expect("in range"),
        );
        if copied.is_ok() {
            dst.model[to].copy_from_slice(&src.model[from]);
        } else {
            dst.model[to].fill(None);
        }
        self.tickets.extend(self.accept(copied));
    }

    fn fill(&mut self, stream: usize, device: usize, part: Part, pattern: &[u8]) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let stream = self.stream_of(stream, self.on_device[index].device).clone();
        let device = &mut self.on_device[index];
        let range = part.of(device.model.len());
        // Patterns of the lengths that element types have.
        let filled = match *pattern {
            [a] => stream.fill(device.buffer.slice_mut(range.clone()).expect("in range"), a),
            [a, b, c, ..] => {
                let range = range.start..range.start + range.len() / 3 * 3;
                if !range.start.is_multiple_of(3) {
                    return;
                }
                let view = device.buffer.slice_mut(range).expect("in range");
                view.cast::<[u8; 3]>().and_then(|view| stream.fill(view, [a, b, c]))
            }
            _ => return,
        };
        let pattern = &pattern[..if pattern.len() == 1 { 1 } else { 3 }];
        let whole = range.len() / pattern.len() * pattern.len();
        let values = pattern.iter().copied().cycle();
        for (byte, value) in device.model[range].iter_mut().take(whole).zip(values) {
            *byte = filled.is_ok().then_some(value);
        }
        self.tickets.extend(self.accept(filled));
    }

    fn checksum(&mut self, stream: usize, device: usize, part: Part) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let on_device = &self.on_device[index];
        let stream = self.stream_of(stream, on_device.device);
        let range = part.of(on_device.model.len());
        let known: Option<Vec<u8>> = on_device.model[range.clone()].iter().copied().collect();
        let sum = || {
            let mut out = self.devices[on_device.device].alloc::<u64>(1)?;
            let mut host = self.pool.alloc::<u64>(1)?;
            stream.checksum(on_device.buffer.slice(range.clone())?, &mut out)?;
            stream.download(&out, &mut host)?;
            Ok(host.read()?[0])
        };
        if let (Some(sum), Some(known)) = (self.accept(sum()), known) {
            assert_eq!(sum, pinlane::checksum(&known), "a checksum of device memory");
        }
    }
}

fn pick<T>(number: usize, from: &[T]) -> Option<usize> {
    number.checked_rem(from.len())
}

/// Shortens a source range to what fits behind `to` in the destination.
fn fit(
    from: std::ops::Range<usize>,
    to: usize,
    len: usize,
) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let start = len * (to % 8) / 8;
    let count = from.len().min(len - start);
    (from.start..from.start + count, start..start + count)
}

/// Bytes that differ along the buffer, so that a shift shows.
fn value(byte: u8, index: usize) -> u8 {
    byte.wrapping_add((index as u8).wrapping_mul(31)).wrapping_add((index >> 8) as u8)
}

fn paint(bytes: &mut [u8], byte: u8) {
    for (index, target) in bytes.iter_mut().enumerate() {
        *target = value(byte, index);
    }
}

fn paint_model(model: &mut [Option<u8>], byte: u8) {
    for (index, target) in model.iter_mut().enumerate() {
        *target = Some(value(byte, index));
    }
}

fn agrees(bytes: &[u8], model: &[Option<u8>]) -> bool {
    bytes.len() == model.len()
        && bytes.iter().zip(model).all(|(byte, model)| model.is_none_or(|model| model == *byte))
}

fn assert_agrees(bytes: &[u8], model: &[Option<u8>], what: &str) {
    assert_eq!(bytes.len(), model.len());
    for (index, (byte, model)) in bytes.iter().zip(model).enumerate() {
        if let Some(model) = model {
            assert_eq!(byte, model, "{what} differs from the model at byte {index}");
        }
    }
}
