//! The order between streams: events, and the rules of the default streams.

use pinlane::emulated::{CaptureMode, Emulator};

use super::{twins, twins_on};

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

/// Within a graph: the first stream waits for the other in any case, at the end.
#[test]
fn rule_36_a_captured_wait_orders_the_streams_of_a_graph() {
    twins("CopyD2D on graph branch E after Fill(0x01) on stream C", |rig, emulator, ordered| {
        let (a, b) = (rig.memory(), rig.memory());
        let (first, other) = (rig.stream(false), rig.stream(false));
        emulator.stream_begin_capture(first, CaptureMode::Relaxed).unwrap();
        let begun = rig.mark(first);
        rig.fill(first, a, 1);
        let filled = rig.mark(first);
        rig.wait(other, if ordered { filled } else { begun });
        rig.copy(other, b, a);
        rig.wait(first, rig.mark(other));
        let graph = emulator.stream_end_capture(first).unwrap();
        let executable = emulator.graph_instantiate(graph, false).unwrap();
        // SAFETY: the memory of the captured work is there.
        unsafe { emulator.graph_launch(executable, first) }.unwrap();
        rig.copy(first, a, b); // after all branches
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
        // SAFETY: as in `rig`.
        unsafe {
            rig.driver.stream_destroy(first).unwrap();
            if ordered {
                rig.wait(second, event);
            }
            rig.driver.event_destroy(event).unwrap();
        }
        // Streams that are created and destroyed later do not replace the destroyed one.
        for _ in 0..100 {
            let short = rig.stream(true);
            // SAFETY: as in `rig`.
            unsafe { rig.driver.stream_destroy(short) }.unwrap();
        }
        rig.fill(second, a, 2);
    });
}

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
        // SAFETY: as in `rig`.
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
