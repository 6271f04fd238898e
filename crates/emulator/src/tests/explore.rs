//! Exploring programs: which runs are made, which one is shown, and that it fails again.

use std::collections::HashSet;
use std::time::Duration;

use super::rig::{BYTES, Rig, at, bytes, write};
use crate::{
    Emulator, Execution, Exploration, FailedRun, FindingKind, explore, explore_orders,
    explore_steps,
};
use pinlane_driver::{DevicePtr, RawStream};

fn exploration() -> Exploration {
    // Without the race checker: only wrong results count.
    Exploration::new().machine(Emulator::builder().races(false)).quiet(true)
}

fn rig(machine: &Emulator) -> Rig {
    Rig { driver: machine.driver(), emulator: machine.clone() }
}

/// Two streams without an event, and other work that does not matter.
fn two_streams(machine: &Emulator) {
    let rig = rig(machine);
    let (first, second, other) = (rig.stream(0), rig.stream(0), rig.stream(0));
    let (a, b, host) = (rig.memory(0), rig.memory(0), rig.host());
    (0..20).for_each(|value| rig.fill(other, b, value).unwrap());
    rig.fill(first, a, 7).unwrap();
    (0..20).for_each(|value| rig.fill(other, b, value).unwrap());
    rig.download(second, host, a).unwrap();
    rig.synchronize(second).unwrap();
    assert_eq!(bytes(host), [7; BYTES], "the bytes that were filled");
    rig.synchronize(first).unwrap();
    rig.synchronize(other).unwrap();
}

#[test]
fn one_decision_is_left_of_a_missing_event() {
    let failed = explore(exploration(), two_streams).unwrap_err();
    let failure = failed.failure.as_deref().unwrap();
    assert!(failure.contains("the bytes that were filled"), "{failed}");
    assert!(failure.contains("explore.rs"), "the place of the panic: {failed}");
    // The fill, which is the first operation of the first stream.
    let replay = failed.replay.to_string();
    assert!(replay.ends_with(":A#1"), "{failed}");
    let (mode, seed, decisions) = failed.first.unwrap();
    assert!(mode != Execution::Eager && decisions >= 1, "{failed}");
    assert_eq!(failed.replay.seed(), seed);
    let text = failed.to_string();
    assert!(text.contains(&format!("replay: PINLANE_REPLAY={replay}")), "{text}");
    assert!(text.contains(&format!("smallest run: 1 decision of {decisions}")), "{text}");

    let again = Emulator::builder().replay(failed.replay.clone()).build();
    assert!(std::panic::catch_unwind(|| two_streams(&again)).is_err(), "it fails again");
    let other = Emulator::builder().replay(format!("{seed}:").parse().unwrap()).build();
    two_streams(&other);
}

#[test]
fn every_mode_finds_it() {
    let modes = [
        Execution::Lazy,
        Execution::Random,
        Execution::Chunked,
        Execution::Pct { depth: 1 },
        Execution::Pct { depth: 2 },
    ];
    for mode in modes {
        let failed = explore(exploration().modes([mode]), two_streams).unwrap_err();
        assert_eq!(failed.first.unwrap().0, mode);
        assert_eq!(failed.replay.decisions(), 1, "{mode}: {failed}");
    }
    assert!(explore(exploration().modes([]), two_streams).is_ok(), "no seed of eager mode does");
}

#[test]
fn a_finding_is_a_failure_and_an_eager_run_is_smallest() {
    let failed = explore(Exploration::new().quiet(true), two_streams).unwrap_err();
    assert_eq!((failed.runs, failed.failure.as_deref()), (1, None));
    assert_eq!(failed.findings[0].kind, FindingKind::Race);
    assert_eq!(failed.replay.to_string(), "1:eager");
    assert!(failed.to_string().contains("missing:"), "{failed}");
    // It needs no schedule, so none is left.
    let late = exploration().machine(Emulator::builder()).quiet(true);
    let failed = explore(late.seed(40).modes([Execution::Lazy]), |machine: &Emulator| {
        if machine.execution() != Execution::Eager || machine.replay().is_some() {
            two_streams(machine);
        }
    });
    assert!(failed.unwrap_err().replay.decisions() <= 1);
}

#[test]
fn a_source_that_is_overwritten_in_flight_needs_one_decision() {
    let failed = explore(exploration(), |machine: &Emulator| {
        let rig = rig(machine);
        let (stream, a, host) = (rig.stream(0), rig.memory(0), rig.host());
        rig.upload(stream, a, host).unwrap();
        write(at(host, 3), &[1]);
        rig.synchronize(stream).unwrap();
    });
    let failed = failed.unwrap_err();
    assert_eq!(failed.findings[0].kind, FindingKind::SourceChanged);
    assert!(failed.replay.to_string().ends_with(":A#1"), "{failed}");
}

#[test]
fn an_error_is_a_failure() {
    let failed = explore(exploration(), |_: &Emulator| Err::<(), _>("no luck")).unwrap_err();
    assert_eq!(failed.failure.as_deref(), Some("it returned an error: no luck"));
    assert_eq!((failed.runs, failed.replay.to_string()), (1, "1:eager".into()));
    let explored = explore(exploration().runs(7), |_: &Emulator| Ok::<u8, String>(3)).unwrap();
    assert_eq!((explored.runs, explored.complete), (7, true));
}

#[test]
fn runs_take_turns_in_all_modes_with_seeds_of_their_own() {
    let mut seen = Vec::new();
    let modes = [Execution::Lazy, Execution::Chunked];
    let exploration = exploration().seed(9).runs(5).modes(modes);
    explore(exploration, |machine| seen.push((machine.execution(), machine.seed()))).unwrap();
    let lazy = |seed| (Execution::Lazy, seed);
    let chunked = |seed| (Execution::Chunked, seed);
    assert_eq!(seen, [(Execution::Eager, 9), lazy(9), chunked(9), lazy(10), chunked(10)]);
    let mut runs = 0;
    let some_time = self::exploration().time(Duration::from_millis(20));
    let explored = explore(some_time, |_| runs += 1).unwrap();
    assert!(explored.runs == runs && runs > 1);
}

/// What a stream is given, or a wait for one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Fill(usize, u8),
    Copy(usize),
    Wait(usize),
}

fn run_steps(machine: &Emulator, steps: &[&Step]) {
    let rig = rig(machine);
    let streams: Vec<RawStream> = (0..3).map(|_| rig.stream(0)).collect();
    let (a, host): (DevicePtr, _) = (rig.memory(0), rig.host());
    let mut last = 0;
    for step in steps {
        match **step {
            Step::Fill(stream, value) => {
                rig.fill(streams[stream], a, value).unwrap();
                last = value;
            }
            Step::Copy(stream) => {
                rig.download(streams[stream], host, a).unwrap();
                rig.synchronize(streams[stream]).unwrap();
                assert!(last == 0 || bytes(host) == [last; BYTES]);
            }
            Step::Wait(stream) => rig.synchronize(streams[stream]).unwrap(),
        }
    }
}

#[test]
fn steps_are_taken_away_before_decisions() {
    let mut steps: Vec<Step> = (1..30)
        .flat_map(|n| [Step::Fill(0, n), Step::Copy(0), Step::Wait(n as usize % 3)])
        .collect();
    steps.insert(40, Step::Fill(1, 99));
    let failed = explore_steps(exploration(), &steps, run_steps).unwrap_err();
    let left: Vec<Step> = failed.steps.iter().map(|&number| steps[number]).collect();
    assert_eq!(left[0], Step::Fill(1, 99), "{failed}");
    assert!(left.len() == 2 && matches!(left[1], Step::Copy(0)), "{failed}");
    assert_eq!(failed.replay.decisions(), 1, "{failed}");
    assert!(failed.to_string().contains(", steps [40, 4"), "{failed}");
    // A program without the bug has no such run.
    steps.remove(40);
    explore_steps(exploration(), &steps, run_steps).unwrap();
}

/// Eight fills on three streams; each order leaves its traces.
fn eight(machine: &Emulator, edge: bool) -> Vec<u8> {
    let rig = rig(machine);
    let streams: Vec<RawStream> = (0..3).map(|_| rig.stream(0)).collect();
    let words: Vec<DevicePtr> = (0..8).map(|_| rig.memory(0)).collect();
    let host = rig.host();
    // Fill number n also fills what the others find: the last one wins, in each of eight words.
    for (number, stream) in [0, 0, 0, 1, 1, 1, 2, 2].into_iter().enumerate() {
        if edge && number == 3 {
            let event = rig.mark(streams[0]);
            rig.wait(streams[1], event).unwrap();
        }
        rig.fill(streams[stream], words[0], number as u8 + 1).unwrap();
    }
    streams.iter().for_each(|&stream| rig.synchronize(stream).unwrap());
    rig.download(streams[0], host, words[0]).unwrap();
    rig.synchronize(streams[0]).unwrap();
    bytes(host)[..1].to_vec()
}

#[test]
fn all_orders_of_a_small_world_are_tried_once() {
    // Orders of 3, 3 and 2 operations that keep each stream's own: 8! / (3! 3! 2!) = 560. The last
    // one of all is the last of a stream.
    let mut last = Vec::new();
    let explored = explore_orders(exploration(), |machine| last.extend(eight(machine, false)));
    let explored = explored.unwrap();
    assert_eq!((explored.runs, explored.complete), (560, true));
    let count = |value| last.iter().filter(|&&seen| seen == value).count();
    // The last is the first stream's in 7! / (2! 3! 2!) = 210 of them, the third's in 140.
    assert_eq!([3, 6, 8].map(count), [210, 210, 140]);

    // If the second stream comes after the first, there is one chain of 6 and one of 2: 8! / (6!
    // 2!) = 28.
    let mut last = HashSet::new();
    let explored = explore_orders(exploration(), |machine| last.extend(eight(machine, true)));
    assert_eq!(explored.unwrap().runs, 28);
    assert_eq!(last, HashSet::from([6, 8]));
}

#[test]
fn trying_all_orders_finds_the_one_that_fails() {
    let failed: Box<FailedRun> = explore_orders(exploration(), |machine| {
        assert_ne!(eight(machine, false), [3], "the first stream's fill comes last");
    })
    .unwrap_err();
    assert!(failed.runs > 1 && failed.replay.decisions() <= 3, "{failed}");
    let again = Emulator::builder().replay(failed.replay.clone()).build();
    assert_eq!(eight(&again, false), [3]);
    let few = explore_orders(exploration().runs(10), |machine| drop(eight(machine, false)));
    assert!(few.is_ok_and(|explored| !explored.complete && explored.runs == 10));
}
