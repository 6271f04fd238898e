//! The pool: the time to allocate and drop a block that it has, by the number of threads.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::rig::{Extent, KIB, MIB, Rig};
use crate::error::Result;
use crate::figures::{Chart, Series, Unit, XAxis, YAxis};

pub fn by_threads(rig: &Rig) -> Result<Chart> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let most = if rig.extent == Extent::Quick { 2 } else { cores.clamp(2, 32) };
    let counts: Vec<usize> =
        (0..).map(|step| 1 << step).take_while(|&threads| threads <= most).collect();
    let mut series = Vec::new();
    for (name, bytes) in [("4 KiB", 4 * KIB), ("1 MiB", MIB)] {
        let mut points = Vec::new();
        for &threads in &counts {
            points.push((threads as f64, nanoseconds(rig, bytes, threads)?));
        }
        series.push(Series { name, points });
    }
    Ok(Chart {
        id: "pool",
        title: "The pool: allocate a block that it has, and drop it".into(),
        x: XAxis { label: "threads at once", unit: Unit::Threads },
        y: YAxis {
            label: "time of a thread",
            unit: "ns",
            higher_is_better: false,
            logarithmic: false,
        },
        ceiling: None,
        series,
    })
}

/// Nanoseconds for an allocation and its end, as a thread sees it; the median of a few rounds.
fn nanoseconds(rig: &Rig, bytes: usize, threads: usize) -> Result<f64> {
    let (rounds, count) = match rig.extent {
        Extent::Quick => (1, 1_000),
        Extent::Short => (5, 100_000),
        Extent::Full => (9, 1_000_000),
    };
    let mut times = Vec::new();
    for _ in 0..rounds {
        times.push(round(rig, bytes, threads, count)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn round(rig: &Rig, bytes: usize, threads: usize, count: usize) -> Result<f64> {
    let gate = Barrier::new(threads);
    let work = || -> pinlane::Result<f64> {
        // Allocate before the clock runs. Report an error only after the barrier, at which the
        // others wait.
        let first = rig.pool.alloc::<u8>(bytes);
        gate.wait();
        drop(first?);
        let start = Instant::now();
        for _ in 0..count {
            black_box(rig.pool.alloc::<u8>(bytes)?);
        }
        Ok(start.elapsed().as_nanos() as f64 / count as f64)
    };
    let times: pinlane::Result<Vec<f64>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let times = times?;
    Ok(times.iter().sum::<f64>() / times.len() as f64)
}
