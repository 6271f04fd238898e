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
fn what_they_read_in_time_is_no_race() {
    for (name, _, _) in CALLS {
        let app = program("read_early", None).given(name);
        let modes = ["eager", "lazy", "random", "chunked", "pct:2"].into_iter().cycle();
        for (mode, seed) in modes.zip(0..MODES) {
            let run = app.with(mode, seed, &[("WAITS", "1")]);
            assert_eq!((&*run.stdout, run.kinds()), ("done\n", vec![]), "{name} {mode}: {run:?}");
        }
    }
}

#[test]
fn rule_01_a_synchronous_upload_comes_after_what_its_stream_does_first() {
    in_all_modes(&program("read_early", None).given("behind_in_the_stream"), |run| {
        assert_eq!((&*run.stdout, run.kinds()), ("done\n", vec![]), "{run:?}");
    });
}
