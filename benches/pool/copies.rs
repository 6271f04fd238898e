//! The pool's memory in copies: the time of a short copy with its allocation, and the speed of a
//! large one.

use std::hint::black_box;

use pinlane::{PinnedPool, Result, pool::PageLocking};

use super::common::figures::{Figure, Report};
use super::common::timing::{medians, seconds};
use super::{Bench, SMALL};

/// Allocate 4 KiB, copy them to the device, drop them.
pub fn small(bench: &Bench, report: &mut Report) -> Result<()> {
    const COPIES: usize = 20_000;
    const ROUNDS: usize = 5;
    if !report.wants("pool.copy4k") {
        return Ok(());
    }
    let (pool, stream) = (bench.pool()?, bench.device.stream()?);
    let live = pool.alloc_zeroed::<u8>(SMALL)?;
    let (mut gpu, mut other) = (bench.device.alloc::<u8>(SMALL)?, bench.device.alloc::<u8>(SMALL)?);
    let mut third = bench.device.alloc::<u8>(SMALL)?;
    stream.upload(&live, &mut third)?.wait()?; // the memory is there
    let raw = third.as_device_ptr();
    let micros = |time: f64| time / COPIES as f64 * 1e6;
    let [whole, upload, hit, bare] = medians(
        ROUNDS,
        [
            &mut || {
                let time = seconds(|| {
                    for _ in 0..COPIES {
                        let buffer = black_box(pool.alloc::<u8>(SMALL)?);
                        stream.upload(&buffer, &mut gpu)?;
                    }
                    Ok(())
                })?;
                stream.synchronize()?;
                Ok(micros(time))
            },
            &mut || {
                let time = seconds(|| {
                    (0..COPIES).try_for_each(|_| stream.upload(&live, &mut other).map(drop))
                })?;
                stream.synchronize()?;
                Ok(micros(time))
            },
            &mut || {
                let time = seconds(|| {
                    (0..COPIES)
                        .try_for_each(|_| pool.alloc::<u8>(SMALL).map(|it| drop(black_box(it))))
                })?;
                Ok(micros(time))
            },
            &mut || {
                let time = seconds(|| {
                    for _ in 0..COPIES {
                        // SAFETY: both blocks live until the stream has been waited for, below.
                        unsafe { bench.bare.upload(raw, live.as_ptr(), SMALL) };
                    }
                    Ok(())
                })?;
                bench.bare.synchronize()?;
                Ok(micros(time))
            },
        ],
    )?;
    let reference = (bench.bare.name("bare cudaMemcpyAsync"), bare);
    for (suffix, value, unit, reference, method) in [
        (
            "",
            whole,
            "us",
            Some(reference),
            "alloc of 4 KiB + Stream::upload + drop, without the wait for the copies; median of 5 \
             rounds of 20,000, in turns with the reference, which copies from one live block",
        ),
        (
            ".drop",
            (whole - upload - hit) * 1e3,
            "ns",
            None,
            "pool.copy4k less Stream::upload from one live buffer and less a hit, in turns: what \
             it adds that the dropped block is busy",
        ),
        (".upload", upload, "us", Some(reference), "Stream::upload from one live buffer, in turns"),
    ] {
        report.add(Figure {
            name: format!("pool.copy4k{suffix}"),
            value,
            unit,
            better: "lower",
            reference,
            samples: ROUNDS,
            spread: None,
            method,
        });
    }
    Ok(())
}

/// The speed of one large copy from and to registered memory, compared with memory from the
/// runtime.
pub fn large(bench: &Bench, report: &mut Report) -> Result<()> {
    let (bytes, size) = bench.large;
    let names = ["h2d", "d2h"].map(|way| format!("pool.{way}.{size}"));
    if !names.iter().any(|name| report.wants(name)) {
        return Ok(());
    }
    let pool =
        |how| PinnedPool::builder(&bench.device).max_bytes(2 * bytes).page_locking(how).build();
    let mut registered = pool(PageLocking::Register)?.alloc_zeroed::<u8>(bytes)?;
    let mut allocated = pool(PageLocking::Allocate)?.alloc_zeroed::<u8>(bytes)?;
    let mut gpu = bench.device.alloc::<u8>(bytes)?;
    let mut other = bench.device.alloc::<u8>(bytes)?;
    let stream = bench.device.stream()?;
    let up = medians(
        bench.rounds,
        [&mut || seconds(|| stream.upload(&registered, &mut gpu)?.wait()), &mut || {
            seconds(|| stream.upload(&allocated, &mut other)?.wait())
        }],
    )?;
    let down = medians(
        bench.rounds,
        [&mut || seconds(|| stream.download(&gpu, &mut registered)?.wait()), &mut || {
            seconds(|| stream.download(&other, &mut allocated)?.wait())
        }],
    )?;
    let rate = |time: f64| bytes as f64 / time / 1e9;
    for (name, [ours, reference]) in names.into_iter().zip([up, down]) {
        report.add(Figure {
            name,
            value: rate(ours),
            unit: "GB/s",
            better: "higher",
            reference: Some(("the same copy with PageLocking::Allocate", rate(reference))),
            samples: bench.rounds,
            spread: None,
            method: "one copy with memory of PageLocking::Register and the wait for it; median, in \
            turns \
                     with the reference",
        });
    }
    Ok(())
}
