//! What a program does too early, too late or to memory that is gone, and how it is reported.

use std::collections::BTreeSet;

use crate::in_all_modes;
use crate::support::{MODES, program};

#[test]
fn rule_04_a_pageable_source_that_is_overwritten_is_found() {
    let app = program("overwritten", None);
    let mut wrong = 0;
    in_all_modes(&app, |run| {
        // Two of them if it is copied in two parts.
        assert_eq!((run.status, run.kinds()[0]), (Some(0), "SourceChanged"), "{run:?}");
        wrong += usize::from(run.stdout != "3 3\n");
    });
    assert!(wrong > 0 && wrong < MODES as usize, "{wrong} wrong");
    let (mut wrong, mut found) = (0, 0);
    for seed in 1..=MODES {
        let run = app.with("lazy", seed, &[("PINLANE_CUDART_WATCH", "0")]);
        wrong += usize::from(run.stdout != "3 3\n");
        found += run.findings.len();
        // Either the bytes are right, or the finding says why they are not.
        assert_eq!(run.stdout != "3 3\n", !run.findings.is_empty(), "{run:?}");
    }
    assert!(wrong > 0 && wrong < MODES as usize && found == wrong, "{wrong} wrong, {found} found");
}

#[test]
fn rule_04_pageable_memory_may_be_used_after_the_call_if_copies_are_staged() {
    let staged = [("PINLANE_CUDART_PAGEABLE", "staged")];
    let app = program("overwritten", None);
    for seed in 0..MODES {
        let mode = ["eager", "lazy", "random", "chunked", "pct:2"][seed as usize % 5];
        let run = app.with(mode, seed, &staged);
        assert_eq!((run.status, &*run.stdout, run.kinds()), (Some(0), "3 3\n", vec![]), "{run:?}");
    }
    for (name, kind) in TOO_EARLY {
        let run = program("unwatched", None).given(name).with("eager", 0, &staged);
        let is_pageable = ["source", "destination", "freed", "flag", "query"].contains(&name);
        let expected = if is_pageable { vec![] } else { vec![kind] };
        assert_eq!((&*run.stdout, run.kinds()), ("done\n", expected), "{name}: {run:?}");
    }
    assert_eq!(app.with("eager", 0, &[("PINLANE_CUDART_PAGEABLE", "late")]).status, Some(125));
}

/// What `unwatched.cpp` can do too early, and what is found then.
const TOO_EARLY: [(&str, &str); 11] = [
    ("source", "SourceChanged"),
    ("registered_source", "SourceChanged"),
    ("registered_destination", "DestinationChanged"),
    ("destination", "DestinationChanged"),
    ("freed", "SourceChanged"),
    ("between", "DestinationChanged"),
    ("one_of_two", "SourceChanged"),
    ("host_function", "SourceChanged"),
    ("host_function_of_another_stream", "SourceChanged"),
    ("flag", "SourceChanged"),
    ("query", "SourceChanged"),
];

/// How many schedules of a correct program are run.
const SCHEDULES: u64 = 20;

#[test]
fn what_the_program_does_too_early_to_other_memory_is_found_in_one_eager_run() {
    for (name, kind) in TOO_EARLY {
        let app = program("unwatched", None).given(name);
        let run = app.eager();
        assert_eq!((&*run.stdout, run.kinds()), ("done\n", vec![kind]), "{name}: {run:?}");
        assert!(run.findings[0].contains("before the program knew that the copy was done"));
        let unwatched = app.with("eager", 0, &[("PINLANE_CUDART_WATCH", "0")]);
        assert_eq!(unwatched.kinds(), Vec::<&str>::new(), "{name}: {unwatched:?}");
    }
}

/// A host function, which CUDA may overtake when it reads pageable memory.
#[test]
fn rule_04_a_host_function_that_writes_to_a_source_is_found_in_every_run() {
    let app = program("overtaken", None);
    let mut arrived = BTreeSet::new();
    in_all_modes(&app, |run| {
        assert_eq!((run.status, run.kinds().first()), (Some(0), Some(&"SourceChanged")), "{run:?}");
        arrived.insert(run.stdout.clone());
    });
    assert!(arrived.len() > 1, "{arrived:?}");
    for (mode, seed) in [("eager", 0), ("lazy", 1), ("random", 2), ("chunked", 3)] {
        let first = app.with(mode, seed, &[]);
        for _ in 0..10 {
            let again = app.replayed(&format!("{seed}:{mode}"), &[]);
            assert_eq!((&again.stdout, again.kinds()), (&first.stdout, first.kinds()), "{mode}");
        }
    }
    for seed in 0..MODES {
        let run = app.with("lazy", seed, &[("WAITS", "1")]);
        assert_eq!((&*run.stdout, run.kinds()), ("2 2\n", vec![]), "{run:?}");
        let run = app.with("lazy", seed, &[("HELD_UP", "1")]);
        assert_eq!(run.kinds().first(), Some(&"SourceChanged"), "{run:?}");
    }
    // It ends.
    let run = app.with("lazy", 1, &[("HELD_UP", "1"), ("FOREVER", "1")]);
    assert_eq!((run.status, &*run.stdout), (Some(0), "2 2\n"), "{run:?}");
}

#[test]
fn rule_08_a_source_in_stream_order_is_read_there_and_may_be_read_late() {
    let app = program("overtaken", None);
    let mut arrived = BTreeSet::new();
    for (mode, seed) in (0..MODES).flat_map(|seed| [("eager", seed), ("lazy", seed)]) {
        let right = app.with(mode, seed, &[("BATCH", "1")]);
        assert_eq!((&*right.stdout, right.kinds()), ("2 2\n", vec![]), "{mode} {seed}: {right:?}");
        let early = app.with(mode, seed, &[("BATCH", "1"), ("EARLY", "1")]);
        assert_eq!(early.kinds()[..], ["SourceChanged"], "{mode} {seed}: {early:?}");
        arrived.insert(early.stdout);
    }
    let both = ["2 2\n", "3 3\n"].map(str::to_owned);
    assert_eq!(arrived, BTreeSet::from(both), "at the call, or late");
}

/// The line of a program that has this text.
fn line_of(name: &str, text: &str) -> usize {
    let file = format!("{}/tests/programs/{name}", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(file).expect("is there");
    source.lines().position(|line| line.contains(text)).expect(text) + 1
}

#[test]
fn findings_name_the_lines_of_the_program() {
    let at = |name: &str, text| format!("{name}:{}", line_of(name, text));
    let app = program("overwritten", None);
    let finding = &app.eager().findings[0];
    let copied = at("overwritten.cpp", "cudaMemcpyAsync(a,");
    let noticed = at("overwritten.cpp", "cudaStreamSynchronize(stream)");
    assert!(finding.contains(&format!("first:  CopyH2D     {copied}  stream A #1")), "{finding}");
    assert!(finding.contains(&format!("noticed:    at {noticed}\"")), "{finding}");
    let line = line_of("overwritten.cpp", "cudaMemcpyAsync(a,");
    assert!(finding.contains(&format!("overwritten.cpp\",\"line\":{line},")), "{finding}");
    let without = &app.with("eager", 0, &[("PINLANE_CUDART_SITES", "0")]).findings[0];
    assert!(!without.contains("overwritten.cpp"), "{without}");

    let run = program("driver_race", None).eager();
    let [race, handle, free, _] = &run.findings[..] else { panic!("{run:?}") };
    let used = |text| at("driver_race.cpp", text);
    assert!(race.contains(&format!("second: CopyD2H     {}", used("cuMemcpyDtoHAsync"))), "{race}");
    assert!(race.contains(&format!("first:  Fill(0x01)  {}", used("cuMemsetD8Async"))), "{race}");
    assert!(race.contains(&format!("allocated at {}", used("cuMemAlloc"))), "{race}");
    let called = |text| format!("called at {}\"", used(text));
    assert!(handle.contains(&called("cuStreamSynchronize(second)")), "{handle}");
    assert!(free.contains("called at driver_race.cpp:"), "{free}");
}

#[test]
fn a_call_that_is_made_again_has_its_line_again() {
    let run = program("lines", None).eager();
    assert_eq!((run.status, run.findings.len()), (Some(0), 6), "{run:?}");
    let lines = ["// the first", "// the second"].map(|text| line_of("lines.cpp", text));
    for (finding, line) in run.findings.iter().zip(lines.into_iter().cycle()) {
        assert!(finding.contains(&format!("called at lines.cpp:{line}\"")), "{line}: {finding}");
    }
}

#[test]
fn nothing_is_found_in_a_program_that_does_the_same_in_time() {
    for (name, _) in TOO_EARLY {
        let app = program("unwatched", None).given(name);
        let modes = ["eager", "lazy", "random", "chunked", "pct:2"].into_iter().cycle();
        for (mode, seed) in modes.zip(0..SCHEDULES) {
            let run = app.with(mode, seed, &[("WAITS", "1")]);
            assert_eq!((&*run.stdout, run.findings.len()), ("done\n", 0), "{name} {mode}: {run:?}");
        }
    }
}

/// No call announces loads and stores: they fault.
#[test]
fn what_the_program_itself_does_too_early_is_found() {
    let app = program("early", None);
    for mode in ["eager", "lazy"] {
        let run = app.with(mode, 1, &[]);
        // A copy that runs late shows the same by its bytes.
        let races = run.kinds().into_iter().filter(|&kind| kind != "SourceChanged").collect();
        assert_eq!((run.status, races), (Some(0), vec!["Race", "Race"]), "{run:?}");
        assert!(run.findings[0].contains("second: host write"), "{run:?}");
        assert!(run.findings[1].contains("second: host read"), "{run:?}");
        assert!(run.findings[..2].iter().all(|text| text.contains("early.cpp:")), "{run:?}");
        let run = app.with(mode, 1, &[("WAITS", "1")]);
        assert_eq!((&*run.stdout, run.findings.len()), ("3\n", 0), "{run:?}");
        let run = app.with(mode, 1, &[("PINLANE_CUDART_WATCH", "0")]);
        assert!(!run.kinds().contains(&"Race"), "{run:?}");
    }
}

#[test]
fn rule_04_a_pageable_source_that_is_unmapped_is_found_and_crashes_nothing() {
    let app = program("unmapped", None);
    let mut found = 0;
    in_all_modes(&app, |run| {
        assert_eq!(run.status, Some(0), "{run:?}");
        found += run.findings.len();
    });
    assert!(found > 0);
}

#[test]
fn a_finding_can_be_the_exit_status_and_is_printed_where_no_file_is_named() {
    let app = program("overwritten", None);
    let statuses: Vec<_> = (1..=MODES)
        .map(|seed| {
            let unwatched = ("PINLANE_CUDART_WATCH", "0");
            let run = app.with("lazy", seed, &[("PINLANE_CUDART_EXIT", "42"), unwatched]);
            let expected = if run.findings.is_empty() { 0 } else { 42 };
            assert_eq!(run.status, Some(expected), "{run:?}");
            assert!(run.stdout.ends_with('\n'), "what was printed is not lost: {run:?}");
            expected
        })
        .collect();
    assert!(statuses.contains(&0) && statuses.contains(&42), "{statuses:?}");
    let seed = statuses.iter().position(|&status| status == 42).unwrap() as u64 + 1;
    let run = app.without_report("lazy", seed);
    assert!(run.stderr.contains("SourceChanged"), "{run:?}");
}

#[test]
fn memory_that_is_used_after_its_end_is_found() {
    let app = program("freed", None);
    let mut ends = Vec::new();
    in_all_modes(&app, |run| {
        assert_eq!(run.status, Some(0), "{run:?}");
        assert!(run.kinds().contains(&"IllegalAddress"), "the synchronous copy: {run:?}");
        assert!(run.kinds().contains(&"BadFree"), "freed twice: {run:?}");
        ends.push(run.stdout.clone());
    });
    assert!(ends.contains(&"cudaSuccess\n".to_owned()), "in the order of the calls: {ends:?}");
    let lost = "cudaErrorIllegalAddress\n".to_owned();
    assert!(ends.contains(&lost), "the free came first: {ends:?}");
}
