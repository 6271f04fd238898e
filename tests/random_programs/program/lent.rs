//! The program's own memory: registered permanently, or lent for the time of a closure.
//!
//! Lent memory is the host's again when the call returns or unwinds. A call that cannot give it
//! back ends the thread. So the program paints the memory again and checks it later, which detects
//! a late write of a device. Later programs reuse the memory, but it is never freed, so a late
//! write hits nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use pinlane::PinnedSliceMut;
use pinlane::memory::ReadOnlyMemory;

use super::behind::{Set, Uses};
use super::model::{Model, first_change, fit, move_model, painted};
use super::op::Inner;
use super::{Host, Machine, Memory, Part, assert_agrees, last_resort, paint, paint_model, pick};

/// The state of memory while it is lent.
pub(super) struct Lent {
    model: Model,
    uses: Uses,
}

/// Memory that came back, painted with this byte.
pub(super) struct Returned {
    memory: Vec<u8>,
    byte: u8,
}

/// Memory that no program uses now.
static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

impl Drop for Returned {
    fn drop(&mut self) {
        SPARE.lock().unwrap().push(std::mem::take(&mut self.memory));
    }
}

impl Returned {
    /// Memory of at least `len` bytes.
    fn new(len: usize) -> Returned {
        let mut spare = SPARE.lock().unwrap();
        let place = spare.iter().position(|memory| memory.len() >= len);
        let memory = place.map(|place| spare.swap_remove(place));
        Returned { memory: memory.unwrap_or_else(|| vec![0; len.max(4096)]), byte: 0 }
    }

    fn paint(&mut self, byte: u8) {
        self.byte = byte;
        paint(&mut self.memory, byte);
    }

    fn check(&self) {
        let change = first_change(&self.memory, self.byte);
        assert_eq!(change, None, "a byte of memory changed whose borrow has ended");
    }
}

/// Memory that changes by its drop, as memory does that is freed.
struct Changing(Vec<u8>);

// SAFETY: the bytes are those of a vector, which nothing else uses.
unsafe impl ReadOnlyMemory for Changing {
    type Element = u8;

    fn elements(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.fill(0xdd);
    }
}

/// The payload of a deliberate panic of a closure.
struct OnPurpose;

impl Machine {
    pub(super) fn register(&mut self, device: usize, len: usize, byte: u8) {
        let device = device % self.devices.len();
        let mut owner = vec![0; len];
        paint(&mut owner, byte);
        let registered = self.devices[device].register(owner).map_err(|refused| refused.error);
        let Some(buffer) = self.accept(registered, self.behind.own(device)) else { return };
        let (buffer, model) = (Memory::Registered(buffer), painted(len, byte));
        self.hosts.push(Host { buffer, model, uses: Uses::default() });
    }

    /// The owner changes its memory when it comes back, or by its drop: no upload may be pending.
    pub(super) fn upload_to_read(
        &mut self,
        stream: usize,
        device: usize,
        part: Part,
        byte: u8,
        drops: bool,
    ) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let range = part.of(self.on_device[index].model.len());
        let number = self.on_device[index].device;
        let mut owner = Changing(vec![0; range.len()]);
        paint(&mut owner.0, byte);
        let registered = self.devices[number].register_read_only(owner);
        let registered = registered.map_err(|refused| refused.error);
        let Some(registered) = self.accept(registered, self.behind.own(number)) else { return };
        let mut all = Set::default();
        for turn in 0..2 {
            let lane = self.lane_of(stream + turn, number);
            let behind = self.enqueue(lane, self.on_device[index].uses.for_writing());
            all |= behind;
            let device = &mut self.on_device[index];
            let view = device.buffer.slice_mut(range.clone()).expect("in range");
            let uploaded = self.lanes[lane].stream.upload(&registered, view);
            device.uses.write_by(behind);
            if uploaded.is_ok() {
                paint_model(&mut device.model[range.clone()], byte);
            } else {
                device.model[range.clone()].fill(None);
            }
            self.note_ticket(uploaded, behind);
        }
        assert_agrees(&registered, &painted(range.len(), byte), "memory to read only");
        self.may_wait_for(all);
        if drops {
            drop(registered);
        } else if let Err(refused) = registered.into_inner() {
            self.accept(Err::<(), _>(refused.error), all | self.behind.own(number));
        }
    }

    pub(super) fn borrow(
        &mut self,
        device: usize,
        len: usize,
        byte: u8,
        inner: &[Inner],
        panics: bool,
        step: usize,
    ) {
        let number = device % self.devices.len();
        let device = self.devices[number].clone();
        let around = usize::from(byte) % 64;
        let mut memory = Returned::new(around + len + 1);
        memory.paint(!byte);
        let slice = &mut memory.memory[around..around + len];
        paint(slice, byte);
        self.lent = Some(Lent { model: painted(len, byte), uses: Uses::default() });
        let scope = catch_unwind(AssertUnwindSafe(|| {
            device.with_registered(slice, |mut view| {
                for op in inner {
                    self.step_inside(op, &mut view, step);
                    self.note_losses();
                }
                self.may_wait_for(self.lent.as_ref().expect("lent").uses.for_writing());
                last_resort::allow(self.trouble.has_begun());
                if panics {
                    resume_unwind(Box::new(OnPurpose));
                }
            })
        }));
        last_resort::allow(false);
        self.note_losses();
        let Lent { model, uses } = self.lent.take().expect("lent");
        match scope {
            Ok(result) => {
                let behind = uses.for_writing() | self.behind.own(number);
                self.accept(result, behind);
            }
            Err(panic) if panic.is::<OnPurpose>() => {}
            Err(panic) => resume_unwind(panic),
        }
        assert_agrees(&memory.memory[around..around + len], &model, "lent memory");
        memory.paint(byte.wrapping_add(128));
        self.returned.push(memory);
    }

    pub(super) fn check_returned(&self) {
        self.returned.iter().for_each(Returned::check);
    }

    fn lent(&mut self) -> &mut Lent {
        self.lent.as_mut().expect("called while it is lent")
    }

    pub(super) fn note_losses_of_lent(&mut self, lost: Set) {
        if let Some(lent) = self.lent.as_mut().filter(|lent| lent.uses.for_reading().meets(lost)) {
            lent.model.fill(None);
        }
    }

    fn step_inside(&mut self, op: &Inner, view: &mut PinnedSliceMut<'_, u8>, step: usize) {
        let len = view.len();
        match op {
            Inner::Upload { stream, from, device, to } => {
                let Some(device) = pick(*device, &self.on_device) else { return };
                let lane = self.lane_of(*stream, self.on_device[device].device);
                let conflicts = self.on_device[device].uses.for_writing();
                let conflicts = conflicts | self.lent().uses.for_reading();
                let behind = self.enqueue(lane, conflicts);
                let device = &mut self.on_device[device];
                let (from, to) = fit(from.of(len), *to, device.model.len());
                let uploaded = self.lanes[lane].stream.upload(
                    view.as_slice().slice(from.clone()).expect("in range"),
                    device.buffer.slice_mut(to.clone()).expect("in range"),
                );
                device.uses.write_by(behind);
                let lent = self.lent.as_mut().expect("called while it is lent");
                lent.uses.read_by(behind);
                move_model(uploaded.is_ok(), &lent.model[from], &mut device.model[to]);
                self.note_ticket(uploaded, behind);
            }
            Inner::Download { stream, device, from, to } => {
                let Some(device) = pick(*device, &self.on_device) else { return };
                let lane = self.lane_of(*stream, self.on_device[device].device);
                let conflicts = self.on_device[device].uses.for_reading();
                let conflicts = conflicts | self.lent().uses.for_writing();
                let behind = self.enqueue(lane, conflicts);
                let device = &mut self.on_device[device];
                let (from, to) = fit(from.of(device.model.len()), *to, len);
                let downloaded = self.lanes[lane].stream.download(
                    device.buffer.slice(from.clone()).expect("in range"),
                    view.slice_mut(to.clone()).expect("in range"),
                );
                device.uses.read_by(behind);
                let lent = self.lent.as_mut().expect("called while it is lent");
                lent.uses.write_by(behind);
                move_model(downloaded.is_ok(), &device.model[from], &mut lent.model[to]);
                self.note_ticket(downloaded, behind);
            }
            Inner::Read { part } => {
                let behind = self.lent().uses.for_reading();
                self.may_wait_for(behind);
                let part = part.of(len);
                let whole = view.as_slice();
                let bytes = whole.slice(part.clone()).expect("in range").read();
                if let Some(bytes) = self.accept(bytes, behind) {
                    assert_agrees(bytes, &self.lent().model[part], "a read of lent memory");
                }
            }
            Inner::Write { part, byte } => {
                let behind = self.lent().uses.for_writing();
                self.may_wait_for(behind);
                let part = part.of(len);
                let bytes = view.slice_mut(part.clone()).expect("in range").into_write();
                if self.accept(bytes.map(|bytes| paint(bytes, *byte)), behind).is_some() {
                    paint_model(&mut self.lent().model[part], *byte);
                }
            }
            Inner::Other(op) => self.step(op, step),
        }
    }
}
