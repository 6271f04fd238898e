//! The conformance tests of a driver, named by the numbers of the rules of CUDA's semantics
//! (`docs/semantics.md`).
//!
//! They use `dyn Driver` and rely only on what CUDA promises, so they also run on a GPU. A
//! [`Gate`](rig::Gate), a host function that waits for the test, holds back work that must not be
//! complete yet. No test relies on time for that.

#![cfg(feature = "emulated")]

use std::ptr::NonNull;

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod device;
mod guide;
mod kernels;
mod races;
mod rig;

use common::mapping::Mapping;
use pinlane::CudaCode;
use pinlane::driver::{Attribute, CopyKind, HostFlags, Item, Poll, RawStream, reference};
use rig::{BYTES, on_each_driver, patiently};

fn sample(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ salt).collect()
}

#[test]
fn rule_05_copies_carry_every_byte_at_every_offset() {
    on_each_driver(|rig| {
        let (stream, a, b) = (rig.stream(false), rig.memory(), rig.memory());
        let host = rig.host();
        let before = sample(BYTES, 0);
        for (offset, bytes) in [(0, BYTES), (1, 1), (3, 1021), (8, 64), (BYTES - 1, 1), (5, 0)] {
            // SAFETY: see `Rig`; the ranges lie within `BYTES`.
            #[allow(clippy::undocumented_unsafe_blocks)]
            unsafe {
                let at = host.as_ptr().add(offset);
                host.as_ptr().copy_from(before.as_ptr(), BYTES);
                rig.fill(stream, a, 0xa5);
                rig.driver.copy_h2d(stream, a + offset as u64, at, bytes).unwrap();
                rig.fill(stream, b, 0x5a);
                rig.driver.copy_d2d(stream, b + offset as u64, a + offset as u64, bytes).unwrap();
                rig.synchronize(stream);
                let mut expected = vec![0x5a; BYTES];
                expected[offset..offset + bytes].copy_from_slice(&before[offset..offset + bytes]);
                assert_eq!(rig.contents(b), expected, "{bytes} bytes at {offset}");
                host.as_ptr().write_bytes(0, BYTES);
                rig.driver.copy_d2h(stream, at, b + offset as u64, bytes).unwrap();
                rig.synchronize(stream);
                let host = std::slice::from_raw_parts(host.as_ptr(), BYTES);
                expected[..offset].fill(0);
                expected[offset + bytes..].fill(0);
                assert_eq!(host, expected, "{bytes} bytes at {offset}");
            }
        }
    });
}

#[test]
fn rule_05_a_source_may_be_overwritten_by_earlier_and_later_work_of_the_stream() {
    on_each_driver(|rig| {
        let (stream, a, b, host) = (rig.stream(false), rig.memory(), rig.memory(), rig.host());
        rig.fill(stream, a, 1);
        // SAFETY: as in `rig`.
        unsafe {
            rig.driver.copy_d2h(stream, host.as_ptr(), a, BYTES).unwrap();
            rig.driver.copy_h2d(stream, b, host.as_ptr(), BYTES).unwrap();
            rig.fill(stream, a, 2);
            rig.driver.copy_d2h(stream, host.as_ptr(), a, BYTES).unwrap();
            rig.synchronize(stream);
            assert_eq!(std::slice::from_raw_parts(host.as_ptr(), BYTES), [2; BYTES]);
        }
        assert_eq!(rig.contents(b), [1; BYTES]);
    });
}

#[test]
fn rule_10_a_stream_is_fifo() {
    on_each_driver(|rig| {
        let (stream, a, b) = (rig.stream(false), rig.memory(), rig.memory());
        for value in 0..50 {
            rig.fill(stream, a, value);
            rig.copy(stream, b, a);
        }
        rig.fill(stream, a, 99);
        rig.synchronize(stream);
        assert_eq!((rig.contents(a)[7], rig.contents(b)[7]), (99, 49));
    });
}

#[test]
fn rule_10_the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    on_each_driver(|rig| {
        let (first, second, exempt) = (rig.stream(true), rig.stream(true), rig.stream(false));
        let gate = rig.gate(first);
        let on_legacy = rig.mark(rig.legacy());
        let after_legacy = rig.mark(second);
        let elsewhere = rig.mark(exempt);
        assert!(rig.gets_done(elsewhere), "a non-blocking stream is exempt");
        assert!(!rig.is_done(on_legacy), "the legacy stream waits for a blocking stream");
        assert!(!rig.is_done(after_legacy), "a blocking stream waits for the legacy stream");
        gate.open();
        assert!(rig.gets_done(after_legacy) && rig.gets_done(on_legacy));
    });
}

#[test]
fn rule_11_each_thread_has_its_own_default_stream() {
    on_each_driver(|rig| {
        let gate = rig.gate(rig.per_thread());
        let here = rig.mark(rig.per_thread());
        let on_legacy = rig.mark(rig.legacy());
        std::thread::scope(|scope| {
            // SAFETY: see `Rig`.
            let query = || unsafe { rig.driver.stream_query(rig.per_thread()) }.unwrap();
            let other = scope.spawn(move || patiently(query));
            assert!(other.join().unwrap(), "another thread's stream of the same handle is idle");
        });
        assert!(!rig.is_done(here));
        assert!(!rig.is_done(on_legacy), "it synchronizes with the legacy stream");
        gate.open();
        rig.synchronize(rig.per_thread());
        assert!(rig.gets_done(on_legacy));
    });
}

#[test]
fn rule_12_a_destroyed_stream_drains() {
    on_each_driver(|rig| {
        let (stream, a) = (rig.stream(false), rig.memory());
        let gate = rig.gate(stream);
        rig.fill(stream, a, 7);
        let event = rig.mark(stream);
        // SAFETY: the stream is not used any more.
        unsafe { rig.driver.stream_destroy(stream) }.unwrap();
        assert!(!rig.is_done(event));
        gate.open();
        // SAFETY: see `Rig`.
        unsafe { rig.driver.event_synchronize(event) }.unwrap();
        assert_eq!(rig.contents(a), [7; BYTES]);
    });
}

#[test]
fn rule_12_a_wait_outlives_its_event() {
    on_each_driver(|rig| {
        let (producer, consumer) = (rig.stream(false), rig.stream(false));
        let (a, b) = (rig.memory(), rig.memory());
        let gate = rig.gate(producer);
        rig.fill(producer, a, 3);
        let event = rig.mark(producer);
        rig.wait(consumer, event);
        // SAFETY: the event is not used any more.
        unsafe { rig.driver.event_destroy(event) }.unwrap();
        rig.copy(consumer, b, a);
        gate.open();
        rig.synchronize(consumer);
        assert_eq!(rig.contents(b), [3; BYTES]);
    });
}

#[test]
fn rule_14_a_record_is_a_snapshot() {
    on_each_driver(|rig| {
        let stream = rig.stream(false);
        let event = rig.mark(stream);
        let gate = rig.gate(stream);
        assert!(rig.gets_done(event), "work enqueued after the record does not count");
        rig.record(event, stream);
        assert!(!rig.is_done(event), "recording again overwrites");
        gate.open();
        assert!(rig.gets_done(event));
    });
}

#[test]
fn rule_14_a_wait_binds_the_snapshot_that_is_current() {
    on_each_driver(|rig| {
        let (a, b, c) = (rig.stream(false), rig.stream(false), rig.stream(false));
        let event = rig.mark(a);
        rig.wait(b, event);
        let gate = rig.gate(a);
        rig.record(event, a);
        rig.wait(c, event);
        let (after_b, after_c) = (rig.mark(b), rig.mark(c));
        assert!(rig.gets_done(after_b), "a later record does not move an earlier wait");
        assert!(!rig.is_done(after_c));
        gate.open();
        rig.synchronize(c);
    });
}

#[test]
fn rule_14_an_event_never_recorded_is_done() {
    on_each_driver(|rig| {
        let (event, stream) = (rig.event(), rig.stream(false));
        rig.wait(stream, event);
        // SAFETY: see `Rig`.
        unsafe {
            assert_eq!(rig.driver.event_query(event), Ok(Poll::Done));
            rig.driver.event_synchronize(event).unwrap();
        }
        rig.synchronize(stream);
    });
}

#[test]
fn rule_15_a_record_on_the_legacy_stream_covers_blocking_streams_only() {
    on_each_driver(|rig| {
        let (blocking, exempt) = (rig.stream(true), rig.stream(false));
        let gate = rig.gate(exempt);
        let event = rig.mark(rig.legacy());
        assert!(rig.gets_done(event));
        gate.open();
        rig.synchronize(exempt);
        let gate = rig.gate(blocking);
        let event = rig.mark(RawStream { handle: 0, ..rig.legacy() });
        assert!(!rig.is_done(event));
        gate.open();
        assert!(rig.gets_done(event));
    });
}

#[test]
fn rule_16_done_makes_the_work_visible() {
    on_each_driver(|rig| {
        let (stream, a, host) = (rig.stream(false), rig.memory(), rig.host());
        rig.fill(stream, a, 9);
        // SAFETY: see `Rig`; a query that says Done is a synchronize.
        unsafe {
            rig.driver.copy_d2h(stream, host.as_ptr(), a, BYTES).unwrap();
            assert!(patiently(|| rig.driver.stream_query(stream).unwrap()));
            assert_eq!(std::slice::from_raw_parts(host.as_ptr(), BYTES), [9; BYTES]);
        }
    });
}

#[test]
fn rule_17_elapsed_time_needs_two_complete_events_with_timing() {
    on_each_driver(|rig| {
        let timed = || rig.driver.event_create(rig.device, true).unwrap();
        let (start, end, plain, stream) = (timed(), timed(), rig.event(), rig.stream(false));
        // SAFETY: see `Rig`.
        let elapsed = |a, b| unsafe { rig.driver.event_elapsed(a, b) }.map_err(|code| code.0);
        assert_eq!(elapsed(start, end), Err(400), "never recorded");
        rig.record(start, stream);
        rig.record(plain, stream);
        rig.synchronize(stream);
        assert_eq!(elapsed(start, plain), Err(400), "recorded without timing");
        let gate = rig.gate(stream);
        rig.record(end, stream);
        assert_eq!(elapsed(start, end), Err(600), "not complete");
        gate.open();
        rig.synchronize(stream);
        assert!(elapsed(start, end).unwrap() >= 0.0);
    });
}

#[test]
fn rule_21_registered_ranges() {
    on_each_driver(|rig| {
        let mut owned = vec![0u8; 3 * 4096];
        let at = NonNull::new(owned.as_mut_ptr()).unwrap();
        let (flags, device) = (HostFlags::default(), rig.device);
        // SAFETY: the ranges lie in `owned`, which outlives their registration.
        unsafe {
            rig.driver.host_register(device, at, 8192, flags).unwrap();
            let again = rig.driver.host_register(device, at, 8192, flags);
            assert_eq!(again.map_err(|code| code.0), Err(712));
            rig.driver.host_unregister(at).unwrap();
            let again = rig.driver.host_unregister(at);
            assert_eq!(again.map_err(|code| code.0), Err(713));
            assert!(rig.driver.host_alloc(device, 0, flags).is_err());
        }
    });
}

#[test]
fn rule_21_registered_memory_takes_part_in_copies() {
    on_each_driver(|rig| {
        let mut owned = sample(BYTES, 1);
        let (stream, a) = (rig.stream(false), rig.memory());
        let ptr = NonNull::new(owned.as_mut_ptr()).unwrap();
        // SAFETY: the range is `owned`, which is not touched before it is unregistered.
        unsafe {
            rig.driver.host_register(rig.device, ptr, BYTES, HostFlags::default()).unwrap();
            rig.driver.copy_h2d(stream, a, ptr.as_ptr(), BYTES).unwrap();
            rig.synchronize(stream);
            rig.driver.host_unregister(ptr).unwrap();
        }
        assert_eq!(rig.contents(a), owned);
    });
}

/// As other code maps the weights of a model.
#[test]
fn rule_21_memory_that_is_mapped_for_reading_only_needs_its_flag_and_is_a_source_only() {
    on_each_driver(|rig| {
        let contents = sample(BYTES, 3);
        let mapping = Mapping::new(&contents);
        let ptr = NonNull::from(mapping.as_ref()).cast::<u8>();
        let (stream, a, plain) = (rig.stream(false), rig.memory(), HostFlags::default());
        let supported = Attribute::HostRegisterReadOnly;
        assert_eq!(rig.driver.attribute(rig.device, supported), Ok(1));
        // SAFETY: the range is mapped until it is unregistered, and nothing writes to it: a call
        // that would fails.
        unsafe {
            let refused = rig.driver.host_register(rig.device, ptr, BYTES, plain);
            assert_eq!(refused, Err(CudaCode::INVALID_VALUE));
            let flags = HostFlags { read_only: true, ..plain };
            rig.driver.host_register(rig.device, ptr, BYTES, flags).unwrap();
            rig.driver.copy_h2d(stream, a, ptr.as_ptr(), BYTES).unwrap();
            rig.synchronize(stream);
            rig.driver.host_unregister(ptr).unwrap();
        }
        assert_eq!(rig.contents(a), contents);
    });
}

#[test]
fn rule_21_two_ranges_of_one_page_are_both_for_reading_only_or_none_is() {
    on_each_driver(|rig| {
        let pages: &'static mut [[u8; 4096]] = vec![[0; 4096]; 3].leak();
        let start = pages.as_mut_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(4096));
        let at = |offset| NonNull::new(start.wrapping_add(offset)).expect("in a leaked vector");
        let flags = |read_only| HostFlags { read_only, ..HostFlags::default() };
        for first in [false, true] {
            for (second, offset) in [(first, 200), (!first, 200), (!first, 4096)] {
                let shares = second != first && offset < 4096;
                let expected = if shares { Err(CudaCode::INVALID_VALUE) } else { Ok(()) };
                // SAFETY: mapped for ever, writable, and used by nothing else.
                unsafe {
                    rig.driver.host_register(rig.device, at(0), 100, flags(first)).unwrap();
                    let answer =
                        rig.driver.host_register(rig.device, at(offset), 100, flags(second));
                    assert_eq!(answer, expected, "{first}, {second} at {offset}");
                    let undone = rig.driver.host_unregister(at(offset));
                    assert_eq!(undone.is_ok(), expected.is_ok());
                    rig.driver.host_unregister(at(0)).unwrap();
                }
            }
        }
    });
}

#[test]
fn rule_24_a_host_function_runs_after_earlier_and_before_later_work() {
    on_each_driver(|rig| {
        let (stream, a, b, host) = (rig.stream(false), rig.memory(), rig.memory(), rig.host());
        rig.fill(stream, a, 4);
        let address = host.as_ptr() as usize;
        // SAFETY: see `Rig`; the function's access is ordered between the two copies.
        #[allow(clippy::undocumented_unsafe_blocks)]
        unsafe {
            rig.driver.copy_d2h(stream, host.as_ptr(), a, BYTES).unwrap();
            rig.launch(stream, move || {
                let bytes = std::slice::from_raw_parts_mut(address as *mut u8, BYTES);
                bytes.iter_mut().for_each(|byte| *byte += 1);
            });
            rig.driver.copy_h2d(stream, b, host.as_ptr(), BYTES).unwrap();
            rig.driver.copy_d2h(stream, host.as_ptr(), a, BYTES).unwrap();
        }
        rig.synchronize(stream);
        assert_eq!((rig.contents(a)[0], rig.contents(b)[0]), (4, 5));
    });
}

#[test]
fn rule_24_a_host_function_runs_though_nobody_waits() {
    on_each_driver(|rig| {
        let (called, arrival) = std::sync::mpsc::channel();
        rig.launch(rig.stream(false), move || called.send(()).unwrap());
        arrival.recv().expect("it was called");
    });
}

#[test]
fn memory_is_allocated_and_freed_in_stream_order() {
    on_each_driver(|rig| {
        let (stream, kept) = (rig.stream(false), rig.memory());
        for value in 0..20 {
            // SAFETY: see `Rig`; all uses are on the stream, between the two.
            unsafe {
                let a = rig.driver.device_alloc(stream, BYTES).unwrap();
                assert_eq!(a % 256, 0);
                rig.fill(stream, a, value);
                rig.copy(stream, kept, a);
                rig.driver.device_free(stream, a).unwrap();
            }
        }
        rig.synchronize(stream);
        assert_eq!(rig.contents(kept), [19; BYTES]);
    });
}

#[test]
fn kernels_compute_what_their_reference_says() {
    on_each_driver(|rig| {
        let (stream, a, b, list) = (rig.stream(false), rig.memory(), rig.memory(), rig.memory());
        let source = sample(BYTES, 2);
        let items = [(0, 5, 100), (100, 107, 1), (1000, 2001, 777), (3, 9, 0)]
            .map(|(from, to, bytes)| Item { src: a + from, dst: b + to, bytes });
        rig.upload(a, &source);
        rig.upload(list, bytemuck::cast_slice(&items));
        // SAFETY: see `Rig`; the items' ranges lie in `a` and `b` and do not overlap.
        unsafe {
            rig.driver.fill(stream, b, BYTES, &[1, 2, 3]).unwrap();
            rig.driver.move_items(stream, CopyKind::D2D, list, items.len(), 878).unwrap();
        }
        rig.synchronize(stream);
        let mut expected = vec![0; BYTES];
        reference::fill(&mut expected, &[1, 2, 3]);
        for item in &items {
            let (from, to) = ((item.src - a) as usize, (item.dst - b) as usize);
            let bytes = item.bytes as usize;
            expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
        }
        assert_eq!(rig.contents(b), expected);
        // SAFETY: as before; the sum is written to the list, which is not needed any more.
        unsafe {
            rig.driver.checksum(stream, b + 1, BYTES - 3, list + 8).unwrap();
            rig.driver.busy(stream, 1000).unwrap();
        }
        rig.synchronize(stream);
        let sum = u64::from_le_bytes(rig.contents(list)[8..16].try_into().unwrap());
        assert_eq!(sum, reference::checksum(&expected[1..BYTES - 2]));
    });
}

/// Random programs in which each operation is ordered after the previous one, by its stream, an
/// event or the legacy stream. Whatever order the driver chooses, the result is that of a loop.
#[test]
fn ordered_programs_compute_the_same_everywhere() {
    let state = std::cell::Cell::new(1u64);
    let below = |bound: u64| {
        state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        (state.get() >> 33) % bound
    };
    on_each_driver(|rig| {
        let mut streams = vec![rig.legacy(), rig.per_thread()];
        streams.extend([true, true, false, false].map(|blocking| rig.stream(blocking)));
        let memory: Vec<_> = (0..3).map(|_| rig.memory()).collect();
        let mut model = [0u8; 3];
        memory.iter().for_each(|&dst| rig.fill(streams[0], dst, 0));
        let event = rig.mark(streams[0]);
        let mut last = 0;
        for step in 0..300 {
            let next = below(streams.len() as u64) as usize;
            let implicit = next != last && (next == 0 || last == 0) && next.max(last) < 4;
            if next != last && !implicit {
                rig.record(event, streams[last]);
                rig.wait(streams[next], event);
            }
            last = next;
            let (to, from) = (below(3) as usize, below(3) as usize);
            if to == from {
                rig.fill(streams[next], memory[to], step as u8);
                model[to] = step as u8;
            } else {
                rig.copy(streams[next], memory[to], memory[from]);
                model[to] = model[from];
            }
            if below(10) == 0 {
                rig.launch(streams[next], || ());
            }
            if below(40) == 0 {
                rig.synchronize(streams[next]);
            }
        }
        rig.synchronize(streams[last]);
        for (&src, value) in memory.iter().zip(model) {
            assert_eq!(rig.contents(src), [value; BYTES]);
        }
    });
}

/// Many threads that pass work to each other through events, host functions and waits.
#[test]
fn threads_share_a_driver() {
    const ROUNDS: u8 = 60;
    on_each_driver(|rig| {
        std::thread::scope(|scope| {
            for lane in 0..4u8 {
                let rig = rig.clone();
                scope.spawn(move || {
                    let (producer, consumer) = (rig.stream(lane % 2 == 0), rig.stream(false));
                    let (a, b, event) = (rig.memory(), rig.memory(), rig.event());
                    for round in 0..ROUNDS {
                        rig.fill(producer, a, round ^ lane);
                        if round % 8 == lane {
                            rig.launch(producer, || ());
                        }
                        rig.record(event, producer);
                        rig.wait(consumer, event);
                        rig.copy(consumer, b, a);
                        rig.record(event, consumer);
                        rig.wait(producer, event);
                        if round % 16 == 0 {
                            rig.synchronize(consumer);
                        }
                        if round % 16 == 8 {
                            rig.mark(rig.legacy());
                        }
                    }
                    rig.synchronize(consumer);
                    assert_eq!(rig.contents(b), [(ROUNDS - 1) ^ lane; BYTES]);
                });
            }
        });
    });
}
