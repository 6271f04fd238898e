//! Which decisions a run is made of, what each mode can show, and exact replay.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::thread;

use super::rig::{BYTES, MODES, Rig, bytes};
use crate::{Emulator, Execution, FindingKind, Replay};
use pinlane_driver::CudaCode;
use pinlane_driver::{CopyKind, DevicePtr, Item, Poll, RawStream};

/// What becomes of a batch whose second half loses the device: that shows the order of its copies.
fn batch_order(rig: &Rig, meanwhile: impl FnOnce(&Rig)) -> Vec<u8> {
    let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
    rig.fill(stream, a, 7).unwrap();
    meanwhile(rig);
    let copies: Vec<Item> = (0..8)
        .map(|n| Item { dst: host.as_ptr().addr() as u64 + n, src: a + n * 16, bytes: 1 })
        .collect();
    rig.batch(stream, CopyKind::D2H, &copies).unwrap();
    assert_eq!(rig.synchronize(stream), Err(CudaCode::ILLEGAL_ADDRESS));
    bytes(host)[..4].iter().map(|&byte| u8::from(byte == 7)).collect()
}

#[test]
fn what_other_streams_and_threads_do_changes_no_decision() {
    let mut orders = HashSet::new();
    for seed in 0..40 {
        for execution in [Execution::Eager, Execution::Lazy] {
            let machine = || Rig::new(Emulator::builder().execution(execution).seed(seed));
            let order = batch_order(&machine(), |_| ());
            let busier = batch_order(&machine(), |rig| {
                let (other, b) = (rig.stream(0), rig.memory(0));
                (0..seed % 7).for_each(|_| rig.fill(other, b, 1).unwrap());
                rig.synchronize(other).unwrap();
            });
            let threaded = batch_order(&machine(), |rig| {
                thread::scope(|scope| scope.spawn(|| rig.memory(0)).join().map(drop)).unwrap();
            });
            assert_eq!([&order; 2], [&busier, &threaded], "seed {seed}");
            orders.insert(order);
        }
    }
    assert!(orders.len() > 5, "the seed decides: {orders:?}");
}

/// Which bytes of the two sides of a race are seen: `consumer` does not wait for `producer`.
fn race(rig: &Rig) -> [u8; BYTES] {
    let (producer, consumer, a) = (rig.stream(0), rig.stream(0), rig.memory(0));
    let host = rig.host();
    rig.fill(producer, a, 1).unwrap();
    rig.synchronize(producer).unwrap();
    rig.fill(producer, a, 7).unwrap();
    rig.download(consumer, host, a).unwrap();
    rig.synchronize(consumer).unwrap();
    bytes(host)
}

fn runs(execution: Execution, run: impl Fn(&Rig) -> [u8; BYTES]) -> HashSet<[u8; BYTES]> {
    let machine = |seed| Rig::new(Emulator::builder().execution(execution).seed(seed));
    (0..200).map(|seed| run(&machine(seed))).collect()
}

#[test]
fn every_mode_but_the_eager_one_shows_both_orders_of_a_race() {
    let whole = HashSet::from([[1; BYTES], [7; BYTES]]);
    for execution in MODES {
        let seen = runs(execution, race);
        match execution {
            Execution::Eager => assert_eq!(seen, HashSet::from([[7; BYTES]])),
            Execution::Chunked => assert!(seen.is_superset(&whole) && seen.len() > 10),
            _ => assert_eq!(seen, whole, "{execution}"),
        }
    }
}

#[test]
fn chunked_pieces_land_in_any_order() {
    // The first byte is old and the last one new, and the other way round.
    let seen = runs(Execution::Chunked, race);
    let ends: HashSet<(u8, u8)> = seen.iter().map(|seen| (seen[0], seen[BYTES - 1])).collect();
    assert_eq!(ends, HashSet::from([(1, 1), (1, 7), (7, 1), (7, 7)]));
}

#[test]
fn random_and_pct_run_operations_in_calls() {
    for execution in [Execution::Random, Execution::Pct { depth: 2 }] {
        let ran_at_the_call = |seed| {
            let rig = Rig::new(Emulator::builder().execution(execution).seed(seed));
            let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
            rig.fill(stream, a, 5).unwrap();
            rig.download(stream, host, a).unwrap();
            bytes(host) == [5; BYTES]
        };
        let seen: HashSet<bool> = (0..50).map(ran_at_the_call).collect();
        assert_eq!(seen.len(), 2, "{execution}");
    }
}

#[test]
fn a_deep_bug_needs_the_depth() {
    // 2 is seen if B's first fill runs between A's second one and the copy, and B's second one
    // after it: two changes of priority.
    let seen = |depth| {
        let value = |seed| {
            let builder = Emulator::builder().execution(Execution::Pct { depth }).seed(seed);
            let rig = Rig::new(builder.operations(7));
            let (a, b) = (rig.stream(0), rig.stream(0));
            let (gpu, host) = (rig.memory(0), rig.host());
            rig.fill(a, gpu, 1).unwrap();
            rig.fill(b, gpu, 2).unwrap();
            rig.fill(a, gpu, 3).unwrap();
            rig.fill(b, gpu, 4).unwrap();
            rig.download(a, host, gpu).unwrap();
            rig.synchronize(a).unwrap();
            rig.synchronize(b).unwrap();
            bytes(host)[0]
        };
        (0..4000).map(value).collect::<HashSet<u8>>()
    };
    assert_eq!(seen(1), HashSet::from([3, 4]));
    assert_eq!(seen(3), HashSet::from([2, 3, 4]));
}

#[test]
fn queries_come_to_an_end_in_every_mode() {
    for seed in 0..20 {
        for rig in Rig::of_each_mode(seed) {
            let (stream, a) = (rig.stream(0), rig.memory(0));
            rig.fill(stream, a, 1).unwrap();
            let event = rig.mark(stream);
            let denials = (0..).take_while(|_| rig.query_event(event) == Ok(Poll::NotReady));
            assert!(denials.count() <= 4);
        }
    }
}

/// A program with races of all kinds. Gives all that it has seen.
fn tangle(rig: &Rig, salt: u64) -> Vec<[u8; BYTES]> {
    let streams: Vec<RawStream> = (0..3).map(|_| rig.stream(0)).collect();
    let gpu: Vec<DevicePtr> = (0..3).map(|_| rig.memory(0)).collect();
    let host: Vec<NonNull<u8>> = (0..3).map(|_| rig.host()).collect();
    let events: Vec<_> = streams.iter().map(|&stream| rig.mark(stream)).collect();
    let mut seen = Vec::new();
    let mut word = salt;
    let mut next = |bound: u64| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((word >> 33) % bound) as usize
    };
    for step in 0..60 {
        let (stream, a, b, h, e) =
            (streams[next(3)], gpu[next(3)], gpu[next(3)], host[next(3)], events[next(3)]);
        match next(9) {
            0 | 1 => rig.fill(stream, a, step).unwrap(),
            2 => rig.upload(stream, a, h).unwrap(),
            3 => rig.download(stream, h, a).unwrap(),
            4 if a != b => rig.copy_part(stream, a, b, BYTES),
            5 => rig.record(e, stream).unwrap(),
            6 => rig.wait(stream, e).unwrap(),
            7 => seen.push([u8::from(rig.query_event(e) == Ok(Poll::Done)); BYTES]),
            8 if next(2) == 0 => rig.synchronize(stream).unwrap(),
            _ => seen.extend(host.iter().map(|&host| bytes(host))),
        }
    }
    for stream in streams {
        rig.synchronize(stream).unwrap();
        seen.extend(host.iter().map(|&host| bytes(host)));
    }
    seen
}

#[test]
fn a_run_is_replayed_exactly_in_every_mode() {
    let mut texts = 0;
    for seed in 0..30 {
        for execution in MODES {
            let builder = Emulator::builder().record(true);
            let rig = Rig::new(builder.clone().execution(execution).seed(seed));
            let seen = tangle(&rig, seed);
            let text = rig.emulator.replay().unwrap().to_string();
            let again = Rig::new(builder.replay(text.parse().unwrap()));
            assert_eq!(tangle(&again, seed), seen, "{execution} {text}");
            assert_eq!(again.emulator.replay().unwrap().to_string(), text, "{execution}");
            assert_eq!(again.found(), rig.found());
            assert_eq!(execution == Execution::Eager, text == format!("{seed}:eager"));
            texts += text.len();
        }
    }
    assert!(texts > 10_000, "there are decisions");
}

#[test]
fn decisions_can_be_given_by_hand() {
    let seen = |text: &str| {
        let rig = Rig::new(Emulator::builder().replay(text.parse().unwrap()));
        assert_eq!((rig.emulator.execution(), rig.emulator.seed()), (Execution::Eager, 3));
        race(&rig)
    };
    // Producer is stream A, consumer B; rig.memory makes C for its allocation.
    assert_eq!(seen("3:"), [7; BYTES]);
    assert_eq!(seen("3:eager"), [7; BYTES]);
    assert_eq!(seen("3:A#2"), [1; BYTES]);
    assert_eq!(seen("3:A#2+1"), [7; BYTES], "passed over by the call that made it");
    assert_eq!(seen("3:A#2+2"), [1; BYTES], "and by the copy");
    let torn = seen("3:A#2/2,A#2.1");
    assert!(torn.contains(&1) && torn.contains(&7), "{torn:?}");
}

#[test]
fn nothing_is_written_down_unless_asked() {
    let rig = Rig::lazy(1);
    tangle(&rig, 1);
    assert_eq!(rig.emulator.replay(), None);
    assert_eq!(Replay::eager(4).to_string(), "4:eager");
}

#[test]
fn pieces_end_with_the_memory_that_they_use() {
    // Freed between two pieces: the block is kept, the copy continues, and the free is a finding.
    for seed in 0..50 {
        let rig = Rig::new(Emulator::builder().execution(Execution::Chunked).seed(seed));
        let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
        rig.emulator.stall(stream).unwrap();
        rig.upload(stream, a, host).unwrap();
        rig.free_host(host).unwrap();
        rig.emulator.release(stream).unwrap();
        rig.synchronize(stream).unwrap();
        assert_eq!(rig.found(), [FindingKind::FreedInFlight]);
    }
}
