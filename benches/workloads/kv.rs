//! Swaps a KV cache: blocks of all layers go to the host and come back, at places that two lists of
//! numbers name. Reference: `cudaMemcpyBatchAsync` with a list of all blocks.

use std::sync::Arc;

use pinlane::driver::{CopyKind, Driver, Item, RawStream};
use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::numbers::scattered;
use super::common::product::Work;
use super::common::timing::samples_of;
use super::{Bench, KIB, busy, pattern};

const NAME: &str = "workload.kv";
/// Keys and values of 32 layers.
const TABLES: usize = 64;
/// The length of a block, its name, and how many blocks of a table are swapped.
const SHAPES: [(usize, &str, usize); 3] =
    [(2 * KIB, "2kib", 256), (16 * KIB, "16kib", 128), (64 * KIB, "64kib", 32)];
/// How many times as many blocks the tables have.
const HOST_TIMES: usize = 8;
const DEVICE_TIMES: usize = 4;

const METHOD: &str = "blocks of 64 tables (keys and values of 32 layers), each a buffer of its own \
    on the device and in page-locked memory, at scattered places on both sides: 256 blocks of 2 \
    KiB, 128 of 16 KiB or 32 of 64 KiB a table; from the two lists of numbers until the data is \
    there, host's clock; median, in turns with the reference, whose list of copies is made too";

struct Swap {
    stream: Stream,
    host: Vec<PinnedBuf<u8>>,
    gpu: Vec<DeviceBuf<u8>>,
    block: usize,
    on_host: Vec<u32>,
    on_device: Vec<u32>,
    runtime: (Arc<dyn Driver>, RawStream),
    list: Vec<Item>,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants(NAME) {
        return Ok(());
    }
    let reference = bench.bare.name("cudaMemcpyBatchAsync");
    let mut product = busy::product(bench, report, &format!("{NAME}.busy"))?;
    for (block, size, count) in SHAPES {
        let names = ["h2d", "d2h"].map(|way| format!("{NAME}.{way}.{size}"));
        if !names.iter().any(|name| report.wants(name)) {
            continue;
        }
        let mut swap = Swap::new(bench, block, if bench.small { 4 } else { count })?;
        swap.check()?;
        let bytes = TABLES * swap.on_host.len() * block;
        for (name, way) in names.into_iter().zip([Way::H2D, Way::D2H]) {
            let (ours, theirs) =
                (|swap: &mut Swap| swap.ours(way), |swap: &mut Swap| swap.theirs(way));
            let [runs, their_runs] = samples_of(&mut swap, bench.samples(101), [&ours, &theirs])?;
            report.add(
                Figure::rate(&*name, bytes, &runs)
                    .beside(reference, bytes as f64 / their_runs.median() / 1e9)
                    .by(METHOD, runs.count()),
            );
            report.add(Figure::cores(&name, bytes, &runs, (reference, &their_runs)));
            if let Some(product) = &mut product {
                let both: [Work<'_, _>; 2] = [&ours, &theirs];
                busy::figures(report, product, (&name, bytes), &mut swap, reference, both)?;
            }
        }
    }
    Ok(())
}

impl Swap {
    fn new(bench: &Bench, block: usize, count: usize) -> Result<Self> {
        let in_host = HOST_TIMES * count * block;
        let pool = bench.pool(TABLES * in_host)?;
        let host = (0..TABLES).map(|_| pool.alloc(in_host)).collect::<Result<_>>()?;
        let gpu = (0..TABLES).map(|_| bench.device_memory(DEVICE_TIMES * count * block));
        Ok(Swap {
            stream: bench.device.stream()?,
            host,
            gpu: gpu.collect::<Result<_>>()?,
            block,
            on_host: scattered(count, HOST_TIMES * count),
            on_device: scattered(count, DEVICE_TIMES * count),
            runtime: (bench.bare.driver(), bench.bare.raw()),
            list: Vec::new(),
        })
    }

    fn ours(&mut self, way: Way) -> Result<()> {
        let Swap { stream, host, gpu, block, on_host, on_device, .. } = self;
        let ticket = match way {
            Way::H2D => {
                stream.upload_blocks(host.iter().zip(gpu), *block, &*on_host, &*on_device)?
            }
            Way::D2H => {
                stream.download_blocks(gpu.iter().zip(host), *block, &*on_device, &*on_host)?
            }
        };
        ticket.wait()
    }

    fn theirs(&mut self, way: Way) -> Result<()> {
        let Swap { host, gpu, block: bytes, on_host, on_device, runtime, list, .. } = self;
        list.clear();
        for (host, gpu) in host.iter().zip(gpu) {
            let (host, gpu) = (host.as_ptr().addr() as u64, gpu.as_device_ptr());
            for (&on_host, &on_device) in on_host.iter().zip(&*on_device) {
                let at = |table: u64, number: u32| table + u64::from(number) * *bytes as u64;
                let (host, gpu) = (at(host, on_host), at(gpu, on_device));
                let (src, dst) = match way {
                    Way::H2D => (host, gpu),
                    Way::D2H => (gpu, host),
                };
                list.push(Item { dst, src, bytes: *bytes as u64 });
            }
        }
        let kind = match way {
            Way::H2D => CopyKind::H2D,
            Way::D2H => CopyKind::D2H,
        };
        let (driver, stream) = &*runtime;
        // SAFETY: the stream is live. The numbers are distinct and name blocks inside the tables,
        // which are borrowed exclusively, page-locked on the host, and idle: every other copy was
        // waited for, and this one is waited for below.
        let done = unsafe {
            driver.copy_batch(*stream, kind, list).and_then(|()| driver.stream_synchronize(*stream))
        };
        done.expect("the device copies");
        Ok(())
    }

    /// Uploads blocks by one way, and downloads them by the other.
    fn check(&mut self) -> Result<()> {
        for ours_up in [true, false] {
            self.fill(true)?;
            if ours_up {
                self.ours(Way::H2D)?
            } else {
                self.theirs(Way::H2D)?
            }
            self.fill(false)?;
            if ours_up {
                self.theirs(Way::D2H)?
            } else {
                self.ours(Way::D2H)?
            }
            for (table, host) in self.host.iter().enumerate() {
                let host = host.read()?;
                for (n, &number) in self.on_host.iter().enumerate() {
                    let block = &host[number as usize * self.block..][..self.block];
                    pattern::check(NAME, table * self.on_host.len() + n, block);
                }
            }
        }
        Ok(())
    }

    /// Writes the blocks that are swapped: their bytes, or zeroes.
    fn fill(&mut self, with_bytes: bool) -> Result<()> {
        for (table, host) in self.host.iter_mut().enumerate() {
            let host = host.write()?;
            for (n, &number) in self.on_host.iter().enumerate() {
                let block = &mut host[number as usize * self.block..][..self.block];
                if with_bytes {
                    pattern::write(table * self.on_host.len() + n, block);
                } else {
                    block.fill(0);
                }
            }
        }
        Ok(())
    }
}
