//! How much slower a matrix product that fills the GPU gets while copies run.

use pinlane::batch::Indices;
use pinlane::{DeviceBuf, PinnedBuf, Result, Stream, Ticket};

use super::common::cublas::Elements;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::product::{PRODUCTS, Product, beside};
use super::common::timing::{median, medians_of, seconds};
use super::{Bench, MIB};

/// The size of the copies.
const BLOCK: usize = 64 * MIB;
const SAMPLES: usize = 9;

const METHOD: &str = "16 products of 8192 x 8192 in bfloat16, device time, while uploads and \
    downloads of 64 MiB of pinned memory run on two other streams from before the first to after \
    the last; median, in turns with the reference";
const STAGED: &str =
    "the same while another thread uploads a pageable slice of 64 MiB over and over";
const STAGED_DOWN: &str = "the same while it downloads such a slice";

/// Copies both ways, on separate streams.
struct Copies {
    up: Stream,
    down: Stream,
    source: PinnedBuf<u8>,
    target: PinnedBuf<u8>,
    there: DeviceBuf<u8>,
    here: DeviceBuf<u8>,
    /// How many copies each way take longer than a measurement.
    count: usize,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    const NAME: &str = "overlap.matmul";
    if !report.wants(NAME) && !report.wants("batch.busy") {
        return Ok(());
    }
    let place = bench.cublas.as_deref();
    let open = |elements| Product::open(&bench.device, &bench.bare, place, elements);
    let mut product = match open(Elements::Bfloat16)? {
        Ok(product) => product,
        Err(reason) => {
            report.skip(NAME, reason);
            return Ok(());
        }
    };
    rows(bench, report, &mut product, "")?;
    if report.wants("batch.busy")
        && let Ok(mut product) = open(Elements::Float)?
    {
        rows(bench, report, &mut product, ".fp32")?;
    }
    if !report.wants(NAME) {
        return Ok(());
    }
    let pool = bench.pool()?;
    let copies = Copies {
        up: bench.device.stream()?,
        down: bench.device.stream()?,
        source: pool.alloc_zeroed(BLOCK)?,
        target: pool.alloc_zeroed(BLOCK)?,
        there: bench.device_memory(BLOCK)?,
        here: bench.device_memory(BLOCK)?,
        count: 32,
    };
    let [alone, beside_pinned, beside_staged, beside_downloads] = medians_of(
        &mut (product, copies),
        SAMPLES,
        [
            &|(product, _)| product.seconds(),
            &|(product, copies)| copies.during(|| product.seconds()),
            &|(product, _)| beside_slices(bench, Way::H2D, || product.seconds()),
            &|(product, _)| beside_slices(bench, Way::D2H, || product.seconds()),
        ],
    )?;
    for (suffix, time, method) in [
        ("", beside_pinned, METHOD),
        (".staged", beside_staged, STAGED),
        (".staged_d2h", beside_downloads, STAGED_DOWN),
    ] {
        let millis = |time: f64| time / PRODUCTS as f64 * 1e3;
        report.add(
            Figure::lower(format!("{NAME}{suffix}"), millis(time), "ms")
                .beside("the products alone", millis(alone))
                .by(method, SAMPLES),
        );
        report.add(
            Figure::lower(format!("{NAME}_loss{suffix}"), time / alone - 1.0, "ratio")
                .by("overlap.matmul over its reference, less 1", SAMPLES),
        );
    }
    Ok(())
}

impl Copies {
    /// Measures while copies run. If the copies end first, the measurement is discarded.
    fn during(&mut self, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
        loop {
            let last = self.enqueue()?;
            let time = measure()?;
            let lasted = !last[0].is_done()? && !last[1].is_done()?;
            self.up.synchronize()?;
            self.down.synchronize()?;
            if lasted {
                return Ok(time);
            }
            self.count *= 2;
        }
    }

    /// Enqueues the copies, and returns the tickets of the last two.
    fn enqueue(&mut self) -> Result<[Ticket; 2]> {
        for _ in 1..self.count {
            self.up.upload(&self.source, &mut self.there)?;
            self.down.download(&self.here, &mut self.target)?;
        }
        let up = self.up.upload(&self.source, &mut self.there)?;
        Ok([up, self.down.download(&self.here, &mut self.target)?])
    }
}

/// Measures while another thread copies pageable memory.
fn beside_slices(bench: &Bench, way: Way, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
    let stream = bench.device.stream()?;
    let mut gpu = bench.device_memory(BLOCK)?;
    let mut slice = vec![1u8; BLOCK];
    let copy = || match way {
        Way::H2D => stream.upload_slice(&slice, &mut gpu).map(drop),
        Way::D2H => stream.download_slice(&gpu, &mut slice),
    };
    beside(copy, measure).map(|(time, _)| time)
}

/// The total bytes of the scattered rows.
const SCATTERED: usize = 64 * MIB;
const BUSY: &str = "GB/s of scattered page-locked rows by download_rows or upload_rows, 64 MiB a \
    call, one after the other, while products of 8192 x 8192 run, in bfloat16 or (.fp32) floats; \
    median. The reference is the same without the products";
const LOSS: &str = "the time of those products over that of products alone, in turns, less 1";

/// Scattered rows beside the product.
fn rows(bench: &Bench, report: &mut Report, product: &mut Product, of: &str) -> Result<()> {
    for (name, length) in [("16kib", 16 << 10), ("4kib", 4 << 10), ("256", 256)] {
        let ways = ["h2d", "d2h"].map(|way| format!("batch.busy.{way}.{name}{of}"));
        if !ways.iter().any(|name| report.wants(name)) {
            continue;
        }
        let count = SCATTERED / length;
        let numbers: Vec<u32> = (0..count as u32).map(|n| n * 7919 % count as u32).collect();
        let mut table = bench.pool()?.alloc_zeroed::<u8>(SCATTERED)?;
        let (stream, mut gpu) = (bench.device.stream()?, bench.device_memory(SCATTERED)?);
        for (way, figure) in ["h2d", "d2h"].into_iter().zip(ways) {
            let mut copy = || match way {
                "h2d" => stream.upload_rows(&table, &numbers, &mut gpu)?.wait(),
                _ => stream
                    .download_rows(&gpu, Indices::from(&numbers).distinct(), &mut table)?
                    .wait(),
            };
            let (mut alone, mut time, mut idle, mut often) = (vec![], vec![], vec![], vec![]);
            for _ in 0..SAMPLES {
                alone.push(product.seconds()?);
                idle.push(seconds(|| (0..8).try_for_each(|_| copy()))? / 8.0);
                let (took, rate) = beside(&mut copy, || product.seconds())?;
                time.push(took);
                often.push(rate);
            }
            let busy = median(often) * SCATTERED as f64 / 1e9;
            report.add(
                Figure::higher(figure.clone(), busy, "GB/s")
                    .beside("without the products", SCATTERED as f64 / median(idle) / 1e9)
                    .by(BUSY, SAMPLES),
            );
            let loss = median(time) / median(alone) - 1.0;
            report.add(Figure::lower(format!("{figure}.loss"), loss, "ratio").by(LOSS, SAMPLES));
        }
    }
    Ok(())
}
