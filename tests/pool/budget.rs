//! A spent budget: which requests wait, which are served, and which get an error.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use pinlane::emulated::Execution;
use pinlane::{ErrorKind, PinnedBuf, PinnedPool, Result};

use crate::support::{BLOCK, LEN, Rig, block_on, eventually, watched};
use crate::{assert_adds_up, executor};

pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// Both modes: operations that run at once, and operations that run when something waits.
pub(crate) fn on_machines(blocks: usize, test: impl Fn(Rig) + Send + 'static) {
    watched(move || {
        test(Rig::new(Execution::Eager, 0, blocks));
        (0..3).for_each(|seed| test(Rig::new(Execution::Lazy, seed, blocks)));
    });
}

/// Uses a block exclusively: writes a cookie, uploads it if `upload`, and checks it.
fn use_block(rig: &Rig, host: &mut PinnedBuf<u32>, cookie: u32, upload: bool) {
    host.write().unwrap().fill(cookie);
    thread::yield_now();
    if upload {
        rig.stream.upload(&*host, &mut rig.gpu()).unwrap();
    }
    assert!(host.read().unwrap().iter().all(|&word| word == cookie), "another owner's block");
}

#[test]
fn sixty_four_threads_share_three_blocks() {
    const THREADS: usize = 64;
    const ROUNDS: usize = 40;
    const BLOCKS: usize = 3;
    on_machines(BLOCKS, |rig| {
        let held: Vec<_> = (0..BLOCKS as u32).map(|number| rig.host(number)).collect();
        let rounds: Vec<AtomicUsize> = (0..THREADS).map(|_| AtomicUsize::new(0)).collect();
        let (ended, without) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let (rig, rounds, ended, without) = (&rig, &rounds, &ended, &without);
            let threads: [_; THREADS] = std::array::from_fn(|thread| {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut host = rig.pool.alloc_timeout(LEN, LONG).unwrap();
                        let cookie = (thread * ROUNDS + round) as u32;
                        use_block(rig, &mut host, cookie, round % 4 == 0);
                        rounds[thread].fetch_add(1, Relaxed);
                    }
                    if !ended.swap(true, Relaxed) {
                        let none = rounds.iter().filter(|rounds| rounds.load(Relaxed) == 0);
                        without.store(none.count(), Relaxed);
                    }
                })
            });
            while rig.pool.stats().waiting < THREADS {
                thread::yield_now();
            }
            drop(held);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        // First come, first served: no thread gets a second block before each thread that waited at
        // that time has got one. A thread that has got one may not be scheduled for a long time.
        let without = without.into_inner();
        assert!(without <= BLOCKS, "one thread had {ROUNDS} rounds, {without} others none");
        let stats = assert_adds_up(&rig.pool, &rig.emulator);
        assert!(stats.waits.count > 0 && stats.live_bytes == 0, "{stats}");
        assert_eq!(stats.waiting, 0);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn sixty_four_tasks_share_three_blocks_and_some_are_cancelled() {
    const TASKS: usize = 64;
    const ROUNDS: usize = 40;
    on_machines(3, |rig| {
        let rig = Arc::new(rig);
        let done = Arc::new(AtomicUsize::new(0));
        let task = |task: usize| -> executor::Work {
            let (rig, done) = (rig.clone(), done.clone());
            Box::pin(async move {
                for round in 0..ROUNDS {
                    if (task + round).is_multiple_of(5) {
                        // The request is withdrawn before it is served, or dropped after it.
                        let mut unwanted = Box::pin(rig.pool.alloc_async::<u32>(LEN));
                        let poll = std::future::poll_fn(|context| {
                            Poll::Ready(unwanted.as_mut().poll(context).map(drop))
                        });
                        let _ = poll.await;
                        if round % 2 == 0 {
                            yield_once().await;
                        }
                    }
                    let mut host = rig.pool.alloc_async::<u32>(LEN).await.unwrap();
                    yield_once().await;
                    use_block(&rig, &mut host, (task * ROUNDS + round) as u32, round % 8 == 0);
                    done.fetch_add(1, Relaxed);
                }
            })
        };
        executor::run(3, (0..TASKS).map(task));
        assert_eq!(done.load(Relaxed), TASKS * ROUNDS);
        let stats = assert_adds_up(&rig.pool, &rig.emulator);
        assert_eq!((stats.live_bytes, stats.waiting), (0, 0), "{stats}");
        Arc::into_inner(rig).expect("the tasks are done").assert_nothing_is_left();
    });
}

/// Lets the other tasks go first.
fn yield_once() -> impl Future<Output = ()> {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

#[test]
fn a_budget_that_is_all_alive_is_exhausted_at_once() {
    on_machines(2, |rig| {
        let held = (rig.host(1), rig.host(2));
        let stats = rig.pool.stats();
        for _ in 0..3 {
            let error = rig.pool.alloc::<u32>(LEN).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BudgetExhausted);
            let message = error.to_string();
            assert!(message.contains("PinnedPool::alloc") && message.contains("4096 bytes"));
            assert!(message.contains(" live") && message.contains("max_bytes"), "{message}");
        }
        assert_eq!(rig.pool.stats().live_bytes, stats.live_bytes);
        let error = rig.pool.try_alloc::<u32>(LEN).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotReady);
        let error = rig.pool.alloc_timeout::<u32>(LEN, Duration::from_millis(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let pool = "8 KiB of 8 KiB page-locked, 0 bytes free, 0 blocks in flight";
        assert!(error.to_string().contains(pool), "{error}");
        drop(held);
        rig.host(3);
        assert_adds_up(&rig.pool, &rig.emulator);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn what_can_never_fit_is_refused_at_once_by_all_forms() {
    watched(|| {
        for max_bytes in [BLOCK, 6000, 3 * BLOCK] {
            let rig = Rig::new(Execution::Eager, 0, 1);
            let pool = PinnedPool::builder(&rig.device).max_bytes(max_bytes).build().unwrap();
            for len in [max_bytes + 1, (max_bytes / BLOCK) * BLOCK + 1, 1 << 40] {
                let waits: [&dyn Fn() -> Result<PinnedBuf<u8>>; 3] =
                    [&|| pool.alloc(len), &|| pool.alloc_timeout(len, LONG), &|| {
                        block_on(pool.alloc_async(len))
                    }];
                for wait in waits {
                    let error = wait().unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::BudgetExhausted, "{len} of {max_bytes}");
                }
            }
            pool.alloc::<u8>(BLOCK).unwrap();
        }
    });
}

#[test]
fn an_allocation_waits_for_what_is_in_flight() {
    on_machines(1, |rig| {
        let (host, mut gpu) = (rig.host(7), rig.gpu());
        rig.stall(&rig.stream);
        rig.stream.upload(&host, &mut gpu).unwrap();
        let block = host.as_ptr().addr();
        drop(host);
        assert_eq!(rig.pool.try_alloc::<u32>(LEN).unwrap_err().kind(), ErrorKind::NotReady);
        let short = rig.pool.alloc_timeout::<u32>(LEN, Duration::from_millis(2));
        assert_eq!(short.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(rig.pool.stats().in_flight_bytes, BLOCK);
        thread::scope(|scope| {
            let waits = scope.spawn(|| rig.pool.alloc::<u32>(LEN).unwrap().as_ptr().addr());
            eventually("it waits", || rig.pool.stats().waiting == 1);
            rig.release(&rig.stream);
            assert_eq!(waits.join().unwrap(), block);
        });
        assert_eq!(rig.contents(&gpu), [7; LEN]);
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn requests_are_served_in_the_order_in_which_they_came() {
    const WAITERS: usize = 8;
    on_machines(1, |rig| {
        let held = rig.host(1);
        let (served, order) = channel();
        thread::scope(|scope| {
            for waiter in 0..WAITERS {
                let (pool, served) = (&rig.pool, served.clone());
                scope.spawn(move || {
                    let host = pool.alloc_timeout::<u32>(LEN, LONG).unwrap();
                    served.send(waiter).unwrap();
                    drop(host);
                });
                eventually("it waits", || rig.pool.stats().waiting == waiter + 1);
            }
            // A later request does not get the block that is about to become free.
            assert_eq!(rig.pool.try_alloc::<u32>(LEN).unwrap_err().kind(), ErrorKind::NotReady);
            drop(held);
        });
        drop(served);
        assert_eq!(order.iter().collect::<Vec<_>>(), (0..WAITERS).collect::<Vec<_>>());
        rig.assert_nothing_is_left();
    });
}

/// The number of threads of [`amid_small_requests`], and of all their blocks.
pub(crate) const SMALL: usize = 8;

/// Calls `large`, which must not panic, while threads repeatedly take a block each. With `uploads`
/// each thread uploads every sixteenth of its blocks.
pub(crate) fn amid_small_requests<R>(rig: &Rig, uploads: bool, large: impl FnOnce() -> R) -> R {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let ended = &ended;
        let small = |thread| {
            scope.spawn(move || {
                for round in (0..).take_while(|_| !ended.load(Relaxed)) {
                    let mut host = rig.pool.alloc_timeout(LEN, LONG).unwrap();
                    use_block(rig, &mut host, thread, uploads && round % 16 == 0);
                }
            })
        };
        let threads: Vec<_> = (0..SMALL as u32).map(small).collect();
        let result = large();
        ended.store(true, Relaxed);
        // The thread sanitizer sees a join, but not the end of a scope.
        threads.into_iter().for_each(|thread| thread.join().expect("no panics"));
        result
    })
}

/// Waits until the threads of [`amid_small_requests`] have used the whole budget.
pub(crate) fn wait_for_all_of_them(rig: &Rig) {
    eventually("all are at it", || rig.pool.stats().committed_bytes == SMALL * BLOCK);
}

#[test]
fn small_requests_do_not_starve_a_large_one() {
    on_machines(SMALL, |rig| {
        let all = amid_small_requests(&rig, true, || {
            wait_for_all_of_them(&rig);
            let all = || rig.pool.alloc_timeout::<u32>(SMALL * LEN, Duration::from_secs(20));
            [(); 3].map(|()| all().map(|all| all.len()))
        });
        assert_eq!(all.map(Result::unwrap), [SMALL * LEN; 3]);
        rig.assert_nothing_is_left();
    });
}

/// A thread that holds a block and needs another must get it. Otherwise no thread could continue.
#[test]
fn a_large_request_does_not_block_those_whom_it_waits_for() {
    on_machines(4, |rig| {
        thread::scope(|scope| {
            let held = rig.host(1);
            let all = scope.spawn(|| drop(rig.pool.alloc_timeout::<u32>(4 * LEN, LONG).unwrap()));
            eventually("it waits", || rig.pool.stats().waiting == 1);
            let second = rig.host(2);
            let third = rig.pool.alloc_timeout::<u32>(LEN, LONG).unwrap();
            let fourth = block_on(rig.pool.alloc_async::<u32>(LEN)).unwrap();
            drop((held, second, third, fourth));
            all.join().unwrap();
        });
        rig.assert_nothing_is_left();
    });
}

#[test]
fn a_request_that_a_stuck_stream_holds_up_holds_up_nobody() {
    on_machines(4, |rig| {
        let (host, mut gpu) = (rig.host(1), rig.gpu());
        rig.stall(&rig.stream);
        rig.stream.upload(&host, &mut gpu).unwrap();
        drop(host);
        thread::scope(|scope| {
            let all = scope.spawn(|| drop(rig.pool.alloc_timeout::<u32>(4 * LEN, LONG).unwrap()));
            eventually("it waits", || rig.pool.stats().waiting == 1);
            for factor in [1, 2, 3, 1] {
                drop(rig.pool.alloc::<u32>(factor * LEN).unwrap());
            }
            rig.release(&rig.stream);
            all.join().unwrap();
        });
        drop(gpu);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn a_stuck_stream_strands_nothing_of_the_others() {
    on_machines(4, |rig| {
        let other = rig.device.stream().unwrap();
        let (stuck, fine) = ([rig.host(1), rig.host(2)], [rig.host(3), rig.host(4)]);
        rig.stall(&rig.stream);
        let mut gpus = [(); 4].map(|()| rig.gpu());
        for at in 0..2 {
            rig.stream.upload(&stuck[at], &mut gpus[at]).unwrap();
            other.upload(&fine[at], &mut gpus[2 + at]).unwrap();
        }
        drop((stuck, fine));
        for _ in 0..20 {
            let both = (rig.host(5), rig.host(6));
            other.upload(&both.0, &mut gpus[2]).unwrap();
            other.upload(&both.1, &mut gpus[3]).unwrap();
        }
        assert_eq!(rig.pool.stats().in_flight_bytes + rig.pool.stats().cached_bytes, 4 * BLOCK);
        rig.release(&rig.stream);
        let all = [(); 4].map(|()| rig.host(7));
        drop((all, gpus, other));
        rig.assert_nothing_is_left();
    });
}

/// The pool finds blocks that a stream is done with although newer ones are parked after them.
#[test]
fn what_is_complete_is_found_before_what_is_not() {
    on_machines(2, |rig| {
        let (old, new, mut gpu, mut other) = (rig.host(1), rig.host(2), rig.gpu(), rig.gpu());
        let ticket = rig.stream.upload(&old, &mut gpu).unwrap();
        // If the stream's handle is known outside, every copy has its own event.
        let (opened, gate) = channel::<()>();
        rig.stream.launch_host(move || gate.recv().unwrap_or(())).unwrap();
        rig.stream.upload(&new, &mut other).unwrap();
        ticket.wait().unwrap();
        drop(ticket);
        let block = old.as_ptr().addr();
        drop((old, new));
        assert_eq!(rig.host(3).as_ptr().addr(), block);
        drop(opened);
        drop((gpu, other));
        rig.assert_nothing_is_left();
    });
}

/// A thread that keeps a free block for itself, and one that may be in flight.
fn with_a_keeping_thread(rig: &Rig, test: impl FnOnce()) {
    let (ready, is_ready) = channel();
    let (end, ends) = channel::<()>();
    thread::scope(|scope| {
        let keeps = scope.spawn(move || {
            let (kept, posted, mut gpu) = (rig.host(1), rig.host(2), rig.gpu());
            rig.stream.upload(&posted, &mut gpu).unwrap();
            drop((kept, posted, gpu));
            ready.send(()).unwrap();
            let _ = ends.recv();
        });
        is_ready.recv().unwrap();
        test();
        drop(end);
        // The end of the scope does not wait for a thread's destructors.
        keeps.join().unwrap();
    });
}

#[test]
fn blocks_that_other_threads_keep_are_found() {
    // The budget is large enough that threads may keep blocks.
    on_machines(64, |rig| {
        let rest: Vec<_> = (0..62).map(|_| rig.host(0)).collect();
        with_a_keeping_thread(&rig, || {
            let kept = rig.pool.try_alloc::<u32>(LEN).unwrap();
            let posted = rig.pool.alloc::<u32>(LEN).unwrap();
            assert_eq!(rig.pool.stats().cached_bytes, 0);
            drop((kept, posted));
        });
        drop(rest);
        rig.assert_nothing_is_left();
    });
    on_machines(64, |rig| {
        let rest: Vec<_> = (0..62).map(|_| rig.host(0)).collect();
        with_a_keeping_thread(&rig, || {
            let both = [(); 2].map(|()| rig.pool.alloc::<u32>(LEN).unwrap());
            drop(both);
        });
        drop(rest);
        // Another size: the memory must be divided again.
        with_a_keeping_thread(&rig, || {
            drop(rig.pool.alloc::<u32>(60 * LEN).unwrap());
        });
        rig.assert_nothing_is_left();
    });
}

#[test]
fn a_thread_that_ends_leaves_its_blocks_to_all() {
    on_machines(64, |rig| {
        thread::scope(|scope| {
            let ends = scope.spawn(|| {
                let all: Vec<_> = (0..64).map(|_| rig.host(1)).collect();
                let mut gpu = rig.gpu();
                rig.stream.upload(&all[63], &mut gpu).unwrap();
            });
            // The end of the scope does not wait for a thread's destructors.
            ends.join().unwrap();
        });
        let stats = assert_adds_up(&rig.pool, &rig.emulator);
        assert_eq!((stats.threads, stats.thread_bytes), (0, 0), "{stats}");
        let all: Vec<_> = (0..64).map(|_| rig.host(2)).collect();
        assert_eq!(rig.pool.stats().growths, stats.growths);
        drop(all);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn a_thread_that_ends_serves_those_who_wait() {
    on_machines(1, |rig| {
        let held = rig.host(1);
        thread::scope(|scope| {
            let waits = scope.spawn(|| drop(rig.pool.alloc_timeout::<u32>(LEN, LONG).unwrap()));
            eventually("it waits", || rig.pool.stats().waiting == 1);
            scope.spawn(move || drop(held));
            waits.join().unwrap();
        });
        rig.assert_nothing_is_left();
    });
}

/// Blocks on their way from a thread's outbox to the books are in neither. A request at that moment
/// must not fail because the budget seems spent on live buffers.
#[test]
fn two_threads_that_never_hold_more_than_the_budget_are_never_told_that_it_is_spent() {
    const EACH: usize = 20;
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 2 * EACH);
        let hold = &|uploads: bool| {
            let (stream, mut gpu) = (rig.device.stream().unwrap(), rig.gpu());
            for _ in 0..5000 {
                let held: Vec<_> = (0..EACH).map(|_| rig.pool.alloc(LEN).unwrap()).collect();
                for host in held.iter().filter(|_| uploads) {
                    stream.upload(host, &mut gpu).unwrap();
                }
            }
        };
        thread::scope(|scope| {
            // The end of the scope does not wait for a thread's destructors.
            let both = [true, false].map(|uploads| scope.spawn(move || hold(uploads)));
            both.into_iter().for_each(|thread| thread.join().unwrap());
        });
        rig.assert_nothing_is_left();
    });
}
