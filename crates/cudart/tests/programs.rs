//! Programs in C++ that know nothing of this project, on the library in the place of NVIDIA's.
//!
//! They are compiled against a header with the few declarations that they need; where the toolkit
//! is installed (`scripts/install-toolkit`), against its headers too: by the tests that have
//! `toolkit` in their names. Those in `rules/` are the rules of docs/semantics.md, by their
//! numbers; that in `arguments/` asks what CUDA answers to odd and wrong arguments.

mod arguments;
mod early;
mod io;
mod kernels;
mod owners;
/// The library is for no test harness: here are the tests of some of its files.
#[path = "../src/prefetched.rs"]
mod prefetched;
#[path = "../src/ptx.rs"]
mod ptx;
mod rules;
mod sanitized;
mod support;

use std::collections::BTreeSet;
use std::path::Path;

use support::{
    App, MODES, Run, declared, exports, library, program, program_of_12, stub, toolkit, unlinked,
};

/// Runs it in all modes, with several seeds.
fn in_all_modes(app: &App, mut look: impl FnMut(&Run)) {
    look(&app.eager());
    let modes = ["lazy", "random", "chunked", "pct:2"].into_iter().cycle();
    modes.zip(1..=MODES).for_each(|(mode, seed)| look(&app.with(mode, seed, &[])));
}

fn ends_well(headers: Option<&Path>) {
    in_all_modes(&program("correct", headers), |run| {
        assert_eq!((run.status, &*run.stdout), (Some(0), "all is right\n"), "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
    });
}

#[test]
fn a_correct_program_ends_well_with_every_seed() {
    ends_well(None);
}

#[test]
fn a_correct_program_with_the_headers_of_the_toolkit_ends_well_too() {
    let Some(headers) = toolkit() else { return };
    ends_well(Some(headers));
}

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

/// How many schedules of a program that is right are looked at.
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
        assert_eq!((run.status, run.kinds()[0]), (Some(0), "SourceChanged"), "{run:?}");
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
    }
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
    assert!(finding.contains(&format!("overwritten.cpp\",\"line\":{line}}}")), "{finding}");
    let without = &app.with("eager", 0, &[("PINLANE_CUDART_SITES", "0")]).findings[0];
    assert!(!without.contains("overwritten.cpp"), "{without}");

    let run = program("driver_race", None).eager();
    let [race, handle, free] = &run.findings[..] else { panic!("{run:?}") };
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

/// Nobody tells the library of loads and stores: they fault.
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

fn give_errors(headers: Option<&Path>) {
    let app = program("errors", headers);
    for mode in ["eager", "lazy"] {
        let run = app.with(mode, 1, &[("PINLANE_CUDART_DEVICES", "2")]);
        assert_eq!((run.status, &*run.stdout), (Some(0), "all are errors\n"), "{run:?}");
        let said = "pinlane-cudart: cudaGraphCreate is not there: cudaErrorNotSupported\n";
        assert_eq!(run.stderr, said);
        for kind in ["BadHandle", "BadCopy", "BadFree", "IllegalAddress"] {
            assert!(run.kinds().contains(&kind), "{kind}: {run:?}");
        }
        let quiet = [("PINLANE_CUDART_DEVICES", "2"), ("PINLANE_CUDART_QUIET", "1")];
        assert_eq!(app.with(mode, 1, &quiet).stderr, "");
    }
}

#[test]
fn wrong_calls_give_errors_which_each_thread_has_for_itself() {
    give_errors(None);
}

#[test]
fn wrong_calls_with_the_headers_of_the_toolkit_give_the_same_errors() {
    let Some(headers) = toolkit() else { return };
    give_errors(Some(headers));
}

#[test]
fn what_cuda_refuses_is_refused_and_what_it_forbids_is_found() {
    let app = program("misuse", None);
    for (case, kinds) in [
        ("captured", vec![]),
        ("unjoined", vec![]),
        ("functions", vec!["CallInHostFunction"; 10]),
        ("elsewhere", vec!["BadHandle"]),
        ("peer", vec!["IllegalAddress"]),
        ("pitch", vec![]),
        ("freed", vec!["FreedInFlight"]),
        ("unused", vec![]),
        ("dumped", vec![]),
        ("outside", vec!["IllegalAddress"]),
    ] {
        let app = app.given(case);
        for (mode, seed) in ["eager", "lazy", "random", "chunked", "pct:2"].into_iter().zip(1..) {
            let run = app.with(mode, seed, &TWO_DEVICES);
            assert_eq!((run.status, run.kinds()), (Some(0), kinds.clone()), "{case}: {run:?}");
            assert!(run.stdout.ends_with("done\n"), "{case}: {run:?}");
        }
    }
}

#[test]
fn the_host_cannot_touch_memory_of_a_device() {
    let run = program("touched", None).eager();
    assert_eq!((run.status, &*run.stdout), (None, "allocated\n"), "{run:?}");
}

#[test]
fn devices_have_less_memory_where_the_process_has_room_for_few_addresses() {
    let app = program("limited", None);
    for limit in ["2048", "40000", "files:512"] {
        let run = app.given(limit).with("lazy", 1, &[]);
        assert_eq!((run.status, &*run.stdout), (Some(0), "all is right\n"), "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
        let said = run.stderr.contains("MiB of memory, not 4096") && run.stderr.contains("-v");
        assert_eq!(said, limit != "40000", "{run:?}");
    }
    for limit in ["700", "files:100"] {
        let run = app.given(limit).eager();
        assert_eq!((run.status, &*run.stdout), (Some(0), "no device: 3\n"), "{run:?}");
        let told = "raise them, as by `ulimit -v unlimited; ulimit -f unlimited`";
        assert!(run.stderr.contains(told), "{run:?}");
    }
}

#[test]
fn the_structs_are_those_of_the_toolkit() {
    let Some(headers) = toolkit() else { return };
    let run = program("layout", Some(headers)).eager();
    assert_eq!((run.status, &*run.stdout), (Some(0), "as declared\n"), "{run:?}");
}

#[test]
fn a_program_that_was_linked_with_another_library_runs_by_preloading() {
    for major in [12, 13] {
        let app = stub("small", major);
        assert!(app.alone().stdout.contains("of the stub"));
        let run = app.preloaded(&format!("libcudart.so.{major}"));
        assert_eq!((run.status, &*run.stdout), (Some(0), "replaced\n"), "{run:?}");
        assert_eq!(run.stderr, "", "the dynamic linker has nothing to say");
    }
}

#[test]
fn every_name_of_the_real_library_is_there_with_its_version() {
    for major in [12, 13] {
        let ours = library().symbols(major);
        let wanted = exports(&major.to_string());
        assert!(wanted.len() > 400);
        let missing: Vec<_> = wanted.iter().filter(|name| !ours.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let driver = exports("driver");
        let missing: Vec<_> = driver.iter().filter(|name| !ours.contains(name)).collect();
        assert!(missing.is_empty(), "the driver that libcuda.so.1 leads to: {missing:?}");
    }
    let mut ours = library().driver_symbols();
    ours.sort();
    let mut wanted = exports("driver");
    wanted.sort();
    assert!(wanted.len() > 600 && ours == wanted);
}

const TWO_DEVICES: [(&str, &str); 1] = [("PINLANE_CUDART_DEVICES", "2")];

fn driver_ends_well(headers: Option<&Path>) {
    let app = program("driver", headers);
    for mode in ["eager", "lazy", "random", "chunked"] {
        let run = app.with(mode, 1, &TWO_DEVICES);
        assert_eq!((run.status, &*run.stdout), (Some(0), "all is right\n"), "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
    }
    let none = app.with("eager", 0, &[("PINLANE_CUDART_DEVICES", "0")]);
    assert!(none.stdout.ends_with("cuInit(0) gives 100\n"), "{none:?}");
}

fn planes_are_as_on_a_gpu(headers: Option<&Path>) -> Vec<Run> {
    let app = program("planes", headers);
    let modes = ["eager", "lazy", "random", "chunked"].into_iter().zip(1..);
    let runs: Vec<Run> = modes.map(|(mode, seed)| app.with(mode, seed, &[])).collect();
    for run in &runs {
        assert_eq!((run.status, &*run.stdout), (Some(0), "all is right\n"), "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
    }
    runs
}

#[test]
fn the_driver_copies_and_fills_planes_volumes_and_batches() {
    for run in planes_are_as_on_a_gpu(None) {
        for name in ["cuGLInit", "cuEGLStreamConsumerConnect", "cuVDPAUGetDevice"] {
            let said = format!("{name} is not there: CUDA_ERROR_NOT_SUPPORTED");
            assert!(run.stderr.contains(&said), "{run:?}");
        }
    }
}

#[test]
fn the_driver_copies_planes_as_the_headers_of_the_toolkit_declare_them() {
    let Some(headers) = toolkit() else { return };
    planes_are_as_on_a_gpu(Some(headers));
}

fn host_pools_work(headers: Option<&Path>) {
    in_all_modes(&program("host_pools", headers), |run| {
        assert_eq!((run.status, &*run.stdout), (Some(0), "all is right\n"), "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
    });
}

#[test]
fn pools_have_memory_of_the_host() {
    host_pools_work(None);
}

#[test]
fn pools_of_the_host_are_as_the_headers_of_the_toolkit_declare_them() {
    let Some(headers) = toolkit() else { return };
    host_pools_work(Some(headers));
}

fn processes_share_memory(headers: Option<&Path>) {
    let app = program("ipc", headers);
    for (mode, seed) in ["eager", "lazy", "random", "chunked"].into_iter().zip(1..) {
        let run = app.with(mode, seed, &[]);
        assert_eq!((run.status, &*run.stdout), (Some(0), "all is right\n"), "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
        let said = run.stderr.contains("cudaIpcGetEventHandle is not there");
        assert!(said == headers.is_none(), "{run:?}");
    }
}

#[test]
fn a_process_uses_device_memory_of_another() {
    processes_share_memory(None);
}

#[test]
fn a_process_uses_memory_of_another_as_the_headers_of_the_toolkit_declare_it() {
    let Some(headers) = toolkit() else { return };
    processes_share_memory(Some(headers));
}

#[test]
fn every_name_that_the_headers_of_the_toolkit_declare_is_there() {
    let Some(headers) = toolkit() else { return };
    let ours = library().driver_symbols();
    for header in ["cuda", "cudaGL", "cudaEGL", "cudaVDPAU"] {
        let declared = declared(headers, header, "cu");
        let missing: Vec<_> = declared.iter().filter(|name| !ours.contains(name)).collect();
        assert!(declared.len() > 4 && missing.is_empty(), "{header}.h: {missing:?}");
    }
    let ours = library().symbols(13);
    for header in ["cuda_runtime_api", "cuda_gl_interop", "cuda_egl_interop", "cuda_vdpau_interop"]
    {
        let declared = declared(headers, header, "cuda");
        let missing: Vec<_> = declared.iter().filter(|name| !ours.contains(name)).collect();
        assert!(declared.len() > 4 && missing.is_empty(), "{header}.h: {missing:?}");
    }
}

fn says_what_to_do(app: &App) {
    let folder = library().folder().to_str().expect("is ASCII");
    let run = app.with("eager", 0, &[("LD_LIBRARY_PATH", folder), ("PINLANE_CUDART_QUIET", "1")]);
    assert_eq!((run.status, &*run.stdout), (Some(0), "801 801\n"), "{run:?}");
    let told = "static_runtime.app has NVIDIA's own CUDA runtime, which does not run on this";
    assert!(run.stderr.contains(told) && run.stderr.contains("-cudart shared"), "{run:?}");
    assert_eq!(run.stderr.matches("does not run").count(), 1, "once: {run:?}");
}

#[test]
fn what_begins_as_a_static_runtime_is_told_what_is_the_matter() {
    says_what_to_do(&unlinked("static_runtime", None));
}

#[test]
fn the_static_runtime_of_the_toolkit_is_told_what_is_the_matter() {
    let Some(headers) = toolkit() else { return };
    says_what_to_do(&unlinked("static_runtime", Some(headers)));
}

#[test]
fn a_correct_program_for_the_driver_ends_well() {
    driver_ends_well(None);
}

#[test]
fn a_correct_program_for_the_driver_with_the_headers_of_the_toolkit_ends_well_too() {
    let Some(headers) = toolkit() else { return };
    driver_ends_well(Some(headers));
}

#[test]
fn one_eager_run_finds_the_race_of_a_program_for_the_driver_and_names_its_calls() {
    let run = program("driver_race", None).eager();
    assert_eq!((run.status, &*run.stdout), (Some(0), "done\n"), "{run:?}");
    assert_eq!(run.kinds(), ["Race", "BadHandle", "BadFree"], "{run:?}");
    assert!(run.findings[0].contains("read after write"), "{run:?}");
    assert!(run.findings[1].contains("cuStreamSynchronize names"), "{run:?}");
    assert!(run.findings[2].contains("cuMemFree_v2: "), "{run:?}");
    let said = "pinlane-cudart: cuMemAddressReserve is not there: CUDA_ERROR_NOT_SUPPORTED\n";
    assert_eq!(run.stderr, said);
}

#[test]
fn calls_of_the_driver_fail_as_the_environment_says() {
    let fault = [("PINLANE_CUDART_FAULT", "cuMemAlloc_v2:1:CUDA_ERROR_OUT_OF_MEMORY")];
    let run = program("driver_race", None).with("eager", 0, &fault);
    assert!(run.stdout.ends_with("cuMemAlloc_v2(&memory, 4096) gives 2\n"), "{run:?}");
}

#[test]
fn a_host_function_that_calls_cuda_while_its_device_is_reset_is_found() {
    let limit = [("PINLANE_CUDART_HOST_FUNCTION_SECONDS", "2")];
    let run = program("reset", None).with("eager", 1, &limit);
    assert_eq!((run.status, &*run.stdout), (Some(0), "reset\n"), "{run:?}");
    assert!(!run.kinds().is_empty() && !run.kinds().contains(&"Deadlock"), "{run:?}");
}

#[test]
fn a_thread_that_looks_for_a_variable_keeps_no_other_waiting() {
    let limit = [("PINLANE_CUDART_HOST_FUNCTION_SECONDS", "2")];
    let run = program("waiting", None).with("eager", 1, &limit);
    assert_eq!((run.status, &*run.stdout), (Some(0), "found\n"), "{run:?}");
    assert!(run.findings.is_empty(), "{run:?}");
}

#[test]
fn the_driver_and_the_runtime_have_one_machine() {
    let (name, modes) = ("driver_and_runtime", ["eager", "lazy"]);
    let apps = [program(name, None), program_of_12(name)];
    for (app, mode) in apps.iter().flat_map(|app| modes.map(|mode| (app, mode))) {
        let run = app.with(mode, 1, &TWO_DEVICES);
        assert_eq!((run.status, &*run.stdout), (Some(0), "one machine\n"), "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
    }
}

#[test]
fn a_variable_that_is_not_understood_stops_the_program() {
    let run = program("correct", None).with("sideways", 1, &[]);
    assert_eq!(run.status, Some(125));
    assert!(run.stderr.contains("PINLANE_CUDART_MODE"), "{run:?}");
}

#[test]
fn numbers_that_are_too_large_stop_the_program() {
    let app = program("correct", None);
    for (name, value) in [
        ("PINLANE_CUDART_HOST_FUNCTION_SECONDS", "1e300"),
        ("PINLANE_CUDART_HOST_FUNCTION_SECONDS", "inf"),
        ("PINLANE_CUDART_MEMORY_GIB", "17179869185"),
    ] {
        let run = app.with("eager", 1, &[(name, value)]);
        assert_eq!(run.status, Some(125), "{run:?}");
        assert!(run.stderr.contains(&format!("{name}=\"{value}\" is not")), "{run:?}");
    }
}

#[test]
fn exploring_a_program_counts_what_was_found_and_names_the_first_seed() {
    let unwatched = [("PINLANE_CUDART_WATCH", "0")];
    let (status, table) = program("overwritten", None).explored_with(20, &unwatched);
    assert_eq!(status, Some(1), "{table}");
    let row = |name: &str| {
        let row = table.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("runs")[1..], ["1", "4", "4", "4", "4", "4"], "{table}");
    assert_eq!(row("exit 0")[2..8], ["1", "4", "4", "4", "4", "4"], "{table}");
    let found = row("SourceChanged");
    assert_eq!(found[1], "0", "{table}");
    let lazily_and_otherwise = found[2..7].iter().map(|count| count.parse::<u32>().unwrap());
    assert!(lazily_and_otherwise.sum::<u32>() > 2, "{table}");
    assert_eq!(found[8], "seed", "{table}");
    let (status, table) = program("correct", None).explored(3);
    assert_eq!((status, table.contains("smallest run")), (Some(0), false), "{table}");
}

#[test]
fn exploring_a_program_takes_decisions_away_until_it_fails_no_more() {
    let app = program("early", None);
    let (_, said) = app.explored_with(10, &[("PINLANE_CUDART_WATCH", "0")]);
    let smallest = "  A#1 is held until a wait needs it\nreplay: PINLANE_REPLAY=1:A#1 ";
    assert!(said.contains("\nsmallest run: 1 decision of ") && said.contains(smallest), "{said}");
    let (_, said) = app.explored(1);
    let eager = "\nsmallest run: 0 decisions of 0\nreplay: PINLANE_REPLAY=0:eager ";
    assert!(said.contains(eager), "the race is found eagerly: {said}");
    let (_, said) = program("touched", None).explored(1);
    assert!(said.contains("killed by SIGSEGV") && said.contains(eager), "{said}");
}

#[test]
fn decisions_are_written_down_even_if_the_process_is_killed() {
    let file = std::env::temp_dir().join(format!("pinlane-record-{}", std::process::id()));
    let record = [("PINLANE_CUDART_RECORD", file.to_str().unwrap())];
    let written = |run: &Run| {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{run:?}"));
        std::fs::remove_file(&file).expect("it was read");
        text
    };
    let run = program("touched", None).with("lazy", 3, &record);
    assert_eq!((run.status, written(&run).starts_with("3:")), (None, true), "killed: {run:?}");
    let app = program("early", None);
    let drawn = app.with("lazy", 3, &record);
    let text = written(&drawn);
    let (replay, words) = text.split_once('\n').unwrap();
    assert!(words.contains("A#1 is "), "{text}");
    let again = app.replayed(replay, &record);
    assert_eq!((written(&again), again.kinds()), (text, drawn.kinds()));
}

#[test]
fn a_run_is_repeated_by_the_text_that_it_gives() {
    let app = program("early", None);
    let unwatched = ("PINLANE_CUDART_WATCH", "0");
    let ended = |run: &Run| (run.status, run.stdout.clone(), run.kinds().join(" "));
    let mut seen = Vec::new();
    for (mode, seed) in ["lazy", "random", "chunked", "pct:2"].into_iter().cycle().zip(1..=MODES) {
        let run = app.with(mode, seed, &[unwatched]);
        let again = app.replayed(&format!("{seed}:{mode}"), &[unwatched]);
        assert_eq!(ended(&run), ended(&again), "{run:?} {again:?}");
        let how = format!("\"mode\":\"{mode}\",\"seed\":{seed},\"race\":");
        let replay = format!(",\"replay\":\"{seed}:{mode}\"}}");
        let says = |line: &String| line.contains(&how) && line.ends_with(&replay);
        assert!(again.findings.iter().all(says), "{again:?}");
        seen.push(ended(&run));
    }
    assert!(seen.iter().any(|run| run != &seen[0]), "{seen:?}");
}

#[test]
fn decisions_can_be_given_one_by_one() {
    let app = program("early", None);
    let given = |replay| app.replayed(replay, &[("PINLANE_CUDART_WATCH", "0")]);
    let as_called = given("1:");
    assert_eq!((&*as_called.stdout, as_called.findings.len()), ("3\n", 0), "{as_called:?}");
    let uploads_late = given("1:A#1");
    assert_eq!((&*uploads_late.stdout, uploads_late.kinds()), ("4\n", vec!["SourceChanged"]));
    let fetches_late = given("1:A#2");
    assert_ne!(fetches_late.stdout, "3\n", "{fetches_late:?}");
}

#[test]
fn a_finding_ends_with_the_command_that_repeats_it() {
    let app = program("early", None).given("it's here");
    for (mode, seed) in [("eager", 0), ("lazy", 7)] {
        let run = app.without_report(mode, seed);
        let command = format!("\n  replay: PINLANE_REPLAY={seed}:{mode} ");
        assert_eq!(run.stderr.matches("Race:").count(), 2, "{run:?}");
        assert!(run.stderr.matches(&command).count() >= 2, "{run:?}");
        assert!(run.stderr.contains(r"early-13.app 'it'\''s here'"), "{run:?}");
    }
}

#[test]
fn a_replay_that_is_none_or_contradicts_the_other_variables_stops_the_program() {
    let app = program("correct", None);
    let refused = |replay, name, value| {
        let run = app.replayed(replay, &[(name, value)]);
        assert_eq!(run.status, Some(125), "{run:?}");
        assert!(run.stderr.contains(name) && run.stderr.contains("PINLANE_REPLAY"), "{run:?}");
    };
    refused("12:lazy", "PINLANE_CUDART_SEED", "11");
    refused("12:lazy", "PINLANE_CUDART_MODE", "random");
    refused("12:A#3", "PINLANE_CUDART_MODE", "lazy");
    refused("12:A", "PINLANE_REPLAY", "12:A");
    let agrees = [("PINLANE_CUDART_SEED", "12"), ("PINLANE_CUDART_MODE", "lazy")];
    assert_eq!(app.replayed("12:lazy", &agrees).status, Some(0));
}

/// Every call of a program that looks at each result, each time, in turn.
#[test]
fn calls_fail_as_the_environment_says() {
    let app = program("careful", None);
    let fault = |fault: &str| app.with("eager", 0, &[("PINLANE_CUDART_FAULT", fault)]);
    let usual = app.eager();
    assert_eq!((usual.status, &*usual.stdout), (Some(0), "all is right\n"), "{usual:?}");
    let calls = ["cudaMalloc", "cudaMallocHost", "cudaStreamCreate", "cudaMemcpyAsync"];
    let calls = calls.iter().chain(&["cudaStreamSynchronize", "cudaFree", "cudaFreeHost"]);
    for call in calls.chain(&["cudaStreamDestroy"]) {
        let mut nth = 0;
        loop {
            nth += 1;
            let run = fault(&format!("{call}:{nth}:cudaErrorUnknown"));
            if run.stderr.contains("did not strike") {
                assert_eq!((run.status, &*run.stdout), (Some(0), "all is right\n"), "{run:?}");
                break;
            }
            let said = format!("{call}: cudaErrorUnknown\n");
            assert_eq!((run.status, run.stdout), (Some(1), said), "{call} number {nth}");
            assert!(run.findings.is_empty(), "{call} number {nth}: {:?}", run.findings);
        }
        assert!(nth > 1, "the program calls {call}");
        let lost = fault(&format!("{call}:1:700"));
        assert_eq!(lost.status, Some(1), "{lost:?}");
        assert!(lost.stdout.starts_with(&format!("{call}: cudaErrorIllegalAddress")), "{lost:?}");
        let unloads = fault(&format!("{call}:1:4"));
        assert!(unloads.stdout.starts_with(&format!("{call}: cudaErrorCudartUnloading")));
    }
    let both = fault("cudaMalloc:2:2:forever,cudaFree:1:1");
    assert_eq!(
        both.stdout,
        "cudaMalloc: cudaErrorMemoryAllocation\ncudaFree: cudaErrorInvalidValue\n"
    );
    // What a call has done before it fails shows: the memory is there, and is freed.
    for (fault_text, frees) in [("cudaMalloc:1:2", false), ("cudaMalloc:1:2:late", true)] {
        let run = fault(&format!("{fault_text},cudaFree:1:1"));
        assert_eq!(run.stdout.contains("cudaFree: "), frees, "{run:?}");
        assert_eq!((run.status, run.findings.len()), (Some(1), 0), "{run:?}");
    }
    let late = fault("cudaMemcpyAsync:1:700:late");
    assert!(late.stdout.starts_with("cudaMemcpyAsync: cudaErrorIllegalAddress\n"), "{late:?}");
    for wrong in ["cudaMalloc", "cudaNothing:1:2", "cudaMalloc:0:2"] {
        let run = fault(wrong);
        assert_eq!(run.status, Some(125), "{run:?}");
    }
}
