//! New memory: the time of a pool's first allocation, and the time to give it back.

use std::fs;
use std::time::Instant;

use pinlane::{PinnedPool, Result, pool::PageLocking};

use super::common::figures::{Figure, Report};
use super::common::timing::median;
use super::{Bench, GIB};

const ROUNDS: usize = 3;

/// A way to page-lock, and with how many threads.
type Way = (PageLocking, usize);

const WAYS: [(&str, Way); 5] = [
    ("t1", (PageLocking::Register, 1)),
    ("t4", (PageLocking::Register, 4)),
    ("t8", (PageLocking::Register, 8)),
    ("t16", (PageLocking::Register, 16)),
    ("allocate", (PageLocking::Allocate, 1)),
];

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let (bytes, size) = bench.large;
    let (grow, release) = (format!("pool.grow.{size}"), format!("pool.release.{size}"));
    if !report.wants(&grow) && !report.wants(&release) {
        return Ok(());
    }
    if bytes >= GIB {
        touch(6 * GIB);
    }
    let mut bare = (Vec::new(), Vec::new());
    let mut ours = WAYS.map(|_| (Vec::new(), Vec::new()));
    for round in 0..=ROUNDS {
        let all = ours.iter_mut().zip(WAYS.map(Some)).chain([(&mut bare, None)]);
        for (samples, way) in all {
            let (grown, released) = match way {
                Some((_, way)) => through_pool(bench, way, bytes)?,
                None => through_runtime(bench, bytes),
            };
            if round > 0 {
                samples.0.push(grown);
                samples.1.push(released);
            }
        }
    }
    let (alloc, free) = (median(bare.0), median(bare.1));
    for ((way, ..), (grown, released)) in WAYS.into_iter().zip(ours) {
        let mut add = |name: &str, samples, reference, method| {
            report.add(Figure {
                name: format!("{name}.{way}"),
                value: median(samples),
                unit: "ms",
                better: "lower",
                reference: Some(reference),
                samples: ROUNDS,
                spread: None,
                method,
            });
        };
        add(
            &grow,
            grown,
            (bench.bare.name("bare cudaHostAlloc"), alloc),
            "the first allocation of a pool, by tN: registered, touched with N threads; allocate: \
             PageLocking::Allocate; median of 3, in turns, the machine's memory touched before",
        );
        add(
            &release,
            released,
            (bench.bare.name("bare cudaFreeHost"), free),
            "dropping that pool, its one buffer dropped already; median of 3",
        );
    }
    Ok(())
}

/// Milliseconds for the first allocation of a pool, and for dropping the pool.
fn through_pool(bench: &Bench, (how, threads): Way, bytes: usize) -> Result<(f64, f64)> {
    let builder = PinnedPool::builder(&bench.device).max_bytes(2 * bytes);
    let pool = builder.page_locking(how).growth_threads(threads).build()?;
    let start = Instant::now();
    let buffer = pool.alloc::<u8>(bytes)?;
    let grown = milliseconds(start);
    drop(buffer);
    let start = Instant::now();
    drop(pool);
    Ok((grown, milliseconds(start)))
}

fn through_runtime(bench: &Bench, bytes: usize) -> (f64, f64) {
    let start = Instant::now();
    let memory = bench.bare.host_alloc(bytes);
    let allocated = milliseconds(start);
    let start = Instant::now();
    // SAFETY: the memory was allocated above and never used.
    unsafe { bench.bare.host_free(memory) };
    (allocated, milliseconds(start))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Touches memory and gives it back, at most half of what is available. A virtual machine gets much
/// of its memory from its host on first use, which must not count in the first measurement.
fn touch(bytes: usize) {
    const PAGE: usize = 4096;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    let kibibytes = line.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or(0);
    let mut memory = vec![0_u8; bytes.min(kibibytes * 1024 / 2)];
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get()).min(16);
    let share = memory.len().div_ceil(threads).max(PAGE);
    std::thread::scope(|scope| {
        for part in memory.chunks_mut(share) {
            scope.spawn(|| part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1));
        }
    });
    std::hint::black_box(memory);
}
