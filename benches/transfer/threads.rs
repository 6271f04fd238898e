//! Never slower than the runtime, even if many threads copy at once. Each thread copies its own
//! memory on its own stream.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use pinlane::Result;

use super::common::cuda::Way;
use super::common::figures::{Figure, Report};
use super::common::pageable::Call;
use super::common::team::Gate;
use super::common::timing::medians;
use super::versus::{Pair, TABLE, WAYS, faster};
use super::{Bench, KIB, MIB};

const SIZES: [usize; 4] = [4 * KIB, 64 * KIB, MIB, 16 * MIB];
const THREADS: [usize; 4] = [1, 4, 16, 64];

const METHOD: &str = "threads that start together copy pageable slices of their own on streams of \
    their own, each copy until its data is there; the time from the first start to the last end, \
    divided by the copies of a thread; median, in turns with cudaMemcpyAsync + \
    cudaStreamSynchronize and, down, with cudaMemcpy, the faster of which is the reference";

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let samples = if bench.quick { 1 } else { 5 };
    for bytes in SIZES {
        for threads in THREADS {
            let names = WAYS.map(|(way, _)| format!("{TABLE}.{way}.{bytes}.t{threads}"));
            let in_time = !bench.quick || (bytes <= MIB && threads <= 4);
            if !in_time || !names.iter().any(|name| report.wants(name)) {
                continue;
            }
            let mut pairs = Vec::new();
            for _ in 0..threads {
                pairs.push(Mutex::new(Pair::new(bench, bytes)?));
            }
            let copies = (32 * MIB / bytes).clamp(4, if bench.quick { 8 } else { 200 });
            for (name, (_, way)) in names.into_iter().zip(WAYS) {
                let theirs = |call| {
                    together(&pairs, copies, |pair: &mut Pair| pair.theirs(call, way, 0, bytes))
                };
                let [ours, by_async, by_sync] = medians(
                    samples,
                    [
                        &mut || together(&pairs, copies, |pair| pair.ours(way, 0, bytes)),
                        &mut || theirs(Call::Async),
                        &mut || theirs(Call::Sync),
                    ],
                )?;
                let pair = pairs[0].lock().expect("no panic");
                // As for one thread: cudaMemcpy returns from an upload before its data has arrived.
                let (reference, theirs) = match way {
                    Way::H2D => (pair.name(Call::Async), by_async),
                    Way::D2H => faster(&pair, by_async, by_sync),
                };
                report.add(
                    Figure::lower(name, ours * 1e6, "us")
                        .beside(reference, theirs * 1e6)
                        .by(METHOD, samples),
                );
            }
        }
    }
    Ok(())
}

/// Each pair's thread makes `copies` copies. Returns the seconds a copy.
pub fn together<P: Send>(
    pairs: &[Mutex<P>],
    copies: usize,
    copy: impl Fn(&mut P) -> Result<()> + Sync,
) -> Result<f64> {
    let gate = Gate::new(pairs.len());
    let run = |pair: &Mutex<P>| -> Result<(Instant, Instant)> {
        let mut pair = pair.lock().expect("no panic");
        gate.pass();
        let start = Instant::now();
        (0..copies).try_for_each(|_| copy(&mut pair))?;
        Ok((start, Instant::now()))
    };
    let times = thread::scope(|scope| {
        let team: Vec<_> = pairs.iter().map(|pair| scope.spawn(|| run(pair))).collect();
        let joined = team.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<Vec<_>>>()
    })?;
    let start = times.iter().map(|&(start, _)| start).min().expect("a thread");
    let end = times.iter().map(|&(_, end)| end).max().expect("a thread");
    Ok((end - start).as_secs_f64() / copies as f64)
}
