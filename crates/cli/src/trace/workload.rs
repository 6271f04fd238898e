//! The workloads that are recorded.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use pinlane::file::FileReader;
use pinlane::trace::Recording;
use pinlane::{Device, PinnedPool};

use crate::error::Result;

/// How many kernels a workload has.
const ROUNDS: usize = 4;
/// How long a kernel takes.
const KERNEL: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Uploads and kernels that do not need each other, on one stream or on two
    Copies,
    /// Upload, kernel and download of a few chunks, on three streams
    Pipeline,
    /// Launches of a graph: on one branch an upload, on another a download
    Graph,
    /// Upload of a file
    Load,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Memory {
    Pageable,
    PageLocked,
}

/// What the workloads share.
pub struct Rig<'d> {
    device: &'d Device,
    recording: &'d Recording,
    pool: PinnedPool,
    bytes: usize,
}

impl<'d> Rig<'d> {
    pub fn new(device: &'d Device, recording: &'d Recording, bytes: usize) -> Result<Self> {
        let pool = PinnedPool::builder(device).max_bytes(ROUNDS * bytes + (1 << 20)).build()?;
        Ok(Rig { device, recording, pool, bytes })
    }

    /// Starts to record. Workloads other than `load` call it after they have allocated their
    /// memory, which takes much longer than all that they do with it.
    fn begin(&self) -> Result<()> {
        Ok(self.device.record(self.recording)?)
    }

    /// Runs kernels, and uploads memory that they do not use.
    pub fn copies(&self, memory: Memory, apart: bool) -> Result<()> {
        let kernels = self.device.stream()?;
        let copies = if apart { self.device.stream()? } else { kernels.clone() };
        let mut gpu = self.device.alloc::<u8>(self.bytes)?;
        let pageable = vec![1u8; self.bytes];
        let mut pinned = self.pool.alloc::<u8>(self.bytes)?;
        pinned.write()?.copy_from_slice(&pageable);
        if memory == Memory::Pageable {
            copies.upload_slice(&pageable, &mut gpu)?.wait()?; // the first call page-locks slots
        }
        kernels.busy(Duration::ZERO)?.wait()?; // the first launch loads the kernel
        self.begin()?;
        for _ in 0..ROUNDS {
            kernels.busy(KERNEL)?;
            match memory {
                Memory::Pageable => copies.upload_slice(&pageable, &mut gpu)?,
                Memory::PageLocked => copies.upload(&pinned, &mut gpu)?,
            };
        }
        kernels.synchronize()?;
        Ok(copies.synchronize()?)
    }

    /// Uploads chunks, runs a kernel for each, and downloads them.
    pub fn pipeline(&self) -> Result<()> {
        let [up, kernels, down] =
            [self.device.stream()?, self.device.stream()?, self.device.stream()?];
        let mut chunks = Vec::new();
        for _ in 0..ROUNDS {
            let mut host = self.pool.alloc::<u8>(self.bytes)?;
            host.write()?.fill(1);
            chunks.push((host, self.device.alloc::<u8>(self.bytes)?));
        }
        kernels.busy(Duration::ZERO)?.wait()?; // the first launch loads the kernel
        self.begin()?;
        for (host, gpu) in &mut chunks {
            let there = up.upload(&*host, &mut *gpu)?;
            kernels.wait_for(&there)?;
            let done = kernels.busy(KERNEL)?;
            down.wait_for(&done)?;
            down.download(&*gpu, host)?;
        }
        Ok(down.synchronize()?)
    }

    /// Launches a graph, each time with the other one of two inputs.
    pub fn graph(&self) -> Result<()> {
        let stream = self.device.stream()?;
        let [mut first, mut second] = [self.pool.alloc(self.bytes)?, self.pool.alloc(self.bytes)?];
        for input in [&mut first, &mut second] {
            input.write()?.fill(1u8);
        }
        let mut result = self.device.alloc::<u8>(self.bytes)?;
        stream.fill(&mut result, 1)?;
        let mut capture = self.device.capture()?;
        let (input, result) = (capture.own(first), capture.own(result));
        let gpu = capture.own(self.device.alloc::<u8>(self.bytes)?);
        let output = capture.own(self.pool.alloc::<u8>(self.bytes)?);
        capture.upload(input, gpu)?;
        capture.branch(1)?;
        capture.download(result, output)?;
        let mut graph = capture.finish()?;
        graph.launch(&stream)?.wait()?; // the first launch brings the graph to the device
        self.begin()?;
        for _ in 0..ROUNDS {
            second = graph.rebind(input, second).map_err(|refused| refused.error)?;
            graph.launch(&stream)?;
        }
        Ok(stream.synchronize()?)
    }

    /// Uploads a file. Records its allocations too: they are a large part of a first load.
    pub fn load(&self, path: &Path) -> Result<()> {
        self.begin()?;
        self.device.warm_up();
        let file = FileReader::open(path)?;
        let bytes = usize::try_from(file.bytes()?).expect("a file that fits a device");
        let stream = self.device.stream()?;
        let mut gpu = self.device.alloc::<u8>(bytes)?;
        Ok(stream.upload_file(&file, 0, &mut gpu)?.wait()?)
    }
}
