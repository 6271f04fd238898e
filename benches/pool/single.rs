//! One hit at a time: quantiles of the times.

use std::hint::black_box;

use pinlane::Result;

use super::common::figures::{Figure, Report};
use super::hit::WARM_UP;
use super::ticks::{Clock, Samples};
use super::{Bench, SMALL};

const OPERATIONS: usize = 200_000;

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];
    if !report.wants("pool.hit.p") {
        return Ok(());
    }
    let clock = Clock::calibrate();
    let pool = bench.pool()?;
    for _ in 0..WARM_UP {
        drop(black_box(pool.alloc::<u8>(SMALL)?));
    }
    let mut samples = Samples::with_room(OPERATIONS);
    for _ in 0..OPERATIONS {
        samples.time(|| pool.alloc::<u8>(SMALL).map(|buffer| drop(black_box(buffer))))?;
    }
    samples.sort();
    for (name, quantile) in QUANTILES {
        report.add(Figure {
            name: format!("pool.hit.{name}"),
            value: clock.nanoseconds(samples.quantile(quantile)),
            unit: "ns",
            better: "lower",
            reference: None,
            samples: OPERATIONS,
            spread: None,
            method: "one alloc + drop of 4 KiB, one thread, by the time stamp counter, less the \
            median of \
                     empty pairs",
        });
    }
    Ok(())
}
