//! A pipeline that has warmed up allocates nothing. The allocator of a separate process counts.
//!
//! Two things are not counted: the lists of the emulated device, which has an entry for each wait
//! between two streams; and events, of which a stream has as many as were ever pending at once.

#![cfg(feature = "emulated")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use pinlane::driver::Call;
use pinlane::emulated::Emulator;
use pinlane::{
    Device, PinnedPool,
    prefetch::{FillBatch, IntoHostBatch, Prefetch, Reserved},
    staging::CopyTeam,
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator, with a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's preconditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        // SAFETY: the caller's preconditions.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's preconditions.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const WARM: usize = 1500;
const COUNTED: usize = 300;

/// The number of allocations of a pipeline of these batches once it is warm. It must not allocate
/// device memory or page-locked memory at all.
fn allocated<I>(batches: I) -> u64
where
    I: Iterator + Send + 'static,
    I::Item: IntoHostBatch + Send,
{
    // The records for finding races are allocated too.
    let emulator = Emulator::builder().races(false).build();
    let device = Device::of_emulator(&emulator, 0).expect("an emulated device");
    let pool = PinnedPool::builder(&device).max_bytes(4 << 20).build().expect("no faults");
    let stream = device.stream().expect("no faults");
    let mut sums = device.alloc::<u64>(1).expect("room");
    let mut prefetch = Prefetch::new(batches, &pool, &stream).start().expect("no faults");
    let mut run = |batches: usize| {
        for number in 0..batches {
            let batch = prefetch.next().expect("endless").expect("no faults");
            let slice = batch.slice::<u8>("0").expect("a slice");
            stream.checksum(slice, &mut sums).expect("no faults");
            // Waits like a program that reads its results, so that events are reused.
            if number % 8 == 7 {
                stream.synchronize().expect("no faults");
            }
        }
    };
    let count = || {
        let memory = [Call::DeviceAlloc, Call::HostAlloc, Call::HostRegister];
        let not_ours = [Call::StreamWaitEvent, Call::EventCreate];
        let calls = |list: &[Call]| list.iter().map(|&call| emulator.calls(call)).sum::<u64>();
        (calls(&memory), ALLOCATIONS.load(SeqCst) - calls(&not_ours))
    };
    run(WARM);
    let before = count();
    run(COUNTED);
    let after = count();
    assert_eq!(after.0, before.0, "memory of the device or page-locked memory");
    after.1.saturating_sub(before.1)
}

/// Lists that grow with the largest number of pending operations may grow once more. A list that
/// grows with every batch, or every tenth, would exceed this limit.
const ALMOST_NOTHING: u64 = COUNTED as u64 / 10;

#[test]
fn a_warm_pipeline_allocates_nothing() {
    CopyTeam::new().threads(2).install().expect("two threads");
    let small: Arc<[u8]> = vec![7; 1000].into();
    let few = std::iter::repeat_with(move || small.clone());
    let count = allocated(few);
    assert!(count < ALMOST_NOTHING, "{count}, of slices that are gathered");

    let filled = std::iter::repeat_with(|| {
        FillBatch::new([Reserved::of::<u8>("0", 100_000), Reserved::of::<f32>("y", 10)], |block| {
            block.slice_mut::<u8>("0")?.fill(1);
            Ok::<(), pinlane::Error>(())
        })
    });
    let count = allocated(filled);
    assert!(count < ALMOST_NOTHING, "{count}, of reserved slices");

    let large: Arc<[u8]> = vec![7; 1 << 20].into();
    let much = std::iter::repeat_with(move || (large.clone(), [1u32; 4]));
    // The staged copy itself allocates short lists: some for each of its five portions.
    let count = allocated(much);
    assert!(count < 15 * COUNTED as u64, "{count}, of slices that are staged");
}
