//! The memory of the batches: blocks of one size, the same number of them in pageable memory, in
//! page-locked memory and on the device.

use pinlane::batch::{Downloads, Parts, Route, Uploads};
use pinlane::{DeviceBuf, ErrorKind, PinnedBuf, Result, Stream};

use super::Bench;
use super::common::cuda::Way;
use super::common::timing::seconds;

/// The kind of host memory, and the direction.
#[derive(Clone, Copy)]
pub enum Kind {
    Pageable(Way),
    Pinned(Way),
}

impl Kind {
    pub fn way(self) -> Way {
        let (Kind::Pageable(way) | Kind::Pinned(way)) = self;
        way
    }
}

/// The placement of the device blocks and the page-locked blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Each block is a separate buffer.
    Apart,
    /// The blocks are views of one buffer, with gaps between them, so that no two of them can be
    /// copied as one.
    Gaps,
    /// The same, without gaps on the device.
    Adjacent,
}

const GAP: usize = 64;

pub struct Blocks {
    stream: Stream,
    bytes: usize,
    stride: usize,
    on_device: usize,
    pub host: Vec<Vec<u8>>,
    /// All blocks in one range of pageable memory, unless each is a separate buffer.
    one: Vec<u8>,
    pinned: Vec<PinnedBuf<u8>>,
    gpu: Vec<DeviceBuf<u8>>,
}

impl Blocks {
    pub fn new(bench: &Bench, count: usize, bytes: usize, place: Place) -> Result<Self> {
        let pool = bench.pool()?;
        let wide = bytes.next_multiple_of(GAP) + GAP;
        let (stride, on_device, buffers) = match place {
            Place::Apart => (bytes, bytes, count),
            Place::Gaps => (wide, wide, 1),
            Place::Adjacent => (wide, bytes, 1),
        };
        let each = count / buffers;
        Ok(Blocks {
            stream: bench.device.stream()?,
            bytes,
            stride,
            on_device,
            host: vec![vec![1; bytes]; count],
            one: vec![1; if buffers == 1 { each * stride } else { 0 }],
            pinned: (0..buffers)
                .map(|_| pool.alloc_zeroed(each * stride))
                .collect::<Result<_>>()?,
            gpu: (0..buffers)
                .map(|_| bench.device_memory(each * on_device))
                .collect::<Result<_>>()?,
        })
    }

    /// The addresses of a block on the device and of its page-locked block.
    pub fn addresses(&self, block: usize) -> (u64, *const u8) {
        let each = self.host.len() / self.gpu.len();
        let (buffer, at) = (block / each, block % each);
        let gpu = self.gpu[buffer].as_device_ptr() + (at * self.on_device) as u64;
        (gpu, self.pinned[buffer].as_ptr().wrapping_add(at * self.stride))
    }

    /// Seconds for a batch of the first `count` blocks, from the call until the data has arrived,
    /// by `route` or by the rule's route. The list is made before. `None` if the route is not
    /// possible.
    pub fn batch(&mut self, kind: Kind, count: usize, route: Option<Route>) -> Result<Option<f64>> {
        let stream = self.stream.clone();
        let time = match kind.way() {
            Way::H2D => {
                let mut list = self.uploads(kind, count)?.route(route);
                seconds(|| stream.upload_list(&mut list)?.wait())
            }
            Way::D2H => {
                let mut list = self.downloads(kind, count)?.route(route);
                seconds(|| stream.download_list(&mut list)?.wait())
            }
        };
        match time {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            time => time.map(Some),
        }
    }

    /// As [`batch`](Self::batch) of all blocks, with the making of the list.
    pub fn listed(&mut self, kind: Kind) -> Result<f64> {
        let (stream, count) = (self.stream.clone(), self.host.len());
        seconds(|| match kind.way() {
            Way::H2D => stream.upload_list(&mut self.uploads(kind, count)?)?.wait(),
            Way::D2H => stream.download_list(&mut self.downloads(kind, count)?)?.wait(),
        })
    }

    /// As [`batch`](Self::batch) of all blocks, for a list that has been copied before.
    pub fn again(&mut self, kind: Kind) -> Result<f64> {
        let (stream, count) = (self.stream.clone(), self.host.len());
        match kind.way() {
            Way::H2D => {
                let mut list = self.uploads(kind, count)?;
                stream.upload_list(&mut list)?.wait()?;
                seconds(|| stream.upload_list(&mut list)?.wait())
            }
            Way::D2H => {
                let mut list = self.downloads(kind, count)?;
                stream.download_list(&mut list)?.wait()?;
                seconds(|| stream.download_list(&mut list)?.wait())
            }
        }
    }

    /// As [`batch`](Self::batch) of all blocks, which lie at the same places in one range of host
    /// memory, by arrays of offsets that are made anew.
    pub fn arrays(&mut self, kind: Kind) -> Result<f64> {
        let (stream, count, bytes) = (&self.stream, self.host.len(), self.bytes);
        let (pinned, gpu, one) = (&mut self.pinned[0], &mut self.gpu[0], &mut self.one);
        let offsets = |step: usize| (0..count).map(|n| n * step).collect::<Vec<_>>();
        seconds(|| {
            let (host, on_device) = (offsets(self.stride), offsets(self.on_device));
            let up = Parts::of_length(&host, &on_device, bytes);
            let down = Parts::of_length(&on_device, &host, bytes);
            let ticket = match kind {
                Kind::Pinned(Way::H2D) => stream.upload_parts(&*pinned, gpu, up)?,
                Kind::Pinned(Way::D2H) => stream.download_parts(&*gpu, pinned, down)?,
                Kind::Pageable(Way::H2D) => stream.upload_parts(&*one, gpu, up)?,
                Kind::Pageable(Way::D2H) => stream.download_parts(&*gpu, one, down)?,
            };
            ticket.wait()
        })
    }

    /// Whether each page-locked block is a whole buffer, which a program lists as it is.
    fn are_whole(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Pinned(_)) && self.pinned.len() > 1
    }

    fn uploads(&mut self, kind: Kind, count: usize) -> Result<Uploads<'_>> {
        if self.are_whole(kind) {
            return Ok(self.pinned.iter().zip(&mut self.gpu).take(count).collect());
        }
        let (bytes, stride, on_device) = (self.bytes, self.stride, self.on_device);
        let gpu =
            self.gpu.iter_mut().flat_map(|buffer| buffer.as_slice_mut().chunks_mut(on_device));
        let gpu = gpu.map(|block| -> Result<_> { Ok(block.split_at_mut(bytes)?.0) }).take(count);
        match kind {
            Kind::Pageable(_) => gpu.zip(&self.host).map(|(gpu, host)| Ok((host, gpu?))).collect(),
            Kind::Pinned(_) => {
                let host = self.pinned.iter().flat_map(|buffer| buffer.as_slice().chunks(stride));
                gpu.zip(host).map(|(gpu, host)| Ok((host.slice(..bytes)?, gpu?))).collect()
            }
        }
    }

    fn downloads(&mut self, kind: Kind, count: usize) -> Result<Downloads<'_>> {
        if self.are_whole(kind) {
            return Ok(self.gpu.iter().zip(&mut self.pinned).take(count).collect());
        }
        let (bytes, stride, on_device) = (self.bytes, self.stride, self.on_device);
        let gpu = self.gpu.iter().flat_map(|buffer| buffer.as_slice().chunks(on_device));
        let gpu = gpu.map(|block| block.slice(..bytes)).take(count);
        match kind {
            Kind::Pageable(_) => {
                gpu.zip(&mut self.host).map(|(gpu, host)| Ok((gpu?, host))).collect()
            }
            Kind::Pinned(_) => {
                let host = self
                    .pinned
                    .iter_mut()
                    .flat_map(|buffer| buffer.as_slice_mut().chunks_mut(stride));
                gpu.zip(host).map(|(gpu, host)| Ok((gpu?, host.split_at_mut(bytes)?.0))).collect()
            }
        }
    }
}
