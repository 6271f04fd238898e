//! A pipeline of H2D, kernels and D2H over chunks, compared with its longest stage alone.
//!
//! ```text
//!   up       | chunk 0 | chunk 1 | chunk 2 | ...
//!   kernels            | chunk 0 | chunk 1 | chunk 2 | ...      checksum, spin, fill
//!   down                         | chunk 0 | chunk 1 | ...
//! ```
//!
//! The kernels read the whole chunk, spin, and write its second half. So the stages of a chunk can
//! only run one after another. The kernels spin as long as copying a chunk takes, which leaves no
//! stage any slack; and half and twice as long.

use std::time::Duration;

use pinlane::{DeviceBuf, PinnedBuf, Result, Stream};

use super::common::bare::Bare;
use super::common::figures::{Figure, Report};
use super::common::timing::{median, medians_of, seconds};
use super::{Bench, GIB, KIB, MIB};

/// How many chunks are on the device: one in each stage, and a spare one.
const RING: usize = 4;

const METHOD: &str = "upload, kernels and download of 1 GiB of pinned memory in chunks of 4 MiB on \
    three streams, from the first call until the last data is there, host's clock; the longer \
    stage alone, divided by that; median, the three in turns";

struct Pipeline {
    up: Stream,
    kernels: Stream,
    down: Stream,
    source: PinnedBuf<u8>,
    target: PinnedBuf<u8>,
    ring: Vec<DeviceBuf<u8>>,
    sums: DeviceBuf<u64>,
    chunk: usize,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants("overlap.ratio") {
        return Ok(());
    }
    let (bytes, chunk) = if bench.quick { (MIB, 64 * KIB) } else { (GIB, 4 * MIB) };
    let samples = if bench.quick { 3 } else { 9 };
    let chunks = bytes / chunk;
    let pool = bench.pool()?;
    let mut pipeline = Pipeline {
        up: bench.device.stream()?,
        kernels: bench.device.stream()?,
        down: bench.device.stream()?,
        source: pool.alloc_zeroed(bytes)?,
        target: pool.alloc_zeroed(bytes)?,
        ring: (0..RING).map(|_| bench.device_memory(chunk)).collect::<Result<_>>()?,
        sums: bench.device.alloc(chunks)?,
        chunk,
    };
    let other = bench.bare.another(&bench.device)?;
    let mut both_ways = Vec::new();
    for _ in 0..3 {
        both_ways.push(pipeline.copies(&bench.bare, &other)?);
    }
    let a_chunk = Duration::from_secs_f64(median(both_ways) / chunks as f64);
    for (suffix, spin) in
        [("", a_chunk), (".short_kernels", a_chunk / 2), (".long_kernels", a_chunk * 2)]
    {
        let [whole, copy, compute] = medians_of(
            &mut pipeline,
            samples,
            [
                &|pipeline| pipeline.run(spin),
                &|pipeline| pipeline.copies(&bench.bare, &other),
                &|pipeline| pipeline.compute(spin),
            ],
        )?;
        report.add(
            Figure::higher(format!("overlap.ratio{suffix}"), copy.max(compute) / whole, "ratio")
                .beside("max(bare copies both ways, kernels alone)", 1.0)
                .by(METHOD, samples),
        );
    }
    Ok(())
}

impl Pipeline {
    /// The whole pipeline. The buffers order the streams.
    fn run(&mut self, spin: Duration) -> Result<f64> {
        seconds(|| {
            for (index, start) in (0..self.source.len()).step_by(self.chunk).enumerate() {
                let range = start..start + self.chunk;
                let gpu = &mut self.ring[index % RING];
                self.up.upload(self.source.slice(range.clone())?, &mut *gpu)?;
                work(&self.kernels, gpu, &mut self.sums, index, spin)?;
                self.down.download(&*gpu, self.target.slice_mut(range)?)?;
            }
            self.down.synchronize()
        })
    }

    /// The kernels alone.
    fn compute(&mut self, spin: Duration) -> Result<f64> {
        seconds(|| {
            for index in 0..self.source.len() / self.chunk {
                work(&self.kernels, &mut self.ring[index % RING], &mut self.sums, index, spin)?;
            }
            self.kernels.synchronize()
        })
    }

    /// The copies alone, both ways at once, by bare calls.
    fn copies(&mut self, up: &Bare, down: &Bare) -> Result<f64> {
        let (source, target) = (self.source.as_ptr(), self.target.as_ptr().cast_mut());
        let (to, from) = (self.ring[0].as_device_ptr(), self.ring[1].as_device_ptr());
        seconds(|| {
            for start in (0..self.source.len()).step_by(self.chunk) {
                // SAFETY: the chunks lie in the blocks, which are borrowed exclusively. They have
                // no other user: the other measurements are complete, and these copies are waited
                // for below.
                unsafe {
                    up.upload(to, source.add(start), self.chunk);
                    down.download(target.add(start), from, self.chunk);
                }
            }
            up.synchronize()?;
            down.synchronize()
        })
    }
}

/// The kernels of one chunk.
fn work(
    stream: &Stream,
    chunk: &mut DeviceBuf<u8>,
    sums: &mut DeviceBuf<u64>,
    index: usize,
    spin: Duration,
) -> Result<()> {
    stream.checksum(&*chunk, sums.slice_mut(index..index + 1)?)?;
    stream.busy(spin)?;
    stream.fill(chunk.slice_mut(chunk.len() / 2..)?, index as u8)?;
    Ok(())
}
