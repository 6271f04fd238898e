//! The operations on slices of pageable memory and of the pool's, alone and in batches.

use pinlane::batch::{Download, Upload};

use pinlane::PinnedBuf;

use super::behind::Set;
use super::model::painted;
use super::{Machine, Part, assert_agrees, last_resort, paint, paint_model, pick};

/// The memory of a slice.
enum Slice {
    Pageable(Vec<u8>),
    Pooled(PinnedBuf<u8>),
}

impl Slice {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Slice::Pageable(bytes) => bytes,
            Slice::Pooled(buffer) => buffer.write().expect("it is unused"),
        }
    }
}

impl Machine {
    /// Enqueues work that goes through slots. The call may wait until the stream has reached the
    /// copy.
    fn enqueue_staged(&mut self, lane: usize, conflicts: Set) -> Set {
        let behind = self.enqueue(lane, conflicts);
        self.may_wait_for(behind);
        behind
    }

    /// Memory for a slice. The program may have to wait for memory of a pool.
    fn memory(&mut self, len: usize, pooled: bool) -> Option<Slice> {
        if !pooled {
            return Some(Slice::Pageable(vec![0; len]));
        }
        self.may_wait_for(self.pool_uses);
        let buffer = self.pool.alloc::<u8>(len);
        self.accept(buffer, self.behind.own(0)).map(Slice::Pooled)
    }

    pub(super) fn upload_slice(
        &mut self,
        stream: usize,
        device: usize,
        part: Part,
        byte: u8,
        pooled: bool,
    ) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let range = part.of(self.on_device[index].model.len());
        let Some(mut memory) = self.memory(range.len(), pooled) else { return };
        let lane = self.lane_of(stream, self.on_device[index].device);
        let behind = self.enqueue_staged(lane, self.on_device[index].uses.for_writing());
        let device = &mut self.on_device[index];
        let source = memory.bytes();
        paint(source, byte);
        let view = device.buffer.slice_mut(range.clone()).expect("in range");
        last_resort::allow(pooled && self.trouble.has_begun());
        let uploaded = self.lanes[lane].stream.upload_slice(source, view);
        last_resort::allow(false);
        // The source may be reused as soon as the call has returned.
        source.fill(!byte);
        device.uses.write_by(behind);
        if uploaded.is_ok() {
            paint_model(&mut device.model[range], byte);
        } else {
            device.model[range].fill(None);
        }
        self.note_ticket(uploaded, behind);
    }

    pub(super) fn download_slice(
        &mut self,
        stream: usize,
        device: usize,
        part: Part,
        pooled: bool,
    ) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let range = part.of(self.on_device[index].model.len());
        let Some(mut memory) = self.memory(range.len(), pooled) else { return };
        let lane = self.lane_of(stream, self.on_device[index].device);
        let behind = self.enqueue_staged(lane, self.on_device[index].uses.for_reading());
        let device = &mut self.on_device[index];
        device.uses.read_by(behind);
        let target = memory.bytes();
        target.fill(0xee);
        let view = device.buffer.slice(range.clone()).expect("in range");
        last_resort::allow(pooled && self.trouble.has_begun());
        let downloaded = self.lanes[lane].stream.download_slice(view, target);
        last_resort::allow(false);
        if self.accept(downloaded, behind).is_some() {
            assert_agrees(target, &self.on_device[index].model[range], "a slice");
        }
    }

    /// Uploads a whole device buffer in pieces, one of them from a host buffer if that is long
    /// enough.
    pub(super) fn upload_batch(
        &mut self,
        stream: usize,
        device: usize,
        pieces: usize,
        host: usize,
        byte: u8,
    ) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let host = pick(host, &self.hosts);
        let lane = self.lane_of(stream, self.on_device[index].device);
        let read = host.map_or(Set::default(), |host| self.hosts[host].uses.for_reading());
        let behind = self.enqueue_staged(lane, read | self.on_device[index].uses.for_writing());
        let device = &mut self.on_device[index];
        device.uses.write_by(behind);
        let mut source = vec![0; device.model.len()];
        paint(&mut source, byte);
        let mut model = painted(source.len(), byte);
        let mut pinned = host.map(|host| &mut self.hosts[host]);
        if let Some(host) = &mut pinned {
            host.uses.read_by(behind);
        }
        let piece = source.len().div_ceil(pieces).max(1);
        let mut items = Vec::new();
        let mut rest = device.buffer.as_slice_mut();
        for (number, from) in source.chunks(piece).enumerate() {
            let (to, behind) = rest.split_at_mut(from.len()).expect("in range");
            rest = behind;
            let locked = pinned.as_deref();
            let locked = locked.filter(|host| number == 1 && host.model.len() >= from.len());
            items.push(match locked {
                Some(host) => {
                    let at = number * piece;
                    model[at..at + from.len()].copy_from_slice(&host.model[..from.len()]);
                    let from = host.buffer.slice(..from.len()).expect("in range");
                    Upload::new(from, to)
                }
                None => Upload::new(from, to),
            });
        }
        let uploaded = self.lanes[lane].stream.upload_batch(&mut items);
        drop(items);
        source.fill(!byte);
        if uploaded.is_ok() {
            device.model = model;
        } else {
            device.model.fill(None);
        }
        self.note_ticket(uploaded, behind);
    }

    pub(super) fn download_batch(&mut self, stream: usize, device: usize, pieces: usize) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let lane = self.lane_of(stream, self.on_device[index].device);
        let behind = self.enqueue_staged(lane, self.on_device[index].uses.for_reading());
        let device = &mut self.on_device[index];
        device.uses.read_by(behind);
        let mut target = vec![0xee; device.model.len()];
        let piece = target.len().div_ceil(pieces).max(1);
        let items = target.chunks_mut(piece).enumerate().map(|(number, to)| {
            let at = number * piece;
            let from = device.buffer.slice(at..at + to.len()).expect("in range");
            Download::new(from, to)
        });
        let mut items: Vec<_> = items.collect();
        let downloaded = self.lanes[lane].stream.download_batch(&mut items);
        drop(items);
        if self.accept(downloaded, behind).is_some() {
            assert_agrees(&target, &self.on_device[index].model, "a batch");
        }
    }
}
