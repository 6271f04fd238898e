//! The memory of the batches: blocks of one size, the same number of them in pageable memory, in
//! page-locked memory and on the device.

use pinlane::{DeviceBuf, DeviceSliceMut, PinnedBuf, Plan, Result, Stream, batch::{Download, Route, Upload}};

use super::Bench;
use super::common::cuda::Way;
use super::common::timing::seconds;

/// Which memory of the host, and which direction.
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

/// How the device blocks and the page-locked blocks lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Each block is a buffer of its own.
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

    /// Seconds for a batch of the first `count` blocks, from the call until the data is there. The
    /// way is `path`, or what the planner chooses. The list is made before.
    pub fn batch(&mut self, kind: Kind, count: usize, path: Option<Route>) -> Result<f64> {
        let stream = self.stream.clone();
        match kind.way() {
            Way::H2D => {
                let mut items = self.uploads(kind, count)?;
                seconds(|| match path {
                    None => stream.upload_batch(&mut items)?.wait(),
                    Some(path) => stream.upload_batch_by(path, &mut items)?.wait(),
                })
            }
            Way::D2H => {
                let mut items = self.downloads(kind, count)?;
                seconds(|| match path {
                    None => stream.download_batch(&mut items)?.wait(),
                    Some(path) => stream.download_batch_by(path, &mut items)?.wait(),
                })
            }
        }
    }

    /// What the planner would do.
    pub fn plan(&mut self, kind: Kind, count: usize) -> Result<Plan> {
        let stream = self.stream.clone();
        match kind.way() {
            Way::H2D => stream.plan_upload(&self.uploads(kind, count)?),
            Way::D2H => stream.plan_download(&self.downloads(kind, count)?),
        }
    }

    fn uploads(&mut self, kind: Kind, count: usize) -> Result<Vec<Upload<'_>>> {
        let mut gpu =
            device_blocks(&mut self.gpu, self.bytes, self.on_device)?.into_iter().take(count);
        let (bytes, stride) = (self.bytes, self.stride);
        match kind {
            Kind::Pageable(_) => {
                self.host.iter().zip(gpu).map(|(from, to)| Upload::new(&from[..], to)).collect()
            }
            Kind::Pinned(_) => {
                let mut items = Vec::with_capacity(count);
                for buffer in &self.pinned {
                    for at in (0..buffer.len()).step_by(stride) {
                        let Some(to) = gpu.next() else { break };
                        items.push(Upload::new(buffer.slice(at..at + bytes)?, to)?);
                    }
                }
                Ok(items)
            }
        }
    }

    fn downloads(&mut self, kind: Kind, count: usize) -> Result<Vec<Download<'_>>> {
        let (bytes, stride) = (self.bytes, self.on_device);
        let gpu = self.gpu.iter().flat_map(|buffer| {
            (0..buffer.len()).step_by(stride).map(move |at| buffer.slice(at..at + bytes))
        });
        let gpu = gpu.take(count);
        match kind {
            Kind::Pageable(_) => {
                let pairs = gpu.zip(&mut self.host);
                pairs.map(|(from, to)| Download::new(from?, &mut to[..])).collect()
            }
            Kind::Pinned(_) => {
                let mut pinned = Vec::with_capacity(self.host.len());
                for buffer in &mut self.pinned {
                    let mut rest = buffer.as_slice_mut();
                    while !rest.is_empty() {
                        let (part, behind) = rest.split_at_mut(self.stride)?;
                        pinned.push(part.split_at_mut(bytes)?.0);
                        rest = behind;
                    }
                }
                let pairs = gpu.zip(pinned);
                pairs.map(|(from, to)| Download::new(from?, to)).collect()
            }
        }
    }
}

/// All blocks on the device.
fn device_blocks(
    buffers: &mut [DeviceBuf<u8>],
    bytes: usize,
    stride: usize,
) -> Result<Vec<DeviceSliceMut<'_, u8>>> {
    let mut blocks = Vec::new();
    for buffer in buffers {
        let mut rest = buffer.as_slice_mut();
        while !rest.is_empty() {
            let (block, behind) = rest.split_at_mut(stride)?;
            blocks.push(block.split_at_mut(bytes)?.0);
            rest = behind;
        }
    }
    Ok(blocks)
}
