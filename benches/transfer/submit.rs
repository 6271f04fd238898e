//! The extra time of a tracked copy's call over the bare `cudaMemcpyAsync`.

use pinlane::Result;

use super::common::figures::{Figure, Report};
use super::common::timing::{medians, seconds};
use super::{Bench, KIB};

const SMALL: usize = 4 * KIB;
/// How many calls are made in a row. The stream is drained after them.
const CALLS: usize = 400;

const METHOD: &str = "Stream::upload of 4 KiB, the call alone, the stream drained after 400; \
    median, in turns with the reference";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants("copy.tracked") {
        return Ok(());
    }
    let samples = if bench.quick { 3 } else { 61 };
    let stream = bench.device.stream()?;
    let host = bench.pool()?.alloc_zeroed::<u8>(SMALL)?;
    let (mut gpu, other) = (bench.device_memory(SMALL)?, bench.device_memory(SMALL)?);
    let [tracked, bare] = medians(
        samples,
        [
            &mut || {
                let time = seconds(|| {
                    (0..CALLS).try_for_each(|_| stream.upload(&host, &mut gpu).map(drop))
                });
                stream.synchronize()?;
                time
            },
            &mut || {
                let time = seconds(|| {
                    for _ in 0..CALLS {
                        // SAFETY: both blocks are live, and the host's is not written. The copies
                        // are waited for below.
                        unsafe { bench.bare.upload(other.as_device_ptr(), host.as_ptr(), SMALL) };
                    }
                    Ok(())
                });
                bench.bare.synchronize()?;
                time
            },
        ],
    )?;
    let reference = bench.bare.name("bare cudaMemcpyAsync");
    let micros = |time: f64| time / CALLS as f64 * 1e6;
    report.add(
        Figure::lower("copy.tracked_submit", micros(tracked), "us")
            .beside(reference, micros(bare))
            .by(METHOD, samples),
    );
    report.add(
        Figure::lower("copy.tracked_over_raw", tracked / bare, "ratio")
            .beside(reference, 1.0)
            .by("copy.tracked_submit over its reference", samples),
    );
    Ok(())
}
