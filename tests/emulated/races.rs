//! What orders two operations, and what does not (docs/semantics.md, "Races").
//!
//! Each test has a program that one edge orders, and its twin without that edge. Both run well: the
//! machines here are eager. The twin has one finding all the same, which names both operations.
//!
//! Streams are lettered in the order of their creation, and every `memory` takes one.

use std::ptr::NonNull;

use pinlane::driver::{BatchCopy, BatchKind, DevicePtr, Item, Mover, Poll, RawStream};
use pinlane::emulated::{
    Builder, Emulator, FindingKind, MemoryKind, Race, RacingAccess, RacingUse,
};
use pinlane::{CudaCode, Device, PinnedPool};

use crate::rig::{BYTES, Rig};

// SAFETY (of all calls of the driver in this file): as in `rig`. Some programs race: they do so on
// the emulated device, for which that is a finding and nothing else. What the host does to memory
// that is in use is told to the machine, and not done.

fn machine(builder: Builder) -> (Rig, Emulator) {
    let emulator = builder.memory_bytes(1 << 24).build();
    (Rig { driver: emulator.driver(), device: 0 }, emulator)
}

/// The one race of a run.
fn only_race(emulator: &Emulator) -> Race {
    let findings = emulator.findings();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings[0].race().expect("it is a race").clone()
}

/// `second on its stream after first on its stream`.
fn in_short(race: &Race) -> String {
    let of = |used: &RacingUse| format!("{} on {}", used.operation, used.agent);
    format!("{} after {}", of(&race.second), of(&race.first))
}

/// Runs a program with the edge and without it.
fn twins(expected: &str, program: impl Fn(&Rig, &Emulator, bool)) {
    twins_on(&Emulator::builder(), expected, program);
}

fn twins_on(builder: &Builder, expected: &str, program: impl Fn(&Rig, &Emulator, bool)) {
    let run = |ordered| {
        let (rig, emulator) = machine(builder.clone());
        program(&rig, &emulator, ordered);
        emulator
    };
    assert_eq!(run(true).findings(), [], "with the edge");
    let without = run(false);
    assert_eq!(without.findings().first().map(|found| found.kind), Some(FindingKind::Race));
    assert_eq!(in_short(&only_race(&without)), expected);
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl Rig {
    fn on_device(&self, device: i32) -> Rig {
        Rig { device, ..self.clone() }
    }

    fn download(&self, stream: RawStream, dst: NonNull<u8>, src: DevicePtr) {
        unsafe { self.driver.copy_d2h(stream, dst.as_ptr(), src, BYTES) }.unwrap();
    }

    fn upload_from(&self, stream: RawStream, dst: DevicePtr, src: NonNull<u8>) {
        unsafe { self.driver.copy_h2d(stream, dst, src.as_ptr(), BYTES) }.unwrap();
    }

    /// Fills half of the memory: the first half, or the second.
    fn fill_half(&self, stream: RawStream, dst: DevicePtr, half: u64) {
        let at = dst + half * BYTES as u64 / 2;
        unsafe { self.driver.fill(stream, at, BYTES / 2, &[9]) }.unwrap();
    }

    fn sync_event(&self, event: pinlane::driver::RawEvent) {
        unsafe { self.driver.event_synchronize(event) }.unwrap();
    }

    fn alloc_on(&self, stream: RawStream) -> DevicePtr {
        unsafe { self.driver.device_alloc(stream, BYTES) }.unwrap()
    }

    fn free_on(&self, stream: RawStream, ptr: DevicePtr) {
        unsafe { self.driver.device_free(stream, ptr) }.unwrap();
    }

    fn free_host(&self, ptr: NonNull<u8>) {
        unsafe { self.driver.host_free(ptr) }.unwrap();
    }

    fn copy_to_device_1(&self, stream: RawStream, dst: DevicePtr, src: DevicePtr) {
        unsafe { self.driver.copy_peer(stream, dst, 1, src, 0, BYTES) }.unwrap();
    }
}

// ---- streams and events -------------------------------------------------------------------------

#[test]
fn rule_10_a_stream_orders_its_operations() {
    twins("Fill(0x02) on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        rig.fill(first, a, 1);
        rig.fill(if ordered { first } else { second }, a, 2);
    });
}

#[test]
fn rule_14_an_event_orders_two_streams() {
    twins("CopyD2D on stream D after Fill(0x01) on stream C", |rig, _, ordered| {
        let (a, b) = (rig.memory(), rig.memory());
        let (producer, consumer) = (rig.stream(false), rig.stream(false));
        rig.fill(producer, a, 1);
        let event = rig.mark(producer);
        if ordered {
            rig.wait(consumer, event);
        }
        rig.copy(consumer, b, a);
    });
}

/// As in a loop with two buffers, whose producer does not wait for its consumer.
#[test]
fn rule_14_a_buffer_is_written_again_behind_its_readers() {
    twins("Fill(0x02) on stream C after CopyD2D on stream D", |rig, _, ordered| {
        let (a, b) = (rig.memory(), rig.memory());
        let (producer, consumer) = (rig.stream(false), rig.stream(false));
        rig.fill(producer, a, 1);
        rig.wait(consumer, rig.mark(producer));
        rig.copy(consumer, b, a);
        let read = rig.mark(consumer);
        if ordered {
            rig.wait(producer, read);
        }
        rig.fill(producer, a, 2);
    });
}

#[test]
fn rule_14_events_order_streams_through_a_third_one_and_of_two_devices() {
    let expected = "CopyPeer on stream D of device 0 after Fill(0x01) on stream C of device 0";
    twins_on(&Emulator::builder().devices(2), expected, |rig, _, ordered| {
        let there = rig.on_device(1);
        let (a, b) = (rig.memory(), there.memory());
        let (producer, consumer, middle) =
            (rig.stream(false), rig.stream(false), there.stream(false));
        rig.fill(producer, a, 1);
        rig.wait(middle, rig.mark(producer));
        let event = there.mark(middle);
        if ordered {
            rig.wait(consumer, event);
        }
        rig.copy_to_device_1(consumer, b, a);
    });
}

#[test]
fn rule_14_a_record_is_a_copy() {
    twins("Fill(0x02) on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        let event = rig.mark(first);
        rig.fill(first, a, 1);
        if ordered {
            rig.record(event, first);
        }
        rig.wait(second, event);
        rig.fill(second, a, 2);
    });
}

#[test]
fn rule_14_a_wait_is_for_the_record_at_its_call() {
    twins("Fill(0x02) on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        let event = rig.event();
        rig.fill(first, a, 1);
        if !ordered {
            rig.wait(second, event);
        }
        rig.record(event, first);
        if ordered {
            rig.wait(second, event);
        }
        rig.fill(second, a, 2);
    });
}

#[test]
fn rule_14_a_second_record_overwrites_the_first() {
    twins("Fill(0x02) on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        let other = rig.stream(false);
        rig.fill(first, a, 1);
        let event = rig.mark(first);
        if !ordered {
            rig.record(event, other);
        }
        rig.wait(second, event);
        rig.fill(second, a, 2);
    });
}

#[test]
fn rule_12_an_event_and_a_wait_outlive_their_stream() {
    twins("Fill(0x02) on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        rig.fill(first, a, 1);
        let event = rig.mark(first);
        #[allow(clippy::undocumented_unsafe_blocks)]
        unsafe {
            rig.driver.stream_destroy(first).unwrap();
            if ordered {
                rig.wait(second, event);
            }
            rig.driver.event_destroy(event).unwrap();
        }
        // Streams that come and go do not take the place of the one that is gone.
        for _ in 0..100 {
            let short = rig.stream(true);
            #[allow(clippy::undocumented_unsafe_blocks)]
            unsafe { rig.driver.stream_destroy(short) }.unwrap();
        }
        rig.fill(second, a, 2);
    });
}

// ---- default streams ----------------------------------------------------------------------------

#[test]
fn rule_10_the_legacy_stream_follows_blocking_streams() {
    let expected = "Fill(0x02) on legacy stream after Fill(0x01) on stream B";
    twins(expected, |rig, _, ordered| {
        let (a, stream) = (rig.memory(), rig.stream(ordered));
        rig.fill(stream, a, 1);
        rig.fill(rig.legacy(), a, 2);
    });
}

#[test]
fn rule_10_blocking_streams_follow_the_legacy_stream() {
    let expected = "Fill(0x02) on stream B after Fill(0x01) on legacy stream";
    twins(expected, |rig, _, ordered| {
        let (a, stream) = (rig.memory(), rig.stream(ordered));
        rig.fill(rig.legacy(), a, 1);
        rig.fill(stream, a, 2);
    });
}

#[test]
fn rule_10_the_legacy_stream_follows_blocking_streams_that_are_gone() {
    let expected = "Fill(0x02) on legacy stream after Fill(0x01) on stream B";
    twins(expected, |rig, _, ordered| {
        let (a, stream) = (rig.memory(), rig.stream(ordered));
        rig.fill(stream, a, 1);
        #[allow(clippy::undocumented_unsafe_blocks)]
        unsafe { rig.driver.stream_destroy(stream) }.unwrap();
        rig.fill(rig.legacy(), a, 2);
    });
}

#[test]
fn rule_10_the_legacy_stream_stands_between_two_blocking_streams() {
    let expected = "Fill(0x02) on stream C after Fill(0x01) on stream B";
    twins(expected, |rig, _, ordered| {
        let (a, first, second) = (rig.memory(), rig.stream(true), rig.stream(true));
        rig.fill(first, a, 1);
        if ordered {
            rig.mark(rig.legacy());
        }
        rig.fill(second, a, 2);
    });
}

#[test]
fn rule_10_the_legacy_stream_of_another_device_orders_nothing() {
    let expected = "Fill(0x02) on stream C of device 0 after Fill(0x01) on stream B of device 0";
    twins_on(&Emulator::builder().devices(2), expected, |rig, _, ordered| {
        let there = rig.on_device(1);
        let (a, first, second) = (rig.memory(), rig.stream(true), rig.stream(true));
        rig.fill(first, a, 1);
        let between = if ordered { rig } else { &there };
        between.mark(between.legacy());
        rig.fill(second, a, 2);
    });
}

#[test]
fn rule_11_a_per_thread_stream_is_its_threads_own() {
    let expected = "Fill(0x02) on per-thread stream C after Fill(0x01) on per-thread stream B";
    twins(expected, |rig, _, ordered| {
        let a = rig.memory();
        rig.fill(rig.per_thread(), a, 1);
        let again = || rig.fill(rig.per_thread(), a, 2);
        if ordered {
            again();
        } else {
            std::thread::scope(|scope| scope.spawn(again).join().unwrap());
        }
    });
}

#[test]
fn rule_11_a_per_thread_stream_follows_the_legacy_stream() {
    let expected = "Fill(0x02) on per-thread stream C after Fill(0x01) on stream B";
    twins(expected, |rig, _, ordered| {
        let (a, exempt) = (rig.memory(), rig.stream(false));
        rig.fill(if ordered { rig.legacy() } else { exempt }, a, 1);
        rig.fill(rig.per_thread(), a, 2);
    });
}

#[test]
fn rule_15_a_record_on_the_legacy_stream_covers_blocking_streams() {
    let expected = "Fill(0x02) on stream C after Fill(0x01) on stream B";
    twins(expected, |rig, _, ordered| {
        let (a, stream, exempt) = (rig.memory(), rig.stream(ordered), rig.stream(false));
        rig.fill(stream, a, 1);
        rig.wait(exempt, rig.mark(rig.legacy()));
        rig.fill(exempt, a, 2);
    });
}

#[test]
fn rule_19_a_peer_copy_on_a_legacy_stream_holds_up_both_devices() {
    let expected = "Fill(0x02) on stream D of device 1 after CopyPeer on stream E of device 0";
    twins_on(&Emulator::builder().devices(2), expected, |rig, _, ordered| {
        let there = rig.on_device(1);
        let (a, b) = (rig.memory(), there.memory());
        let (before, after) = (there.stream(true), there.stream(true));
        there.fill(before, b, 1);
        let exempt = rig.stream(false);
        if !ordered {
            rig.wait(exempt, there.mark(before));
        }
        rig.copy_to_device_1(if ordered { rig.legacy() } else { exempt }, b, a);
        there.fill(after, b, 2);
    });
}

// ---- the host -----------------------------------------------------------------------------------

#[test]
fn a_synchronize_of_a_stream_tells_the_host() {
    twins("host read on host after CopyD2H on stream B", |rig, emulator, ordered| {
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        rig.download(stream, host, a);
        if ordered {
            rig.synchronize(stream);
        }
        emulator.host_reads(host.as_ptr(), BYTES);
    });
}

#[test]
fn a_synchronize_covers_what_was_enqueued_before_it() {
    twins("host write on host after CopyH2D on stream B", |rig, emulator, ordered| {
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        let event = rig.event();
        rig.record(event, stream);
        rig.upload_from(stream, a, host);
        if ordered {
            rig.record(event, stream);
        }
        rig.sync_event(event);
        emulator.host_writes(host.as_ptr(), BYTES);
    });
}

#[test]
fn rule_16_a_query_that_says_done_tells_the_host() {
    for of_event in [false, true] {
        twins("Fill(0x02) on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
            let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
            rig.fill(first, a, 1);
            if ordered && of_event {
                assert!(rig.is_done(rig.mark(first)));
            } else if ordered {
                #[allow(clippy::undocumented_unsafe_blocks)]
                let answer = unsafe { rig.driver.stream_query(first) };
                assert_eq!(answer, Ok(Poll::Done));
            }
            rig.fill(second, a, 2);
        });
    }
}

#[test]
fn rule_17_a_time_between_two_events_tells_the_host_that_both_are_complete() {
    twins("Fill(0x02) on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        let [start, end] = [(); 2].map(|()| rig.driver.event_create(0, true).unwrap());
        rig.record(start, first);
        rig.fill(first, a, 1);
        rig.record(end, first);
        #[allow(clippy::undocumented_unsafe_blocks)]
        if ordered {
            unsafe { rig.driver.event_elapsed(start, end) }.unwrap();
        }
        rig.fill(second, a, 2);
    });
}

#[test]
fn rule_16_a_query_that_says_not_ready_tells_nothing() {
    let (rig, emulator) = machine(Emulator::builder());
    let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
    emulator.stall(first).unwrap();
    rig.fill(first, a, 1);
    assert!(!rig.is_done(rig.mark(first)));
    rig.fill(second, a, 2);
    assert_eq!(
        in_short(&only_race(&emulator)),
        "Fill(0x02) on stream C after Fill(0x01) on stream B"
    );
}

/// A buffer waits for the uses that it knows of. What goes around it, the machine knows.
#[test]
fn a_buffer_tells_what_the_host_reads_and_writes() {
    for writes in [false, true] {
        let name = if writes { "write" } else { "read" };
        let expected = format!("host {name} on host after CopyD2H on stream ");
        let (rig, emulator) = machine(Emulator::builder());
        let device = Device::of_emulator(&emulator, 0).unwrap();
        let pool = PinnedPool::builder(&device).build().unwrap();
        let mut buffer = pool.alloc_zeroed::<u8>(2 * BYTES).unwrap();
        let (a, stream) = (rig.memory(), rig.stream(false));
        let upper = NonNull::new(buffer.as_ptr().cast_mut().wrapping_add(BYTES)).unwrap();
        rig.download(stream, upper, a);
        buffer.slice(..BYTES).unwrap().read().unwrap();
        assert_eq!(emulator.findings(), [], "other bytes");
        if writes {
            buffer.write().unwrap();
        } else {
            buffer.slice(BYTES..).unwrap().try_read().unwrap();
        }
        let race = in_short(&only_race(&emulator));
        assert!(race.starts_with(&expected), "{race}");
        rig.synchronize(stream);
    }
}

/// What the host did before a call is ordered before the operation, and what it does next is not.
#[test]
fn a_call_is_ordered_behind_what_its_thread_has_done() {
    twins("host write on host after CopyH2D on stream B", |rig, emulator, ordered| {
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        if ordered {
            emulator.host_writes(host.as_ptr(), BYTES);
        }
        rig.upload_from(stream, a, host);
        if !ordered {
            emulator.host_writes(host.as_ptr(), BYTES);
        }
    });
}

#[test]
fn rule_24_a_host_function_is_an_operation_of_its_stream() {
    twins("host write on stream C after CopyH2D on stream B", |rig, emulator, ordered| {
        let (a, stream, host) = (rig.memory(), rig.stream(false), rig.host());
        let other = rig.stream(false);
        rig.upload_from(stream, a, host);
        let (address, machine) = (host.as_ptr() as usize, emulator.clone());
        let function = move || machine.host_writes(address as *const u8, BYTES);
        let on = if ordered { stream } else { other };
        rig.launch(on, function);
        if ordered {
            // What follows it on the stream is ordered behind what it did.
            rig.upload_from(stream, a, host);
        }
        rig.synchronize(on);
    });
}

/// It may wake a thread by any way, before it returns.
#[test]
fn rule_24_a_host_function_may_tell_the_host_that_all_before_it_is_complete() {
    twins("Fill(0x02) on stream C after Fill(0x01) on stream B", |rig, _, ordered| {
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        rig.fill(first, a, 1);
        let (called, arrival) = std::sync::mpsc::channel();
        if ordered {
            rig.launch(first, move || called.send(()).unwrap());
            arrival.recv().unwrap();
        }
        rig.fill(second, a, 2);
    });
}

#[test]
fn another_thread_is_told_unless_threads_are_apart() {
    let program = |rig: &Rig, emulator: &Emulator, told: bool| {
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        let (to_other, from_here) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (begun, has_begun) = std::sync::mpsc::channel();
            let other = scope.spawn(move || {
                begun.send(rig.is_done(rig.event())).unwrap();
                if let Some(told) = from_here.recv().unwrap() {
                    emulator.take_over(&told);
                }
                rig.fill(second, a, 2);
            });
            // The other thread knows what was known when it began.
            assert!(has_begun.recv().unwrap());
            rig.fill(first, a, 1);
            rig.synchronize(first);
            to_other.send(told.then(|| emulator.hand_over())).unwrap();
            other.join().unwrap();
        });
    };
    for told in [false, true] {
        let (rig, emulator) = machine(Emulator::builder());
        program(&rig, &emulator, told);
        assert_eq!(emulator.findings(), [], "a channel cannot be seen");
    }
    let apart = Emulator::builder().threads_apart(true);
    twins_on(&apart, "Fill(0x02) on stream C after Fill(0x01) on stream B", program);
}

#[test]
fn threads_that_are_apart_know_what_was_known_when_they_began_and_what_ended_ones_knew() {
    let (rig, emulator) = machine(Emulator::builder().threads_apart(true));
    let (a, first) = (rig.memory(), rig.stream(false));
    rig.fill(first, a, 1);
    rig.synchronize(first);
    for value in 2..5 {
        let stream = rig.stream(false);
        std::thread::scope(|scope| {
            let rig = &rig;
            let thread = scope.spawn(move || {
                rig.fill(stream, a, value);
                rig.synchronize(stream);
            });
            thread.join().unwrap();
        });
        let here = rig.stream(false);
        rig.fill(here, a, value);
        rig.synchronize(here);
    }
    assert_eq!(emulator.findings(), []);
}

// ---- memory -------------------------------------------------------------------------------------

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

/// Eager, the memory is gone by then; whether it is, no order says.
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

/// The copy is complete, eager; but who frees does not know that.
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
        #[allow(clippy::undocumented_unsafe_blocks)]
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
        #[allow(clippy::undocumented_unsafe_blocks)]
        unsafe {
            rig.driver.host_register(0, host, BYTES, Default::default()).unwrap();
            rig.upload_from(stream, a, host);
            rig.driver.host_unregister(host).unwrap();
        }
        // `a` races as well; the sources do not, which were freed in flight.
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
        let copies = [(c, a), (c + 8, b)].map(|(dst, src)| BatchCopy { dst, src, bytes: 8 });
        if ordered {
            rig.wait(second, rig.mark(first));
        }
        #[allow(clippy::undocumented_unsafe_blocks)]
        unsafe { rig.driver.copy_batch(second, BatchKind::D2D, &copies) }.unwrap();
    });
}

/// Whether its items are in host memory, known at the call, or in device memory.
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
            #[allow(clippy::undocumented_unsafe_blocks)]
            unsafe {
                items.cast().write(Item { src: a, dst: b, bytes: 16 });
                let mut at = items.as_ptr().expose_provenance() as u64;
                if on_device {
                    rig.driver.copy_h2d(second, list, items.as_ptr(), size_of::<Item>()).unwrap();
                    at = list;
                }
                rig.driver.move_items(second, Mover::OnDevice, at, 1, 16).unwrap();
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
            #[allow(clippy::undocumented_unsafe_blocks)]
            unsafe {
                if to_device {
                    emulator.copy_pageable_h2d(stream, a, plain.as_ptr(), BYTES).unwrap();
                    emulator.host_writes(plain.as_ptr(), BYTES);
                } else {
                    emulator.copy_pageable_d2h(stream, plain.as_mut_ptr(), a, BYTES).unwrap();
                    emulator.host_reads(plain.as_ptr(), BYTES);
                }
            }
            // A copy that is torn is two.
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

// ---- reports ------------------------------------------------------------------------------------

#[test]
fn a_race_is_the_same_in_every_mode_and_with_every_seed() {
    let found = |builder: Builder| {
        let (rig, emulator) = machine(builder);
        let (a, b) = (rig.memory(), rig.memory());
        let (first, second) = (rig.stream(false), rig.stream(false));
        rig.fill(first, a, 1);
        rig.copy(second, b, a);
        only_race(&emulator)
    };
    let eager = found(Emulator::builder());
    for seed in 0..10 {
        let lazy = Emulator::builder().execution(pinlane::emulated::Execution::Lazy).seed(seed);
        assert_eq!(found(lazy), eager);
    }
}

#[test]
fn a_machine_may_be_told_not_to_look() {
    let (rig, emulator) = machine(Emulator::builder().races(false));
    let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
    rig.fill(first, a, 1);
    rig.fill(second, a, 2);
    emulator.host_writes(rig.host().as_ptr(), BYTES);
    assert_eq!(emulator.findings(), []);
}

#[test]
fn one_operation_is_reported_once_for_each_stream_that_it_races_with() {
    let (rig, emulator) = machine(Emulator::builder());
    let (a, b) = (rig.memory(), rig.memory());
    let [first, second, third] = [(); 3].map(|()| rig.stream(false));
    rig.fill(first, a, 1);
    for stream in [second, second, third, third] {
        rig.copy(stream, b, a);
        rig.synchronize(stream);
    }
    assert_eq!(emulator.findings().len(), 2);
}

/// Whether this program was compiled with the lines of its code.
fn knows_its_lines() -> bool {
    std::backtrace::Backtrace::force_capture().to_string().contains("races.rs:")
}

#[test]
fn a_report_says_who_where_what_and_what_would_help() {
    if !knows_its_lines() {
        return;
    }
    let (rig, emulator) = machine(Emulator::builder().sites(true));
    let line = line!();
    let a = rig.memory();
    let [first, second, third] = [(); 3].map(|()| rig.stream(false));
    let never = rig.event();
    #[allow(clippy::undocumented_unsafe_blocks)]
    unsafe {
        rig.driver.fill(first, a, BYTES, &[0xaa]).unwrap();
        let recorded = rig.mark(first);
        rig.driver.stream_wait_event(second, recorded).unwrap();
        rig.driver.stream_wait_event(third, never).unwrap();
        rig.driver.fill(third, a + 16, 32, &[0xcc]).unwrap();
    }
    let race = only_race(&emulator);
    let here = |site: &Option<pinlane::emulated::Site>| {
        let site = site.as_ref().expect("there is debug information");
        assert!(site.file.ends_with("tests/emulated/races.rs"), "{site:?}");
        site.line - line
    };
    assert_eq!((here(&race.first.site), here(&race.second.site)), (6, 10));
    let text = race.to_string();
    let at = |offset: u32| format!("races.rs:{}", line + offset);
    let lines: Vec<&str> = text.lines().collect();
    let header = "pinlane: RACE write after write, device 0, ";
    assert_eq!(lines[0], format!("{header}{:#018x}..+32", a + 16));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(lines[1]), format!("second: Fill(0xcc) {} stream D #1", at(10)));
    assert_eq!(words(lines[2]), format!("first: Fill(0xaa) {} stream B #1", at(6)));
    assert!(lines[3].starts_with("  memory: 4096 bytes at 0xdea"), "{text}");
    assert!(lines[3].contains("generation 1, allocated at rig.rs:"), "{text}");
    let seen = lines[4];
    assert!(seen.starts_with("  order seen: B#2 -> record e2 (rig.rs:"), "{text}");
    assert!(seen.contains(&format!("-> wait by stream C ({})", at(8))), "{text}");
    assert!(seen.ends_with(&format!("waits for e1 ({}), never recorded", at(9))), "{text}");
    assert!(lines[5].starts_with("  missing:    B#1 -> D#1; "), "{text}");
    let help = format!("recording e1 on stream C before {} would add it", at(9));
    assert!(lines[5].ends_with(&help), "{text}");
    let finding = emulator.findings().remove(0).to_string();
    assert!(finding.starts_with("Race: write after write, device 0, "), "{finding}");
    assert!(finding.contains("..+32 (seed 0)\n  second: "), "{finding}");
}

#[test]
fn what_would_help_is_said_for_each_kind_of_attempt() {
    let missing = |program: &dyn Fn(&Rig, &Emulator, RawStream, RawStream, DevicePtr)| {
        let (rig, emulator) = machine(Emulator::builder());
        let (a, first, second) = (rig.memory(), rig.stream(false), rig.stream(false));
        program(&rig, &emulator, first, second, a);
        only_race(&emulator).missing
    };
    let nothing = missing(&|rig, _, first, second, a| {
        rig.fill(first, a, 1);
        rig.fill(second, a, 2);
    });
    assert!(nothing.contains("an event, recorded on stream B behind"), "{nothing}");
    let too_early = missing(&|rig, _, first, second, a| {
        let event = rig.mark(first);
        rig.fill(first, a, 1);
        rig.wait(second, event);
        rig.fill(second, a, 2);
    });
    assert!(too_early.contains("recording e1 on stream B after"), "{too_early}");
    let host = missing(&|rig, emulator, first, _, a| {
        let host = rig.host();
        rig.download(first, host, a);
        emulator.host_reads(host.as_ptr(), 1);
    });
    assert!(host.contains("a synchronize with stream B behind"), "{host}");
    assert!([nothing, too_early, host].iter().all(|text| text.ends_with(" would add it")));
}

/// A lost device ends what the host can learn.
#[test]
fn a_wait_that_fails_tells_nothing() {
    let (rig, emulator) = machine(Emulator::builder().devices(2));
    let there = rig.on_device(1);
    let (a, first, second) = (rig.memory(), rig.stream(false), there.stream(false));
    let b = there.memory();
    emulator.stall(first).unwrap();
    rig.copy_to_device_1(first, b, a);
    emulator.lose_device(0, CudaCode::LAUNCH_FAILURE).unwrap();
    #[allow(clippy::undocumented_unsafe_blocks)]
    let wait = unsafe { rig.driver.stream_synchronize(first) };
    assert_eq!(wait, Err(CudaCode::LAUNCH_FAILURE));
    there.fill(second, b, 1);
    let expected = "Fill(0x01) on stream C of device 1 after CopyPeer on stream B of device 0";
    assert_eq!(in_short(&only_race(&emulator)), expected);
}
