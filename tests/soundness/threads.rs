//! Many threads at once, which wait, await, share and compete. A hang is a failure.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use pinlane::Ticket;
use pinlane::emulated::Execution;

use crate::common;
use crate::support::{LEN, Rig, block_on, eventually, watched};

const THREADS: usize = 8;

#[test]
fn many_threads_wait_for_one_copy() {
    watched(|| {
        for seed in 0..8 {
            let rig = Rig::new(Execution::Lazy, seed, 2);
            let (host, mut gpu, mut back) = (rig.host(3), rig.gpu(), rig.host(0));
            rig.stall(&rig.stream);
            rig.stream.upload(&host, &mut gpu).unwrap();
            let ticket = rig.stream.download(&gpu, &mut back).unwrap();
            let ready = Barrier::new(THREADS + 1);
            thread::scope(|scope| {
                let (ready, ticket, back) = (&ready, &ticket, &back);
                let threads: [_; THREADS] = std::array::from_fn(|number| {
                    scope.spawn(move || {
                        ready.wait();
                        match number % 3 {
                            0 => ticket.wait().unwrap(),
                            1 => block_on(ticket.clone()).unwrap(),
                            _ => while !ticket.is_done().unwrap() {},
                        }
                        assert_eq!(back.read().unwrap(), [3; LEN]);
                    })
                });
                ready.wait();
                rig.release(&rig.stream);
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            });
            rig.assert_no_misuse();
        }
    });
}

/// Polls all of its futures whenever it is woken, as a naive executor does.
struct All(Vec<Option<Ticket>>);

impl Future for All {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        for slot in &mut self.0 {
            if let Some(ticket) = slot
                && let Poll::Ready(result) = Pin::new(ticket).poll(context)
            {
                result.unwrap();
                *slot = None;
            }
        }
        if self.0.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn a_thousand_tickets_are_awaited() {
    watched(|| {
        let device = common::device();
        let pool = common::pool(&device).build().unwrap();
        let streams = [(); 4].map(|()| device.stream().unwrap());
        let host = pool.alloc::<u32>(LEN).unwrap();
        let mut gpus = [(); 4].map(|()| device.alloc::<u32>(LEN).unwrap());
        let mut tickets = Vec::new();
        for number in 0..1000 {
            tickets.push(streams[number % 4].upload(&host, &mut gpus[number % 4]).unwrap());
        }
        let (one_by_one, at_once) = tickets.split_at(500);
        block_on(All(at_once.iter().cloned().map(Some).collect()));
        thread::scope(|scope| {
            let chunks = one_by_one.chunks(100);
            let wait =
                |tickets: &[Ticket]| tickets.iter().for_each(|t| block_on(t.clone()).unwrap());
            let threads: Vec<_> = chunks.map(|chunk| scope.spawn(move || wait(chunk))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert!(tickets.iter().all(|ticket| ticket.is_done().unwrap()));
    });
}

/// Counts how often it is woken.
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that polls a pending copy over and over (in a `select` with a timer, say) is one watcher.
#[test]
fn polling_often_wakes_once() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        rig.stall(&rig.stream);
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        let mut ticket = rig.stream.upload(&host, &mut gpu).unwrap();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = count.clone().into();
        for _ in 0..1000 {
            let polled = Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        // The references: `count`, the waker, and one clone of it for the watcher.
        eventually("it is known once", || Arc::strong_count(&count) == 3);
        rig.release(&rig.stream);
        eventually("woken", || count.0.load(Ordering::Relaxed) > 0);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    });
}

/// For an executor that makes a waker for each poll, only the last waker of a future counts.
#[test]
fn of_many_wakers_the_last_is_kept_and_woken() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        rig.stall(&rig.stream);
        let mut ticket = rig.stream.record().unwrap();
        let counts: Vec<_> = (0..1000).map(|_| Arc::new(Count(AtomicUsize::new(0)))).collect();
        for count in &counts {
            let waker = Waker::from(count.clone());
            assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let (last, others) = counts.split_last().unwrap();
        let kept = others.iter().filter(|count| Arc::strong_count(count) > 1).count();
        assert_eq!((kept, Arc::strong_count(last)), (0, 2));
        // A dropped future keeps no waker. A clone of a future is a separate future.
        let mut dropped = ticket.clone();
        let waker = Waker::from(others[0].clone());
        assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(&waker)).is_pending());
        drop((dropped, waker));
        assert_eq!(Arc::strong_count(&others[0]), 1);
        rig.release(&rig.stream);
        eventually("woken", || last.0.load(Ordering::Relaxed) > 0);
        assert!(others.iter().all(|count| count.0.load(Ordering::Relaxed) == 0));
        // After it was woken it can be polled again, like a new one.
        rig.stall(&rig.stream);
        let waker = Waker::from(last.clone());
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_ready());
        rig.release(&rig.stream);
    });
}

/// A waker that panics when it is woken, and again when it is dropped.
struct Bad;

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        if !thread::panicking() {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
}

#[test]
fn a_bad_waker_does_not_end_the_watch_of_others() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        rig.stall(&rig.stream);
        let mut first = rig.stream.record().unwrap();
        let second = rig.stream.record().unwrap();
        {
            let waker = Waker::from(Arc::new(Bad));
            assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let waiting = thread::spawn(move || block_on(second));
        rig.release(&rig.stream);
        waiting.join().unwrap().unwrap();
        // Once more, so that the watcher has handled both.
        rig.stall(&rig.stream);
        let third = rig.stream.record().unwrap();
        let waiting = thread::spawn(move || block_on(third));
        rig.release(&rig.stream);
        waiting.join().unwrap().unwrap();
    });
}

/// Many threads read one source at once, on one stream and on several. Then a writer must wait for
/// all of them.
#[test]
fn a_buffer_is_uploaded_by_many_threads_at_once() {
    watched(|| {
        for seed in 0..40 {
            let rig = Rig::new(Execution::Lazy, seed, 1);
            let mut host = rig.host(0);
            let shared = rig.stream.clone();
            for round in 0..6u32 {
                host.write().unwrap().fill(round);
                let start = Barrier::new(THREADS);
                let uploaded: Vec<_> = thread::scope(|scope| {
                    let workers: Vec<_> = (0..THREADS)
                        .map(|number| {
                            let (rig, host, start, shared) = (&rig, &host, &start, &shared);
                            scope.spawn(move || {
                                let mut gpu = rig.gpu();
                                let own = rig.device.stream().unwrap();
                                let stream = if number % 4 == 0 { &own } else { shared };
                                start.wait();
                                for _ in 0..20 {
                                    stream.upload(host, &mut gpu).unwrap();
                                }
                                gpu
                            })
                        })
                        .collect();
                    workers.into_iter().map(|worker| worker.join().unwrap()).collect()
                });
                host.write().unwrap().fill(!round);
                assert!(uploaded.iter().all(|gpu| rig.contents(gpu) == [round; LEN]));
            }
            drop((host, shared));
            rig.assert_nothing_is_left();
        }
    });
}

/// No thread has more than one buffer of at most 8 KiB, and the budget suffices for all. So every
/// allocation finds room in the end, though it may have to trim, and to wait for memory that others
/// trim or have in flight.
#[test]
fn an_allocation_that_fits_the_budget_never_fails() {
    watched(|| {
        for (execution, seed) in [(Execution::Eager, 0), (Execution::Lazy, 1), (Execution::Lazy, 2)]
        {
            let rig = Rig::new(execution, seed, 2 * THREADS);
            let together = Barrier::new(THREADS);
            thread::scope(|scope| {
                for number in 1..=THREADS as u64 {
                    let (rig, together) = (&rig, &together);
                    scope.spawn(move || {
                        let stream = rig.device.stream().unwrap();
                        let mut gpu = rig.device.alloc::<u8>(8192).unwrap();
                        let mut dice = number;
                        for round in 0..600 {
                            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(number);
                            let len = [8192, 4096, 5000, 6000, 7000, 100, 8000]
                                [(dice >> 60) as usize % 7];
                            together.wait();
                            let host = rig.pool.alloc::<u8>(len);
                            if let Ok(host) = &host
                                && round % 3 > 0
                            {
                                stream.upload(host, gpu.slice_mut(..len).unwrap()).unwrap();
                            }
                            // In most rounds all threads have their buffer before one gives it
                            // back.
                            if round % 4 > 0 {
                                together.wait();
                            }
                            host.expect("there is room");
                        }
                    });
                }
            });
            let stats = rig.pool.stats();
            assert!(stats.peak_bytes <= stats.max_bytes, "{stats}");
            assert_eq!((stats.live_bytes, stats.quarantined_bytes), (0, 0), "{stats}");
            assert!(stats.trims > 0, "the budget was never short: {stats}");
            rig.assert_nothing_is_left();
        }
    });
}

/// Threads fence one stream while others wait on it: an event is reused only when no thread waits
/// on it.
#[test]
fn one_stream_is_fenced_and_waited_for_by_many_threads() {
    watched(|| {
        let device = common::device();
        let stream = device.stream().unwrap();
        let newest = Mutex::new(stream.record().unwrap());
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (stream, newest) = (&stream, &newest);
                scope.spawn(move || {
                    for round in 0..500 {
                        let mine = stream.record().unwrap();
                        let theirs = std::mem::replace(&mut *newest.lock().unwrap(), mine.clone());
                        match (round + number) % 4 {
                            0 => theirs.wait().unwrap(),
                            1 => drop(theirs.is_done().unwrap()),
                            2 => stream.synchronize().unwrap(),
                            _ => stream.wait_for(&theirs).unwrap(),
                        }
                        if round % 7 == 0 {
                            mine.wait().unwrap();
                            assert!(mine.is_done().unwrap());
                        }
                    }
                });
            }
        });
        stream.synchronize().unwrap();
        assert!(newest.into_inner().unwrap().is_done().unwrap());
    });
}
