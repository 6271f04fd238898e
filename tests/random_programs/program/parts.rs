//! Parts by arrays of offsets.

use pinlane::ErrorKind;
use pinlane::batch::Parts;
use proptest::prelude::*;

use super::behind::Set;
use super::model::{Model, move_model, painted};
use super::{Host, Machine, OnDevice, assert_agrees, paint, pick};

/// A copy of parts, to the device or from there.
#[derive(Clone, Debug)]
pub struct Step {
    up: bool,
    stream: usize,
    host: usize,
    device: usize,
    /// For each part where it begins in the source, and its length, in 1/255 of what is possible.
    parts: Vec<(u8, u8)>,
    /// Which part is the first one in the destination.
    turn: usize,
    /// The parts of the destination descend.
    descend: bool,
    /// All have the length of the first one.
    equal: bool,
    /// The first part and the last one have the same place: the call is refused.
    overlap: bool,
    /// The host side is pageable memory, of this paint.
    pageable: Option<u8>,
}

pub fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![3 => Just(255), 3 => any::<u8>(), 1 => Just(0)];
    let parts = prop::collection::vec((any::<u8>(), length), 0..12);
    let places = (any::<bool>(), 0..8usize, 0..8usize, 0..8usize);
    let order = (0..12usize, any::<bool>(), any::<bool>(), prop::bool::weighted(0.1));
    (places, parts, order, prop::option::of(any::<u8>())).prop_map(
        |((up, stream, host, device), parts, (turn, descend, equal, overlap), pageable)| Step {
            up,
            stream,
            host,
            device,
            parts,
            turn,
            descend,
            equal,
            overlap,
            pageable,
        },
    )
}

/// The arrays of a copy.
struct Arrays {
    from: Vec<usize>,
    to: Vec<usize>,
    lengths: Vec<usize>,
    equal: bool,
    is_refused: bool,
}

impl Arrays {
    /// The parts of a step, of sides of these lengths. Each has a place of the same size in the
    /// destination, and may lie anywhere in the source.
    fn of(step: &Step, src: usize, dst: usize) -> Self {
        let count = step.parts.len();
        let place = dst / count.max(1);
        let of = |whole: usize, fill: u8| whole * usize::from(fill) / 255;
        let fill = |n: usize| step.parts[if step.equal { 0 } else { n }].1;
        let lengths: Vec<_> = (0..count).map(|n| of(place.min(src), fill(n))).collect();
        let from = (0..count).map(|n| of(src - lengths[n], step.parts[n].0)).collect();
        let turned = |n: usize| (n + step.turn) % count;
        let rank = |n: usize| if step.descend { count - 1 - turned(n) } else { turned(n) };
        let mut to: Vec<_> = (0..count).map(|n| rank(n) * place).collect();
        let is_refused = step.overlap && count > 1 && lengths[0] > 0 && lengths[count - 1] > 0;
        if is_refused {
            to[count - 1] = to[0];
        }
        Arrays { from, to, lengths, equal: step.equal, is_refused }
    }

    fn parts(&self) -> Parts<'_> {
        match self.lengths.first() {
            Some(&length) if self.equal => Parts::of_length(&self.from, &self.to, length),
            _ => Parts::new(&self.from, &self.to, &self.lengths),
        }
    }

    /// The destination after the copy.
    fn move_model(&self, ok: bool, from: &Model, to: &mut Model) {
        for ((&src, &dst), &length) in self.from.iter().zip(&self.to).zip(&self.lengths) {
            move_model(ok, &from[src..][..length], &mut to[dst..][..length]);
        }
    }
}

impl Machine {
    pub(super) fn copy_parts(&mut self, step: &Step) {
        let Some(host) = pick(step.host, &self.hosts) else { return };
        let Some(device) = pick(step.device, &self.on_device) else { return };
        let (on_host, on_device) =
            (self.hosts[host].model.len(), self.on_device[device].model.len());
        let (src, dst) = if step.up { (on_host, on_device) } else { (on_device, on_host) };
        let arrays = Arrays::of(step, src, dst);
        if arrays.is_refused {
            return self.refused_parts(step, host, device, &arrays);
        }
        match step.up {
            true => self.upload_parts(step, host, device, &arrays),
            false => self.download_parts(step, host, device, &arrays),
        }
    }

    /// Parts that overlap in the destination: nothing is enqueued, and nothing changes.
    fn refused_parts(&mut self, step: &Step, host: usize, device: usize, arrays: &Arrays) {
        let lane = self.lane_of(step.stream, self.on_device[device].device);
        let mut pageable = step.pageable.map(|byte| vec![byte; self.hosts[host].model.len()]);
        let stream = &self.lanes[lane].stream;
        let buffer = &mut self.hosts[host].buffer;
        let gpu = &mut self.on_device[device].buffer;
        let refused = match (step.up, &mut pageable) {
            (true, Some(slice)) => stream.upload_parts(&*slice, gpu, arrays.parts()),
            (true, None) => stream.upload_parts(buffer.as_slice(), gpu, arrays.parts()),
            (false, Some(slice)) => stream.download_parts(&*gpu, slice, arrays.parts()),
            (false, None) => {
                let len = buffer.len();
                let view = buffer.slice_mut(0..len).expect("the whole");
                stream.download_parts(&*gpu, view, arrays.parts())
            }
        };
        let error = refused.expect_err("the parts overlap");
        if error.kind() != ErrorKind::InvalidValue {
            self.accept(Err::<(), _>(error), self.behind.own(self.on_device[device].device));
        }
    }

    /// The lane of the copy, and what it is behind. Pageable memory is no buffer: it has no uses.
    fn enqueue_parts(
        &mut self,
        step: &Step,
        device: usize,
        [of_device, of_host]: [Set; 2],
    ) -> (usize, Set) {
        let lane = self.lane_of(step.stream, self.on_device[device].device);
        if step.pageable.is_none() {
            return (lane, self.enqueue(lane, of_device | of_host));
        }
        let behind = self.enqueue(lane, of_device);
        self.may_wait_for(behind);
        (lane, behind)
    }

    fn upload_parts(&mut self, step: &Step, host: usize, device: usize, arrays: &Arrays) {
        let conflicts =
            [self.on_device[device].uses.for_writing(), self.hosts[host].uses.for_reading()];
        let (lane, behind) = self.enqueue_parts(step, device, conflicts);
        let Host { buffer, model: on_host, uses } = &mut self.hosts[host];
        let OnDevice { buffer: gpu, model, uses: of_device, .. } = &mut self.on_device[device];
        let stream = &self.lanes[lane].stream;
        let (done, source) = match step.pageable {
            Some(byte) => {
                let mut source = vec![0; on_host.len()];
                paint(&mut source, byte);
                let done = stream.upload_parts(&source, gpu, arrays.parts());
                source.fill(!byte);
                (done, painted(on_host.len(), byte))
            }
            None => {
                uses.read_by(behind);
                (stream.upload_parts(buffer.as_slice(), gpu, arrays.parts()), on_host.clone())
            }
        };
        of_device.write_by(behind);
        arrays.move_model(done.is_ok(), &source, model);
        self.note_ticket(done, behind);
    }

    fn download_parts(&mut self, step: &Step, host: usize, device: usize, arrays: &Arrays) {
        let conflicts =
            [self.on_device[device].uses.for_reading(), self.hosts[host].uses.for_writing()];
        let (lane, behind) = self.enqueue_parts(step, device, conflicts);
        let Host { buffer, model: on_host, uses } = &mut self.hosts[host];
        let OnDevice { buffer: gpu, model, uses: of_device, .. } = &mut self.on_device[device];
        let stream = &self.lanes[lane].stream;
        of_device.read_by(behind);
        if let Some(byte) = step.pageable {
            let mut target = vec![byte; on_host.len()];
            let mut expected = vec![Some(byte); on_host.len()];
            arrays.move_model(true, model, &mut expected);
            let done = stream.download_parts(&*gpu, &mut target, arrays.parts());
            if self.accept(done, behind).is_some() {
                assert_agrees(&target, &expected, "parts");
            }
            return;
        }
        let view = buffer.slice_mut(0..on_host.len()).expect("the whole");
        let done = stream.download_parts(&*gpu, view, arrays.parts());
        uses.write_by(behind);
        arrays.move_model(done.is_ok(), model, on_host);
        self.note_ticket(done, behind);
    }
}
