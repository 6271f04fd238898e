//! Rows that lie a pitch apart.

use pinlane::{Strided, Strides};

use super::model::{Model, move_model, painted};
use super::{Host, Machine, OnDevice, assert_agrees, paint, pick};

/// How rows lie in two buffers: columns of both of them, seen as matrices, or columns of every
/// second row.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub rows: usize,
    /// The length of a row, in 1/255 of the shorter pitch.
    pub fill: u8,
    /// Where a row begins, in 1/255 of what it leaves of the pitch.
    pub at: u8,
    /// Of each pair of rows, the one that is used; all rows if there is none.
    pub of_two: Option<usize>,
}

/// The rows of one of the buffers, and where they begin.
#[derive(Clone, Copy)]
struct Side {
    at: usize,
    strides: Strides,
}

impl Shape {
    /// The rows in buffers of these lengths.
    fn of(self, lengths: [usize; 2]) -> [Side; 2] {
        let (skipped, every) = self.of_two.map_or((0, 1), |one| (one, 2));
        let pitches = lengths.map(|length| length / (self.rows * every));
        let row = pitches[0].min(pitches[1]) * usize::from(self.fill) / 255;
        pitches.map(|pitch| Side {
            at: skipped * pitch + (pitch - row) * usize::from(self.at) / 255,
            strides: Strides::new(row, self.rows, every * pitch),
        })
    }
}

/// The destination after a copy of rows.
fn move_rows(ok: bool, [src, dst]: [Side; 2], from: &Model, to: &mut Model) {
    for row in 0..src.strides.rows {
        let [from_at, to_at] = [src, dst].map(|side| side.at + row * side.strides.pitch);
        let from = &from[from_at..][..src.strides.row];
        move_model(ok, from, &mut to[to_at..][..dst.strides.row]);
    }
}

impl Machine {
    /// Rows of a host buffer, or of pageable memory painted with `byte`, to a device buffer.
    pub(super) fn upload_strided(
        &mut self,
        stream: usize,
        host: usize,
        device: usize,
        shape: Shape,
        pageable: Option<u8>,
    ) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(device) = pick(device, &self.on_device) else { return };
        let lane = self.lane_of(stream, self.on_device[device].device);
        let mut conflicts = self.on_device[device].uses.for_writing();
        if pageable.is_none() {
            conflicts |= self.hosts[host].uses.for_reading();
        }
        let behind = self.enqueue(lane, conflicts);
        if pageable.is_some() {
            self.may_wait_for(behind);
        }
        let Host { buffer, model: on_host, uses } = &mut self.hosts[host];
        let OnDevice { buffer: gpu, model, uses: of_device, .. } = &mut self.on_device[device];
        let sides = shape.of([on_host.len(), model.len()]);
        let [from, to] = sides;
        let target = gpu.slice_mut(to.at..).expect("in range");
        let target = Strided::new(target, to.strides).expect("in range");
        let stream = &self.lanes[lane].stream;
        let (done, source) = match pageable {
            Some(byte) => {
                let mut source = vec![0; on_host.len()];
                paint(&mut source, byte);
                let rows = Strided::new(&source[from.at..], from.strides).expect("in range");
                let done = stream.upload_strided(rows, target);
                source.fill(!byte);
                (done, painted(on_host.len(), byte))
            }
            None => {
                uses.read_by(behind);
                let rows = buffer.slice(from.at..).expect("in range");
                let rows = Strided::new(rows, from.strides).expect("in range");
                (stream.upload_strided(rows, target), on_host.clone())
            }
        };
        of_device.write_by(behind);
        move_rows(done.is_ok(), sides, &source, model);
        self.note_ticket(done, behind);
    }

    /// Rows of a device buffer to a host buffer, or to pageable memory.
    pub(super) fn download_strided(
        &mut self,
        stream: usize,
        device: usize,
        host: usize,
        shape: Shape,
        pageable: bool,
    ) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(device) = pick(device, &self.on_device) else { return };
        let lane = self.lane_of(stream, self.on_device[device].device);
        let mut conflicts = self.on_device[device].uses.for_reading();
        if !pageable {
            conflicts |= self.hosts[host].uses.for_writing();
        }
        let behind = self.enqueue(lane, conflicts);
        if pageable {
            self.may_wait_for(behind);
        }
        let Host { buffer, model: on_host, uses } = &mut self.hosts[host];
        let OnDevice { buffer: gpu, model, uses: of_device, .. } = &mut self.on_device[device];
        let sides = shape.of([model.len(), on_host.len()]);
        let [from, to] = sides;
        let rows = gpu.slice(from.at..).expect("in range");
        let rows = Strided::new(rows, from.strides).expect("in range");
        let stream = &self.lanes[lane].stream;
        of_device.read_by(behind);
        if pageable {
            let mut target = vec![0xee; on_host.len()];
            let mut expected = vec![Some(0xee); on_host.len()];
            move_rows(true, sides, model, &mut expected);
            let places = Strided::new(&mut target[to.at..], to.strides).expect("in range");
            let done = stream.download_strided(rows, places);
            if self.accept(done, behind).is_some() {
                assert_agrees(&target, &expected, "rows");
            }
            return;
        }
        let view = buffer.slice_mut(to.at..on_host.len()).expect("in range");
        let places = Strided::new(view, to.strides).expect("in range");
        let done = stream.download_strided(rows, places);
        uses.write_by(behind);
        move_rows(done.is_ok(), sides, model, on_host);
        self.note_ticket(done, behind);
    }

    /// Rows of a device buffer to another one, of the same device or of another.
    pub(super) fn copy_strided(&mut self, stream: usize, src: usize, dst: usize, shape: Shape) {
        let Some(src) = pick(src, &self.on_device) else { return };
        let Some(dst) = pick(dst, &self.on_device) else { return };
        if src == dst {
            return;
        }
        let (home, other) = (self.on_device[src].device, self.on_device[dst].device);
        let lane = self.lane_of(stream, home);
        let conflicts =
            self.on_device[src].uses.for_reading() | self.on_device[dst].uses.for_writing();
        let behind = self.behind.enqueue_across(self.lanes[lane].number, other, conflicts);
        let [src, dst] =
            self.on_device.get_disjoint_mut([src, dst]).expect("two different buffers");
        let sides = shape.of([src.model.len(), dst.model.len()]);
        let [from, to] = sides;
        let rows = src.buffer.slice(from.at..).expect("in range");
        let places = dst.buffer.slice_mut(to.at..).expect("in range");
        let copied = self.lanes[lane].stream.copy_strided(
            Strided::new(rows, from.strides).expect("in range"),
            Strided::new(places, to.strides).expect("in range"),
        );
        move_rows(copied.is_ok(), sides, &src.model, &mut dst.model);
        src.uses.read_by(behind);
        dst.uses.write_by(behind);
        self.note_ticket(copied, behind);
    }
}
