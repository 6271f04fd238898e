//! Measuring the costs, each by the copies that it is about.

use std::time::Instant;

use super::OPERATION;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{DeviceBuf, DeviceSliceMut, PinnedBuf};
use crate::pool::PinnedPool;
use crate::stream::Stream;
use crate::transfer::batch::{CopyItem, UploadItem};
use crate::transfer::machine::Costs;
use crate::transfer::path::Path;
use crate::transfer::simd::{self, Stores};
use crate::transfer::staging::Engine;

/// As much as the largest measurement copies.
const ROOM: usize = 32 << 20;
/// More than caches hold.
const COLD: usize = 8 * ROOM;
/// The best of so many is taken: what is slower was disturbed.
const TRIES: usize = 4;

struct Rig<'e> {
    stream: &'e Stream,
    engine: &'e Engine,
    pinned: PinnedBuf<u8>,
    ordinary: Vec<u8>,
    gpu: DeviceBuf<u8>,
    costs: Costs,
}

pub(super) fn measure(device: &Device, stream: &Stream, engine: &Engine) -> Result<Costs> {
    let ordinary = cold_memory()?;
    let pool = PinnedPool::builder(device).max_bytes(2 * ROOM).mapped(true).build()?;
    let mut rig = Rig {
        stream,
        engine,
        pinned: pool.alloc_zeroed(ROOM)?,
        ordinary,
        gpu: device.alloc(2 * ROOM)?,
        costs: Costs::DEFAULT,
    };
    let machine = engine.machine(stream, OPERATION)?;
    rig.link()?;
    rig.calls(machine.batches)?;
    if machine.kernels {
        rig.kernels()?;
    }
    rig.host();
    rig.team()?;
    Ok(rig.costs)
}

fn cold_memory() -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(COLD).map_err(|error| {
        Error::new(
            ErrorKind::OutOfHostMemory,
            OPERATION,
            format!("{COLD} bytes of ordinary memory to copy from: {error}"),
            "calibrate once in a process that may have more memory; others read the file",
        )
    })?;
    memory.resize(COLD, 1);
    Ok(memory)
}

/// Microseconds of the fastest try, the first of which does not count.
fn best(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    work()?;
    for _ in 0..TRIES {
        let start = Instant::now();
        work()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(best)
}

/// A cost is positive, whatever the clock says.
fn positive(micros: f64) -> f64 {
    micros.max(0.0005)
}

impl Rig<'_> {
    /// Microseconds for uploading `count` blocks of `bytes`, with gaps between them, by `path`.
    fn upload(&mut self, path: Path, count: usize, bytes: usize) -> Result<f64> {
        let stream = self.stream;
        let mut items = Vec::with_capacity(count);
        let mut rest: DeviceSliceMut<'_, u8> = self.gpu.as_slice_mut();
        for n in 0..count {
            let (block, behind) = rest.split_at_mut(bytes)?;
            rest = behind.split_at_mut(GAP)?.1;
            let at = n * (bytes + GAP) % (ROOM - bytes + 1);
            items.push(UploadItem::new(self.pinned.slice(at..at + bytes)?, block)?);
        }
        best(|| stream.upload_batch_by(path, &mut items)?.wait())
    }

    fn link(&mut self) -> Result<()> {
        let (stream, half) = (self.stream, ROOM / 2);
        let mut upload = |bytes: usize| {
            best(|| {
                let to = self.gpu.slice_mut(..bytes)?;
                stream.upload(self.pinned.slice(..bytes)?, to)?.wait()
            })
        };
        let (whole, part, small) = (upload(ROOM)?, upload(half)?, upload(4096)?);
        // Without what a copy costs beside its bytes.
        self.costs.link = (ROOM - half) as f64 / positive(whole - part);
        self.costs.fixed = positive(small);
        Ok(())
    }

    fn calls(&mut self, batches: bool) -> Result<()> {
        const COUNT: usize = 128;
        let one = |time: f64, costs: &Costs| positive((time - costs.fixed) / COUNT as f64);
        let time = self.upload(Path::Copies, COUNT, 256)?;
        self.costs.copy = one(time, &self.costs);
        if batches {
            let time = self.upload(Path::Batch, COUNT, 256)?;
            self.costs.batch_entry = one(time, &self.costs);
        }
        Ok(())
    }

    fn kernels(&mut self) -> Result<()> {
        const MANY: usize = 8192;
        let one = self.upload(Path::Pull, 1, 256)?;
        let many = self.upload(Path::Pull, MANY, 16)?;
        let (blocks, bytes) = (32, ROOM / 64);
        let bulk = self.upload(Path::Pull, blocks, bytes)?;
        self.costs.kernel = positive(one - self.costs.fixed);
        self.costs.kernel_entry = positive((many - one) / MANY as f64);
        self.costs.pull = (blocks * bytes) as f64 / positive(bulk - one);
        let (from, to) = (0..ROOM, ROOM..2 * ROOM);
        let whole = self.gpu.as_slice_mut();
        let (source, target) = whole.split_at_mut(from.len())?;
        let source = source.as_slice();
        let target = target.split_at_mut(to.len())?.0;
        let mut items = [CopyItem::new(source, target)?];
        let stream = self.stream;
        let time = best(|| stream.copy_batch(&mut items)?.wait())?;
        self.costs.on_device = ROOM as f64 / positive(time - self.costs.fixed);
        Ok(())
    }

    /// One thread that copies a slot's worth, and one that copies short blocks.
    fn host(&mut self) {
        const BYTES: usize = 4 << 20;
        const SHORT: usize = 256;
        let to = self.pinned.as_ptr().cast_mut();
        // Other parts for either, so that both find them in no cache.
        let mut parts = self.ordinary.chunks_exact(BYTES).cycle();
        let mut copy = |block: usize| {
            let copied = best(|| {
                let from = parts.next().expect("they repeat").as_ptr();
                for at in (0..BYTES).step_by(block) {
                    // SAFETY: both have `BYTES` bytes from here on, of which `block` divides. The
                    // buffer is this function's, and idle: every copy was waited for.
                    unsafe { simd::copy(to.add(at), from.add(at), block, Stores::Cached) };
                }
                Ok(())
            });
            copied.unwrap_or(f64::INFINITY)
        };
        let (long, short) = (copy(256 << 10), copy(SHORT));
        self.costs.thread = BYTES as f64 / positive(long);
        self.costs.host_entry = positive((short - long) / (BYTES / SHORT) as f64);
    }

    /// The most threads that are about as fast as the fastest number of them: where a large copy,
    /// which is measured here, has no use for more, a batch of small blocks has. The source is in
    /// no cache, as that of a large copy.
    fn team(&mut self) -> Result<()> {
        const MOST: usize = 16;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let mut parts = self.ordinary.chunks_exact(ROOM).cycle();
        let mut times = Vec::new();
        for threads in 1..=cores.min(MOST) {
            self.costs.threads = threads as f64;
            self.engine.set_costs(self.costs);
            let to = &mut self.gpu;
            let stream = self.stream;
            times.push(best(|| {
                let from = parts.next().expect("they repeat");
                stream.upload_slice(from, to.slice_mut(..ROOM)?)?.wait()
            })?);
        }
        let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = times.iter().rposition(|&time| time <= 1.05 * fastest).unwrap_or(0);
        self.costs.threads = (most + 1) as f64;
        Ok(())
    }
}

/// Between blocks, so that no two are one copy.
const GAP: usize = 64;
