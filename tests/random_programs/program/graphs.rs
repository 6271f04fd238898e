//! Graphs: captured copies and fills, launched on any stream of their device, between other uses of
//! their buffers.
//!
//! Other code captures some of the operations. A graph keeps the addresses of their buffers, as of
//! those that a kernel names: such a buffer cannot be exchanged for another. All others can.

mod captured;
mod steps;

use pinlane::driver::{DriverResult, RawStream};
use pinlane::emulated::{CaptureMode, Emulator};
use pinlane::graph::{Buffers, Key};
use pinlane::{Capture, DeviceBuf, ErrorKind, Graph, PinnedBuf, Result, Stream};

use super::behind::{Set, Uses};
use super::model::{Model, Part, fit, move_model};
use captured::{Gpus, Hosts, capture, capture_foreign, fix, settle};
use steps::{By, Operation, Work};
pub use steps::{Step, step};

use super::{Host, Machine, Memory, OnDevice, assert_agrees, paint, paint_model, pick};

/// A buffer of a graph.
struct Bound<B> {
    key: Key<B>,
    model: Model,
    uses: Uses,
    /// Whether the graph keeps its address.
    is_fixed: bool,
}

impl<B> Bound<B> {
    fn new(key: Key<B>, model: Model, uses: Uses) -> Self {
        Bound { key, model, uses, is_fixed: false }
    }
}

/// The graph of other code, and the machine that has it.
struct Others {
    emulator: Emulator,
    graph: usize,
    executable: usize,
}

impl Drop for Others {
    fn drop(&mut self) {
        for graph in [self.executable, self.graph] {
            let _ = self.emulator.graph_destroy(graph);
        }
    }
}

pub(super) struct OfGraph {
    others: Option<Others>,
    graph: Graph,
    device: usize,
    hosts: Vec<Bound<PinnedBuf<u8>>>,
    gpus: Vec<Bound<DeviceBuf<u8>>>,
    work: Vec<Work>,
    /// What the last launch may have to wait for.
    last: Set,
}

impl OfGraph {
    /// What a launch has to wait for.
    fn conflicts(&self) -> Set {
        self.work.iter().fold(self.last, |set, work| set | self.conflicts_of(work))
    }

    fn conflicts_of(&self, work: &Work) -> Set {
        let (hosts, gpus) = (&self.hosts, &self.gpus);
        match *work {
            Work::Upload { host, gpu, .. } => {
                hosts[host].uses.for_reading() | gpus[gpu].uses.for_writing()
            }
            Work::Download { gpu, host, .. } => {
                gpus[gpu].uses.for_reading() | hosts[host].uses.for_writing()
            }
            Work::Copy { src, dst, .. } => {
                gpus[src].uses.for_reading() | gpus[dst].uses.for_writing()
            }
            Work::Fill { gpu, .. } => gpus[gpu].uses.for_writing(),
        }
    }

    /// What a launch does to the models. If it failed, what it writes is unspecified.
    fn apply(&mut self, ok: bool, behind: Set) {
        self.last = behind;
        for work in &self.work {
            match *work {
                Work::Upload { host, from, gpu, to } => {
                    let (host, gpu) = (&mut self.hosts[host], &mut self.gpus[gpu]);
                    let (from, to) = fit(from.of(host.model.len()), to, gpu.model.len());
                    move_model(ok, &host.model[from], &mut gpu.model[to]);
                    host.uses.read_by(behind);
                    gpu.uses.write_by(behind);
                }
                Work::Download { gpu, from, host, to } => {
                    let (host, gpu) = (&mut self.hosts[host], &mut self.gpus[gpu]);
                    let (from, to) = fit(from.of(gpu.model.len()), to, host.model.len());
                    move_model(ok, &gpu.model[from], &mut host.model[to]);
                    gpu.uses.read_by(behind);
                    host.uses.write_by(behind);
                }
                Work::Copy { src, from, dst, to } => {
                    let [src, dst] = self.gpus.get_disjoint_mut([src, dst]).expect("two");
                    let (from, to) = fit(from.of(src.model.len()), to, dst.model.len());
                    move_model(ok, &src.model[from], &mut dst.model[to]);
                    src.uses.read_by(behind);
                    dst.uses.write_by(behind);
                }
                Work::Fill { gpu, part, byte } => {
                    let gpu = &mut self.gpus[gpu];
                    let range = part.of(gpu.model.len());
                    gpu.model[range].fill(ok.then_some(byte));
                    gpu.uses.write_by(behind);
                }
            }
        }
    }

    /// Marks what a lost device was to write.
    pub(super) fn note_losses(&mut self, is_lost: impl Fn(&Uses) -> bool) {
        let hosts = self.hosts.iter_mut().map(|host| (&mut host.model, &host.uses));
        let gpus = self.gpus.iter_mut().map(|gpu| (&mut gpu.model, &gpu.uses));
        hosts.chain(gpus).filter(|(_, uses)| is_lost(uses)).for_each(|(model, _)| model.fill(None));
    }
}

/// Ends a graph when it drops: together with its buffers, or before them.
struct EndsInside(Option<Graph>, bool);

impl Drop for EndsInside {
    fn drop(&mut self) {
        let graph = self.0.take().expect("dropped once");
        if self.1 { drop(graph.into_buffers()) } else { drop(graph) }
    }
}

/// A capture that other code has begun.
struct Beginning {
    stream: Stream,
    raw: RawStream,
    emulator: Emulator,
}

impl Beginning {
    fn end(self) -> Option<Others> {
        let Beginning { stream, raw, emulator } = self;
        let graph = emulator.stream_end_capture(raw).ok()?;
        drop(stream);
        let executable = emulator.graph_instantiate(graph, false).ok()?;
        Some(Others { emulator, graph, executable })
    }
}

impl Machine {
    fn begin_capture(
        &self,
        device: usize,
        emulator: Option<Emulator>,
    ) -> Result<(Capture, Option<Beginning>)> {
        let Some(emulator) = emulator else { return Ok((self.devices[device].capture()?, None)) };
        let stream = self.devices[device].stream()?;
        let raw = RawStream { device: device as i32, handle: stream.as_raw().addr() };
        let begun = emulator.stream_begin_capture(raw, CaptureMode::Relaxed);
        begun.expect("a new stream");
        // SAFETY: `Others` is dropped before the graph, and is launched by `launch_foreign` only.
        Ok((unsafe { stream.join_capture() }?, Some(Beginning { stream, raw, emulator })))
    }

    fn make_graph(
        &mut self,
        device: usize,
        wanted: (&[usize], &[usize]),
        work: &[Operation],
        joined: bool,
    ) {
        let device = device % self.devices.len();
        let emulator = self.trouble.emulator().filter(|_| joined);
        let begun = self.begin_capture(device, emulator);
        let Some((mut capturing, others)) = self.accept(begun, self.behind.own(device)) else {
            return;
        };
        let (mut hosts, mut gpus) = (Vec::new(), Vec::new());
        for &number in wanted.0 {
            let Some(index) = pick(number, &self.hosts) else { break };
            if !matches!(self.hosts[index].buffer, Memory::Pool(_)) {
                continue;
            }
            let Host { buffer, model, uses } = self.hosts.swap_remove(index);
            let Memory::Pool(buffer) = buffer else { unreachable!("just seen") };
            hosts.push(Bound::new(capturing.own(buffer), model, uses));
        }
        for &number in wanted.1 {
            let Some(index) = pick(number, &self.on_device) else { break };
            if self.on_device[index].device != device {
                continue;
            }
            let OnDevice { buffer, model, uses, .. } = self.on_device.swap_remove(index);
            gpus.push(Bound::new(capturing.own(buffer), model, uses));
        }
        let (mut done, mut is_half) = (Vec::new(), false);
        let work = if hosts.is_empty() || gpus.is_empty() { &[] } else { work };
        for operation in work {
            let Some(work) = settle(&operation.work, hosts.len(), gpus.len()) else { continue };
            let operation = Operation { work, ..*operation };
            let branch = operation.branch;
            let switched = if others.is_none() { capturing.branch(branch) } else { Ok(()) };
            let captured = switched.and_then(|()| {
                let captured =
                    self.capture_one(&mut capturing, device, (&hosts, &gpus), &operation);
                is_half |= captured.is_err();
                captured
            });
            match self.accept(captured, self.behind.own(device)) {
                Some(Ok(())) => {
                    fix(&mut hosts, &mut gpus, &operation);
                    done.push(operation.work);
                }
                Some(Err(code)) => {
                    assert!(self.trouble.has_begun(), "a call of other code failed: {code:?}");
                    drop(others.and_then(Beginning::end));
                    return self.take_back(capturing.into_buffers(), device, hosts, gpus);
                }
                None => {}
            }
        }
        let graph = capturing.finish();
        assert!(!is_half || others.is_some() || graph.is_err(), "half a capture makes a graph");
        let others = others.and_then(Beginning::end);
        match graph {
            Ok(graph) => self.graphs.push(OfGraph {
                others,
                graph,
                device,
                hosts,
                gpus,
                work: done,
                last: Set::default(),
            }),
            Err(refused) => {
                drop(others);
                self.accept::<()>(Err(refused.error), self.behind.own(device));
                self.take_back(refused.value, device, hosts, gpus);
            }
        }
    }

    fn capture_one(
        &self,
        capturing: &mut Capture,
        device: usize,
        buffers: (&Hosts, &Gpus),
        operation: &Operation,
    ) -> Result<DriverResult<()>> {
        if operation.by == By::Us {
            return capture(capturing, buffers.0, buffers.1, &operation.work).map(Ok);
        }
        capture_foreign(capturing, &self.devices[device], buffers, operation)
    }

    fn take_back(
        &mut self,
        mut buffers: Buffers,
        device: usize,
        hosts: Vec<Bound<PinnedBuf<u8>>>,
        gpus: Vec<Bound<DeviceBuf<u8>>>,
    ) {
        for Bound { key, model, uses, .. } in hosts {
            let buffer = Memory::Pool(buffers.take(key).expect("it has it"));
            self.hosts.push(Host { buffer, model, uses });
        }
        for Bound { key, model, uses, .. } in gpus {
            let buffer = buffers.take(key).expect("it has it");
            self.on_device.push(OnDevice { device, buffer, model, uses });
        }
    }

    fn launch(&mut self, index: usize, stream: usize) {
        let lane = self.lane_of(stream, self.graphs[index].device);
        let behind = self.enqueue(lane, self.graphs[index].conflicts());
        let OfGraph { graph, others, .. } = &mut self.graphs[index];
        let stream = &self.lanes[lane].stream;
        let mut ok = true;
        let launched = match others {
            None => graph.launch(stream),
            // SAFETY: the closure launches the graph of the other code on the given stream.
            Some(others) => unsafe {
                graph.launch_foreign(stream, |handle| {
                    let handle = handle.addr().max(RawStream::LEGACY);
                    let raw = RawStream { device: stream.device_ordinal(), handle };
                    ok = others.emulator.graph_launch(others.executable, raw).is_ok();
                })
            }
            .map(|((), ticket)| ticket),
        };
        assert!(ok || self.trouble.has_begun(), "the other code's launch failed");
        self.graphs[index].apply(ok && launched.is_ok(), behind);
        self.note_ticket(launched, behind);
    }

    pub(super) fn graph_step(&mut self, step: &Step) {
        if let Step::Make { device, hosts, gpus, work, joined } = step {
            return self.make_graph(*device, (hosts, gpus), work, *joined);
        }
        let (&Step::Launch { graph, .. }
        | &Step::Write { graph, .. }
        | &Step::Read { graph, .. }
        | &Step::UploadTo { graph, .. }
        | &Step::DownloadFrom { graph, .. }
        | &Step::Rebind { graph, .. }
        | &Step::RebindOnDevice { graph, .. }
        | &Step::Drop { graph }
        | &Step::EndInside { graph, .. }
        | &Step::GiveBack { graph }) = step
        else {
            unreachable!("seen above")
        };
        let Some(index) = pick(graph, &self.graphs) else { return };
        match *step {
            Step::Launch { stream, .. } => self.launch(index, stream),
            Step::Write { host, part, byte, .. } => self.write_in_graph(index, host, part, byte),
            Step::Read { host, .. } => self.read_in_graph(index, host),
            Step::UploadTo { gpu, stream, host, from, to, .. } => {
                self.upload_to_graph(index, gpu, stream, host, from, to);
            }
            Step::DownloadFrom { gpu, stream, host, from, to, .. } => {
                self.download_from_graph(index, gpu, stream, host, from, to);
            }
            Step::Rebind { host, with, .. } => self.rebind(index, host, with),
            Step::RebindOnDevice { gpu, with, .. } => self.rebind_on_device(index, gpu, with),
            Step::Drop { .. } => {
                let graph = self.graphs.swap_remove(index);
                for host in &graph.hosts {
                    self.pool_uses |= host.uses.for_writing();
                }
            }
            Step::EndInside { stream, gives, .. } => self.end_inside(index, stream, gives),
            Step::GiveBack { .. } => self.give_back(index),
            Step::Make { .. } => unreachable!("seen above"),
        }
    }

    fn end_inside(&mut self, index: usize, stream: usize, gives: bool) {
        let OfGraph { others, graph, hosts, .. } = self.graphs.swap_remove(index);
        for host in &hosts {
            self.pool_uses |= host.uses.for_writing();
        }
        drop(others);
        let end = EndsInside(Some(graph), gives);
        self.drop_inside(stream, end, 0);
        self.release(); // the function may be behind a stall
        self.wait_for_drops();
        self.accept(self.pool.trim(), self.pool_uses);
    }

    pub(super) fn give_back_all(&mut self) {
        while !self.graphs.is_empty() {
            self.give_back(0);
        }
    }

    fn give_back(&mut self, index: usize) {
        let OfGraph { others, graph, device, hosts, gpus, .. } = self.graphs.swap_remove(index);
        drop(others);
        self.take_back(graph.into_buffers(), device, hosts, gpus);
    }

    fn write_in_graph(&mut self, index: usize, host: usize, part: Part, byte: u8) {
        let Some(host) = pick(host, &self.graphs[index].hosts) else { return };
        let behind = self.graphs[index].hosts[host].uses.for_writing();
        self.may_wait_for(behind);
        let OfGraph { graph, hosts, .. } = &mut self.graphs[index];
        let range = part.of(hosts[host].model.len());
        let view = graph.slice_mut(hosts[host].key.slice(range.clone())).expect("in range");
        let written = view.into_write().map(|bytes| paint(bytes, byte));
        if self.accept(written, behind).is_some() {
            let Bound { model, uses, .. } = &mut self.graphs[index].hosts[host];
            paint_model(&mut model[range.clone()], byte);
            if range.len() == model.len() {
                uses.settled_to_write();
            }
        }
    }

    fn read_in_graph(&mut self, index: usize, host: usize) {
        let Some(host) = pick(host, &self.graphs[index].hosts) else { return };
        let behind = self.graphs[index].hosts[host].uses.for_reading();
        self.may_wait_for(behind);
        let OfGraph { graph, hosts, .. } = &self.graphs[index];
        let bytes = graph.get(hosts[host].key).expect("it has it").read();
        if let Some(bytes) = self.accept(bytes, behind) {
            assert_agrees(bytes, &hosts[host].model, "a host buffer of a graph");
            self.graphs[index].hosts[host].uses.settled_to_read();
        }
    }

    fn upload_to_graph(
        &mut self,
        index: usize,
        gpu: usize,
        stream: usize,
        host: usize,
        from: Part,
        to: usize,
    ) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(gpu) = pick(gpu, &self.graphs[index].gpus) else { return };
        let lane = self.lane_of(stream, self.graphs[index].device);
        let conflicts =
            self.hosts[host].uses.for_reading() | self.graphs[index].gpus[gpu].uses.for_writing();
        let behind = self.enqueue(lane, conflicts);
        let OfGraph { graph, gpus, .. } = &mut self.graphs[index];
        let (host, gpu) = (&mut self.hosts[host], &mut gpus[gpu]);
        let (from, to) = fit(from.of(host.model.len()), to, gpu.model.len());
        let uploaded = self.lanes[lane].stream.upload(
            host.buffer.slice(from.clone()).expect("in range"),
            graph.slice_mut(gpu.key.slice(to.clone())).expect("in range"),
        );
        move_model(uploaded.is_ok(), &host.model[from], &mut gpu.model[to]);
        host.uses.read_by(behind);
        gpu.uses.write_by(behind);
        self.note_ticket(uploaded, behind);
    }

    fn download_from_graph(
        &mut self,
        index: usize,
        gpu: usize,
        stream: usize,
        host: usize,
        from: Part,
        to: usize,
    ) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(gpu) = pick(gpu, &self.graphs[index].gpus) else { return };
        let lane = self.lane_of(stream, self.graphs[index].device);
        let conflicts =
            self.hosts[host].uses.for_writing() | self.graphs[index].gpus[gpu].uses.for_reading();
        let behind = self.enqueue(lane, conflicts);
        let OfGraph { graph, gpus, .. } = &mut self.graphs[index];
        let (host, gpu) = (&mut self.hosts[host], &mut gpus[gpu]);
        let (from, to) = fit(from.of(gpu.model.len()), to, host.model.len());
        let buffer = graph.get(gpu.key).expect("it has it");
        let downloaded = self.lanes[lane].stream.download(
            buffer.slice(from.clone()).expect("in range"),
            host.buffer.slice_mut(to.clone()).expect("in range"),
        );
        move_model(downloaded.is_ok(), &gpu.model[from], &mut host.model[to]);
        host.uses.write_by(behind);
        gpu.uses.read_by(behind);
        self.note_ticket(downloaded, behind);
    }

    /// A host buffer of the pool of that length: one of the program's, or a new one.
    fn host_of_len(&mut self, len: usize, number: usize) -> Option<usize> {
        let fits =
            |other: &Host| other.model.len() == len && matches!(other.buffer, Memory::Pool(_));
        if !self.hosts.iter().any(fits) {
            self.alloc_host(len, number as u8);
        }
        let fitting: Vec<usize> =
            (0..self.hosts.len()).filter(|&number| fits(&self.hosts[number])).collect();
        pick(number, &fitting).map(|number| fitting[number])
    }

    /// The same for device buffers.
    fn gpu_of_len(&mut self, device: usize, len: usize, number: usize) -> Option<usize> {
        let fits = |other: &OnDevice| other.model.len() == len && other.device == device;
        if !self.on_device.iter().any(fits) {
            self.alloc_device(device, len, number as u8, number);
        }
        let fitting: Vec<usize> =
            (0..self.on_device.len()).filter(|&number| fits(&self.on_device[number])).collect();
        pick(number, &fitting).map(|number| fitting[number])
    }

    /// Exchanges a host buffer for one of the program's of the same length.
    fn rebind(&mut self, index: usize, host: usize, with: usize) {
        let Some(host) = pick(host, &self.graphs[index].hosts) else { return };
        let len = self.graphs[index].hosts[host].model.len();
        let Some(with) = self.host_of_len(len, with) else { return };
        let OfGraph { others, graph, hosts, device, .. } = &mut self.graphs[index];
        let Host { buffer, model, uses } = self.hosts.swap_remove(with);
        let Memory::Pool(buffer) = buffer else { unreachable!("just seen") };
        let own = self.behind.own(*device);
        let is_refused = others.is_some() || hosts[host].is_fixed;
        let (bound, rest) = match graph.rebind(hosts[host].key, buffer) {
            Ok(old) => {
                let new = Bound::new(hosts[host].key, model, uses);
                let Bound { model, uses, .. } = std::mem::replace(&mut hosts[host], new);
                (Ok(()), Host { buffer: Memory::Pool(old), model, uses })
            }
            Err(refused) => {
                let buffer = Memory::Pool(refused.value);
                (Err(refused.error), Host { buffer, model, uses })
            }
        };
        self.hosts.push(rest);
        self.accept_rebinding(bound, is_refused, own);
    }

    fn rebind_on_device(&mut self, index: usize, gpu: usize, with: usize) {
        let Some(gpu) = pick(gpu, &self.graphs[index].gpus) else { return };
        let (device, len) = (self.graphs[index].device, self.graphs[index].gpus[gpu].model.len());
        let Some(with) = self.gpu_of_len(device, len, with) else { return };
        let OfGraph { others, graph, gpus, .. } = &mut self.graphs[index];
        let is_refused = others.is_some() || gpus[gpu].is_fixed;
        let OnDevice { buffer, model, uses, .. } = self.on_device.swap_remove(with);
        let (bound, rest) = match graph.rebind(gpus[gpu].key, buffer) {
            Ok(buffer) => {
                let new = Bound::new(gpus[gpu].key, model, uses);
                let Bound { model, uses, .. } = std::mem::replace(&mut gpus[gpu], new);
                (Ok(()), OnDevice { device, buffer, model, uses })
            }
            Err(refused) => {
                let buffer = refused.value;
                (Err(refused.error), OnDevice { device, buffer, model, uses })
            }
        };
        self.on_device.push(rest);
        self.accept_rebinding(bound, is_refused, self.behind.own(device));
    }

    /// A buffer whose address is fixed, or that a graph of other code has, is not exchanged. All
    /// others are.
    fn accept_rebinding(&self, bound: Result<()>, is_refused: bool, own: Set) {
        match bound {
            Ok(()) => assert!(!is_refused, "a buffer whose address the graph keeps was exchanged"),
            Err(error) if is_refused && error.kind() == ErrorKind::Unsupported => {}
            bound => {
                self.accept(bound, own);
            }
        }
    }
}
