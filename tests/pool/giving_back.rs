//! Memory goes back to the system: on request, automatically, and when the pool ends, on any
//! thread.

use std::cell::RefCell;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution};
use pinlane::{
    Device, ErrorKind, PinnedBuf, PinnedPool, Result,
    pool::{Builder, PageLocking},
};

use crate::assert_adds_up;
use crate::support::{BLOCK, LEN, Rig, block_on, eventually, watched};

const MIB: usize = 1 << 20;

/// A machine of two devices, and a pool on the first.
fn pool_with(options: impl FnOnce(Builder) -> Builder) -> (Emulator, Vec<Device>, PinnedPool) {
    let emulator = Emulator::builder().devices(2).build();
    let devices: Vec<_> =
        (0..2).map(|ordinal| Device::of_emulator(&emulator, ordinal).unwrap()).collect();
    let builder = PinnedPool::builder(&devices[0]).max_bytes(256 * MIB);
    let pool = options(builder).build().unwrap();
    (emulator, devices, pool)
}

fn page_locked(emulator: &Emulator) -> usize {
    emulator.usage().host_bytes
}

#[test]
fn a_trim_gives_back_all_that_is_free() {
    for how in [PageLocking::Register, PageLocking::Allocate] {
        let (emulator, devices, pool) = pool_with(|builder| builder.page_locking(how));
        let sizes = [1, 300, 4096, 70_000, MIB, 3 * MIB, 40 * MIB];
        let all: Vec<_> = sizes.map(|size| pool.alloc::<u8>(size).unwrap()).into();
        let before = assert_adds_up(&pool, &emulator).committed_bytes;
        assert_eq!(pool.trim().unwrap(), 0, "all is alive, but for what a slab has too much");
        assert_eq!(page_locked(&emulator), before);
        drop(all);
        assert_eq!(page_locked(&emulator), before);
        assert_eq!(pool.trim().unwrap(), before);
        assert_eq!(page_locked(&emulator), 0);
        let stats = assert_adds_up(&pool, &emulator);
        assert_eq!((stats.committed_bytes, stats.classes.len()), (0, 0), "{stats}");
        assert_eq!(stats.trims, 1);
        let unlock = match how {
            PageLocking::Register => Call::HostUnregister,
            _ => Call::HostFree,
        };
        assert_eq!(emulator.calls(unlock), stats.growths.count);
        pool.alloc::<u8>(5).unwrap();
        drop((pool, devices));
        assert_eq!((page_locked(&emulator), emulator.findings()), (0, vec![]));
    }
}

#[test]
fn a_trim_gives_back_what_devices_are_done_with() {
    let (emulator, devices, pool) = pool_with(|builder| builder);
    let stream = devices[0].stream().unwrap();
    for others in [false, true] {
        let use_and_drop = || {
            let host = pool.alloc::<u8>(BLOCK).unwrap();
            let mut gpu = devices[0].alloc::<u8>(BLOCK).unwrap();
            stream.upload(&host, &mut gpu).unwrap();
        };
        if others {
            thread::scope(|scope| scope.spawn(use_and_drop).join().unwrap());
        } else {
            use_and_drop();
        }
        assert_eq!(pool.stats().in_flight_bytes, BLOCK);
        stream.synchronize().unwrap();
        pool.trim().unwrap();
        assert_eq!(page_locked(&emulator), 0);
    }
}

#[test]
fn a_trim_to_a_size_keeps_what_was_used_last() {
    let (emulator, _devices, pool) = pool_with(|builder| builder);
    let all: Vec<_> = (0..8).map(|_| pool.alloc::<u8>(2 * MIB).unwrap()).collect();
    let last = all[7].as_ptr();
    assert_eq!(page_locked(&emulator), 16 * MIB);
    drop(all);
    assert_eq!(pool.trim_to(usize::MAX).unwrap(), 0);
    assert_eq!(pool.trim_to(6 * MIB).unwrap(), 10 * MIB);
    assert_eq!(page_locked(&emulator), 6 * MIB);
    assert_eq!(pool.trim_to(5 * MIB).unwrap(), 2 * MIB, "whole slabs");
    let kept = [(); 2].map(|()| pool.alloc::<u8>(2 * MIB).unwrap());
    assert!(kept.iter().any(|kept| kept.as_ptr() == last));
    assert_adds_up(&pool, &emulator);
}

#[test]
fn above_the_high_watermark_memory_goes_back_until_the_low_one() {
    watched(|| {
        let (emulator, _devices, pool) = pool_with(|builder| builder.watermarks(4 * MIB, 8 * MIB));
        let allocate =
            || -> Vec<PinnedBuf<u8>> { (0..8).map(|_| pool.alloc(2 * MIB).unwrap()).collect() };
        drop(allocate());
        eventually("the excess is given back", || page_locked(&emulator) <= 8 * MIB);
        assert!(page_locked(&emulator) >= 4 * MIB);
        // Dropped on a thread that ends at once.
        thread::scope(|scope| scope.spawn(|| drop(allocate())).join().unwrap());
        eventually("the excess is given back", || page_locked(&emulator) <= 8 * MIB);
        assert!(page_locked(&emulator) >= 4 * MIB);
    });
}

/// When a thread ends, the blocks that it kept become available to all threads, so they count.
#[test]
fn what_a_dead_thread_leaves_counts_for_the_watermarks() {
    watched(|| {
        let (emulator, _devices, pool) = pool_with(|builder| builder.watermarks(0, 0));
        let work = || drop((0..64).map(|_| pool.alloc::<u8>(BLOCK).unwrap()).collect::<Vec<_>>());
        thread::scope(|scope| scope.spawn(work).join().unwrap());
        eventually("all is given back", || page_locked(&emulator) == 0);
    });
}

/// Blocks that the pool finds to be done are free, so they count.
#[test]
fn what_is_retired_counts_for_the_watermarks() {
    watched(|| {
        let (emulator, devices, pool) = pool_with(|builder| builder.watermarks(0, 0));
        let stream = devices[0].stream().unwrap();
        let mut gpu = devices[0].alloc::<u8>(2 * MIB).unwrap();
        for _ in 0..3 {
            let host = pool.alloc::<u8>(2 * MIB).unwrap();
            stream.upload(&host, &mut gpu).unwrap();
        }
        stream.synchronize().unwrap();
        // This looks for blocks that are done, and gets another block.
        pool.alloc::<u8>(1).unwrap();
        eventually("what is free is given back", || {
            page_locked(&emulator) == pool.stats().live_bytes + pool.stats().thread_bytes
                || pool.stats().committed_bytes < MIB
        });
    });
}

#[test]
fn what_has_been_free_for_long_goes_back() {
    watched(|| {
        let age = Duration::from_millis(20);
        let (emulator, devices, pool) = pool_with(|builder| builder.idle_age(age));
        let stream = devices[0].stream().unwrap();
        for _ in 0..2 {
            let held = pool.alloc::<u8>(2 * MIB).unwrap();
            let busy = pool.alloc::<u8>(BLOCK).unwrap();
            stream.upload(&busy, &mut devices[0].alloc::<u8>(BLOCK).unwrap()).unwrap();
            // In this thread's cache, and in its outbox.
            drop((pool.alloc::<u8>(70_000).unwrap(), busy));
            eventually("the idle is given back", || page_locked(&emulator) == 2 * MIB);
            drop(held);
            eventually("the rest is too", || page_locked(&emulator) == 0);
        }
        eventually("the books say so", || pool.stats().committed_bytes == 0);
        assert_adds_up(&pool, &emulator);
    });
}

#[test]
fn buffers_outlive_the_pool() {
    watched(|| {
        for drop_last in [0, 3] {
            let rig = Rig::new(Execution::Lazy, 1, 64);
            let empty = rig.pool.alloc::<u32>(0).unwrap();
            let alive: Vec<_> = (0..4).map(|value| rig.host(value)).collect();
            drop((0..40).map(|_| rig.host(9)).collect::<Vec<_>>());
            let before = page_locked(&rig.emulator);
            let Rig { emulator, device, pool, stream, stalled } = rig;
            let clone = pool.clone();
            drop(pool);
            assert_eq!(page_locked(&emulator), before, "a handle is left");
            drop(clone);
            assert!(page_locked(&emulator) >= 4 * BLOCK);
            for (value, host) in alive.iter().enumerate() {
                assert!(host.read().unwrap().iter().all(|&word| word == value as u32));
            }
            let mut gpu = device.alloc(LEN).unwrap();
            stream.upload(&alive[drop_last], &mut gpu).unwrap();
            // The last buffer is still in use, and on another thread.
            thread::scope(|scope| {
                let last = scope.spawn(move || {
                    let mut alive = alive;
                    let last = alive.swap_remove(drop_last);
                    drop(alive);
                    drop(last);
                });
                last.join().unwrap();
            });
            assert!(empty.is_empty() && empty.read().unwrap().is_empty());
            if page_locked(&emulator) > 0 {
                drop(empty);
            }
            assert_eq!(page_locked(&emulator), 0);
            drop((gpu, stream, device, stalled));
            assert_eq!(emulator.findings(), []);
            assert_eq!((emulator.usage().streams, emulator.usage().events), (0, 0));
        }
    });
}

#[test]
fn buffers_without_bytes_keep_the_pool() {
    let (emulator, devices, pool) = pool_with(|builder| builder);
    let mut empty: Vec<PinnedBuf<u64>> =
        (0..3).map(|_| pool.alloc_aligned(0, 2 * MIB).unwrap()).collect();
    empty.push(pool.try_alloc(0).unwrap());
    empty.push(block_on(pool.alloc_async(0)).unwrap());
    assert!(empty.iter().all(|empty| empty.as_ptr().addr() % (2 * MIB) == 0));
    drop(pool.alloc::<u8>(9).unwrap());
    drop(pool);
    let stream = devices[0].stream().unwrap();
    let mut gpu = devices[0].alloc::<u64>(0).unwrap();
    stream.upload(&empty[0], &mut gpu).unwrap();
    stream.download(&gpu, &mut empty[1]).unwrap();
    empty[1].write().unwrap().fill(1);
    while let Some(last) = empty.pop() {
        drop(last);
    }
    assert_eq!(page_locked(&emulator), 0);
}

#[test]
fn threads_that_drop_buffers_race_the_end_of_the_pool() {
    watched(|| {
        for round in 0..200 {
            let (emulator, devices, pool) = pool_with(|builder| builder);
            let stream = devices[0].stream().unwrap();
            thread::scope(|scope| {
                for thread in 0..4 {
                    let mut gpu = devices[0].alloc::<u8>(512).unwrap();
                    let (pool, stream) = (pool.clone(), &stream);
                    scope.spawn(move || {
                        let hosts: Vec<_> =
                            (0..40).map(|_| pool.alloc::<u8>(512).unwrap()).collect();
                        for host in hosts.iter().step_by(1 + thread % 3) {
                            stream.upload(host, &mut gpu).unwrap();
                        }
                        // The pool is dropped before the buffers, or between them.
                        let rest = hosts.into_iter().skip(round % 40);
                        drop(pool);
                        drop(rest);
                    });
                }
                drop(pool);
            });
            drop((stream, devices));
            // The pool may be ended by a thread that is itself still ending.
            eventually("all is given back", || page_locked(&emulator) == 0);
            assert_eq!(emulator.findings(), []);
        }
    });
}

#[test]
fn a_pool_ends_in_the_destructors_of_a_thread() {
    thread_local! {
        static KEPT: RefCell<Vec<(PinnedBuf<u8>, PinnedPool)>> = const { RefCell::new(Vec::new()) };
    }
    watched(|| {
        for before in [true, false] {
            let (emulator, _devices, pool) = pool_with(|builder| builder);
            let work = move || {
                // The value made first is dropped last: once while the thread's caches are alive,
                // once after.
                if before {
                    KEPT.with(|_| ());
                }
                let host = pool.alloc::<u8>(BLOCK).unwrap();
                KEPT.with(|kept| kept.borrow_mut().push((host, pool)));
            };
            thread::spawn(work).join().unwrap();
            assert_eq!(page_locked(&emulator), 0);
        }
    });
}

#[test]
fn a_pool_in_a_static_works_from_everywhere() {
    static POOL: OnceLock<(Emulator, PinnedPool)> = OnceLock::new();
    let (emulator, pool) = POOL.get_or_init(|| {
        let (emulator, _, pool) = pool_with(|builder| builder);
        (emulator, pool)
    });
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| drop(pool.alloc::<u8>(BLOCK).unwrap())).join().unwrap();
        }
    });
    // The buffer is never dropped. Free memory can still be given back.
    pool.trim().unwrap();
    assert_eq!(page_locked(emulator), 0);
}

#[test]
fn one_pool_serves_all_devices() {
    watched(|| {
        let (emulator, devices, pool) = pool_with(|builder| builder.max_bytes(BLOCK));
        let streams: Vec<_> = devices.iter().map(|device| device.stream().unwrap()).collect();
        let mut gpus: Vec<_> =
            devices.iter().map(|device| device.alloc::<u32>(LEN).unwrap()).collect();
        for value in 0..10 {
            let mut host = pool.alloc::<u32>(LEN).unwrap();
            host.write().unwrap().fill(value);
            for (stream, gpu) in streams.iter().zip(&mut gpus) {
                stream.upload(&host, gpu).unwrap();
            }
        }
        for (stream, gpu) in streams.iter().zip(&gpus) {
            let mut host = pool.alloc::<u32>(LEN).unwrap();
            stream.download(gpu, &mut host).unwrap();
            assert!(host.read().unwrap().iter().all(|&word| word == 9));
        }
        drop((pool, streams, gpus, devices));
        assert_eq!((page_locked(&emulator), emulator.findings()), (0, vec![]));
    });
}

#[test]
fn alignments_up_to_two_mebibytes_are_kept() {
    for how in [PageLocking::Register, PageLocking::Allocate] {
        let (emulator, _devices, pool) = pool_with(|builder| builder.page_locking(how));
        for shift in 0..=21 {
            for len in [1, 255, 5000, 70_000, 3 * MIB] {
                let mut host = pool.alloc_aligned::<u8>(len, 1 << shift).unwrap();
                assert_eq!(host.as_ptr().addr() % (1 << shift), 0, "{len} bytes");
                let words = host.write().unwrap();
                (words[0], words[len - 1]) = (1, 1);
            }
        }
        for align in [0, 3, 4 * MIB, usize::MAX] {
            let error = pool.alloc_aligned::<u8>(1, align).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidValue, "{align}");
        }
        assert_adds_up(&pool, &emulator);
        pool.trim().unwrap();
        assert_eq!(page_locked(&emulator), 0);
    }
}

#[test]
fn sizes_that_no_machine_has_are_refused() {
    let (emulator, _devices, pool) = pool_with(|builder| builder.max_bytes(usize::MAX));
    for len in [usize::MAX, isize::MAX as usize + 1, usize::MAX / 8 + 1] {
        assert_eq!(pool.alloc::<u64>(len).unwrap_err().kind(), ErrorKind::InvalidValue, "{len}");
        assert_eq!(PinnedPool::block_bytes(usize::MAX), None);
    }
    for len in [1 << 46, 1 << 60, isize::MAX as usize - 4096] {
        let error = pool.alloc::<u8>(len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfHostMemory, "{error}");
        assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
    }
    assert_eq!(pool.stats().committed_bytes, 0);
    drop(pool.alloc::<u8>(1).unwrap());
    assert_adds_up(&pool, &emulator);
}

#[test]
fn a_host_function_gets_what_is_free_and_no_more() {
    watched(|| {
        let (emulator, devices, pool) = pool_with(|builder| builder);
        let stream = devices[0].stream().unwrap();
        let (small, large) = (4096, 2 * MIB);
        drop((pool.alloc::<u8>(small).unwrap(), pool.alloc::<u8>(large).unwrap()));
        let (results, outcomes) = channel();
        let inside = pool.clone();
        let function = move || {
            for len in [small, large, 70_000] {
                let kind = |error: pinlane::Error| error.kind();
                results.send(inside.alloc::<u8>(len).map(|host| host.len()).map_err(kind)).unwrap();
            }
            results.send(inside.trim().map_err(|error| error.kind())).unwrap();
            assert!(inside.stats().committed_bytes > 0);
            drop(inside);
        };
        stream.launch_host(function).unwrap().wait().unwrap();
        let unsupported = Err(ErrorKind::Unsupported);
        let expected = [Ok(small), Ok(large), unsupported, unsupported];
        assert_eq!(outcomes.iter().collect::<Vec<_>>(), expected);
        assert_adds_up(&pool, &emulator);
        // The last handle is dropped there too.
        stream.launch_host(move || drop(pool)).unwrap().wait().unwrap();
        eventually("all is given back", || page_locked(&emulator) == 0);
        assert_eq!(emulator.findings(), []);
    });
}

/// A waker that runs a function when it is woken.
struct OnWake<A>(A);

impl<A: Fn() + Send + Sync + 'static> Wake for OnWake<A> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

type Pending = Pin<Box<dyn Future<Output = Result<PinnedBuf<u8>>> + Send>>;

/// A request that waits for a block, and whose waker calls `action` when it is served.
fn pending(pool: &PinnedPool, action: impl Fn() + Send + Sync + 'static) -> Pending {
    let waker = Waker::from(Arc::new(OnWake(action)));
    loop {
        // It waits for new memory, which may arrive before the poll ends.
        pool.trim().unwrap();
        let mut future: Pending = Box::pin(pool.alloc_async::<u8>(BLOCK));
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            return future;
        }
    }
}

#[test]
fn a_waker_that_panics_hurts_nobody() {
    watched(|| {
        let (emulator, _devices, pool) = pool_with(|builder| builder);
        // The first waker is called by the thread that page-locks, the second by the one that drops
        // a buffer.
        let grown = pending(&pool, || resume_unwind(Box::new("on purpose")));
        eventually("it is served", || pool.stats().waiting == 0);
        drop(block_on(grown).unwrap());
        pool.alloc::<u8>(2 * MIB).unwrap();
        assert_adds_up(&pool, &emulator);
    });
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        let held = rig.host(1);
        let waits = pending(&rig.pool, || resume_unwind(Box::new("on purpose")));
        drop(held);
        drop(block_on(waits).unwrap());
        rig.host(1);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn the_last_handle_may_be_dropped_by_a_waker() {
    watched(|| {
        for _ in 0..20 {
            let (emulator, _devices, pool) = pool_with(|builder| builder);
            let future: Arc<Mutex<Option<Pending>>> = Arc::default();
            let woken = Arc::new(AtomicUsize::new(0));
            // The lock keeps the waker from running before the future is stored.
            let mut place = future.lock().unwrap();
            let (inside, count) = (future.clone(), woken.clone());
            *place = Some(pending(&pool, move || {
                // Drops the served future, and with it the pool.
                let served = inside.lock().unwrap().take();
                drop(served);
                count.fetch_add(1, Relaxed);
            }));
            drop(pool);
            drop(place);
            eventually("all is given back", || {
                woken.load(Relaxed) == 1 && page_locked(&emulator) == 0
            });
        }
    });
}

/// A waker that allocates and drops gives the thread that calls it a cache, which ends with the
/// thread.
#[test]
fn the_thread_that_calls_a_waker_may_have_a_cache() {
    watched(|| {
        let (emulator, _devices, pool) = pool_with(|builder| builder);
        for round in 0..20 {
            let (inside, (done, is_done)) = (pool.clone(), channel());
            let waits = pending(&pool, move || {
                drop(inside.try_alloc::<u8>(BLOCK));
                done.send(()).unwrap();
            });
            is_done.recv().unwrap();
            drop(block_on(waits).unwrap());
            // About as long as the thread lingers, so that the next request coincides with its end.
            let more = Duration::from_micros(49_500 + 100 * (round as u64 % 10));
            thread::sleep(more);
            drop(pool.alloc_timeout::<u8>(MIB + BLOCK * round, Duration::from_secs(60)).unwrap());
        }
        assert_adds_up(&pool, &emulator);
        drop(pool);
        assert_eq!(page_locked(&emulator), 0);
    });
}

#[test]
fn a_future_dropped_after_it_is_served_gives_its_block_back_even_after_the_pool() {
    watched(|| {
        let (emulator, _devices, pool) = pool_with(|builder| builder);
        let (woken, is_woken) = channel();
        let waits = pending(&pool, move || woken.send(()).unwrap());
        is_woken.recv().unwrap();
        drop(pool);
        assert!(page_locked(&emulator) > 0, "the future keeps the pool");
        drop(waits);
        assert_eq!(page_locked(&emulator), 0);
    });
}

#[test]
fn a_forgotten_buffer_costs_its_memory_and_nothing_else() {
    let rig = Rig::new(Execution::Lazy, 0, 4);
    std::mem::forget(rig.host(1));
    assert_eq!(rig.pool.stats().live_bytes, BLOCK);
    let rest = [(); 3].map(|()| rig.host(2));
    let waits = pending(&rig.pool, || ());
    drop(rest);
    drop(block_on(waits).unwrap());
    let Rig { emulator, pool, .. } = rig;
    drop(pool);
    assert_eq!(page_locked(&emulator), BLOCK);
}
