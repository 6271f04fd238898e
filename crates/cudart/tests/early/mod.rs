//! Pageable memory that a copy is to write, read before the program knows that the copy is done.

use crate::in_all_modes;
use crate::support::{MODES, program};

/// What `read_early.cpp` gives to calls of CUDA, what the finding names, and its line.
const CALLS: [(&str, &str, &str); 8] = [
    ("long_upload", "CopyH2D", "cudaMemcpy(other, to.data(), length"),
    ("short_upload", "CopyH2D", "cudaMemcpy(other, to.data(), length"),
    ("copy_within_host", "host read", "cudaMemcpy(copy.data(), to.data()"),
    ("copy_onto", "host write", "cudaMemcpy(to.data() + 5"),
    ("upload_lines", "CopyH2D", "cudaMemcpy2D(other"),
    ("batch_during_the_call", "host read", "cudaMemcpyBatchAsync(&other"),
    ("argument", "host read", "what.launch("),
    ("argument_of_an_unknown_kernel", "host read", "what.launch("),
];

/// What its own code loads; the lines end with the names.
const LOADS: [&str; 9] = [
    "variable",
    "member",
    "on_the_heap",
    "first",
    "all",
    "copied",
    "registered",
    "lines",
    "newest",
];
/// What it does that is right, without a wait.
const RIGHT: [&str; 4] = ["beside", "files", "forked", "behind_in_the_stream"];

fn line_of(text: &str) -> usize {
    let source = include_str!("../programs/read_early.cpp");
    source.lines().position(|line| line.contains(text)).expect(text) + 1
}

#[test]
fn what_calls_of_cuda_read_too_early_is_found_in_one_eager_run() {
    for (name, operation, text) in CALLS {
        let run = program("read_early", None).given(name).eager();
        assert_eq!((&*run.stdout, run.kinds()), ("done\n", vec!["Race"]), "{name}: {run:?}");
        let finding = &run.findings[0];
        assert!(finding.contains(&format!("second: {operation} ")), "{name}: {finding}");
        // A launch is in a function of a header.
        let place = format!("read_early.cpp:{} ", line_of(text));
        let is_placed =
            finding.contains(&place) || finding.contains("second: host read  kernel.h:");
        assert!(is_placed, "{name}, {place}: {finding}");
        assert!(finding.contains("first:  CopyD2H "), "{name}: {finding}");
    }
}

#[test]
fn what_is_read_in_time_is_no_race() {
    for name in CALLS.into_iter().map(|(name, _, _)| name).chain(LOADS) {
        let app = program("read_early", None).given(name);
        let modes = ["eager", "lazy", "random", "chunked", "pct:2"].into_iter().cycle();
        for (mode, seed) in modes.zip(0..MODES) {
            let run = app.with(mode, seed, &[("WAITS", "1")]);
            assert_eq!((&*run.stdout, run.kinds()), ("done\n", vec![]), "{name} {mode}: {run:?}");
        }
    }
}

/// The processor's watchpoints, if the system lends them; by the line of the load.
#[test]
fn what_the_program_loads_too_early_is_found_in_one_eager_run() {
    let are_lent = pinlane_emulator::Emulator::watchpoints_are_lent();
    for name in LOADS {
        let run = program("read_early", None).given(name).eager();
        let kinds = if are_lent { vec!["Race"] } else { vec![] };
        assert_eq!((&*run.stdout, run.kinds()), ("done\n", kinds), "{name}: {run:?}");
        // Columns are as wide as their longest word.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let place = format!("second: host read read_early.cpp:{} ", line_of(&format!("// {name}")));
        let is_placed = run.findings.iter().all(|finding| words(finding).contains(&place));
        assert!(is_placed, "{name}, {place}: {run:?}");
    }
}

#[test]
fn what_is_right_is_no_race() {
    for name in RIGHT {
        in_all_modes(&program("read_early", None).given(name), |run| {
            assert_eq!((&*run.stdout, run.kinds()), ("done\n", vec![]), "{name}: {run:?}");
        });
    }
}
