//! The cost of a growth for other threads: the longest single hit, and the longest bare copy call,
//! of a thread while another one grows the same pool.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pinlane::{
    PinnedPool, Result,
    pool::{Builder, PageLocking},
};

use super::common::figures::{Figure, Report};
use super::common::team::Gate;
use super::common::timing::median;
use super::hit::WARM_UP;
use super::ticks::{Clock, Samples};
use super::{Bench, SMALL};

const ROUNDS: usize = 5;
/// How many samples are kept. The longest is always kept.
const ROOM: usize = 4_000_000;

/// How the pool grows.
type Growth = fn(Builder) -> Builder;

const GROWERS: [(&str, Option<Growth>); 4] = [
    ("none", None),
    ("register", Some(|pool| pool.page_locking(PageLocking::Register))),
    ("register.t4", Some(|pool| pool.page_locking(PageLocking::Register).growth_threads(4))),
    ("allocate", Some(|pool| pool.page_locking(PageLocking::Allocate))),
];

/// The work of the other thread.
#[derive(Clone, Copy)]
enum Victim {
    Hit,
    Copy,
}

/// Medians over the rounds, in microseconds.
struct Stall {
    longest: f64,
    p999: f64,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    for (name, victim) in [("hit", Victim::Hit), ("copy", Victim::Copy)] {
        let name = format!("pool.stall.{name}");
        if !report.wants(&name) {
            continue;
        }
        let clock = Clock::calibrate();
        let mut samples = Samples::with_room(ROOM);
        let mut quiet = None;
        for (grower, growth) in GROWERS {
            let stall = stall(bench, &clock, &mut samples, victim, growth)?;
            let reference = quiet.get_or_insert(Stall { ..stall });
            let of = |value| growth.map(|_| ("the same without growth", value));
            let (longest, p999) = (of(reference.longest), of(reference.p999));
            let mut add = |suffix, value, reference, method| {
                report.add(Figure {
                    name: format!("{name}.{grower}{suffix}"),
                    value,
                    unit: "us",
                    better: "lower",
                    reference,
                    samples: ROUNDS,
                    spread: None,
                    method,
                });
            };
            match victim {
                Victim::Hit => add(
                    "",
                    stall.longest,
                    longest,
                    "the longest alloc + drop of 4 KiB of a thread while another's allocation \
                     grows the pool by 1 GiB (none: 100 ms without growth); median of 5 rounds",
                ),
                Victim::Copy => add(
                    "",
                    stall.longest,
                    longest,
                    "the longest bare call that copies 4 KiB, a wait after each 64th not counted, \
                     of a thread while another grows a pool by 1 GiB (none: 100 ms without); \
                     median of 5 rounds",
                ),
            }
            add(
                ".p999",
                stall.p999,
                p999,
                "99.9% of those operations took no longer; median of 5 rounds",
            );
        }
    }
    Ok(())
}

fn stall(
    bench: &Bench,
    clock: &Clock,
    samples: &mut Samples,
    victim: Victim,
    growth: Option<Growth>,
) -> Result<Stall> {
    let (mut longest, mut p999) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        samples.clear();
        round(bench, samples, victim, growth)?;
        samples.sort();
        let micros = |ticks| clock.nanoseconds(ticks) / 1e3;
        longest.push(micros(samples.longest()));
        p999.push(micros(samples.quantile(0.999)));
    }
    Ok(Stall { longest: median(longest), p999: median(p999) })
}

fn round(
    bench: &Bench,
    samples: &mut Samples,
    victim: Victim,
    growth: Option<Growth>,
) -> Result<()> {
    let (bytes, _) = bench.large;
    let builder = PinnedPool::builder(&bench.device).max_bytes(2 * bytes);
    let pool = growth.map_or(builder.clone(), |growth| growth(builder)).build()?;
    let (ready, done) = (Gate::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| match victim {
            Victim::Hit => hits(&pool, samples, &ready, &done),
            Victim::Copy => copies(bench, &pool, samples, &ready, &done),
        });
        ready.pass();
        thread::sleep(Duration::from_millis(2)); // it is in its loop then
        let grown = match growth {
            Some(_) => pool.alloc::<u8>(bytes).map(drop),
            None => {
                thread::sleep(Duration::from_millis(100));
                Ok(())
            }
        };
        done.store(true, Ordering::Relaxed);
        other.join().expect("no panic").and(grown)
    })
}

fn hits(pool: &PinnedPool, samples: &mut Samples, ready: &Gate, done: &AtomicBool) -> Result<()> {
    let hit = || pool.alloc::<u8>(SMALL).map(|buffer| drop(black_box(buffer)));
    let warm = (0..WARM_UP).try_for_each(|_| hit());
    ready.pass(); // even after a failure: the other waits
    warm?;
    while !done.load(Ordering::Relaxed) {
        samples.time(hit)?;
    }
    Ok(())
}

fn copies(
    bench: &Bench,
    pool: &PinnedPool,
    samples: &mut Samples,
    ready: &Gate,
    done: &AtomicBool,
) -> Result<()> {
    const BETWEEN_WAITS: usize = 64;
    let prepared = pool.alloc_zeroed::<u8>(SMALL).and_then(|host| {
        let mut gpu = bench.device.alloc::<u8>(SMALL)?;
        bench.device.stream()?.upload(&host, &mut gpu)?.wait()?; // the memory is there
        Ok((host, gpu))
    });
    ready.pass();
    let (host, gpu) = prepared?;
    let (from, to) = (host.as_ptr(), gpu.as_device_ptr());
    while !done.load(Ordering::Relaxed) {
        for _ in 0..BETWEEN_WAITS {
            // SAFETY: both blocks live until the stream has been waited for, below.
            samples.time(|| unsafe { bench.bare.upload(to, from, SMALL) });
        }
        bench.bare.synchronize()?;
    }
    Ok(())
}
