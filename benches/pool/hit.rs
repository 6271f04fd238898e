//! Allocates and drops existing blocks of the pool: 4 KiB, 1 MiB and a mix of sizes, on 1 to 16
//! threads.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use pinlane::{PinnedPool, Result};

use super::common::figures::{Figure, Report};
use super::common::team::Gate;
use super::common::timing::{median, operations};
use super::{Bench, MIB, SMALL};

pub const TABLE: usize = 1024;
/// Operations that every thread does before the clock runs: each size twice.
pub const WARM_UP: usize = 2 * TABLE;
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

type Sizes = [usize; TABLE];

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    for (kind, sizes) in [("", [SMALL; TABLE]), ("1mib.", [MIB; TABLE]), ("mix.", mixed())] {
        for threads in THREADS {
            let name = format!("pool.hit.{kind}t{threads}");
            if report.wants(&name) {
                team(bench, report, &name, &sizes, threads)?;
            }
        }
    }
    Ok(())
}

/// About log-uniform between 256 B and 1 MiB; the table that `benches/peers/README.md` specifies.
fn mixed() -> Sizes {
    let mut x = 42_u64;
    let sizes = std::array::from_fn(|_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let base = 256 << (x % 12);
        (base + (x >> 32) % base) as usize
    });
    assert_eq!(
        (sizes[0], sizes.iter().sum()),
        (262_154, 126_865_988_usize),
        "not the peers' table"
    );
    sizes
}

fn team(
    bench: &Bench,
    report: &mut Report,
    name: &str,
    sizes: &Sizes,
    threads: usize,
) -> Result<()> {
    let pool = bench.pool()?;
    fill(&pool, sizes, threads)?;
    let count = operations(bench.shortest, |count| Ok(round(&pool, sizes, threads, count)?.busy))?;
    let before = pool.stats();
    let mut rounds = Vec::new();
    for _ in 0..bench.rounds {
        rounds.push(round(&pool, sizes, threads, count)?);
    }
    let after = pool.stats();
    let busy = median(rounds.iter().map(|times| times.busy).collect());
    let wall = median(rounds.iter().map(|times| times.wall).collect());
    let mut add = |suffix, value, unit, better, method| {
        let name = format!("{name}{suffix}");
        report.add(Figure {
            name,
            value,
            unit,
            better,
            reference: None,
            samples: bench.rounds,
            spread: None,
            method,
        });
    };
    add(
        "",
        busy / count as f64 * 1e9,
        "ns",
        "lower",
        "alloc + drop, an operation of a thread, mean over the threads; loops of 20 ms at least, \
         median",
    );
    add(
        ".total",
        (threads * count) as f64 / wall / 1e6,
        "M/s",
        "higher",
        "operations of all threads, from the first start to the last end; median",
    );
    let all = (after.hits + after.misses).saturating_sub(before.hits + before.misses);
    add(
        ".local",
        (after.thread_hits - before.thread_hits) as f64 / all as f64 * 100.0,
        "%",
        "higher",
        "allocations that needed nothing but their thread's own blocks, warm-up included",
    );
    Ok(())
}

/// Makes enough blocks for every thread to hold one of each size, so that nothing grows while the
/// clock runs.
fn fill(pool: &PinnedPool, sizes: &Sizes, blocks: usize) -> Result<()> {
    let mut distinct: Vec<usize> =
        sizes.iter().filter_map(|&size| PinnedPool::block_bytes(size)).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let all = distinct.iter().flat_map(|&size| std::iter::repeat_n(size, blocks));
    let held = all.map(|size| pool.alloc::<u8>(size)).collect::<Result<Vec<_>>>()?;
    drop(held);
    Ok(())
}

/// Seconds: the mean time that a thread was busy, and the time from the first start to the last
/// end.
struct Times {
    busy: f64,
    wall: f64,
}

fn round(pool: &PinnedPool, sizes: &Sizes, threads: usize, count: usize) -> Result<Times> {
    let gate = Gate::new(threads);
    let run = |thread: usize| -> Result<(Instant, Instant)> {
        let first = 64 * thread;
        let work = |count: usize| -> Result<()> {
            for operation in 0..count {
                let size = sizes[(first + operation) % TABLE];
                drop(black_box(pool.alloc::<u8>(black_box(size))?));
            }
            Ok(())
        };
        let warm = work(WARM_UP);
        gate.pass(); // even after a failure: the others wait
        warm?;
        let start = Instant::now();
        work(count)?;
        Ok((start, Instant::now()))
    };
    let run = &run;
    let spans = thread::scope(|scope| {
        let team: Vec<_> = (0..threads).map(|index| scope.spawn(move || run(index))).collect();
        let joined = team.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<Vec<_>>>()
    })?;
    let busy: f64 = spans.iter().map(|(start, end)| (*end - *start).as_secs_f64()).sum();
    let starts = spans.iter().map(|(start, _)| *start).min().expect("a thread");
    let ends = spans.iter().map(|(_, end)| *end).max().expect("a thread");
    Ok(Times { busy: busy / threads as f64, wall: (ends - starts).as_secs_f64() })
}
