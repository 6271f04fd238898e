//! Copies with choices, and kernels that read host memory: what the seed picks, and what is found.

use super::*;
use pinlane_driver::{CopyKind, DriverResult, Item, Pitched, StridedCopy};

impl Rig {
    fn lazy_seeds() -> impl Iterator<Item = Rig> {
        (0..40).map(Rig::lazy)
    }

    /// Moves all of `src` to `dst`; the item lies in a page-locked block of its own.
    fn move_one(
        &self,
        stream: RawStream,
        kind: CopyKind,
        dst: u64,
        src: u64,
    ) -> (DriverResult<()>, NonNull<u8>) {
        let list = self.host();
        write(list, bytemuck::bytes_of(&Item { src, dst, bytes: BYTES as u64 }));
        (self.move_item(stream, kind, address(list)), list)
    }

    fn pending(&self) -> usize {
        self.emulator.usage().pending_operations
    }
}

fn address(ptr: NonNull<u8>) -> u64 {
    ptr.as_ptr().expose_provenance() as u64
}

/// The copy of all of `src`.
fn whole(dst: u64, src: u64) -> [Item; 1] {
    [Item { dst, src, bytes: BYTES as u64 }]
}

/// What has become of a copy to the device whose source is overwritten as soon as the call returns.
fn way_of(rig: &Rig, copy: impl Fn(RawStream, DevicePtr, NonNull<u8>)) -> &'static str {
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    let mut source = [3u8; BYTES];
    let ptr = NonNull::from(&mut source).cast();
    copy(stream, a, ptr);
    let blocked = rig.pending() == 0;
    write(ptr, &[9; BYTES]);
    rig.download(stream, host, a).unwrap();
    rig.synchronize(stream).unwrap();
    match (blocked, bytes(host)[0], &rig.found()[..]) {
        (true, 3, []) => "block",
        (false, 3, []) => "stage",
        (false, 9, [FindingKind::SourceChanged]) => "late",
        (false, 3, [FindingKind::SourceChanged]) => "torn",
        other => panic!("{other:?}"),
    }
}

#[test]
fn rule_04_the_seed_blocks_stages_tears_or_delays_a_pageable_copy() {
    let seen: HashSet<_> = Rig::lazy_seeds()
        .map(|rig| {
            way_of(&rig, |stream, dst, src| {
                rig.upload_pageable(stream, dst, src).unwrap();
            })
        })
        .collect();
    assert_eq!(seen, HashSet::from(["block", "stage", "torn", "late"]));
}

#[test]
fn rule_04_pageable_memory_is_read_in_no_order_with_earlier_work() {
    let in_order = |rig: Rig| {
        let (stream, a, b, host) = (rig.stream(0), rig.memory(0), rig.memory(0), rig.host());
        let mut memory = [0u8; BYTES];
        let ptr = NonNull::from(&mut memory).cast();
        rig.fill(stream, a, 5).unwrap();
        rig.download_pageable(stream, ptr, a).unwrap();
        rig.upload_pageable(stream, b, ptr).unwrap();
        rig.download(stream, host, b).unwrap();
        rig.synchronize(stream).unwrap();
        bytes(host).map(|byte| byte == 5)
    };
    let seen: Vec<_> = (0..100).map(Rig::lazy).map(in_order).collect();
    assert!(seen.contains(&[true; BYTES]), "written first");
    assert!(seen.contains(&[false; BYTES]), "read at the call");
    assert!(seen.iter().any(|seen| !seen[0] && seen[BYTES - 1]), "torn");
}

#[test]
fn rule_04_pageable_memory_on_its_way_to_the_host_is_poisoned_or_there() {
    let seen: HashSet<bool> = Rig::lazy_seeds()
        .map(|rig| {
            let (stream, a) = (rig.stream(0), rig.memory(0));
            let mut memory = [0u8; BYTES];
            let ptr = NonNull::from(&mut memory).cast();
            rig.fill(stream, a, 5).unwrap();
            rig.download_pageable(stream, ptr, a).unwrap();
            let late = rig.pending() > 0;
            assert_eq!(bytes(ptr) != [5; BYTES], late);
            rig.synchronize(stream).unwrap();
            assert_eq!(bytes(ptr), [5; BYTES]);
            late
        })
        .collect();
    assert_eq!(seen, HashSet::from([false, true]));
}

#[test]
fn rule_07_memory_that_is_page_locked_in_part_is_found() {
    let rig = Rig::lazy(0);
    let (stream, a) = (rig.stream(0), rig.memory(0));
    let mut owned = [1u8; 3 * BYTES];
    let start = NonNull::from(&mut owned).cast::<u8>();
    let refused = Err(CudaCode::INVALID_VALUE);
    let middle = at(start, BYTES);
    rig.register(middle).unwrap();
    // GPUs were seen to follow the first byte; batches are refused.
    for (offset, answer) in [(BYTES / 2, Ok(())), (BYTES + 1, refused)] {
        let ptr = at(start, offset);
        assert_eq!(rig.upload_pageable(stream, a, ptr), answer);
        assert_eq!(rig.download_pageable(stream, ptr, a), answer);
        let copies = whole(a, address(ptr));
        assert_eq!(rig.batch(stream, CopyKind::H2D, &copies), refused);
    }
    assert_eq!(rig.found(), [FindingKind::NotPageLocked; 6]);
    for offset in [0, BYTES, 2 * BYTES] {
        rig.upload_pageable(stream, a, at(start, offset)).unwrap();
    }
    rig.synchronize(stream).unwrap();
    rig.unregister(middle).unwrap();
}

#[test]
fn rule_08_the_seed_orders_the_copies_of_a_batch() {
    // One of them loses the device: what was copied by then tells the order.
    let copied = |seed| {
        let rig = Rig::lazy(seed);
        let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
        rig.fill(stream, a, 7).unwrap();
        let copies: Vec<Item> =
            (0..8).map(|n| Item { dst: address(host) + n, src: a + n * 16, bytes: 1 }).collect();
        rig.batch(stream, CopyKind::D2H, &copies).unwrap();
        assert_eq!(rig.synchronize(stream), Err(CudaCode::ILLEGAL_ADDRESS));
        bytes(host)[..4].to_vec()
    };
    let seen: HashSet<Vec<u8>> = (0..100).map(copied).collect();
    assert!(seen.len() > 10, "{seen:?}");
}

#[test]
fn rule_08_what_a_batch_is_refused_for() {
    let rig = Rig::lazy(1);
    let (stream, a, b, host) = (rig.stream(0), rig.memory(0), rig.memory(0), rig.host());
    let invalid = Err(CudaCode::INVALID_VALUE);
    let within = whole(b, a);

    // A capture refuses it, and stays valid.
    rig.emulator.begin_capture(stream).unwrap();
    let captured = rig.batch(stream, CopyKind::D2D, &within);
    assert_eq!(captured, Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED));
    rig.fill(stream, a, 1).unwrap();
    assert_eq!(rig.emulator.end_capture(stream), Ok(1));
    assert_eq!(rig.found(), []);

    let far = rig.memory(1);
    let overlapping = [(b, a), (b + 63, a), (a, a + 64), (b, b + 60), (far, a)];
    for (dst, src) in overlapping {
        let copies = [whole(b, a)[0], Item { dst, src, bytes: 8 }];
        assert_eq!(rig.batch(stream, CopyKind::D2D, &copies), invalid);
    }
    assert_eq!(rig.found(), [FindingKind::BadCopy; 5]);
    rig.download(stream, host, a).unwrap();
    rig.batch(stream, CopyKind::H2D, &whole(b, address(host))).unwrap();

    let busy = CudaCode::MEMORY_ALLOCATION;
    rig.emulator.inject(Fault::once(Call::CopyBatch, busy));
    assert_eq!(rig.batch(stream, CopyKind::D2D, &within), Err(busy));
    let old = Rig::new(Emulator::builder().batches(false));
    let (stream, a, b) = (old.stream(0), old.memory(0), old.memory(0));
    assert_eq!(old.driver.supports_batches(0), Ok(false));
    let refused = old.batch(stream, CopyKind::D2D, &whole(b, a));
    assert_eq!(refused, Err(CudaCode::NOT_SUPPORTED));
}

/// Four rows of 4 bytes, as many bytes apart.
fn strided(dst: u64, src: u64, pitch: usize) -> StridedCopy {
    let side = |at| Pitched { at, pitch, height: 4 };
    StridedCopy { src: side(src), dst: side(dst), row: 4, rows: 4, planes: 1 }
}

#[test]
fn rule_07_a_strided_copy_has_each_side_in_one_piece_gaps_and_all() {
    let rig = Rig::lazy(1);
    let (stream, a, b, host) = (rig.stream(0), rig.memory(0), rig.memory(0), rig.host());
    // SAFETY: the machine checks the ranges; none is accessed before the copies are done.
    let copy = |kind, copy| unsafe { rig.driver.copy_strided(stream, kind, &copy) };
    let invalid = Err(CudaCode::INVALID_VALUE);
    let most = (BYTES - 4) / 3;
    let (at, up) = (address(host), CopyKind::H2D);
    assert_eq!(copy(up, strided(a, at, most)), Ok(()));
    assert_eq!(copy(CopyKind::D2D, strided(b, a, most)), Ok(()));
    assert_eq!(copy(up, strided(a, at, 3)), invalid, "rows that overlap");
    assert_eq!(rig.found(), []);
    assert_eq!(copy(up, strided(a, at, most + 1)), invalid);
    assert_eq!(copy(CopyKind::D2D, strided(a, b, most + 1)), invalid);
    assert_eq!(copy(CopyKind::D2D, strided(a, a + 2, 8)), invalid);
    let found = [FindingKind::NotPageLocked, FindingKind::IllegalAddress, FindingKind::BadCopy];
    assert_eq!(rig.found(), found);
    // The host's side alone runs out of its block.
    let mut long = strided(a, at + 1, most);
    long.dst.pitch = 4;
    assert_eq!(copy(up, long), invalid);
    assert_eq!(rig.found()[3..], [FindingKind::NotPageLocked]);
    rig.emulator.inject(Fault::once(Call::CopyStrided, CudaCode::UNKNOWN));
    assert_eq!(copy(up, strided(a, at, 8)), Err(CudaCode::UNKNOWN));
    rig.synchronize(stream).unwrap();
}

#[test]
fn rule_19_a_strided_copy_goes_from_device_to_device() {
    let rig = Rig::lazy(1);
    let (stream, near, far, host) = (rig.stream(0), rig.memory(0), rig.memory(1), rig.host());
    rig.fill(stream, near, 5).unwrap();
    let other = rig.stream(1);
    rig.fill(other, far, 9).unwrap();
    rig.synchronize(other).unwrap();
    let copy = |copy: StridedCopy, dst, src| {
        // SAFETY: the machine checks the ranges; none is accessed before the copies are done.
        unsafe { rig.driver.copy_strided_peer(stream, &copy, dst, src) }
    };
    assert_eq!(copy(strided(far, near, 16), 1, 0), Ok(()));
    rig.synchronize(stream).unwrap();
    rig.download(other, host, far).unwrap();
    rig.synchronize(other).unwrap();
    let mut expected = [9; BYTES];
    (0..4).for_each(|row| expected[row * 16..][..4].fill(5));
    assert_eq!(bytes(host), expected);
    assert_eq!(copy(strided(far, near, 16), 0, 1), Err(CudaCode::INVALID_VALUE));
    assert_eq!(copy(strided(far, near, 16), 7, 0), Err(CudaCode::INVALID_DEVICE));
    assert_eq!(rig.found(), [FindingKind::BadCopy]);
}

#[test]
fn a_source_of_a_batch_is_watched_until_it_is_read() {
    let rig = Rig::lazy(1);
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    let copies: Vec<Item> =
        (0..4).map(|n| Item { dst: a + n * 16, src: address(host) + n * 16, bytes: 16 }).collect();
    rig.batch(stream, CopyKind::H2D, &copies).unwrap();
    write(at(host, 33), &[1]);
    rig.synchronize(stream).unwrap();
    assert_eq!(rig.found(), [FindingKind::SourceChanged]);
    let rig = Rig::lazy(1);
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    rig.batch(stream, CopyKind::H2D, &whole(a, address(host))).unwrap();
    rig.free_host(host).unwrap();
    assert_eq!(rig.found(), [FindingKind::FreedInFlight]);
    rig.synchronize(stream).unwrap();
}

#[test]
fn what_a_move_reads_is_watched_until_it_runs() {
    // Its source; then its list.
    for of_list in [false, true] {
        let rig = Rig::lazy(1);
        let (stream, a, source) = (rig.stream(0), rig.memory(0), rig.host());
        let (moved, list) = rig.move_one(stream, CopyKind::H2D, a, address(source));
        moved.unwrap();
        let watched = if of_list { list } else { source };
        // In the list, that is the length.
        write(at(watched, 16), &[BYTES as u8 / 2]);
        rig.synchronize(stream).unwrap();
        assert_eq!(rig.found(), [FindingKind::SourceChanged]);

        let (moved, list) = rig.move_one(stream, CopyKind::H2D, a, address(source));
        moved.unwrap();
        let freed = if of_list { list } else { source };
        rig.free_host(freed).unwrap();
        assert_eq!(rig.found()[1..], [FindingKind::FreedInFlight]);
        rig.synchronize(stream).unwrap();
        assert_eq!(rig.emulator.usage().quarantined_blocks, 1);
    }
}

#[test]
fn what_a_move_writes_on_the_host_is_poisoned_and_held_until_it_runs() {
    let rig = Rig::lazy(1);
    let (stream, a, target) = (rig.stream(0), rig.memory(0), rig.host());
    rig.fill(stream, a, 5).unwrap();
    rig.move_one(stream, CopyKind::D2H, address(target), a).0.unwrap();
    assert!(bytes(target).iter().all(|&byte| byte != 0 && byte != 5), "{:?}", bytes(target));
    rig.free_host(target).unwrap();
    assert_eq!(rig.found(), [FindingKind::FreedInFlight]);
    rig.synchronize(stream).unwrap();
    assert_eq!(bytes(target), [5; BYTES], "the memory is kept");
    assert_eq!(rig.emulator.usage().quarantined_blocks, 1);
}

#[test]
fn a_move_outside_the_memory_that_its_mover_says_loses_the_device() {
    let plain = [0u8; BYTES];
    let plain = address(NonNull::from(&plain).cast());
    for lazy in [false, true] {
        let rig = || if lazy { Rig::lazy(2) } else { Rig::eager() };
        for kind in [CopyKind::H2D, CopyKind::D2H, CopyKind::D2D] {
            // A kind is wrong where the pointers need another one.
            for (right, on_host) in [
                (CopyKind::H2D, (false, true)),
                (CopyKind::D2H, (true, false)),
                (CopyKind::D2D, (false, false)),
                (CopyKind::D2D, (true, true)),
            ] {
                let rig = rig();
                let stream = rig.stream(0);
                let place = |host| if host { address(rig.host()) } else { rig.memory(0) };
                let (dst, src) = (place(on_host.0), place(on_host.1));
                rig.move_one(stream, kind, dst, src).0.unwrap();
                let fits = kind == right && on_host != (true, true);
                let (answer, found) = match fits {
                    true => (Ok(()), vec![]),
                    false => (Err(CudaCode::ILLEGAL_ADDRESS), vec![FindingKind::IllegalAddress]),
                };
                assert_eq!(rig.synchronize(stream), answer, "{kind:?} {on_host:?}");
                assert_eq!(rig.found(), found);
            }
        }
        for kind in [CopyKind::H2D, CopyKind::D2H] {
            let rig = rig();
            let (stream, a) = (rig.stream(0), rig.memory(0));
            let (dst, src) = if kind == CopyKind::H2D { (a, plain) } else { (plain, a) };
            rig.move_one(stream, kind, dst, src).0.unwrap();
            assert_eq!(rig.synchronize(stream), Err(CudaCode::ILLEGAL_ADDRESS));
            assert_eq!(rig.found(), [FindingKind::IllegalAddress]);
        }
    }
    // Freed before the launch, while an earlier copy kept it.
    let rig = Rig::lazy(2);
    let (stream, a, b, host) = (rig.stream(0), rig.memory(0), rig.memory(0), rig.host());
    rig.upload(stream, a, host).unwrap();
    rig.free_host(host).unwrap();
    rig.move_one(stream, CopyKind::H2D, b, address(host)).0.unwrap();
    assert_eq!(rig.synchronize(stream), Err(CudaCode::ILLEGAL_ADDRESS));
    assert_eq!(rig.found(), [FindingKind::FreedInFlight, FindingKind::IllegalAddress]);
    // The items themselves, and their alignment.
    for aligned in [true, false] {
        let rig = Rig::lazy(2);
        let (stream, host) = (rig.stream(0), rig.host());
        let (items, code) = if aligned {
            (plain & !7, CudaCode::ILLEGAL_ADDRESS)
        } else {
            (address(host) + 4, CudaCode::MISALIGNED_ADDRESS)
        };
        rig.move_item(stream, CopyKind::H2D, items).unwrap();
        assert_eq!(rig.synchronize(stream), Err(code));
        assert_eq!(rig.found(), [FindingKind::IllegalAddress]);
    }
}

#[test]
fn a_move_whose_items_are_on_the_device_finds_the_host_memory_when_it_runs() {
    let rig = Rig::lazy(3);
    let (stream, a, list) = (rig.stream(0), rig.memory(0), rig.memory(0));
    let (source, target, staging) = (rig.host(), rig.host(), rig.host());
    let bytes_each = BYTES as u64;
    for (kind, item) in [
        (CopyKind::H2D, Item { src: address(source), dst: a, bytes: bytes_each }),
        (CopyKind::D2H, Item { src: a, dst: address(target), bytes: bytes_each }),
    ] {
        write(source, &[4; BYTES]);
        write(staging, bytemuck::bytes_of(&item));
        rig.upload(stream, list, staging).unwrap();
        rig.move_item(stream, kind, list).unwrap();
        rig.synchronize(stream).unwrap();
    }
    assert_eq!((bytes(target), rig.found()), ([4; BYTES], vec![]));
}
