//! Page-locked memory of every origin, on the device that the tests run on: the runtime itself must
//! accept it.

use pinlane::{Device, PinnedPool, PinnedSlice, PinnedSliceMut, Stream, pool::PageLocking};

use crate::common;

const LEN: usize = 70_000;

fn numbers(len: usize) -> Vec<u32> {
    (0..len as u32).map(|number| number.wrapping_mul(2_654_435_761)).collect()
}

/// Copies up and down again, whole and in part.
fn roundtrip(device: &Device, stream: &Stream, mut host: PinnedSliceMut<'_, u32>) {
    let len = host.len();
    let mut gpu = device.alloc::<u32>(len).unwrap();
    host.reborrow().into_write().unwrap().copy_from_slice(&numbers(len));
    stream.upload(host.as_slice(), &mut gpu).unwrap();
    host.reborrow().into_write().unwrap().fill(0);
    stream.download(&gpu, host.reborrow()).unwrap();
    let back: PinnedSlice<'_, u32> = host.as_slice();
    assert!(back.read().unwrap() == numbers(len));
}

#[test]
fn a_pool_page_locks_in_every_way() {
    let device = common::device();
    let stream = device.stream().unwrap();
    let pool = || PinnedPool::builder(&device).max_bytes(256 << 20);
    let pools = [
        pool(),
        pool().page_locking(PageLocking::Allocate),
        pool().write_combined(true),
        pool().mapped(true).growth_threads(3),
    ];
    for pool in pools {
        let pool = pool.build().unwrap();
        for len in [1, LEN, (20 << 20) / 4 + 7] {
            roundtrip(&device, &stream, pool.alloc(len).unwrap().as_slice_mut());
        }
        let mut aligned = pool.alloc_aligned::<u32>(LEN, 2 << 20).unwrap();
        assert!(aligned.as_ptr().addr().is_multiple_of(2 << 20));
        roundtrip(&device, &stream, aligned.as_slice_mut());
        drop(aligned);
        let stats = pool.stats();
        assert_eq!((stats.live_bytes, stats.fallbacks.not_registered), (0, 0), "{stats}");
        assert!(stats.committed_bytes > 20 << 20);
        pool.trim().unwrap();
        assert_eq!(pool.stats().committed_bytes, 0);
    }
}

#[test]
fn memory_of_others_is_registered_and_given_back() {
    let device = common::device();
    let stream = device.stream().unwrap();
    let mut owned = device.register(vec![0_u32; LEN]).unwrap();
    roundtrip(&device, &stream, owned.as_slice_mut());
    assert_eq!(owned.into_inner().unwrap(), numbers(LEN));

    // From an odd address, twice, so that it is unregistered in between.
    let mut borrowed = vec![0_u32; LEN + 1];
    for _ in 0..2 {
        let part = &mut borrowed[1..];
        device.with_registered(part, |view| roundtrip(&device, &stream, view)).unwrap();
    }
    assert_eq!((borrowed[0], &borrowed[1..]), (0, &numbers(LEN)[..]));
}

#[test]
fn a_buffer_names_its_pool_as_long_as_somebody_has_a_handle() {
    let device = common::device();
    let pool = PinnedPool::builder(&device).max_bytes(4096).build().unwrap();
    let buffer = pool.alloc::<u8>(4096).unwrap();
    let found = buffer.pool().expect("there is a handle");
    drop(pool);
    // It is a handle of the same pool, like any other.
    assert!(found.try_alloc::<u8>(1).is_err(), "the budget is spent");
    drop(found);
    assert!(buffer.pool().is_none());
    let memory = device.register(vec![0u8; 64]).map_err(|refused| refused.error).unwrap();
    assert!(memory.pool().is_none());
}
