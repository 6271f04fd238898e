//! Many threads and few blocks: how fast and how evenly the pool distributes them.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pinlane::{PinnedPool, Result};

use super::common::figures::{Figure, Report};
use super::{Bench, SMALL};

const THREADS: usize = 64;
const BLOCKS: usize = 3;

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    const NAME: &str = "pool.budget.t64";
    if !report.wants(NAME) {
        return Ok(());
    }
    let pool = PinnedPool::builder(&bench.device).max_bytes(BLOCKS * SMALL).build()?;
    let done = AtomicBool::new(false);
    let fight = || -> Result<u64> {
        let mut operations = 0;
        while !done.load(Ordering::Relaxed) {
            drop(black_box(pool.alloc_timeout::<u8>(SMALL, Duration::from_secs(60))?));
            operations += 1;
        }
        Ok(operations)
    };
    let start = Instant::now();
    let shares = thread::scope(|scope| {
        let team: Vec<_> = (0..THREADS).map(|_| scope.spawn(fight)).collect();
        thread::sleep(Duration::from_secs_f64(25.0 * bench.shortest));
        done.store(true, Ordering::Relaxed);
        let joined = team.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<Vec<_>>>()
    })?;
    let took = start.elapsed().as_secs_f64();
    let all: u64 = shares.iter().sum();
    let least = shares.into_iter().min().unwrap_or(0);
    for (suffix, value, unit, method) in [
        (
            "",
            all as f64 / took / 1e6,
            "M/s",
            "64 threads alloc_timeout and drop 4 KiB, with a budget of 3 blocks, for 0.5 s",
        ),
        (
            ".least",
            least as f64 * THREADS as f64 / all as f64,
            "ratio",
            "operations of the thread that got the fewest, over the mean",
        ),
    ] {
        report.add(Figure {
            name: format!("{NAME}{suffix}"),
            value,
            unit,
            better: "higher",
            reference: None,
            samples: 1,
            spread: None,
            method,
        });
    }
    Ok(())
}
