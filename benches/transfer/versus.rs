//! Never slower than the runtime: pageable memory of every size, compared with the faster of the
//! runtime's two calls on the same memory.

use std::time::Instant;

use pinlane::{DeviceBuf, Result, Stream};

use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::pageable::{Call, Pageable};
use super::common::timing::{medians_of, seconds};
use super::{Bench, KIB, MIB};

pub const TABLE: &str = "staged.vs_driver";

pub const WAYS: [(&str, Way); 2] = [("h2d", Way::H2D), ("d2h", Way::D2H)];

const ODD: [usize; 9] = [3, 100, 1000, 4097, 50_001, 1_000_003, 4_000_000, 10_000_019, 100_000_007];
/// Sizes that are also copied from and to an odd address.
const UNALIGNED: [usize; 5] = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB];

const METHOD: &str = "one pageable slice, from the call until the data is there, host's clock; \
    median, in turns with cudaMemcpyAsync + cudaStreamSynchronize and, for downloads, with \
    cudaMemcpy, the faster of which is the reference";
const RETURNED: &str = "the same, until the call returns: the source may then be reused, and the \
    data may still be on its way; reference: cudaMemcpy, which promises the same";

/// A block of pageable memory and one of the device, and a stream for each of the two ways to copy
/// between them: this crate's and the runtime's.
pub struct Pair {
    stream: Stream,
    pageable: Pageable,
    host: Vec<u8>,
    gpu: DeviceBuf<u8>,
}

impl Pair {
    pub fn new(bench: &Bench, bytes: usize) -> Result<Self> {
        Ok(Pair {
            stream: bench.device.stream()?,
            pageable: Pageable::new(&bench.bare, &bench.device)?,
            host: vec![1; bytes],
            gpu: bench.device_memory(bytes)?,
        })
    }

    /// Copies `bytes` from or to `offset` in the host's block, with this crate.
    pub fn ours(&mut self, way: Way, offset: usize, bytes: usize) -> Result<()> {
        let host = &mut self.host[offset..offset + bytes];
        match way {
            Way::H2D => self.stream.upload_slice(host, self.gpu.slice_mut(..bytes)?)?.wait(),
            Way::D2H => self.stream.download_slice(self.gpu.slice(..bytes)?, host),
        }
    }

    /// Seconds until the host's memory may be reused. Then waits for the copy.
    fn until_reusable(&mut self, way: Way, offset: usize, bytes: usize) -> Result<f64> {
        let host = &mut self.host[offset..offset + bytes];
        if way == Way::D2H {
            return Ok(0.0);
        }
        let start = Instant::now();
        let ticket = self.stream.upload_slice(host, self.gpu.slice_mut(..bytes)?)?;
        let time = start.elapsed().as_secs_f64();
        ticket.wait()?;
        Ok(time)
    }

    /// The same copy with the runtime.
    pub fn theirs(&mut self, call: Call, way: Way, offset: usize, bytes: usize) -> Result<()> {
        let host = self.host[offset..offset + bytes].as_mut_ptr();
        // SAFETY: the host's range is borrowed exclusively. The device's range is live, of the same
        // length, and idle: every copy is complete when its call returns.
        unsafe { self.pageable.copy_and_wait(call, way, host, self.gpu.as_device_ptr(), bytes) }
    }

    pub fn name(&self, call: Call) -> &'static str {
        self.pageable.name(call)
    }
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants(TABLE) {
        return Ok(());
    }
    let mut sizes: Vec<_> = (0..16).map(|power| (4usize.pow(power), 0)).collect();
    sizes.extend(ODD.map(|bytes| (bytes, 0)));
    sizes.extend(UNALIGNED.map(|bytes| (bytes, 1)));
    sizes.retain(|&(bytes, _)| bench.has_time_for(bytes));
    sizes.sort_unstable();
    let room = sizes.iter().map(|&(bytes, offset)| bytes + offset).max().unwrap_or(0);
    let mut pair = Pair::new(bench, room)?;
    for (way_name, way) in WAYS {
        for &(bytes, offset) in &sizes {
            let place = if offset == 0 { "" } else { ".unaligned" };
            let name = format!("{TABLE}.{way_name}.{bytes}{place}");
            if !report.wants(&name) {
                continue;
            }
            let samples = bench.samples(bytes);
            let [ours, by_async, by_sync, returned] = medians_of(
                &mut pair,
                samples,
                [
                    &|pair| seconds(|| pair.ours(way, offset, bytes)),
                    &|pair| seconds(|| pair.theirs(Call::Async, way, offset, bytes)),
                    &|pair| seconds(|| pair.theirs(Call::Sync, way, offset, bytes)),
                    &|pair| pair.until_reusable(way, offset, bytes),
                ],
            )?;
            // cudaMemcpy returns from an upload when the source may be reused, not when the data
            // has arrived.
            let (reference, theirs) = match way {
                Way::H2D => (pair.name(Call::Async), by_async),
                Way::D2H => faster(&pair, by_async, by_sync),
            };
            report.add(
                Figure::lower(name.clone(), ours * 1e6, "us")
                    .beside(reference, theirs * 1e6)
                    .by(METHOD, samples),
            );
            if way == Way::H2D {
                report.add(
                    Figure::lower(name + ".returned", returned * 1e6, "us")
                        .beside(pair.name(Call::Sync), by_sync * 1e6)
                        .by(RETURNED, samples),
                );
            }
        }
    }
    Ok(())
}

/// The name and the seconds of the faster call.
pub fn faster(pair: &Pair, by_async: f64, by_sync: f64) -> (&'static str, f64) {
    if by_async <= by_sync {
        (pair.name(Call::Async), by_async)
    } else {
        (pair.name(Call::Sync), by_sync)
    }
}

/// The largest ratio of the whole table, including that of many threads.
pub fn worst(report: &mut Report) {
    if let Some(ratio) = report.largest_ratio(TABLE) {
        report.add(
            Figure::lower(format!("{TABLE}.worst"), ratio, "ratio")
                .beside("the faster of the runtime's calls", 1.0)
                .by("the largest ratio of all figures of the table", 1),
        );
    }
}
