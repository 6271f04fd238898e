//! Races with the host: what it has waited for, and what it reads and writes itself.

use std::ptr::NonNull;

use pinlane::driver::Poll;
use pinlane::emulated::Emulator;
use pinlane::{Device, PinnedPool};

use super::{in_short, machine, only_race, twins, twins_on};
use crate::rig::{BYTES, Rig};

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
                // SAFETY: as in `rig`.
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
        // SAFETY (of all calls of the driver here): as in `rig`.
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

/// A buffer waits for the uses that it knows. The machine also knows the uses that bypass it.
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

/// The host's accesses before a call are ordered before the operation. Its later accesses are not.
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
            // Later work on the stream is ordered after the function's accesses.
            rig.upload_from(stream, a, host);
        }
        rig.synchronize(on);
    });
}

/// It may notify a thread in any way, before it returns.
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
            // The other thread starts with what the first one knew at the start.
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
