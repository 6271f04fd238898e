//! What calls answer: to correct programs, to wrong calls, and where there is little memory.

use std::path::Path;

use crate::support::{Run, program, toolkit};
use crate::{TWO_DEVICES, in_all_modes};

fn ends_well(headers: Option<&Path>) {
    in_all_modes(&program("correct", headers), Run::is_right);
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
fn the_finding_of_a_forked_child_names_its_first_call() {
    let run = program("misuse", None).given("forked").eager();
    assert_eq!((run.status, run.kinds()), (Some(0), vec!["CallAfterFork"]), "{run:?}");
    assert!(run.findings[0].contains("calls cudaGetDevice before it has called exec"), "{run:?}");
}

fn graphs_have_nodes(headers: Option<&Path>) {
    in_all_modes(&program("nodes", headers), Run::is_right);
    in_all_modes(&program("graph_memory", headers), Run::is_right);
}

#[test]
fn a_captured_graph_says_what_it_consists_of() {
    graphs_have_nodes(None);
}

#[test]
fn a_captured_graph_says_it_as_the_headers_of_the_toolkit_declare_it() {
    let Some(headers) = toolkit() else { return };
    graphs_have_nodes(Some(headers));
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
        run.is_right();
        let said = run.stderr.contains("MiB of memory, not 4096") && run.stderr.contains("-v");
        assert_eq!(said, limit != "40000", "{run:?}");
    }
    for limit in ["700", "files:100"] {
        let run = app.given(limit).eager();
        assert_eq!((run.status, &*run.stdout), (Some(0), "no device: 3\n"), "{run:?}");
        let said = "raise them, as by `ulimit -v unlimited; ulimit -f unlimited`";
        assert!(run.stderr.contains(said), "{run:?}");
    }
}

fn host_pools_work(headers: Option<&Path>) {
    in_all_modes(&program("host_pools", headers), Run::is_right);
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
        run.is_right();
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
