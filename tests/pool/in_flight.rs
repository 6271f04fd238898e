//! Blocks whose buffers were dropped while a device used them, and the thread that dropped them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{CudaCode, DeviceBuf, PinnedPool, Stream};

use crate::support::{LEN, Rig, eventually, watched};
use crate::{assert_adds_up, assert_counts_add_up};

/// More blocks than a thread posts before they all go to the pool.
const MANY: usize = 80;

fn upload_and_drop(pool: &PinnedPool, stream: &Stream, gpu: &mut DeviceBuf<u32>) {
    let host = pool.alloc::<u32>(LEN).unwrap();
    stream.upload(&host, gpu).unwrap();
}

/// Allocations that the calling thread did not serve itself.
fn elsewhere(pool: &PinnedPool) -> u64 {
    let stats = assert_counts_add_up(pool);
    stats.hits - stats.thread_hits + stats.misses
}

/// All blocks of a slab go round, of whatever size they are: fewer than a thread posts at a time,
/// or some more than a multiple of that.
#[test]
fn all_blocks_of_a_slab_go_round() {
    for bytes in [256, 1280, 3584, 4096, 7168, 7680, 16_384, 65_536] {
        let rig = Rig::new(Execution::Eager, 0, 1 << 16);
        let mut gpu = rig.device.alloc::<u8>(bytes).unwrap();
        let mut upload = || {
            let host = rig.pool.alloc::<u8>(bytes).unwrap();
            rig.stream.upload(&host, &mut gpu).unwrap();
        };
        (0..2048).for_each(|_| upload());
        let (before, calls) = (elsewhere(&rig.pool), rig.emulator.calls(Call::EventQuery));
        (0..2048).for_each(|_| upload());
        let (hits, queries) =
            (elsewhere(&rig.pool) - before, rig.emulator.calls(Call::EventQuery) - calls);
        let blocks = (256 << 10) / bytes as u64;
        assert!(queries <= 3 * 2048 / blocks.min(64) + 16, "{bytes}: {queries} queries");
        assert!(hits <= 2048 / 16 + 16, "{bytes}: {hits} hits elsewhere");
        assert_eq!(rig.pool.stats().growths.count, 1, "{bytes}");
        drop(gpu);
        rig.assert_nothing_is_left();
    }
}

/// Without a query the thread cannot know that its blocks are free. The pool asks again.
#[test]
fn blocks_of_a_query_that_failed_are_not_lost() {
    // A slab is a sixteenth of the budget: fewer blocks than a thread posts.
    let rig = Rig::new(Execution::Eager, 0, 256);
    let mut gpu = rig.gpu();
    let blocks = {
        upload_and_drop(&rig.pool, &rig.stream, &mut gpu);
        rig.pool.stats().classes[0].blocks
    };
    assert_eq!(blocks, 16);
    for _ in 1..blocks {
        upload_and_drop(&rig.pool, &rig.stream, &mut gpu);
    }
    rig.emulator.inject(Fault::once(Call::EventQuery, CudaCode::UNKNOWN));
    for _ in 0..blocks {
        upload_and_drop(&rig.pool, &rig.stream, &mut gpu);
    }
    let stats = assert_adds_up(&rig.pool, &rig.emulator);
    assert_eq!((stats.growths.count, stats.quarantined_bytes), (1, 0));
    drop(gpu);
    rig.assert_nothing_is_left();
}

/// Uses the pool when it is dropped, as often as a thread posts blocks, and more.
struct Busy(PinnedPool, Stream, Mutex<DeviceBuf<u32>>, Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        let Busy(pool, stream, gpu, uploads) = self;
        for _ in 0..MANY {
            upload_and_drop(pool, stream, gpu.get_mut().unwrap());
            uploads.fetch_add(1, Relaxed);
        }
    }
}

/// A stream ends when its last block is dropped, or when a thread or the pool finds out that the
/// block is free. What the caller gave to the stream is dropped then. It may use the pool, also if
/// there is no other block.
#[test]
fn code_that_runs_at_the_end_of_a_stream_may_use_the_pool() {
    let cases = [1024, 256, 1].into_iter().flat_map(|blocks| [false, true].map(|it| (blocks, it)));
    for (blocks, known) in cases {
        for dropped_elsewhere in [false, true] {
            watched(move || {
                let rig = Rig::new(Execution::Lazy, 0, blocks);
                let (own, mut gpu) = (rig.device.stream().unwrap(), rig.gpu());
                let (pool, stream) = (rig.pool.clone(), rig.stream.clone());
                let uploads = Arc::new(AtomicUsize::new(0));
                let busy = Busy(pool, stream, Mutex::new(rig.gpu()), Arc::clone(&uploads));
                // SAFETY: a stream of this device. The stream itself outlives the borrowed one.
                let borrowed = unsafe { rig.device.borrow_stream_of(busy, own.as_raw()) };
                let host = rig.pool.alloc::<u32>(LEN).unwrap();
                borrowed.upload(&host, &mut gpu).unwrap();
                let drop_it = move || match dropped_elsewhere {
                    true => thread::scope(|scope| _ = scope.spawn(|| drop(host)).join()),
                    false => drop(host),
                };
                // Its use is known to be complete when it is dropped, or found out later.
                if known {
                    borrowed.synchronize().unwrap();
                    drop((gpu, borrowed));
                    drop_it();
                } else {
                    drop_it();
                    own.synchronize().unwrap();
                    drop((gpu, borrowed));
                }
                (0..4 * MANY).for_each(|_| drop(rig.host(0)));
                let mut held: Vec<_> = (0..blocks.min(2 * MANY)).map(|_| rig.host(1)).collect();
                held.truncate(MANY);
                assert_adds_up(&rig.pool, &rig.emulator);
                held.iter().for_each(|host| assert_eq!(host.read().unwrap(), [1; LEN]));
                drop((held, own));
                eventually("the pool looks at all blocks", || {
                    rig.stream.synchronize().unwrap();
                    rig.pool.trim().unwrap();
                    rig.pool.stats().in_flight_bytes == 0
                });
                assert_eq!(uploads.load(Relaxed), MANY);
                rig.assert_nothing_is_left();
            });
        }
    }
}
