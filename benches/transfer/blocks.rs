//! What batches are measured on: as many blocks of one size on the host, ordinary and page-locked, as on the
//! device.

use pinlane::{DeviceBuf, DownloadItem, Path, PinnedBuf, Plan, Result, Stream, UploadItem};

use super::Bench;
use super::common::cuda::Way;
use super::common::timing::seconds;

/// Which memory of the host, and which way.
#[derive(Clone, Copy)]
pub enum Kind {
    Ordinary(Way),
    Pinned(Way),
}

impl Kind {
    pub fn way(self) -> Way {
        let (Kind::Ordinary(way) | Kind::Pinned(way)) = self;
        way
    }
}

pub struct Blocks {
    stream: Stream,
    pub host: Vec<Vec<u8>>,
    pub pinned: Vec<PinnedBuf<u8>>,
    pub gpu: Vec<DeviceBuf<u8>>,
}

impl Blocks {
    pub fn new(bench: &Bench, count: usize, bytes: usize) -> Result<Self> {
        let pool = bench.pool()?;
        Ok(Blocks {
            stream: bench.device.stream()?,
            host: vec![vec![1; bytes]; count],
            pinned: (0..count).map(|_| pool.alloc_zeroed(bytes)).collect::<Result<_>>()?,
            gpu: (0..count).map(|_| bench.device_memory(bytes)).collect::<Result<_>>()?,
        })
    }

    /// Seconds for a batch of the first `count` blocks, by `path` or as the planner chooses: from the call until
    /// the data is there. The list is made before.
    pub fn batch(&mut self, kind: Kind, count: usize, path: Option<Path>) -> Result<f64> {
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

    fn uploads(&mut self, kind: Kind, count: usize) -> Result<Vec<UploadItem<'_>>> {
        let gpu = self.gpu.iter_mut().take(count);
        match kind {
            Kind::Ordinary(_) => {
                self.host.iter().zip(gpu).map(|(from, to)| UploadItem::new(&from[..], to)).collect()
            }
            Kind::Pinned(_) => {
                self.pinned.iter().zip(gpu).map(|(from, to)| UploadItem::new(from, to)).collect()
            }
        }
    }

    fn downloads(&mut self, kind: Kind, count: usize) -> Result<Vec<DownloadItem<'_>>> {
        let gpu = self.gpu.iter().take(count);
        match kind {
            Kind::Ordinary(_) => {
                let pairs = gpu.zip(&mut self.host);
                pairs.map(|(from, to)| DownloadItem::new(from, &mut to[..])).collect()
            }
            Kind::Pinned(_) => {
                let pairs = gpu.zip(&mut self.pinned);
                pairs.map(|(from, to)| DownloadItem::new(from, to)).collect()
            }
        }
    }
}
