//! Copies between tracked buffers, fills and checksums.

use super::behind::Set;
use super::model::{fit, move_model};
use super::{Machine, Part, pick};

impl Machine {
    pub(super) fn upload(
        &mut self,
        stream: usize,
        host: usize,
        from: Part,
        device: usize,
        to: usize,
    ) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(device) = pick(device, &self.on_device) else { return };
        let lane = self.lane_of(stream, self.on_device[device].device);
        let conflicts =
            self.hosts[host].uses.for_reading() | self.on_device[device].uses.for_writing();
        let behind = self.enqueue(lane, conflicts);
        let (host, device) = (&mut self.hosts[host], &mut self.on_device[device]);
        let (from, to) = fit(from.of(host.model.len()), to, device.model.len());
        let uploaded = self.lanes[lane].stream.upload(
            host.buffer.slice(from.clone()).expect("in range"),
            device.buffer.slice_mut(to.clone()).expect("in range"),
        );
        move_model(uploaded.is_ok(), &host.model[from], &mut device.model[to]);
        host.uses.read_by(behind);
        device.uses.write_by(behind);
        self.note_ticket(uploaded, behind);
    }

    pub(super) fn download(
        &mut self,
        stream: usize,
        device: usize,
        from: Part,
        host: usize,
        to: usize,
    ) {
        let Some(host) = pick(host, &self.hosts) else { return };
        let Some(device) = pick(device, &self.on_device) else { return };
        let lane = self.lane_of(stream, self.on_device[device].device);
        let conflicts =
            self.hosts[host].uses.for_writing() | self.on_device[device].uses.for_reading();
        let behind = self.enqueue(lane, conflicts);
        let (host, device) = (&mut self.hosts[host], &mut self.on_device[device]);
        let (from, to) = fit(from.of(device.model.len()), to, host.model.len());
        let downloaded = self.lanes[lane].stream.download(
            device.buffer.slice(from.clone()).expect("in range"),
            host.buffer.slice_mut(to.clone()).expect("in range"),
        );
        move_model(downloaded.is_ok(), &device.model[from], &mut host.model[to]);
        host.uses.write_by(behind);
        device.uses.read_by(behind);
        self.note_ticket(downloaded, behind);
    }

    pub(super) fn copy(&mut self, stream: usize, src: usize, from: Part, dst: usize, to: usize) {
        let Some(src) = pick(src, &self.on_device) else { return };
        let Some(dst) = pick(dst, &self.on_device) else { return };
        if src == dst {
            return;
        }
        let (home, other) = if stream.is_multiple_of(2) { (src, dst) } else { (dst, src) };
        let (home, other) = (self.on_device[home].device, self.on_device[other].device);
        let lane = self.lane_of(stream, home);
        let conflicts =
            self.on_device[src].uses.for_reading() | self.on_device[dst].uses.for_writing();
        let behind = self.behind.enqueue_across(self.lanes[lane].number, other, conflicts);
        let [src, dst] =
            self.on_device.get_disjoint_mut([src, dst]).expect("two different buffers");
        let (from, to) = fit(from.of(src.model.len()), to, dst.model.len());
        let copied = self.lanes[lane].stream.copy(
            src.buffer.slice(from.clone()).expect("in range"),
            dst.buffer.slice_mut(to.clone()).expect("in range"),
        );
        move_model(copied.is_ok(), &src.model[from], &mut dst.model[to]);
        src.uses.read_by(behind);
        dst.uses.write_by(behind);
        self.note_ticket(copied, behind);
    }

    pub(super) fn fill(&mut self, stream: usize, device: usize, part: Part, pattern: &[u8]) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let lane = self.lane_of(stream, self.on_device[index].device);
        let behind = self.enqueue(lane, self.on_device[index].uses.for_writing());
        let stream = &self.lanes[lane].stream;
        let device = &mut self.on_device[index];
        let range = part.of(device.model.len());
        device.uses.write_by(behind);
        // Patterns with the lengths of element types.
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
        self.note_ticket(filled, behind);
    }

    pub(super) fn checksum(&mut self, stream: usize, device: usize, part: Part) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let lane = self.lane_of(stream, self.on_device[index].device);
        let behind = self.enqueue(lane, self.on_device[index].uses.for_reading());
        self.may_wait_for(behind | self.pool_uses);
        let stream = &self.lanes[lane].stream;
        let on_device = &mut self.on_device[index];
        on_device.uses.read_by(behind);
        let range = part.of(on_device.model.len());
        let known: Option<Vec<u8>> = on_device.model[range.clone()].iter().copied().collect();
        let (device, pool) = (&self.devices[on_device.device], &self.pool);
        let sum = || {
            let mut out = device.alloc::<u64>(1)?;
            let mut host = pool.alloc::<u64>(1)?;
            stream.checksum(on_device.buffer.slice(range)?, &mut out)?;
            stream.download(&out, &mut host)?;
            Ok(host.read()?[0])
        };
        let sum = sum();
        let sum = self.accept(sum, behind | self.behind.own(0));
        self.pool_uses |= behind;
        if let (Some(sum), Some(known)) = (sum, known) {
            assert_eq!(sum, pinlane::checksum(&known), "a checksum of device memory");
        }
    }

    /// Before a call that may block for `behind`: releases a stalled stream that the call would
    /// wait for.
    pub(super) fn may_wait_for(&mut self, behind: Set) {
        if self.trouble.is_stalled(behind) {
            self.release();
        }
    }
}
