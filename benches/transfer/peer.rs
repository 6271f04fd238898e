//! Copies between two devices, beside the bare `cudaMemcpyPeerAsync`.

use pinlane::Result;

use super::common::figures::{Figure, Report};
use super::common::held::Held;
use super::common::timing::medians;
use super::{Bench, MIB, rate};

const COPIES: usize = 4;

const METHOD: &str = "4 tracked copies from device 0 to device 1, enqueued while a kernel held the \
    stream, device time; median, in turns with the reference";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants("peer") {
        return Ok(());
    }
    let Some(second) = bench.bare.second_device() else {
        report.skip("peer.over_raw", "this machine has one GPU");
        return Ok(());
    };
    let second = second?;
    let (name, bytes) = if bench.quick { ("16mib", 16 * MIB) } else { ("256mib", 256 * MIB) };
    let samples = bench.samples(bytes);
    let from = bench.device_memory(bytes)?;
    let mut to = second.alloc::<u8>(bytes)?;
    let stream = bench.device.stream()?;
    stream.copy(&from, &mut to)?.wait()?; // the memory is there
    let source = (from.as_device_ptr(), bench.device.ordinal());
    let target = (to.as_device_ptr(), second.ordinal());
    let (bare, held) = (&bench.bare, Held::new(&bench.device, &bench.bare));
    let [ours, reference] = medians(
        samples,
        [
            &mut || {
                held.seconds(&[&stream], || {
                    (0..COPIES).try_for_each(|_| stream.copy(&from, &mut to).map(drop))
                })
            },
            &mut || {
                held.seconds(&[bare.stream()], || {
                    for _ in 0..COPIES {
                        // SAFETY: both blocks are live, each on its device. They have no other
                        // user: the tracked copies are complete, and these copies will be before
                        // the measurement ends.
                        unsafe { bare.copy_peer(target, source, bytes) };
                    }
                    Ok(())
                })
            },
        ],
    )?;
    let name_of_reference = bare.name("bare cudaMemcpyPeerAsync, measured alike");
    let (ours, reference) = (rate(COPIES * bytes, ours), rate(COPIES * bytes, reference));
    report.add(
        Figure::higher(format!("peer.copy.{name}"), ours, "GB/s")
            .beside(name_of_reference, reference)
            .by(METHOD, samples),
    );
    report.add(
        Figure::higher("peer.over_raw", ours / reference, "ratio")
            .beside(name_of_reference, 1.0)
            .by("peer.copy over its reference", samples),
    );
    Ok(())
}
