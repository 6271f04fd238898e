//! System calls of programs on memory that copies use.

use std::fs;

use crate::support::{App, library, program};

/// How many calls the program makes.
const CALLS: usize = 29;
/// What else is replaced; `tests/owners` calls some of them.
const ACTIONS: [&str; 6] =
    ["sigaction", "signal", "bsd_signal", "ssignal", "__sysv_signal", "sysv_signal"];

/// In each of the modes, every call of the program is a race, by its line.
fn each_call_is_found(modes: &[&str], more: &[(&str, &str)]) {
    let app = program("system_calls", None);
    let source = include_str!("../programs/system_calls.cpp");
    let lines = |start: &str| -> Vec<usize> {
        let lines = (1..).zip(source.lines());
        lines.filter(|(_, line)| line.starts_with(start)).map(|(number, _)| number).collect()
    };
    let (reads, writes) = (lines("  IN("), lines("  OUT("));
    assert_eq!(reads.len() + writes.len(), CALLS);
    let accesses = reads.iter().map(|line| ("write", line));
    let accesses: Vec<_> = accesses.chain(writes.iter().map(|line| ("read", line))).collect();
    for mode in modes {
        let run = app.with(mode, 1, more);
        assert_eq!((run.status, &*run.stdout), (Some(0), "29 calls\n"), "{run:?}");
        // A copy that runs late shows the same by its bytes.
        let races = || run.findings.iter().filter(|line| line.starts_with("{\"kind\":\"Race\""));
        assert_eq!(races().count(), CALLS, "{:#?}", run.findings);
        for (finding, (access, line)) in races().zip(&accesses) {
            let second = format!("second: host {access} ");
            let place = format!("system_calls.cpp:{line} ");
            assert!(finding.contains(&second) && finding.contains(&place), "{line}: {finding}");
        }
    }
}

#[test]
fn each_system_call_on_memory_in_use_is_found_by_its_line_and_none_fails() {
    each_call_is_found(&["eager", "lazy"], &[]);
}

#[test]
fn each_system_call_on_a_pageable_destination_is_found_by_its_line() {
    each_call_is_found(&["eager"], &[("PAGEABLE", "1")]);
    let unwatched = [("PAGEABLE", "1"), ("PINLANE_CUDART_WATCH", "0")];
    assert_eq!(program("system_calls", None).with("eager", 1, &unwatched).findings, [""; 0]);
}

#[test]
fn system_calls_that_wait_or_use_other_bytes_of_the_page_are_no_race() {
    let app = program("system_calls", None);
    let runs = ["eager", "lazy"].map(|mode| ["WAITS", "BESIDE"].map(|twin| (mode, twin)));
    for (mode, twin) in runs.into_iter().flatten() {
        for more in [&[(twin, "1")][..], &[(twin, "1"), ("PAGEABLE", "1")]] {
            let run = app.with(mode, 1, more);
            assert_eq!((run.status, &*run.stdout), (Some(0), "29 calls\n"), "{more:?}: {run:?}");
            assert_eq!(run.findings, [""; 0], "{mode} {more:?}");
        }
    }
}

fn is_right(which: &str) {
    let app = program("blocked", None).given(which);
    for mode in ["eager", "lazy"] {
        let run = app.with(mode, 1, &[]);
        assert_eq!((run.status, run.stdout), (Some(0), format!("{which} is right\n")), "{mode}");
        assert_eq!((run.findings, &*run.stderr), (vec![], ""), "{which}");
    }
}

#[test]
fn a_call_that_blocks_keeps_its_pages_and_locks_nothing() {
    is_right("blocked");
    let run = program("blocked", None).given("blocked").with("eager", 1, &[("LATE", "1")]);
    assert_eq!((run.status, run.kinds()), (Some(0), vec!["Race"]), "closed again: {run:?}");
}

#[test]
fn a_child_that_was_forked_may_make_system_calls() {
    is_right("forked");
}

#[test]
fn a_thread_that_is_cancelled_in_a_call_ends() {
    is_right("cancelled");
}

#[test]
fn a_call_that_fails_says_so_as_ever() {
    is_right("refused");
}

#[test]
fn a_stand_in_for_a_kernel_may_make_system_calls() {
    is_right("in_kernel");
}

#[test]
fn a_program_that_knows_nothing_of_cuda_runs_as_ever_when_it_is_preloaded() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for major in [12, 13] {
        let run = App::of_the_system("cat").given(file).preloaded(&format!("libcudart.so.{major}"));
        let expected = fs::read_to_string(file).expect("is there");
        assert_eq!((run.status, run.stdout, &*run.stderr), (Some(0), expected, ""));
    }
}

/// A program that is linked with the library needs no symbol that NVIDIA's lacks.
#[test]
fn what_is_exported_besides_the_names_of_cuda_is_replaced_calls_without_a_version() {
    for major in [12, 13] {
        let others = library().other_symbols(major);
        assert!(others.iter().all(|name| !name.contains('@')), "{others:?}");
        let source = include_str!("../programs/system_calls.cpp");
        let is_known = |name: &String| source.contains(name) || ACTIONS.contains(&&**name);
        let missing: Vec<_> = others.iter().filter(|name| !is_known(name)).collect();
        assert_eq!((others.len(), missing), (CALLS + ACTIONS.len(), vec![]), "{others:?}");
    }
}
