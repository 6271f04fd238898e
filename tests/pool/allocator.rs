//! Collections in page-locked memory: `PinnedAllocator`, by the contract of `allocator-api2`.

// SAFETY (of all blocks in this file): every call of the trait's unsafe functions names a block
// that the test got and has not freed, and a layout that fits it. `bytes_of` has the only reference
// to a block while it is used.
#![allow(clippy::undocumented_unsafe_blocks)]

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec as PinnedVec;
use pinlane::{PinnedPool, pool::PinnedAllocator};
use proptest::prelude::*;

use crate::common;
use crate::common::process::{in_a_forked_child, is_alone};

const BUDGET: usize = 16 << 20;

fn pool() -> PinnedPool {
    PinnedPool::builder(&common::device()).max_bytes(BUDGET).build().expect("fine options")
}

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).expect("a layout")
}

fn bytes_of<'a>(block: NonNull<[u8]>) -> &'a mut [u8] {
    unsafe { &mut *block.as_ptr() }
}

#[test]
fn a_vec_lives_in_the_pool() {
    let pool = pool();
    let mut samples = PinnedVec::new_in(pool.allocator());
    for index in 0..100_000u32 {
        samples.push(index as f32);
    }
    assert!(pool.stats().live_bytes >= 400_000);
    let copy = samples.clone();
    samples.truncate(10);
    samples.shrink_to_fit();
    assert!(pool.stats().live_bytes < 900_000);
    assert_eq!(samples[..], copy[..10]);
    assert!(copy.iter().enumerate().all(|(index, &sample)| sample == index as f32));
    drop((samples, copy));
    assert_eq!(pool.stats().live_bytes, 0);
}

#[test]
fn what_a_collection_holds_is_dropped_once() {
    let pool = pool();
    let counter = std::rc::Rc::new(());
    let mut counters = PinnedVec::new_in(pool.allocator());
    counters.extend((0..300).map(|_| counter.clone()));
    counters.remove(7);
    assert_eq!(std::rc::Rc::strong_count(&counter), 300);
    drop(counters);
    assert_eq!(std::rc::Rc::strong_count(&counter), 1);
    let boxed = Box::new_in([7u8; 5000], pool.allocator());
    assert!(boxed.iter().all(|&byte| byte == 7) && pool.stats().live_bytes >= 5000);
    drop(boxed);
    assert_eq!(pool.stats().live_bytes, 0);
}

#[test]
fn collections_move_between_threads_and_outlive_the_pools_handle() {
    let pool = pool();
    let mut numbers = PinnedVec::new_in(pool.allocator());
    drop(pool);
    numbers.extend(0..1000u64);
    let sum =
        std::thread::spawn(move || numbers.into_iter().sum::<u64>()).join().expect("no panic");
    assert_eq!(sum, 499_500);
}

#[test]
fn no_bytes_take_no_memory() {
    let pool = pool();
    let allocator = pool.allocator();
    let mut nothings = PinnedVec::new_in(allocator.clone());
    nothings.extend([(); 1000]);
    for align in [1, 4096, 4 << 20] {
        let nothing = allocator.allocate(layout(0, align)).expect("no bytes");
        assert!(nothing.is_empty() && nothing.cast::<u8>().addr().get().is_multiple_of(align));
        unsafe { allocator.deallocate(nothing.cast(), layout(0, align)) };
    }
    assert_eq!((nothings.len(), pool.stats().committed_bytes), (1000, 0));
}

#[test]
fn alignments_are_kept_up_to_2_mib() {
    let pool = pool();
    let allocator = pool.allocator();
    for shift in 0..=21 {
        let wanted = layout(100, 1 << shift);
        let block = allocator.allocate(wanted).expect("room");
        assert!(block.len() >= 100 && block.cast::<u8>().addr().get().is_multiple_of(1 << shift));
        bytes_of(block).fill(1);
        unsafe { allocator.deallocate(block.cast(), wanted) };
    }
    assert!(allocator.allocate(layout(100, 4 << 20)).is_err());

    // A larger alignment than before, with a larger and a smaller size.
    let block = allocator.allocate(layout(3000, 1)).expect("room");
    bytes_of(block).fill(7);
    let grown = unsafe { allocator.grow(block.cast(), layout(3000, 1), layout(9000, 2 << 20)) };
    let grown = grown.expect("room");
    assert!(grown.cast::<u8>().addr().get().is_multiple_of(2 << 20));
    assert!(bytes_of(grown)[..3000].iter().all(|&byte| byte == 7));
    let refused =
        unsafe { allocator.shrink(grown.cast(), layout(9000, 2 << 20), layout(8, 4 << 20)) };
    // If it is aligned to 4 MiB by chance, it may stay.
    let (last, fits) = match refused {
        Ok(block) => (block, layout(8, 4 << 20)),
        Err(_) => (grown, layout(9000, 2 << 20)),
    };
    unsafe { allocator.deallocate(last.cast(), fits) };
    assert_eq!(pool.stats().live_bytes, 0);
}

#[test]
fn a_block_with_room_stays_where_it_is() {
    let pool = pool();
    let allocator = pool.allocator();
    let block = allocator.allocate(layout(1000, 8)).expect("room");
    let room = block.len();
    assert!(room > 1000);
    bytes_of(block).fill(7);
    let grown = unsafe { allocator.grow_zeroed(block.cast(), layout(1000, 8), layout(room, 8)) };
    let grown = grown.expect("in place");
    assert_eq!((grown.cast::<u8>(), grown.len()), (block.cast(), room));
    assert!(bytes_of(grown)[..1000].iter().all(|&byte| byte == 7));
    assert!(bytes_of(grown)[1000..].iter().all(|&byte| byte == 0));
    let shrunk = unsafe { allocator.shrink(block.cast(), layout(room, 8), layout(room / 2, 8)) };
    assert_eq!(shrunk.expect("in place").cast::<u8>(), block.cast());
    let moved = unsafe { allocator.shrink(block.cast(), layout(room / 2, 8), layout(9, 8)) };
    let moved = moved.expect("room");
    assert!(
        moved.cast::<u8>() != block.cast() && moved.len() < room && bytes_of(moved)[..9] == [7; 9]
    );
    let gone = unsafe { allocator.shrink(moved.cast(), layout(9, 8), layout(0, 8)) };
    assert!(gone.expect("no bytes").is_empty());
    assert_eq!(pool.stats().live_bytes, 0);
}

#[test]
fn a_spent_budget_is_an_error_of_the_try_functions() {
    let pool = pool();
    let mut bytes = PinnedVec::<u8, PinnedAllocator>::new_in(pool.allocator());
    assert!(bytes.try_reserve(BUDGET + 1).is_err());
    assert!(bytes.try_reserve(isize::MAX as usize).is_err());
    bytes.try_reserve(BUDGET / 2).expect("room");
    bytes.resize(BUDGET / 2, 7);
    assert!(bytes.try_reserve_exact(BUDGET * 3 / 4).is_err());
    assert!(bytes.iter().all(|&byte| byte == 7), "as it was");
    // There is no room for a smaller block beside the large one, so the large one stays.
    bytes.truncate(BUDGET / 8);
    let rest = pool.alloc::<u8>(BUDGET / 2).expect("the other half");
    bytes.shrink_to_fit();
    assert!(bytes.len() == BUDGET / 8 && bytes.iter().all(|&byte| byte == 7));
    drop(rest);
}

#[derive(Clone, Debug)]
enum Step {
    Push(u64),
    Extend(usize),
    Truncate(usize),
    ShrinkToFit,
    Reserve(usize),
    Split(usize),
    Clone,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<u64>().prop_map(Step::Push),
        (0..2000usize).prop_map(Step::Extend),
        (0..3000usize).prop_map(Step::Truncate),
        Just(Step::ShrinkToFit),
        (0..3000usize).prop_map(Step::Reserve),
        (0..3000usize).prop_map(Step::Split),
        Just(Step::Clone),
    ]
}

proptest! {
    #[test]
    fn a_vec_is_a_vec(steps in prop::collection::vec(step(), 0..40)) {
        let pool = pool();
        let mut pinned = PinnedVec::new_in(pool.allocator());
        let mut plain = Vec::new();
        for step in steps {
            match step {
                Step::Push(value) => {
                    pinned.push(value);
                    plain.push(value);
                }
                Step::Extend(count) => {
                    pinned.extend(0..count as u64);
                    plain.extend(0..count as u64);
                }
                Step::Truncate(len) => {
                    pinned.truncate(len);
                    plain.truncate(len);
                }
                Step::ShrinkToFit => pinned.shrink_to_fit(),
                Step::Reserve(count) => pinned.reserve(count),
                Step::Split(at) => {
                    let at = at.min(plain.len());
                    pinned = pinned.split_off(at);
                    plain = plain.split_off(at);
                }
                Step::Clone => pinned = pinned.clone(),
            }
            prop_assert_eq!(&pinned[..], &plain[..]);
            prop_assert!(pool.stats().live_bytes >= size_of_val(&plain[..]));
        }
        drop(pinned);
        prop_assert_eq!(pool.stats().live_bytes, 0);
    }
}

#[test]
fn rule_14_a_forked_child_drops_plain_collections_quietly() {
    if !is_alone(module_path!(), "rule_14_a_forked_child_drops_plain_collections_quietly") {
        return;
    }
    let pool = pool();
    let mut numbers = PinnedVec::new_in(pool.allocator());
    numbers.extend(0..1000u64);
    let boxed = Box::new_in([7u8; 5000], pool.allocator());
    let mut names = PinnedVec::new_in(pool.allocator());
    names.extend((0..100).map(|name| name.to_string()));
    in_a_forked_child(|| {
        drop(numbers);
        drop(boxed);
        // Their destructors would read memory that does not exist.
        std::mem::forget(names);
        drop(pool);
        0
    });
}
