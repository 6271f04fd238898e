//! Rows by their numbers, and pairs that are copied several times.

use pinlane::batch::Pairs;

use super::model::{move_model, painted};
use super::{Host, Machine, OnDevice, assert_agrees, paint, pick};

/// The number of rows of a table that is long enough.
const ROWS: usize = 8;

/// The rows that can be copied between a table of `table` bytes and `other` bytes: their length,
/// and their numbers.
fn rows_of(table: usize, other: usize, numbers: &[u8]) -> (usize, Vec<u32>) {
    let row = (table / ROWS).max(1);
    let count = (table / row).max(1);
    let numbers = numbers.iter().map(|&number| u32::from(number) % count as u32);
    (row, numbers.take(if table == 0 { 0 } else { other / row }).collect())
}

/// Each number once, in the original order.
fn distinct(numbers: Vec<u32>) -> Vec<u32> {
    let is_first = |&n: &usize| !numbers[..n].contains(&numbers[n]);
    (0..numbers.len()).filter(is_first).map(|n| numbers[n]).collect()
}

impl Machine {
    /// Rows of a host buffer, or of pageable memory painted with `byte`, to a device buffer.
    pub(super) fn upload_rows(
        &mut self,
        stream: usize,
        host: usize,
        device: usize,
        numbers: &[u8],
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
        let Host { buffer, model: table, uses } = &mut self.hosts[host];
        let OnDevice { buffer: gpu, model, uses: of_device, .. } = &mut self.on_device[device];
        let (row, numbers) = rows_of(table.len(), model.len(), numbers);
        let rows = gpu.slice_mut(..numbers.len() * row).expect("in range");
        let whole = 0..table.len() / row * row;
        let stream = &self.lanes[lane].stream;
        let (done, source) = match pageable {
            Some(byte) => {
                let mut source = vec![0; table.len()];
                paint(&mut source, byte);
                let done = stream.upload_rows(&source[whole], &numbers, rows);
                source.fill(!byte);
                (done, painted(table.len(), byte))
            }
            None => {
                uses.read_by(behind);
                let view = buffer.slice(whole).expect("in range");
                (stream.upload_rows(view, &numbers, rows), table.clone())
            }
        };
        of_device.write_by(behind);
        for (n, &number) in numbers.iter().enumerate() {
            let from = &source[number as usize * row..][..row];
            move_model(done.is_ok(), from, &mut model[n * row..][..row]);
        }
        self.note_ticket(done, behind);
    }

    /// Rows of a device buffer to a host buffer, or to pageable memory.
    pub(super) fn download_rows(
        &mut self,
        stream: usize,
        device: usize,
        host: usize,
        numbers: &[u8],
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
        let Host { buffer, model: table, uses } = &mut self.hosts[host];
        let OnDevice { buffer: gpu, model, uses: of_device, .. } = &mut self.on_device[device];
        let (row, numbers) = rows_of(table.len(), model.len(), numbers);
        let numbers = distinct(numbers);
        let rows = gpu.slice(..numbers.len() * row).expect("in range");
        let whole = 0..table.len() / row * row;
        let stream = &self.lanes[lane].stream;
        of_device.read_by(behind);
        let places = numbers.iter().map(|&number| number as usize * row).enumerate();
        if pageable {
            let mut target = vec![0xee; table.len()];
            let mut expected = vec![Some(0xee); table.len()];
            places.for_each(|(n, at)| {
                expected[at..at + row].copy_from_slice(&model[n * row..][..row]);
            });
            let done = stream.download_rows(rows, &numbers, &mut target[whole]);
            if self.accept(done, behind).is_some() {
                assert_agrees(&target, &expected, "rows");
            }
            return;
        }
        let view = buffer.slice_mut(whole).expect("in range");
        let done = stream.download_rows(rows, &numbers, view);
        uses.write_by(behind);
        places.for_each(|(n, at)| {
            move_model(done.is_ok(), &model[n * row..][..row], &mut table[at..at + row]);
        });
        self.note_ticket(done, behind);
    }

    /// Copies a host buffer and a device buffer in pieces: up, changed on the device, down, and the
    /// same again on another stream.
    pub(super) fn swap_pairs(
        &mut self,
        stream: usize,
        host: usize,
        device: usize,
        pieces: usize,
        byte: u8,
    ) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(device) = pick(device, &self.on_device) else { return };
        let lanes = [0, 1].map(|n| self.lane_of(stream + n, self.on_device[device].device));
        let Host { buffer, model: on_host, uses } = &mut self.hosts[host];
        let OnDevice { buffer: gpu, model, uses: of_device, .. } = &mut self.on_device[device];
        let piece = (on_host.len().min(model.len()) / pieces).max(1);
        let whole = on_host.len().min(model.len()) / piece * piece;
        let mut pairs = Pairs::new();
        let mut views = (
            buffer.slice_mut(0..whole).expect("in range"),
            gpu.slice_mut(..whole).expect("in range"),
        );
        for _ in 0..whole / piece {
            let (host, on_host) = views.0.split_at_mut(piece).expect("in range");
            let (device, on_device) = views.1.split_at_mut(piece).expect("in range");
            views = (on_host, on_device);
            pairs.push(host, device);
        }
        let mut done = Vec::new();
        for (round, lane) in lanes.into_iter().enumerate() {
            let stream = &self.lanes[lane].stream;
            let number = self.lanes[lane].number;
            let behind = self.behind.enqueue(number, uses.for_reading() | of_device.for_writing());
            let up = stream.upload_pairs(&mut pairs);
            move_model(up.is_ok(), &on_host[..whole], &mut model[..whole]);
            uses.read_by(behind);
            of_device.write_by(behind);
            done.push((up, behind));

            if !pairs.is_empty() {
                let behind = self.behind.enqueue(number, of_device.for_writing());
                let byte = byte.wrapping_add(round as u8);
                let filled = stream.fill(pairs.device_mut(0), byte);
                model[..piece].fill(filled.is_ok().then_some(byte));
                of_device.write_by(behind);
                done.push((filled, behind));
            }

            let behind = self.behind.enqueue(number, of_device.for_reading() | uses.for_writing());
            let down = stream.download_pairs(&mut pairs);
            move_model(down.is_ok(), &model[..whole], &mut on_host[..whole]);
            uses.write_by(behind);
            of_device.read_by(behind);
            done.push((down, behind));
        }
        drop(pairs);
        for (result, behind) in done {
            self.note_ticket(result, behind);
        }
    }
}
