//! Allocations, frees, and the bytes that an operation uses.

use std::ptr::NonNull;

use pinlane::driver::{CopyKind, Item};
use pinlane::emulated::{Emulator, FindingKind, MemoryKind, RacingAccess};

use super::{in_short, machine, only_race, twins, twins_on};
use crate::rig::{BYTES, copy_plain};

#[test]
fn memory_is_there_behind_its_allocation() {
    twins("Fill(0x01) on stream B after DeviceAlloc on stream A", |rig, _, ordered| {
        let (owner, other) = (rig.stream(false), rig.stream(false));
        let a = rig.alloc_on(owner);
        let event = rig.mark(owner);
        if ordered {
            rig.wait(other, event);
        }
        rig.fill(other, a, 1);
    });
}

#[test]
fn memory_is_freed_behind_its_uses() {
    twins("DeviceFree on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
        let (a, user, owner) = (rig.memory(), rig.stream(false), rig.stream(false));
        rig.fill(user, a, 1);
        if ordered {
            rig.wait(owner, rig.mark(user));
        }
        rig.free_on(owner, a);
    });
}

/// On this eager machine the memory is freed before the use, but no order ensures that.
#[test]
fn a_use_that_is_parallel_to_a_free_is_a_race_besides() {
    let (rig, emulator) = machine(Emulator::builder());
    let (a, user, owner) = (rig.memory(), rig.stream(false), rig.stream(false));
    rig.free_on(owner, a);
    rig.fill(user, a, 1);
    let kinds: Vec<_> = emulator.findings().iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [FindingKind::Race, FindingKind::IllegalAddress]);
    let findings = emulator.findings();
    let race = findings[0].race().unwrap();
    assert_eq!(race.first.access, RacingAccess::Free);
}

/// On this eager machine the copy is complete, but the freeing thread has not learned that.
#[test]
fn rule_22_host_memory_is_freed_when_the_host_knows_that_its_uses_are_complete() {
    let run = |ordered: bool, registered: bool| {
        let (rig, emulator) = machine(Emulator::builder());
        let (a, stream) = (rig.memory(), rig.stream(false));
        let mut owned = vec![1; BYTES];
        let host = match registered {
            true => NonNull::new(owned.as_mut_ptr()).unwrap(),
            false => rig.host(),
        };
        // SAFETY: as in `rig`.
        unsafe {
            if registered {
                rig.driver.host_register(0, host, BYTES, Default::default()).unwrap();
            }
            rig.upload_from(stream, a, host);
            if ordered {
                rig.synchronize(stream);
            }
            if registered {
                rig.driver.host_unregister(host).unwrap();
            } else {
                rig.free_host(host);
            }
        }
        emulator
    };
    for registered in [false, true] {
        assert_eq!(run(true, registered).findings(), []);
        let found = run(false, registered);
        assert_eq!(found.findings()[0].kind, FindingKind::FreedInFlight);
        let race = only_race(&found);
        let call = if registered { "HostUnregister" } else { "HostFree" };
        assert_eq!(in_short(&race), format!("{call} on host after CopyH2D on stream B"));
        let kind = if registered { MemoryKind::HostRegistered } else { MemoryKind::PageLocked };
        assert_eq!((race.memory.kind, race.second.access), (kind, RacingAccess::Free));
    }
}

#[test]
fn memory_at_the_same_address_is_other_memory() {
    let (rig, emulator) = machine(Emulator::builder());
    let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
    let mut owned = vec![1; BYTES];
    let host = NonNull::new(owned.as_mut_ptr()).unwrap();
    for (number, stream) in [first, second].into_iter().enumerate() {
        // SAFETY: as in `rig`.
        unsafe {
            rig.driver.host_register(0, host, BYTES, Default::default()).unwrap();
            rig.upload_from(stream, a, host);
            rig.driver.host_unregister(host).unwrap();
        }
        // The uploads to `a` race as well. The sources that were freed in flight do not.
        let kinds = emulator.findings().into_iter().map(|found| found.kind);
        let freed = kinds.filter(|&kind| kind == FindingKind::FreedInFlight).count();
        assert_eq!(freed, number + 1);
    }
    let findings = emulator.findings();
    let generations: Vec<_> = findings
        .iter()
        .filter(|found| found.kind == FindingKind::FreedInFlight)
        .map(|found| found.race().unwrap().memory.generation)
        .collect();
    assert!(generations[0] < generations[1], "{generations:?}");
    assert_eq!(findings.len(), 3, "two frees in flight, and two uploads to `a`: {findings:#?}");
}

#[test]
fn reads_and_disjoint_bytes_do_not_race() {
    let (rig, emulator) = machine(Emulator::builder());
    let (a, b, c) = (rig.memory(), rig.memory(), rig.memory());
    let (first, second) = (rig.stream(false), rig.stream(false));
    rig.copy(first, b, a);
    rig.copy(second, c, a);
    rig.synchronize(first);
    rig.synchronize(second);
    rig.fill_half(first, a, 0);
    rig.fill_half(second, a, 1);
    assert_eq!(emulator.findings(), []);
    rig.fill_half(second, a, 0);
    let race = only_race(&emulator);
    assert_eq!((race.start, race.bytes), (a, BYTES as u64 / 2));
    assert_eq!((race.first.position, race.second.position), (2, 3));
}

#[test]
fn rule_08_every_copy_of_a_batch_is_a_use() {
    twins("CopyBatch on stream E after Fill(0x01) on stream D", |rig, _, ordered| {
        let (a, b, c) = (rig.memory(), rig.memory(), rig.memory());
        let (first, second) = (rig.stream(false), rig.stream(false));
        rig.fill(first, b, 1);
        let copies = [(c, a), (c + 8, b)].map(|(dst, src)| Item { dst, src, bytes: 8 });
        if ordered {
            rig.wait(second, rig.mark(first));
        }
        // SAFETY: as in `rig`.
        unsafe { rig.driver.copy_batch(second, CopyKind::D2D, &copies) }.unwrap();
    });
}

/// Its items are in host memory, where the call reads them, or in device memory.
#[test]
fn rule_35_a_kernel_uses_its_items_and_what_they_name() {
    for on_device in [false, true] {
        twins("MoveItems on stream E after Fill(0x01) on stream D", |rig, _, ordered| {
            let (a, b, list) = (rig.memory(), rig.memory(), rig.memory());
            let (first, second, items) = (rig.stream(false), rig.stream(false), rig.host());
            rig.fill(first, a, 1);
            if ordered {
                rig.wait(second, rig.mark(first));
            }
            // SAFETY: as in `rig`.
            unsafe {
                items.cast().write(Item { src: a, dst: b, bytes: 16 });
                let mut at = items.as_ptr().expose_provenance() as u64;
                if on_device {
                    rig.driver.copy_h2d(second, list, items.as_ptr(), size_of::<Item>()).unwrap();
                    at = list;
                }
                rig.driver.move_items(second, CopyKind::D2D, at, 1, 16).unwrap();
            }
        });
    }
}

#[test]
fn rule_04_what_a_pageable_copy_may_do_orders_nothing() {
    for seed in 0..8 {
        for to_device in [true, false] {
            let (rig, emulator) = machine(Emulator::builder().seed(seed));
            let (a, stream) = (rig.memory(), rig.stream(false));
            let mut plain = vec![0; BYTES];
            // SAFETY: as in `rig`.
            unsafe {
                if to_device {
                    copy_plain(&emulator, stream, a as *mut u8, plain.as_ptr(), BYTES).unwrap();
                    emulator.host_writes(plain.as_ptr(), BYTES);
                } else {
                    copy_plain(&emulator, stream, plain.as_mut_ptr(), a as *const u8, BYTES)
                        .unwrap();
                    emulator.host_reads(plain.as_ptr(), BYTES);
                }
            }
            // A torn copy counts as two operations.
            let found = emulator.findings();
            assert!((1..=2).contains(&found.len()), "seed {seed}");
            for finding in &found {
                let race = finding.race().expect("it is a race");
                assert_eq!(race.memory.kind, MemoryKind::Pageable, "seed {seed}");
            }
            rig.synchronize(stream);
            emulator.host_writes(plain.as_ptr(), BYTES);
            assert_eq!(emulator.findings().len(), found.len());
        }
    }
}

/// The device's part of such a copy has a place in the stream. Its reads of host memory have none.
#[test]
fn rule_04_a_pageable_source_is_read_ahead_of_what_the_stream_has_to_do_first() {
    for seed in 0..8 {
        let builder = Emulator::builder().seed(seed);
        let plain = [0; BYTES].map(std::cell::Cell::new);
        let plain = plain.as_ptr().cast::<u8>().cast_mut();
        let expected = "CopyH2D on stream C after CopyD2H on stream C";
        twins_on(&builder, expected, |rig, emulator, ordered| {
            let (a, b, stream) = (rig.memory(), rig.memory(), rig.stream(false));
            // SAFETY: as in `rig`.
            unsafe {
                copy_plain(emulator, stream, plain, a as *const u8, BYTES).unwrap();
                if ordered {
                    rig.synchronize(stream);
                }
                copy_plain(emulator, stream, b as *mut u8, plain, BYTES).unwrap();
            }
            for race in emulator.findings().iter().filter_map(|finding| finding.race()) {
                let remedy = "C#1 -> C#2; memory that is page-locked, or a synchronize with stream \
                    C before C#2, would add it";
                assert_eq!(race.missing, remedy);
            }
            rig.synchronize(stream);
        });
    }
}

/// A source of more than 1 MiB is read in two parts, of which the second one is late.
#[test]
fn rule_04_what_is_read_late_of_a_pageable_source_is_read_ahead_too() {
    const LONG: usize = 2 << 20;
    let mut plain = vec![0_u8; LONG];
    let plain = plain.as_mut_ptr();
    let expected = "CopyH2D on stream B after CopyD2H on stream B";
    twins_on(&Emulator::builder(), expected, |rig, emulator, ordered| {
        let (a, stream) = (rig.memory(), rig.stream(false));
        // SAFETY: as in `rig`; the download ends where the memory ends.
        unsafe {
            let long = rig.driver.device_alloc(stream, LONG).unwrap();
            let end = plain.add(LONG - BYTES);
            copy_plain(emulator, stream, end, a as *const u8, BYTES).unwrap();
            if ordered {
                rig.synchronize(stream);
            }
            copy_plain(emulator, stream, long as *mut u8, plain, LONG).unwrap();
        }
        rig.synchronize(stream);
    });
}

#[test]
fn rule_04_a_pageable_source_is_read_ahead_of_a_host_function() {
    for page_locked in [true, false] {
        let (rig, emulator) = machine(Emulator::builder());
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        let mut plain = vec![0; BYTES];
        let source = if page_locked { host.as_ptr() } else { plain.as_mut_ptr() };
        let (address, machine) = (source as usize, emulator.clone());
        // So that the call of the copy comes before the function's write.
        rig.launch(stream, || std::thread::sleep(std::time::Duration::from_millis(20)));
        rig.launch(stream, move || machine.host_writes(address as *const u8, BYTES));
        // SAFETY (of all calls of the driver here): as in `rig`.
        #[allow(clippy::undocumented_unsafe_blocks)]
        if page_locked {
            rig.upload_from(stream, a, host);
        } else {
            unsafe { copy_plain(&emulator, stream, a as *mut u8, source, BYTES) }.unwrap();
        }
        rig.synchronize(stream);
        if page_locked {
            assert_eq!(emulator.findings(), []);
        } else {
            let race = in_short(&only_race(&emulator));
            assert_eq!(race, "CopyH2D on stream B after host write on stream B");
        }
    }
}

#[test]
fn rule_13_implicit_synchronization_orders_nothing() {
    let (rig, emulator) = machine(Emulator::builder());
    let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
    rig.fill(first, a, 1);
    rig.free_host(rig.host());
    rig.free_on(second, rig.alloc_on(second));
    rig.fill(second, a, 2);
    assert_eq!(
        in_short(&only_race(&emulator)),
        "Fill(0x02) on stream C after Fill(0x01) on stream B"
    );
}

#[test]
fn rule_33_what_is_captured_does_not_run_and_does_not_race() {
    let (rig, emulator) = machine(Emulator::builder());
    let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
    rig.fill(first, a, 1);
    emulator.begin_capture(second).unwrap();
    rig.fill(second, a, 2);
    assert_eq!(emulator.end_capture(second), Ok(1));
    assert_eq!(emulator.findings(), []);
}
