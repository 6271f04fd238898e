//! Blocks whose buffers were dropped while a device used them, and the thread that dropped them.

use std::sync::Mutex;

use pinlane::driver::Call;
use pinlane::emulated::{Execution, Fault};
use pinlane::{CudaCode, DeviceBuf, PinnedPool, Stream};

use crate::support::{LEN, Rig};
use crate::{assert_adds_up, assert_counts_add_up};

/// More blocks than a thread posts before they all go to the pool.
const MANY: usize = 40;

fn upload_and_drop(pool: &PinnedPool, stream: &Stream, gpu: &mut DeviceBuf<u32>) {
    let host = pool.alloc::<u32>(LEN).unwrap();
    stream.upload(&host, gpu).unwrap();
}

/// Allocations that the calling thread did not serve itself.
fn elsewhere(pool: &PinnedPool) -> u64 {
    let stats = assert_counts_add_up(pool);
    stats.hits - stats.thread_hits + stats.misses
}

/// A thread that uploads in a loop gets its own blocks back, without the pool's lists and without
/// growth.
#[test]
fn a_loop_of_uploads_uses_the_blocks_of_its_thread() {
    let rig = Rig::new(Execution::Eager, 0, 1024);
    let mut gpu = rig.gpu();
    let mut uploads = || (0..MANY).for_each(|_| upload_and_drop(&rig.pool, &rig.stream, &mut gpu));
    // Until every block of the slab has been used.
    (0..2).for_each(|_| uploads());
    let (before, calls) = (elsewhere(&rig.pool), rig.emulator.calls(Call::EventQuery));
    (0..20).for_each(|_| uploads());
    assert_eq!(elsewhere(&rig.pool), before);
    // The open group of small copies takes one more query.
    let queries = rig.emulator.calls(Call::EventQuery) - calls;
    assert!(queries <= 20 * MANY as u64 / 6, "{queries} queries");
    assert_eq!(rig.pool.stats().growths.count, 1);
    drop(gpu);
    rig.assert_nothing_is_left();
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
struct Busy(PinnedPool, Stream, Mutex<DeviceBuf<u32>>);

impl Drop for Busy {
    fn drop(&mut self) {
        let Busy(pool, stream, gpu) = self;
        (0..MANY).for_each(|_| upload_and_drop(pool, stream, gpu.get_mut().unwrap()));
    }
}

/// A thread finds out that its blocks are free, which ends the last stream that used them, and with
/// it what the caller gave to the stream.
#[test]
fn code_that_runs_at_the_end_of_a_stream_may_use_the_pool() {
    for seed in 0..8 {
        let rig = Rig::new(Execution::Lazy, seed, 1024);
        let (own, mut gpu) = (rig.device.stream().unwrap(), rig.gpu());
        let busy = Busy(rig.pool.clone(), rig.stream.clone(), Mutex::new(rig.gpu()));
        // SAFETY: a stream of this device. The stream itself outlives the borrowed one.
        let borrowed = unsafe { rig.device.borrow_stream_of(busy, own.as_raw()) };
        upload_and_drop(&rig.pool, &borrowed, &mut gpu);
        drop(gpu);
        drop(borrowed);
        own.synchronize().unwrap();
        (0..4 * MANY).for_each(|_| drop(rig.host(0)));
        let mut held: Vec<_> = (0..2 * MANY).map(|_| rig.host(1)).collect();
        held.truncate(MANY);
        assert_adds_up(&rig.pool, &rig.emulator);
        held.iter().for_each(|host| assert_eq!(host.read().unwrap(), [1; LEN]));
        drop((held, own));
        rig.assert_nothing_is_left();
    }
}
