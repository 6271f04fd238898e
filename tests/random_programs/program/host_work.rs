//! The host's operations on buffers: it makes, reads, writes and drops them.

use std::thread;

use pinlane::ErrorKind;

use super::behind::{Set, Uses};
use super::{
    Host, Machine, Memory, OnDevice, Part, agrees, assert_agrees, paint, paint_model, pick,
};

impl Machine {
    pub(super) fn alloc_host(&mut self, len: usize, byte: u8) {
        self.may_wait_for(self.pool_uses);
        let buffer = self.pool.alloc::<u8>(len);
        let Some(mut buffer) = self.accept(buffer, self.behind.own(0)) else { return };
        let mut model = vec![None; len];
        // The first write to a recycled block. If the block was recycled too early, this corrupts a
        // copy.
        if let Some(bytes) = self.accept(buffer.write(), Set::default()) {
            paint(bytes, byte);
            paint_model(&mut model, byte);
        }
        let buffer = Memory::Pool(buffer);
        self.hosts.push(Host { buffer, model, uses: Uses::default() });
    }

    pub(super) fn alloc_device(&mut self, device: usize, len: usize, byte: u8, stream: usize) {
        let device = device % self.devices.len();
        let own = self.behind.own(device);
        let buffer = self.devices[device].alloc::<u8>(len);
        let Some(mut buffer) = self.accept(buffer, own) else { return };
        let lane = self.lane_of(stream, device);
        let behind = self.enqueue(lane, own);
        let filled = self.lanes[lane].stream.fill(&mut buffer, byte);
        let filled = self.accept(filled, behind).is_some();
        let model = vec![filled.then_some(byte); len];
        let uses = Uses::written_by(behind);
        self.on_device.push(OnDevice { device, buffer, model, uses });
    }

    pub(super) fn write(&mut self, host: usize, part: Part, byte: u8) {
        let Some(index) = pick(host, &self.hosts) else { return };
        let behind = self.hosts[index].uses.for_writing();
        self.may_wait_for(behind);
        let host = &mut self.hosts[index];
        let range = part.of(host.model.len());
        let written = host.buffer.slice_mut(range.clone()).expect("in range").into_write();
        let written = written.map(|bytes| paint(bytes, byte));
        if self.accept(written, behind).is_some() {
            let host = &mut self.hosts[index];
            paint_model(&mut host.model[range.clone()], byte);
            if range.len() == host.model.len() {
                host.uses.settled_to_write();
            }
        }
    }

    pub(super) fn try_read(&mut self, host: usize) {
        let Some(index) = pick(host, &self.hosts) else { return };
        let host = &self.hosts[index];
        match host.buffer.try_read() {
            Err(error) if error.kind() == ErrorKind::NotReady => {}
            result => {
                if let Some(bytes) = self.accept(result, host.uses.for_reading()) {
                    assert_agrees(bytes, &host.model, "try_read");
                }
            }
        }
    }

    pub(super) fn read_on_thread(&mut self, host: usize) {
        if self.releases.refused_here {
            return;
        }
        let Some(index) = pick(host, &self.hosts) else { return };
        let behind = self.hosts[index].uses.for_reading();
        self.may_wait_for(behind);
        let host = self.hosts.swap_remove(index);
        let (host, agrees) = thread::spawn(move || {
            let agrees = host.buffer.read().map(|bytes| agrees(bytes, &host.model));
            (host, agrees)
        })
        .join()
        .expect("the thread does not panic");
        let agrees = self.accept(agrees, behind).unwrap_or(true);
        assert!(agrees, "a buffer read on another thread differs from the model");
        self.hosts.push(host);
    }

    pub(super) fn drop_host(&mut self, host: usize) {
        let Some(index) = pick(host, &self.hosts) else { return };
        let uses = self.hosts[index].uses.for_writing();
        match &self.hosts[index].buffer {
            Memory::Pool(_) => self.pool_uses |= uses,
            Memory::Registered(_) | Memory::Tensor(_) => self.may_wait_for(uses),
        }
        self.hosts.swap_remove(index);
    }
}
