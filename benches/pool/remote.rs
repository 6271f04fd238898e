//! Allocated by one thread, dropped by another.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use pinlane::{PinnedBuf, Result};

use super::common::figures::{Figure, Report};
use super::common::team::Gate;
use super::common::timing::{medians, operations};
use super::ring::{ROOM, Ring};
use super::{Bench, SMALL};

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !report.wants("pool.remote_free") {
        return Ok(());
    }
    let pool = bench.pool()?;
    let held = (0..ROOM + 2).map(|_| pool.alloc::<u8>(SMALL)).collect::<Result<Vec<_>>>()?;
    drop(held);
    let buffers =
        |count| handed_over(count, || pool.alloc::<u8>(SMALL), |buffer| drop(black_box(buffer)));
    // The ring alone, with items of a buffer's size.
    type Item = [usize; size_of::<PinnedBuf<u8>>() / size_of::<usize>()];
    let alone =
        |count| handed_over(count, || Ok(black_box(Item::default())), |item| _ = black_box(item));
    let count = operations(bench.shortest, buffers)?;
    let [gross, ring] = medians(
        bench.rounds,
        [&mut || Ok(buffers(count)? / count as f64 * 1e9), &mut || {
            Ok(alone(count)? / count as f64 * 1e9)
        }],
    )?;
    let reference = Some(("the ring alone", ring));
    for (suffix, value, reference, method) in [
        (
            "",
            gross,
            reference,
            "4 KiB allocated by one thread and dropped by another, through a ring of 1024; from \
             the first allocation to the last drop, an operation of the pair; loops of 20 ms at \
             least, median",
        ),
        (
            ".net",
            gross - ring,
            None,
            "pool.remote_free less pool.remote_free.ring; little where the ring's two lines travel \
             anyhow",
        ),
        (
            ".ring",
            ring,
            None,
            "items of a buffer's size through the ring, in turns with pool.remote_free",
        ),
    ] {
        report.add(Figure {
            name: format!("pool.remote_free{suffix}"),
            value,
            unit: "ns",
            better: "lower",
            reference,
            samples: bench.rounds,
            spread: None,
            method,
        });
    }
    Ok(())
}

/// Seconds for `count` items from one thread to another.
fn handed_over<T: Send>(
    count: usize,
    make: impl Fn() -> Result<T>,
    take: impl Fn(T) + Sync,
) -> Result<f64> {
    let mut ring = Ring::new();
    let (mut producer, mut consumer) = ring.sides();
    let (gate, take) = (&Gate::new(2), &take);
    thread::scope(|scope| {
        let taker = scope.spawn(move || {
            gate.pass();
            while let Some(item) = consumer.pop() {
                take(item);
            }
            Instant::now()
        });
        gate.pass();
        let start = Instant::now();
        // `None` ends the taker, after a failure too.
        let made = (0..count).try_for_each(|_| make().map(|item| producer.push(Some(item))));
        producer.push(None);
        let end = taker.join().expect("no panic");
        made.map(|()| (end - start).as_secs_f64())
    })
}
