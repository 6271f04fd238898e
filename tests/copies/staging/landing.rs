//! `download_batch_each` reports every item once, in the promised order, when it is complete.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::{CudaCode, Device, DeviceBuf, ErrorKind, PinnedBuf, PinnedPool, batch::Download};
use proptest::prelude::*;

use super::support::{
    SLOT, bytes, config, device, device_of, install_team, pinned, shared, tiny, upload,
};
use crate::common::support::{all_calls, assert_nothing_is_left, watched};

/// The items of a batch: their device memory, and their host memory of both kinds.
struct Items {
    gpus: Vec<DeviceBuf<u8>>,
    contents: Vec<Vec<u8>>,
    ordinary: Vec<Vec<u8>>,
    locked: Vec<PinnedBuf<u8>>,
    is_locked: Vec<bool>,
}

impl Items {
    fn new(device: &Device, sizes: &[(usize, bool)]) -> Items {
        let pool = PinnedPool::builder(device).build().unwrap();
        let contents: Vec<_> =
            sizes.iter().zip(1..).map(|(&(length, _), n)| bytes(length, n)).collect();
        let zeros = |locked: bool| sizes.iter().filter(move |size| size.1 == locked);
        Items {
            gpus: contents.iter().map(|contents| upload(device, contents)).collect(),
            ordinary: zeros(false).map(|&(length, _)| vec![0; length]).collect(),
            locked: zeros(true).map(|&(length, _)| pinned(&pool, &vec![0; length])).collect(),
            is_locked: sizes.iter().map(|size| size.1).collect(),
            contents,
        }
    }

    fn list(&mut self) -> Vec<Download<'_>> {
        let (mut ordinary, mut locked) = (self.ordinary.iter_mut(), self.locked.iter_mut());
        let item = |(gpu, &is_locked)| match is_locked {
            true => Download::new(gpu, locked.next().unwrap()),
            false => Download::new(gpu, ordinary.next().unwrap()),
        };
        self.gpus.iter().zip(&self.is_locked).map(item).collect()
    }
}

fn check(device: &Device, sizes: &[(usize, bool)]) {
    let mut items = Items::new(device, sizes);
    let stream = device.stream().unwrap();
    let expected = items.contents.clone();
    let is_locked = &items.is_locked.clone();
    let mut told = Vec::new();
    stream
        .download_batch_each(items.list(), |number, bytes| {
            assert!(bytes == expected[number], "item {number} is not complete");
            told.push(number);
        })
        .unwrap();
    let mut all = told.clone();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..sizes.len()), "each once: {told:?}");
    let of_kind = |kind| told.iter().copied().filter(move |&n| is_locked[n] == kind);
    assert!(of_kind(true).is_sorted() && of_kind(false).is_sorted(), "in order: {told:?}");
    let not_empty = |&n: &usize| sizes[n].0 > 0;
    let kinds = told.iter().copied().filter(not_empty).map(|n| !is_locked[n]);
    assert!(kinds.is_sorted(), "page-locked ones first: {told:?}");
}

proptest! {
    #![proptest_config(config(120))]

    #[test]
    fn every_item_lands_once_and_in_order(
        sizes in prop::collection::vec(
            (prop_oneof![1 => Just(0), 4 => 1..900usize, 1 => 0..3 * SLOT], any::<bool>()), 0..20),
        lazy: bool,
        seed: u64,
    ) {
        let execution = if lazy { Execution::Lazy } else { Execution::Eager };
        let emulator = Emulator::builder().execution(execution).seed(seed).build();
        let device = device_of(&emulator, 0, tiny());
        check(&device, &sizes);
        for locked in [true, false] {
            let sizes: Vec<_> = sizes.iter().copied().filter(|size| size.1 == locked).collect();
            check(&device, &sizes);
        }
        drop(device);
        assert_nothing_is_left(&emulator);
    }
}

/// Portions land on other threads than the one that calls the function; page-locked items land in
/// several portions.
#[test]
fn items_land_in_order_whoever_copies_them() {
    install_team(3);
    for execution in [Execution::Eager, Execution::Lazy] {
        let emulator = Emulator::builder().execution(execution).build();
        let device = device_of(&emulator, 0, shared());
        for round in 0..6 {
            let size = |n: usize| ((n * 7919 + round * 13) % 40_000, n % 7 == round);
            check(&device, &(0..40).map(size).collect::<Vec<_>>());
        }
        check(&device, &[(700 << 10, true), (9, true), (800 << 10, true), (1 << 20, true)]);
    }
}

/// A panic of the caller's function continues once everything is in order. The function is not
/// called again after it.
#[test]
fn a_panic_of_the_callers_goes_on() {
    watched(|| {
        for execution in [Execution::Eager, Execution::Lazy] {
            for locked in [false, true] {
                for at in [0, 1, 7, 14] {
                    let emulator = Emulator::builder().execution(execution).build();
                    let device = device(&emulator);
                    let stream = device.stream().unwrap();
                    for _ in 0..5 {
                        let mut items = Items::new(&device, &[(SLOT, locked); 15]);
                        let mut told = 0;
                        let mut list = items.list();
                        let run = || {
                            stream.download_batch_each(&mut list, |number, _| {
                                told += 1;
                                assert_ne!(number, at, "expected");
                            })
                        };
                        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
                        let text = panic.downcast_ref::<String>().unwrap();
                        assert!(text.contains("expected"), "{text}");
                        assert_eq!(told, at + 1);
                        // Freed at once.
                        drop(items);
                    }
                    check(&device, &[(3 * SLOT, false), (SLOT, true)]);
                    drop((stream, device));
                    assert_nothing_is_left(&emulator);
                }
            }
        }
    });
}

/// A panic outweighs the error of a copy.
#[test]
fn a_panic_is_not_lost_to_an_error() {
    watched(|| {
        let emulator = Emulator::new();
        let device = device(&emulator);
        let stream = device.stream().unwrap();
        check(&device, &[(3 * SLOT, false)]);
        let mut items = Items::new(&device, &[(SLOT, false); 30]);
        let mut list = items.list();
        let run = || {
            stream.download_batch_each(&mut list, |_, _| {
                emulator.inject(Fault::forever(Call::CopyD2H, CudaCode::UNKNOWN));
                emulator.inject(Fault::forever(Call::CopyBatch, CudaCode::UNKNOWN));
                emulator.inject(Fault::forever(Call::MoveItems, CudaCode::UNKNOWN));
                panic!("expected");
            })
        };
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"expected"));
        emulator.clear_faults();
        drop(items);
        check(&device, &[(3 * SLOT, false)]);
    });
}

/// The function that is called for page-locked items may itself copy: they hold no slots.
#[test]
fn whoever_is_told_of_page_locked_items_may_copy() {
    watched(|| {
        let emulator = Emulator::builder().execution(Execution::Lazy).build();
        let device = device(&emulator);
        let [stream, other] = [(); 2].map(|()| device.stream().unwrap());
        let mut items = Items::new(&device, &[(SLOT, true); 12]);
        let mut back = Vec::new();
        stream
            .download_batch_each(items.list(), |_, bytes| {
                let mut gpu = device.alloc(bytes.len()).unwrap();
                other.upload_slice(bytes, &mut gpu).unwrap();
                let mut copy = vec![0; bytes.len()];
                other.download_slice(&gpu, &mut copy).unwrap();
                back.push(copy);
            })
            .unwrap();
        assert!(back == items.contents);
        assert_eq!(emulator.findings(), []);
    });
}

#[test]
fn a_mismatch_of_lengths_is_refused() {
    let emulator = Emulator::new();
    let device = device(&emulator);
    let stream = device.stream().unwrap();
    let mut gpu = device.alloc::<u8>(5).unwrap();
    let before = all_calls(&emulator);
    let mut target = vec![0; 4];
    let errors = [
        stream.download_batch([(&gpu, &mut target)]).unwrap_err(),
        stream.upload_batch([(&vec![0; 6], &mut gpu)]).unwrap_err(),
        stream.copy_batch([(&gpu, &mut device.alloc::<u8>(4).unwrap())]).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::LengthMismatch, "{error}");
    }
    // The only calls are those for the memory of the last destination.
    assert!(all_calls(&emulator) <= before + 4, "nothing was enqueued");
}
