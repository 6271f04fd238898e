//! External trouble: stalled streams, a lost device, a runtime that is unloading.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use pinlane::driver::{Call, RawStream};
use pinlane::emulated::{Emulator, Fault};
use pinlane::{CudaCode, DeviceBuf, Error, ErrorKind, Result, Ticket};

use super::behind::{Behind, Kind, Set, Uses};
use super::model::painted;
use super::{Machine, OnDevice, paint};

/// The error of a lost device.
const LOST: CudaCode = CudaCode::ILLEGAL_ADDRESS;
/// How long the program waits for an upload that seems to wait for a stalled stream. It only
/// determines how far the upload gets before the program continues.
const GLANCE: Duration = Duration::from_millis(1);

pub(super) struct Trouble {
    emulator: Option<Emulator>,
    devices: usize,
    faulty: bool,
    /// Whether a device is lost or will be. Only one is.
    losing: bool,
    unloading: bool,
    stalls: Vec<(RawStream, Set)>,
    elsewhere: Vec<Elsewhere>,
}

/// An upload on another thread.
struct Elsewhere {
    device: usize,
    behind: Set,
    byte: u8,
    done: Receiver<(Result<Ticket>, DeviceBuf<u8>)>,
}

impl Trouble {
    pub(super) fn new(emulator: Option<Emulator>, devices: usize, faulty: bool) -> Trouble {
        let (stalls, elsewhere) = (Vec::new(), Vec::new());
        // A fault may also lose a device.
        Trouble { emulator, devices, faulty, losing: faulty, unloading: false, stalls, elsewhere }
    }

    pub(super) fn emulator(&self) -> Option<Emulator> {
        self.emulator.clone()
    }

    /// The emulated machine, at the first call only: no second device is lost.
    fn begin_to_lose(&mut self) -> Option<&Emulator> {
        if std::mem::replace(&mut self.losing, true) { None } else { self.emulator.as_ref() }
    }

    pub(super) fn lose(&mut self, device: usize) {
        let device = device % self.devices;
        if let Some(emulator) = self.begin_to_lose() {
            emulator.lose_device(device as i32, LOST).expect("there is such a device");
        }
    }

    pub(super) fn lose_inside(&mut self, call: Call, nth: u64) {
        if let Some(emulator) = self.begin_to_lose() {
            emulator.inject(Fault::once(call, LOST).nth(nth));
        }
    }

    pub(super) fn unload(&mut self) {
        if let Some(emulator) = &self.emulator {
            self.unloading = true;
            for call in Call::ALL {
                emulator.inject(Fault::forever(call, CudaCode::CUDART_UNLOADING));
            }
        }
    }

    pub(super) fn unload_inside(&mut self, call: Call, nth: u64) {
        if let Some(emulator) = &self.emulator {
            self.unloading = true;
            emulator.inject(Fault::once(call, CudaCode::CUDART_UNLOADING).nth(nth));
        }
    }

    /// The lanes of devices that are lost now.
    fn lost(&self, behind: &Behind) -> Set {
        let Some(emulator) = self.emulator.as_ref().filter(|_| self.losing) else {
            return Set::default();
        };
        let driver = emulator.driver();
        let lost = (0..self.devices).filter(|&device| driver.memory_info(device as i32).is_err());
        lost.fold(Set::default(), |set, device| set | behind.on(device))
    }

    /// Whether work that may have to wait for `set` may fail with this error. If a device is lost,
    /// the last work of a thread's default stream may have no event, and another thread cannot
    /// query that stream.
    pub(super) fn explains(&self, error: &Error, set: Set, behind: &Behind) -> bool {
        let is_of_loss = matches!(error.kind(), ErrorKind::DeviceLost | ErrorKind::WrongThread);
        self.faulty || self.unloading || is_of_loss && self.lost(behind).meets(set)
    }

    /// Whether anything may have failed so far.
    pub(super) fn has_begun(&self) -> bool {
        self.faulty || self.losing || self.unloading
    }

    pub(super) fn is_stalled(&self, set: Set) -> bool {
        self.stalls.iter().any(|(_, stall)| stall.meets(set))
    }
}

impl Machine {
    /// Marks the destinations of a lost device as unspecified.
    pub(super) fn note_losses(&mut self) {
        let lost = self.trouble.lost(&self.behind);
        let unloading = self.trouble.unloading;
        for host in &mut self.hosts {
            if unloading || host.uses.for_reading().meets(lost) {
                host.model.fill(None);
            }
        }
        for on_device in &mut self.on_device {
            if unloading || on_device.uses.for_reading().meets(lost) {
                on_device.model.fill(None);
            }
        }
        for graph in &mut self.graphs {
            graph.note_losses(|uses| unloading || uses.for_reading().meets(lost));
        }
        self.note_losses_of_lent(if unloading { Set::ALL } else { lost });
    }

    /// Puts long work on an idle stream.
    pub(super) fn stall(&mut self, lane: usize) {
        // If an event cannot be recorded, the call waits for its stream, and only this thread would
        // release that.
        if self.trouble.faulty {
            return;
        }
        self.synchronize(lane);
        let (device, kind) = (self.lanes[lane].device, self.lanes[lane].kind);
        let stream = &self.lanes[lane].stream;
        let handle = match kind {
            Kind::Plain | Kind::Blocking => stream.as_raw().addr(),
            Kind::Legacy => RawStream::LEGACY,
            Kind::PerThread => RawStream::PER_THREAD,
        };
        let raw = RawStream { device: device as i32, handle };
        let Some(emulator) = &self.trouble.emulator else { return };
        let Some(number) = self.behind.add(device, Kind::Plain) else { return };
        emulator.stall(raw).expect("a live stream");
        let stall = self.behind.only(number);
        self.trouble.stalls.push((raw, stall));
        let behind = self.enqueue(lane, stall);
        let busy = self.lanes[lane].stream.busy(Duration::from_micros(1));
        self.note_ticket(busy, behind);
    }

    pub(super) fn stall_legacy(&mut self, device: usize) {
        let is_wanted = |lane: &super::Lane| lane.device == device && lane.kind == Kind::Legacy;
        if let Some(lane) = self.lanes.iter().position(is_wanted) {
            self.stall(lane);
        }
    }

    /// Lets all streams run, and waits for the uploads that waited for them.
    pub(super) fn release(&mut self) {
        self.release_streams();
        self.pool_uses = Set::default();
        for upload in std::mem::take(&mut self.trouble.elsewhere) {
            self.join(upload);
        }
    }

    fn release_streams(&mut self) {
        for (stream, _) in self.trouble.stalls.drain(..) {
            let emulator = self.trouble.emulator.as_ref().expect("it has stalled them");
            emulator.release(stream).expect("a live stream");
        }
    }

    pub(super) fn upload_elsewhere(&mut self, lane: usize, len: usize, byte: u8) {
        let super::Lane { device, kind, ref stream, .. } = self.lanes[lane];
        if kind == Kind::PerThread {
            return;
        }
        let (stream, own) = (stream.clone(), self.behind.own(device));
        let gpu = self.devices[device].alloc::<u8>(len);
        let Some(mut gpu) = self.accept(gpu, own) else { return };
        let behind = self.enqueue(lane, own);
        let (send, done) = channel();
        thread::spawn(move || {
            let mut source = vec![0; len];
            paint(&mut source, byte);
            let uploaded = stream.upload_slice(&source, &mut gpu);
            source.fill(!byte);
            let _ = send.send((uploaded, gpu));
        });
        let upload = Elsewhere { device, behind, byte, done };
        if !self.trouble.is_stalled(behind) {
            return self.join(upload);
        }
        // The program continues in parallel.
        match upload.done.recv_timeout(GLANCE) {
            Ok(uploaded) => self.note_upload(&upload, uploaded),
            Err(_) => self.trouble.elsewhere.push(upload),
        }
    }

    fn join(&mut self, upload: Elsewhere) {
        let uploaded = upload.done.recv().expect("the thread does not panic");
        self.note_upload(&upload, uploaded);
    }

    fn note_upload(&mut self, upload: &Elsewhere, done: (Result<Ticket>, DeviceBuf<u8>)) {
        let &Elsewhere { device, behind, byte, .. } = upload;
        let (uploaded, buffer) = done;
        let model =
            if uploaded.is_ok() { painted(buffer.len(), byte) } else { vec![None; buffer.len()] };
        self.on_device.push(OnDevice { device, buffer, model, uses: Uses::written_by(behind) });
        self.note_ticket(uploaded, behind);
    }

    /// Runs all work that can still run, also what nothing waits for.
    pub(super) fn drain(&mut self) {
        if let Some(emulator) = &self.trouble.emulator {
            emulator.clear_faults();
        }
        for lane in &self.lanes {
            // On a lost device this is an error.
            let _ = lane.stream.synchronize();
        }
    }
}

/// A program that fails must not hang in its drops, which may wait for stalled streams.
impl Drop for Machine {
    fn drop(&mut self) {
        self.release_streams();
    }
}
