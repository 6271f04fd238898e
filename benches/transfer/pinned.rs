//! Copies from and to page-locked memory: one way, and both ways together.

use pinlane::{DeviceBuf, PinnedBuf, Result, Stream, Ticket};

use super::common::bare::Bare;
use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::held::Held;
use super::common::timing::{medians, medians_of, seconds};
use super::{Bench, MIB, SIZES, rate};

/// How many bytes a held measurement copies in total. Short copies are repeated.
const HELD: usize = 256 * MIB;

const HELD_METHOD: &str = "tracked copies, enqueued while a kernel held the stream, device time; \
    median, in turns with the reference";
const END_TO_END: &str =
    "one tracked copy and the wait for it, host's clock; median, in turns with the reference";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    for (name, bytes) in SIZES {
        let wanted = ["h2d", "d2h"].iter().any(|way| report.wants(&format!("copy.{way}.{name}")));
        if wanted && bench.has_time_for(bytes) {
            one_way(bench, report, name, bytes)?;
        }
    }
    if report.wants("copy.both") {
        let (name, bytes) = if bench.quick { ("16mib", 16 * MIB) } else { ("256mib", 256 * MIB) };
        both_ways(bench, report, name, bytes)?;
    }
    Ok(())
}

/// Two blocks, and a stream for each of the two ways to copy between them: tracked and bare.
struct Ends<'a> {
    host: PinnedBuf<u8>,
    gpu: DeviceBuf<u8>,
    stream: Stream,
    bare: &'a Bare,
}

impl Ends<'_> {
    fn tracked(&mut self, way: Way) -> Result<Ticket> {
        match way {
            Way::H2D => self.stream.upload(&self.host, &mut self.gpu),
            Way::D2H => self.stream.download(&self.gpu, &mut self.host),
        }
    }

    /// The same copy by a bare call. The caller waits for it before doing anything else.
    fn bare(&mut self, way: Way) {
        let (host, gpu) = (self.host.as_ptr().cast_mut(), self.gpu.as_device_ptr());
        // SAFETY: both blocks are live, of equal length, and borrowed exclusively. Tracked copies
        // are complete when a measurement ends, and so are these.
        unsafe {
            match way {
                Way::H2D => self.bare.upload(gpu, host, self.host.len()),
                Way::D2H => self.bare.download(host, gpu, self.host.len()),
            }
        }
    }
}

fn one_way(bench: &Bench, report: &mut Report, name: &str, bytes: usize) -> Result<()> {
    let samples = bench.samples(bytes);
    let count = if bench.quick { 2 } else { (HELD / bytes).max(1) };
    let held = Held::new(&bench.device, &bench.bare);
    let ends = |stream| -> Result<Ends<'_>> {
        let host = bench.pool()?.alloc_zeroed(bytes)?;
        Ok(Ends { host, gpu: bench.device_memory(bytes)?, stream, bare: &bench.bare })
    };
    // An exposed stream makes more checks in every call. So the end-to-end figures use another
    // stream.
    let timed = bench.device.stream()?;
    let mut subjects = (ends(timed.clone())?, ends(bench.device.stream()?)?);
    for (way_name, way) in [("h2d", Way::H2D), ("d2h", Way::D2H)] {
        let [ours, bare, ours_whole, bare_whole] = medians_of(
            &mut subjects,
            samples,
            [
                &|(ends, _)| {
                    held.seconds(&[&timed], || {
                        (0..count).try_for_each(|_| ends.tracked(way).map(drop))
                    })
                },
                &|(ends, _)| {
                    held.seconds(&[ends.bare.stream()], || {
                        (0..count).for_each(|_| ends.bare(way));
                        Ok(())
                    })
                },
                &|(_, ends)| seconds(|| ends.tracked(way)?.wait()),
                &|(_, ends)| {
                    seconds(|| {
                        ends.bare(way);
                        ends.bare.synchronize()
                    })
                },
            ],
        )?;
        let reference = bench.bare.name("bare cudaMemcpyAsync, pinned, measured alike");
        report.add(
            Figure::higher(format!("copy.{way_name}.{name}"), rate(count * bytes, ours), "GB/s")
                .beside(reference, rate(count * bytes, bare))
                .by(HELD_METHOD, samples),
        );
        let name = format!("copy.{way_name}.{name}.end_to_end");
        report.add(
            Figure::higher(name, rate(bytes, ours_whole), "GB/s")
                .beside(reference, rate(bytes, bare_whole))
                .by(END_TO_END, samples),
        );
    }
    Ok(())
}

/// The same number of bytes each way at once. The figure is the sum of both ways.
fn both_ways(bench: &Bench, report: &mut Report, name: &str, bytes: usize) -> Result<()> {
    const COPIES: usize = 4;
    let samples = bench.samples(bytes);
    let pool = bench.pool()?;
    let (source, mut target) = (pool.alloc_zeroed::<u8>(bytes)?, pool.alloc_zeroed::<u8>(bytes)?);
    let (mut there, here) = (bench.device_memory(bytes)?, bench.device_memory(bytes)?);
    let (on_there, on_target) = (there.as_device_ptr(), target.as_ptr().cast_mut());
    let (up, down) = (bench.device.stream()?, bench.device.stream()?);
    let (bare, other) = (&bench.bare, bench.bare.another(&bench.device)?);
    let held = Held::new(&bench.device, bare);
    let [ours, reference] = medians(
        samples,
        [
            &mut || {
                held.seconds(&[&up, &down], || {
                    for _ in 0..COPIES {
                        up.upload(&source, &mut there)?;
                        down.download(&here, &mut target)?;
                    }
                    Ok(())
                })
            },
            &mut || {
                held.seconds(&[bare.stream(), other.stream()], || {
                    for _ in 0..COPIES {
                        // SAFETY: all four blocks are live. They have no other user: the tracked
                        // copies are complete, and these will be before the measurement ends.
                        unsafe {
                            bare.upload(on_there, source.as_ptr(), bytes);
                            other.download(on_target, here.as_device_ptr(), bytes);
                        }
                    }
                    Ok(())
                })
            },
        ],
    )?;
    report.add(
        Figure::higher(format!("copy.both.{name}"), rate(2 * COPIES * bytes, ours), "GB/s")
            .beside(
                bare.name("bare cudaMemcpyAsync both ways, pinned, measured alike"),
                rate(2 * COPIES * bytes, reference),
            )
            .by(HELD_METHOD, samples),
    );
    Ok(())
}
