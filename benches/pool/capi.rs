//! What the C interface costs over the Rust interface below it: the same loops, in turns.
//!
//! Each thread has its own buffers and stream. The pools are shared.

use std::hint::black_box;
use std::ptr::{null, null_mut};
use std::thread;
use std::time::Instant;

use pinlane::{DeviceBuf, PinnedBuf, PinnedPool, Result, Stream};

use super::common::c::*;
use super::common::figures::{Figure, Report};
use super::common::team::Gate;
use super::common::timing::{medians, operations};
use super::{Bench, SMALL};

const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// The most copies on their way.
const COPIES: usize = 64;

/// What all threads share, for Rust and for C. The empty pools never have memory.
struct Both {
    pool: PinnedPool,
    empty: PinnedPool,
    c_device: Handle,
    c_pool: Handle,
    c_empty: Handle,
}

// SAFETY: handles of the C interface may be used by any thread.
unsafe impl Sync for Both {}

/// What a thread owns, for Rust and for C.
struct Own {
    buffer: PinnedBuf<u8>,
    gpu: DeviceBuf<u8>,
    stream: Stream,
    c_buffer: Handle,
    c_gpu: Handle,
    c_stream: Handle,
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
        Ok(Own {
            buffer: self.pool.alloc_zeroed(SMALL)?,
            gpu: bench.device.alloc(SMALL)?,
            stream: bench.device.stream()?,
            // SAFETY: `made` passes the address of a variable.
            c_buffer: made(|out| unsafe { pinlane_buffer_alloc(self.c_pool, SMALL, out) }),
            // SAFETY: as above.
            c_gpu: made(|out| unsafe { pinlane_device_buffer_alloc(self.c_device, SMALL, out) }),
            // SAFETY: as above.
            c_stream: made(|out| unsafe { pinlane_stream_create(self.c_device, null(), out) }),
        })
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

const SUBJECTS: [Subject; 5] = [
    Subject {
        name: "alloc_free",
        method: "pinlane_buffer_alloc + pinlane_buffer_free of 4 KiB, an operation of a thread, in \
                 turns with PinnedPool::alloc + drop; loops of 20 ms at least, mean over the \
                 threads, median",
        rust: |both, _, count| {
            (0..count).try_for_each(|_| both.pool.alloc::<u8>(SMALL).map(|it| drop(black_box(it))))
        },
        c: |both, _, count| {
            for _ in 0..count {
                let mut buffer = null_mut();
                // SAFETY: the address of a variable, and the handle that was written there.
                let failed = unsafe {
                    pinlane_buffer_alloc(both.c_pool, SMALL, &mut buffer)
                        | pinlane_buffer_free(black_box(buffer))
                };
                assert_eq!(failed, 0);
            }
            Ok(())
        },
    },
    Subject {
        name: "pool_allocate",
        method: "pinlane_pool_allocate + pinlane_pool_deallocate of 4 KiB, otherwise as \
                 capi.alloc_free, also the reference",
        rust: |both, _, count| {
            (0..count).try_for_each(|_| both.pool.alloc::<u8>(SMALL).map(|it| drop(black_box(it))))
        },
        c: |both, _, count| {
            for _ in 0..count {
                let mut memory = null_mut();
                // SAFETY: the address of a variable, and the memory that was written there.
                let failed = unsafe {
                    pinlane_pool_allocate(both.c_pool, SMALL, 64, &mut memory)
                        | pinlane_pool_deallocate(both.c_pool, black_box(memory))
                };
                assert_eq!(failed, 0);
            }
            Ok(())
        },
    },
    Subject {
        name: "buffer_size",
        method: "pinlane_buffer_size, in turns with PinnedBuf::len; otherwise as capi.alloc_free",
        rust: |_, own, count| {
            (0..count).for_each(|_| _ = black_box(black_box(&own.buffer).len()));
            Ok(())
        },
        c: |_, own, count| {
            let mut bytes = 0;
            for _ in 0..count {
                // SAFETY: the address of a variable.
                assert_eq!(unsafe { pinlane_buffer_size(black_box(own.c_buffer), &mut bytes) }, 0);
            }
            assert_eq!(bytes, SMALL);
            Ok(())
        },
    },
    Subject {
        name: "copy",
        method: "pinlane_device_buffer_upload of 4 KiB without a ticket, and a wait every 64 \
                 copies, in turns with Stream::upload; every thread with a stream and buffers of \
                 its own; otherwise as capi.alloc_free",
        rust: |_, own, count| {
            for number in 0..count {
                own.stream.upload(&own.buffer, &mut own.gpu)?;
                if number % COPIES == 0 {
                    own.stream.synchronize()?;
                }
            }
            Ok(())
        },
        c: |_, own, count| {
            let Own { c_stream: stream, c_buffer: buffer, c_gpu: gpu, .. } = *own;
            for number in 0..count {
                // SAFETY: no ticket is wanted.
                let failed = unsafe {
                    pinlane_device_buffer_upload(stream, buffer, 0, gpu, 0, SMALL, null_mut())
                };
                assert_eq!(failed, 0);
                if number % COPIES == 0 {
                    // SAFETY: takes any handle.
                    assert_eq!(unsafe { pinlane_stream_synchronize(stream) }, 0);
                }
            }
            Ok(())
        },
    },
    Subject {
        name: "try_alloc_fails",
        method: "pinlane_buffer_try_alloc of a pool without memory, in turns with \
                 PinnedPool::try_alloc; otherwise as capi.alloc_free",
        rust: |both, _, count| {
            (0..count).for_each(|_| assert!(black_box(both.empty.try_alloc::<u8>(SMALL)).is_err()));
            Ok(())
        },
        c: |both, _, count| {
            const NOT_READY: i32 = 4;
            for _ in 0..count {
                let mut none = null_mut();
                // SAFETY: the address of a variable.
                let status = unsafe { pinlane_buffer_try_alloc(both.c_empty, SMALL, &mut none) };
                assert_eq!(status, NOT_READY);
            }
            Ok(())
        },
    },
];

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    for subject in &SUBJECTS {
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
        report.add(Figure { name, value, unit, better, reference, samples, method });
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
