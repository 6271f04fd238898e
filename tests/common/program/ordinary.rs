//! The operations on ordinary memory, alone and in batches.

use pinlane::{DownloadItem, UploadItem};

use super::{Machine, Part, assert_agrees, paint, paint_model, pick};

impl Machine {
    pub(super) fn upload_slice(&mut self, stream: usize, device: usize, part: Part, byte: u8) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let stream = self.stream_of(stream, self.on_device[index].device).clone();
        let device = &mut self.on_device[index];
        let range = part.of(device.model.len());
        let mut source = vec![0; range.len()];
        paint(&mut source, byte);
        let view = device.buffer.slice_mut(range.clone()).expect("in range");
        let uploaded = stream.upload_slice(&source, view);
        // The source may be reused as soon as the call has returned.
        source.fill(!byte);
        if uploaded.is_ok() {
            paint_model(&mut device.model[range], byte);
        } else {
            device.model[range].fill(None);
        }
        self.tickets.extend(self.accept(uploaded));
    }

    pub(super) fn download_slice(&mut self, stream: usize, device: usize, part: Part) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let device = &self.on_device[index];
        let range = part.of(device.model.len());
        let mut target = vec![0xee; range.len()];
        let view = device.buffer.slice(range.clone()).expect("in range");
        let downloaded = self.stream_of(stream, device.device).download_slice(view, &mut target);
        if self.accept(downloaded).is_some() {
            assert_agrees(&target, &device.model[range], "a slice");
        }
    }

    /// A whole device buffer in pieces, one of them from a host buffer, if that is as long.
    pub(super) fn upload_batch(
        &mut self,
        stream: usize,
        device: usize,
        pieces: usize,
        host: usize,
        byte: u8,
    ) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let stream = self.stream_of(stream, self.on_device[index].device).clone();
        let device = &mut self.on_device[index];
        let mut source = vec![0; device.model.len()];
        paint(&mut source, byte);
        let mut model = vec![None; source.len()];
        paint_model(&mut model, byte);
        let pinned = pick(host, &self.hosts).map(|host| &self.hosts[host]);
        let piece = source.len().div_ceil(pieces).max(1);
        let mut items = Vec::new();
        let mut rest = device.buffer.as_slice_mut();
        for (number, from) in source.chunks(piece).enumerate() {
            let (to, behind) = rest.split_at_mut(from.len()).expect("in range");
            rest = behind;
            let locked = pinned.filter(|host| number == 1 && host.model.len() >= from.len());
            items.push(match locked {
                Some(host) => {
                    let at = number * piece;
                    model[at..at + from.len()].copy_from_slice(&host.model[..from.len()]);
                    let from = host.buffer.slice(..from.len()).expect("in range");
                    UploadItem::new(from, to).expect("as long")
                }
                None => UploadItem::new(from, to).expect("as long"),
            });
        }
        let uploaded = stream.upload_batch(&mut items);
        drop(items);
        source.fill(!byte);
        if uploaded.is_ok() {
            device.model = model;
        } else {
            device.model.fill(None);
        }
        self.tickets.extend(self.accept(uploaded));
    }

    pub(super) fn download_batch(&mut self, stream: usize, device: usize, pieces: usize) {
        let Some(index) = pick(device, &self.on_device) else { return };
        let device = &self.on_device[index];
        let mut target = vec![0xee; device.model.len()];
        let piece = target.len().div_ceil(pieces).max(1);
        let items = target.chunks_mut(piece).enumerate().map(|(number, to)| {
            let at = number * piece;
            let from = device.buffer.slice(at..at + to.len()).expect("in range");
            DownloadItem::new(from, to).expect("as long")
        });
        let mut items: Vec<_> = items.collect();
        let stream = self.stream_of(stream, device.device);
        let downloaded = stream.download_batch(&mut items);
        drop(items);
        if self.accept(downloaded).is_some() {
            assert_agrees(&target, &device.model, "a batch");
        }
    }
}
