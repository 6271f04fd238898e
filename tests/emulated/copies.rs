//! Copies of pageable memory, batches, kernels that read the host's memory, and pools.

use pinlane::CudaCode;
use pinlane::driver::{
    CopyKind, HostFlags, Item, Layer, Pitched, RawStream, RowIndex, RowMove, StridedCopy,
};

use crate::rig::{BYTES, Rig, copy_plain, on_each_driver, on_each_emulator};
use crate::sample;

// SAFETY (of all calls of the driver in this file): as in `rig`.

#[test]
fn rule_04_pageable_copies_carry_every_byte_at_every_offset() {
    on_each_emulator(|rig, emulator| {
        let (stream, a) = (rig.stream(false), rig.memory());
        for (offset, bytes) in [(0, BYTES), (1, 1), (3, 1021), (8, 64), (BYTES - 1, 1), (5, 0)] {
            let (mut there, mut back) = (sample(BYTES, 3), vec![0x77; BYTES]);
            let (from, to) = (there.as_mut_ptr(), back.as_mut_ptr());
            rig.fill(stream, a, 0xa5);
            // SAFETY: as in `rig`.
            unsafe {
                let at = a + offset as u64;
                copy_plain(emulator, stream, at as *mut u8, from.add(offset), bytes).unwrap();
                copy_plain(emulator, stream, to, a as *const u8, BYTES).unwrap();
            }
            rig.synchronize(stream);
            let mut expected = vec![0xa5; BYTES];
            expected[offset..offset + bytes].copy_from_slice(&there[offset..offset + bytes]);
            assert_eq!(back, expected, "{bytes} bytes at {offset}");
        }
    });
}

#[test]
fn rule_04_pageable_copies_keep_their_place_on_the_device() {
    on_each_emulator(|rig, emulator| {
        let (stream, a, b) = (rig.stream(false), rig.memory(), rig.memory());
        let (mut back, mut there) = (vec![0u8; BYTES], vec![3u8; BYTES]);
        rig.fill(stream, a, 1);
        rig.fill(stream, b, 1);
        // SAFETY: as in `rig`.
        unsafe {
            copy_plain(emulator, stream, back.as_mut_ptr(), a as *const u8, BYTES).unwrap();
            copy_plain(emulator, stream, b as *mut u8, there.as_mut_ptr(), BYTES).unwrap();
        }
        rig.fill(stream, a, 2);
        rig.synchronize(stream);
        assert_eq!(back, [1; BYTES]);
        assert_eq!((rig.contents(a), rig.contents(b)), (vec![2; BYTES], vec![3; BYTES]));
    });
}

#[test]
fn rule_07_memory_that_is_wholly_page_locked_takes_part_in_pageable_copies() {
    on_each_emulator(|rig, emulator| {
        let (stream, a, host) = (rig.stream(false), rig.memory(), rig.host());
        // SAFETY: as in `rig`.
        unsafe {
            host.as_ptr().write_bytes(6, BYTES);
            copy_plain(emulator, stream, a as *mut u8, host.as_ptr().add(8), BYTES - 8).unwrap();
            copy_plain(emulator, stream, host.as_ptr(), a as *const u8, BYTES - 8).unwrap();
            rig.synchronize(stream);
            assert_eq!(std::slice::from_raw_parts(host.as_ptr(), BYTES), [6; BYTES]);
        }
    });
}

/// Three planes of five rows of 37 bytes. They are apart, and behind each other.
fn strided(src: u64, dst: u64, planes: usize) -> StridedCopy {
    StridedCopy {
        src: Pitched { at: src + 3, pitch: 50, height: 7 },
        dst: Pitched { at: dst + 11, pitch: 37, height: 5 },
        row: 37,
        rows: 5,
        planes,
    }
}

/// The destination after that copy.
fn copied(dst: &[u8], src: &[u8], planes: usize) -> Vec<u8> {
    let mut result = dst.to_vec();
    for plane in 0..planes {
        for row in 0..5 {
            let (from, to) = (3 + plane * 350 + row * 50, 11 + plane * 185 + row * 37);
            result[to..to + 37].copy_from_slice(&src[from..from + 37]);
        }
    }
    result
}

#[test]
fn rule_05_strided_copies_keep_their_place_and_leave_gaps_alone() {
    on_each_driver(|rig| {
        for planes in [1, 3] {
            let (stream, a, b) = (rig.stream(false), rig.memory(), rig.memory());
            let (pinned, contents) = (rig.host(), sample(BYTES, 5));
            let pinned_at = pinned.as_ptr().expose_provenance() as u64;
            let copy = |kind, src, dst| {
                // SAFETY: as in `rig`.
                unsafe { rig.driver.copy_strided(stream, kind, &strided(src, dst, planes)) }
                    .unwrap();
            };
            // SAFETY: as in `rig`.
            unsafe { pinned.as_ptr().copy_from(contents.as_ptr(), BYTES) };
            rig.fill(stream, a, 1);
            copy(CopyKind::H2D, pinned_at, a);
            rig.fill(stream, b, 2);
            copy(CopyKind::D2D, a, b);
            rig.synchronize(stream);
            let in_a = copied(&[1; BYTES], &contents, planes);
            let in_b = copied(&[2; BYTES], &in_a, planes);
            assert_eq!((rig.contents(a), rig.contents(b)), (in_a, in_b.clone()));

            copy(CopyKind::D2H, b, pinned_at);
            rig.synchronize(stream);
            // SAFETY: as in `rig`.
            let back = unsafe { std::slice::from_raw_parts(pinned.as_ptr(), BYTES) };
            assert_eq!(back, copied(&contents, &in_b, planes));
        }
    });
}

/// The rows of both sides lie a pitch apart, and the planes where a list says.
#[test]
fn rule_35_a_kernel_moves_rows_that_lie_a_pitch_apart() {
    on_each_driver(|rig| {
        let (stream, a) = (rig.stream(false), rig.memory());
        let (pinned, list, contents) = (rig.host(), rig.host(), sample(BYTES, 5));
        let at = pinned.as_ptr().expose_provenance() as u64;
        let layers =
            [0, 1, 2].map(|plane| Layer { src: at + 3 + plane * 350, dst: a + 11 + plane * 185 });
        // SAFETY: as in `rig`.
        unsafe {
            pinned.as_ptr().copy_from(contents.as_ptr(), BYTES);
            list.as_ptr().cast::<[Layer; 3]>().write(layers);
        }
        let index = |pitch| RowIndex { at: 0, bytes: 4, limit: 5, pitch };
        let rows = RowMove {
            layers: list.as_ptr().expose_provenance() as u64,
            layer_count: 3,
            count: 5,
            bytes: 37,
            from: index(50),
            to: index(37),
        };
        rig.fill(stream, a, 1);
        // SAFETY: as in `rig`.
        unsafe { rig.driver.move_rows(stream, CopyKind::H2D, &rows) }.unwrap();
        rig.synchronize(stream);
        assert_eq!(rig.contents(a), copied(&[1; BYTES], &contents, 3));
    });
}

/// Copies of four parts in another order, and one of no bytes.
fn parts(dst: u64, src: u64) -> Vec<Item> {
    let part = |(to, from, bytes)| Item { dst: dst + to, src: src + from, bytes };
    [(0, 2000, 1000), (1001, 1, 7), (3000, 1096, 512), (50, 3, 0), (1500, 3900, 196)]
        .map(part)
        .into()
}

/// The destination after the copies of `parts`.
fn expected(dst: &[u8], src: &[u8]) -> Vec<u8> {
    let mut result = dst.to_vec();
    for Item { dst, src: from, bytes } in parts(0, 0) {
        let (dst, from, bytes) = (dst as usize, from as usize, bytes as usize);
        result[dst..dst + bytes].copy_from_slice(&src[from..from + bytes]);
    }
    result
}

fn batch(rig: &Rig, stream: RawStream, kind: CopyKind, copies: &[Item]) {
    // SAFETY: as in `rig`.
    unsafe { rig.driver.copy_batch(stream, kind, copies) }.unwrap();
}

/// Runs a test on each driver that has batches: all but old ones.
fn on_each_driver_with_batches(test: impl Fn(&Rig)) {
    on_each_driver(|rig| {
        if rig.driver.supports_batches(rig.device).unwrap() {
            test(rig);
        }
    });
}

#[test]
fn rule_08_a_batch_copies_every_part_in_stream_order() {
    on_each_driver_with_batches(|rig| {
        let (stream, a, b) = (rig.stream(false), rig.memory(), rig.memory());
        let (pinned, contents) = (rig.host(), sample(BYTES, 5));
        let pinned_at = pinned.as_ptr().addr() as u64;
        // SAFETY: as in `rig`.
        unsafe {
            pinned.as_ptr().copy_from(contents.as_ptr(), BYTES);
        }
        rig.fill(stream, a, 1);
        batch(rig, stream, CopyKind::H2D, &parts(a, pinned_at));
        rig.fill(stream, b, 2);
        batch(rig, stream, CopyKind::D2D, &parts(b, a));
        rig.synchronize(stream);
        let in_a = expected(&[1; BYTES], &contents);
        let in_b = expected(&[2; BYTES], &in_a);
        assert_eq!((rig.contents(a), rig.contents(b)), (in_a.clone(), in_b.clone()));

        batch(rig, stream, CopyKind::D2H, &parts(pinned_at, b));
        rig.synchronize(stream);
        // SAFETY: as in `rig`.
        unsafe {
            let pinned = std::slice::from_raw_parts(pinned.as_ptr(), BYTES);
            assert_eq!(pinned, expected(&contents, &in_b));
        }
    });
}

#[test]
fn rule_08_a_batch_is_refused_by_the_legacy_stream_alone() {
    on_each_driver_with_batches(|rig| {
        let (a, b) = (rig.memory(), rig.memory());
        let copies = parts(b, a);
        let on = |stream, copies: &[Item]| {
            // SAFETY: as in `rig`.
            unsafe { rig.driver.copy_batch(stream, CopyKind::D2D, copies) }
        };
        assert_eq!(on(rig.legacy(), &copies), Err(CudaCode::INVALID_VALUE));
        assert_eq!(on(rig.legacy(), &copies[3..4]), Ok(()), "no bytes");
        assert_eq!(on(rig.legacy(), &[]), Ok(()));
        assert_eq!(on(rig.per_thread(), &copies), Ok(()));
        rig.synchronize(rig.per_thread());
        assert_eq!(on(rig.stream(true), &copies), Ok(()));
    });
}

#[test]
fn rule_08_a_batch_may_be_a_threads_first_call() {
    on_each_driver_with_batches(|rig| {
        let (stream, a, b) = (rig.stream(false), rig.memory(), rig.memory());
        rig.fill(stream, a, 8);
        rig.fill(stream, b, 9);
        std::thread::scope(|scope| {
            scope.spawn(|| batch(rig, stream, CopyKind::D2D, &parts(b, a)));
        });
        rig.synchronize(stream);
        assert_eq!(rig.contents(b), expected(&[9; BYTES], &[8; BYTES]));
    });
}

/// Three items, one of them of no bytes.
fn items(dst: u64, src: u64) -> [Item; 3] {
    let item = |(to, from, bytes)| Item { dst: dst + to, src: src + from, bytes };
    [(100, 0, 1000), (2001, 1003, 1999), (3, 77, 0)].map(item)
}

/// The destination after the move of `items`: it was full of 6, and the source of 5.
fn moved() -> Vec<u8> {
    let mut expected = vec![6; BYTES];
    expected[100..1100].fill(5);
    expected[2001..4000].fill(5);
    expected
}

#[test]
fn rule_35_a_kernel_reads_page_locked_memory_in_stream_order() {
    on_each_driver(|rig| {
        let (stream, a, b) = (rig.stream(false), rig.memory(), rig.memory());
        let (source, list) = (rig.host(), rig.host());
        let at = source.as_ptr().addr() as u64;
        let items = items(b, at);
        let list_at = list.as_ptr().addr() as u64;
        rig.fill(stream, a, 5);
        rig.fill(stream, b, 6);
        // SAFETY: as in `rig`.
        unsafe {
            list.cast().write(items);
            rig.driver.copy_d2h(stream, source.as_ptr(), a, BYTES).unwrap();
            rig.driver.move_items(stream, CopyKind::H2D, list_at, items.len(), 2999).unwrap();
            rig.fill(stream, a, 7);
            rig.driver.copy_d2h(stream, source.as_ptr(), a, BYTES).unwrap();
        }
        rig.synchronize(stream);
        assert_eq!(rig.contents(b), moved());
    });
}

#[test]
fn rule_35_a_kernel_writes_page_locked_memory_in_stream_order() {
    on_each_driver(|rig| {
        let (stream, a, b) = (rig.stream(false), rig.memory(), rig.memory());
        let (target, list) = (rig.host(), rig.host());
        let at = target.as_ptr().addr() as u64;
        let items = items(at, a);
        let list_at = list.as_ptr().addr() as u64;
        rig.fill(stream, a, 5);
        rig.fill(stream, b, 6);
        // SAFETY: as in `rig`.
        unsafe {
            list.cast().write(items);
            rig.driver.copy_d2h(stream, target.as_ptr(), b, BYTES).unwrap();
            rig.driver.move_items(stream, CopyKind::D2H, list_at, items.len(), 2999).unwrap();
            rig.fill(stream, a, 7);
            rig.driver.copy_h2d(stream, b, target.as_ptr(), BYTES).unwrap();
        }
        rig.synchronize(stream);
        assert_eq!(rig.contents(b), moved());
        // SAFETY: the kernel has written all of the block and is complete.
        let there = unsafe { std::slice::from_raw_parts(target.as_ptr(), BYTES) };
        assert_eq!(there, moved());
    });
}

#[test]
fn rule_35_a_kernel_reaches_registered_memory() {
    use pinlane::driver::Attribute;
    on_each_driver(|rig| {
        let host_pointer = Attribute::CanUseHostPointerForRegisteredMem;
        if rig.driver.attribute(rig.device, host_pointer) != Ok(1) {
            return;
        }
        let (stream, a, list) = (rig.stream(false), rig.memory(), rig.host());
        let (list_at, one) = (list.as_ptr().addr() as u64, list.cast::<Item>());
        let mut owned = sample(BYTES, 9);
        let memory = std::ptr::NonNull::new(owned.as_mut_ptr()).unwrap();
        let (at, bytes) = (memory.as_ptr().addr() as u64, BYTES as u64);
        // SAFETY: as in `rig`.
        unsafe {
            rig.driver.host_register(rig.device, memory, BYTES, HostFlags::default()).unwrap();
            one.write(Item { src: at, dst: a, bytes });
            rig.driver.move_items(stream, CopyKind::H2D, list_at, 1, BYTES).unwrap();
            rig.synchronize(stream);
            assert_eq!(rig.contents(a), sample(BYTES, 9));
            rig.fill(stream, a, 3);
            one.write(Item { src: a, dst: at, bytes });
            rig.driver.move_items(stream, CopyKind::D2H, list_at, 1, BYTES).unwrap();
            rig.synchronize(stream);
            rig.driver.host_unregister(memory).unwrap();
        }
        assert_eq!(owned, [3; BYTES]);
    });
}

#[test]
fn rule_19_a_pool_opened_to_a_peer_is_reached_by_its_kernels() {
    on_each_driver(|rig| {
        rig.driver.pool_access(rig.device, rig.device).unwrap();
        let peer = rig.device + 1;
        let can = || rig.driver.can_access_peer(peer, rig.device).unwrap();
        if rig.driver.device_count().unwrap() <= peer || !can() {
            return;
        }
        let (before, there) = (rig.memory(), Rig { device: peer, ..rig.clone() });
        rig.driver.enable_peer_access(peer, rig.device).unwrap();
        rig.driver.pool_access(rig.device, peer).unwrap();
        let (after, stream) = (rig.memory(), there.stream(false));
        for dst in [before, after] {
            // SAFETY: as in `rig`.
            unsafe { rig.driver.fill(stream, dst, BYTES, &[1, 2]) }.unwrap();
        }
        there.synchronize(stream);
        for src in [before, after] {
            assert_eq!(rig.contents(src), [1, 2].repeat(BYTES / 2));
        }
    });
}
