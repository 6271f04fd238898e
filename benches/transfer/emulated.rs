//! How many small operations a second the emulated device makes. Random programs cost that much.

use pinlane::{Device, PinnedPool, Result};

use super::common::figures::{Figure, Report};
use super::common::timing::{medians, operations, seconds};
use super::{Bench, MIB};

const BYTES: usize = 64;

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants("emulated.ops") {
        return Ok(());
    }
    let (samples, shortest) = if bench.quick { (3, 0.002) } else { (9, 0.1) };
    let device = Device::emulated()?;
    let pool = PinnedPool::builder(&device).max_bytes(MIB).build()?;
    let stream = device.stream()?;
    let (source, mut target) = (pool.alloc_zeroed::<u8>(BYTES)?, pool.alloc_zeroed::<u8>(BYTES)?);
    let mut gpu = device.alloc::<u8>(BYTES)?;
    let mut rounds = |count| {
        seconds(|| {
            for _ in 0..count {
                stream.upload(&source, &mut gpu)?;
                stream.fill(&mut gpu, 1)?;
                stream.download(&gpu, &mut target)?;
            }
            stream.synchronize()
        })
    };
    let count = operations(shortest, &mut rounds)?;
    let [time] = medians(samples, [&mut || rounds(count)])?;
    report.add(Figure::higher("emulated.ops", 3.0 * count as f64 / time / 1e6, "M/s").by(
        "upload, fill and download of 64 bytes on an emulated device in eager mode, one thread, \
         enqueued and executed; median",
        samples,
    ));
    Ok(())
}
