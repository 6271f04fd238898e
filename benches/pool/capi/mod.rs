//! The extra time of the C interface over the Rust interface below it: the same loops, in turns.
//!
//! Each thread has its own buffers and stream. The pools are shared.

mod allocations;
mod uses;

use std::ptr::null;
use std::thread;
use std::time::{Duration, Instant};

use pinlane::{DeviceBuf, PinnedBuf, PinnedPool, Result, Stream, Ticket};

use super::common::c::*;
use super::common::figures::{Figure, Report};
use super::common::team::Gate;
use super::common::timing::{medians, operations};
use super::{Bench, SMALL};

const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const SECOND: Duration = Duration::from_secs(1);
const C_SECOND: u64 = SECOND.as_nanos() as u64;

/// The state that all threads share, for Rust and for C. The empty pools never have memory.
struct Both {
    pool: PinnedPool,
    empty: PinnedPool,
    c_device: Handle,
    c_pool: Handle,
    c_empty: Handle,
}

// SAFETY: handles of the C interface may be used by any thread.
unsafe impl Sync for Both {}

/// The state of a thread, for Rust and for C.
struct Own {
    buffer: PinnedBuf<u8>,
    gpu: DeviceBuf<u8>,
    stream: Stream,
    /// The ticket of complete work.
    ticket: Ticket,
    c_buffer: Handle,
    c_gpu: Handle,
    c_stream: Handle,
    c_ticket: Handle,
}

impl Both {
    fn new(bench: &Bench) -> Result<Self> {
        // SAFETY: `made` passes the address of a variable.
        let device = made(|out| unsafe { pinlane_device_open_or_emulated(out) });
        // SAFETY: as above.
        let pool = || made(|out| unsafe { pinlane_pool_create(device, null(), out) });
        Ok(Both {
            pool: bench.pool()?,
            empty: bench.pool()?,
            c_device: device,
            c_pool: pool(),
            c_empty: pool(),
        })
    }

    fn own(&self, bench: &Bench) -> Result<Own> {
        let stream = bench.device.stream()?;
        // SAFETY: `made` passes the address of a variable.
        let c_stream = made(|out| unsafe { pinlane_stream_create(self.c_device, null(), out) });
        let own = Own {
            buffer: self.pool.alloc_zeroed(SMALL)?,
            gpu: bench.device.alloc(SMALL)?,
            ticket: stream.record()?,
            stream,
            // SAFETY: `made` passes the address of a variable.
            c_buffer: made(|out| unsafe { pinlane_buffer_alloc(self.c_pool, SMALL, out) }),
            // SAFETY: as above.
            c_gpu: made(|out| unsafe { pinlane_device_buffer_alloc(self.c_device, SMALL, out) }),
            // SAFETY: as above.
            c_ticket: made(|out| unsafe { pinlane_stream_record(c_stream, out) }),
            c_stream,
        };
        own.stream.synchronize()?;
        // SAFETY: takes any handle.
        assert_eq!(unsafe { pinlane_stream_synchronize(own.c_stream) }, 0);
        Ok(own)
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        // SAFETY: handles that were made for this, each freed once.
        unsafe {
            pinlane_pool_free(self.c_pool);
            pinlane_pool_free(self.c_empty);
            pinlane_device_free(self.c_device);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: as above; freeing in the middle of a copy is fine.
        unsafe {
            pinlane_buffer_free(self.c_buffer);
            pinlane_device_buffer_free(self.c_gpu);
            pinlane_ticket_free(self.c_ticket);
            pinlane_stream_free(self.c_stream);
        }
    }
}

/// Makes that many operations on one thread.
type Work = fn(&Both, &mut Own, usize) -> Result<()>;

struct Subject {
    name: &'static str,
    method: &'static str,
    rust: Work,
    c: Work,
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    for subject in allocations::ALL.iter().chain(&uses::ALL) {
        for threads in THREADS {
            let name = format!("capi.{}.t{threads}", subject.name);
            if report.wants(&name) {
                compare(bench, report, name, subject, threads)?;
            }
        }
    }
    Ok(())
}

fn compare(
    bench: &Bench,
    report: &mut Report,
    name: String,
    subject: &Subject,
    threads: usize,
) -> Result<()> {
    let both = Both::new(bench)?;
    let once = |work: Work, count: usize| round(bench, &both, threads, work, count);
    let count = |work| operations(bench.shortest, |count| once(work, count));
    let (rusts, cs) = (count(subject.rust)?, count(subject.c)?);
    let nanoseconds = |work, count| Ok(once(work, count)? / count as f64 * 1e9);
    let [rust, c] = medians(
        bench.rounds,
        [&mut || nanoseconds(subject.rust, rusts), &mut || nanoseconds(subject.c, cs)],
    )?;
    let mut add = |name, value, reference, method| {
        let (unit, better, samples) = ("ns", "lower", bench.rounds);
        report.add(Figure { name, value, unit, better, reference, samples, method, spread: None });
    };
    let over = format!("{name}.over");
    add(name, c, Some(("Rust", rust)), subject.method);
    add(over, c - rust, None, "what C takes longer than Rust");
    Ok(())
}

/// Seconds that a thread was busy with `count` operations, mean over the threads.
fn round(bench: &Bench, both: &Both, threads: usize, work: Work, count: usize) -> Result<f64> {
    let gate = &Gate::new(threads);
    let run = || -> Result<f64> {
        let own = both.own(bench);
        let warm = own.and_then(|mut own| work(both, &mut own, 256).map(|()| own));
        gate.pass(); // after a failure too: the others wait
        let mut own = warm?;
        let start = Instant::now();
        work(both, &mut own, count)?;
        Ok(start.elapsed().as_secs_f64())
    };
    let times = thread::scope(|scope| {
        let team: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let joined = team.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<Vec<_>>>()
    })?;
    Ok(times.iter().sum::<f64>() / threads as f64)
}
