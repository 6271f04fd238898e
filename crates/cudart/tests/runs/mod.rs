//! What the environment says of a run: modes, seeds, replays, records, faults.

use crate::support::{MODES, Run, program};

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

/// Makes each call of a program that checks all results fail, one call after the other.
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
    // A late failure has its effect: the memory is there, and is freed.
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
