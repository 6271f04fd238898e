//! Kernels of programs: stand-ins run in the order of their streams, and what they use is seen.

use std::path::Path;

use crate::in_all_modes;
use crate::support::{MODES, program, toolkit};

#[test]
fn kernels_run_as_their_stand_ins_in_the_order_of_their_stream() {
    let app = program("kernels", None);
    in_all_modes(&app, |run| {
        assert_eq!((run.status, &*run.stdout), (Some(0), "added\n"), "{run:?}");
        assert_eq!(run.stderr.matches("_Z7unknownv does nothing").count(), 1, "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
    });
}

#[test]
fn a_kernel_without_a_stand_in_can_stop_the_program() {
    let app = program("kernels", None);
    let run = app.with("eager", 0, &[("PINLANE_CUDART_KERNELS", "stop")]);
    assert_eq!((run.status, run.kinds()), (Some(1), vec!["Unsupported"]), "{run:?}");
    let finding =
        "kernel unknown() has no stand-in, and does not run\\u000a  called at kernels.cpp:";
    assert!(run.findings[0].contains(finding), "{run:?}");
    assert!(run.stdout.contains("cudaErrorNotSupported") && run.stderr.is_empty(), "{run:?}");
    let run = app.with("eager", 0, &[("PINLANE_CUDART_KERNELS", "skip")]);
    assert_eq!((run.status, &*run.stdout), (Some(0), "added\n"), "{run:?}");
    let run = app.with("eager", 0, &[("PINLANE_CUDART_KERNELS", "perhaps")]);
    assert_eq!(run.status, Some(125), "{run:?}");
}

/// What nvcc writes for a kernel, and NVIDIA's headers, are not the program's own.
#[test]
fn a_launch_is_where_the_program_launches() {
    let run = program("launched", None).with("eager", 0, &[]);
    assert_eq!((run.status, run.kinds()), (Some(0), vec!["Race"]), "{run:?}");
    let lines = ["kernel fill  launched.cpp:108", "launched.cpp:106"];
    assert!(lines.iter().all(|line| run.findings[0].contains(line)), "{run:?}");
}

/// What a stand-in loads and stores is seen.
#[test]
fn kernels_that_nothing_orders_race_in_every_run() {
    let app = program("racing", None);
    for (how, first, second) in [
        ("kernels", "kernel scale", "kernel sum"),
        ("copy", "kernel scale", "CopyH2D"),
        ("host", "kernel sum", "host "),
    ] {
        let app = app.given(how);
        for mode in ["eager", "lazy", "random", "chunked", "pct:2"] {
            let run = app.with(mode, 1, &[]);
            // What a kernel uses of page-locked memory keeps the host from it once it has run.
            if how == "host" && mode != "eager" {
                continue;
            }
            assert_eq!((run.status, run.kinds()), (Some(0), vec!["Race"]), "{how}, {run:?}");
            let named = [("first: ", first), ("second:", second)]
                .map(|(role, name)| run.findings[0].contains(&format!("  {role} {name}")));
            assert_eq!(named, [true; 2], "{how}: {run:?}");
        }
        for seed in 1..=MODES {
            let mode = ["eager", "lazy", "random", "chunked", "pct:2"][seed as usize % 5];
            let run = app.with(mode, seed, &[("WAITS", "1")]);
            assert_eq!((run.status, run.kinds()), (Some(0), vec![]), "{how}, {run:?}");
        }
        let unwatched = app.with("eager", 0, &[("PINLANE_CUDART_WATCH", "0")]);
        assert_eq!(unwatched.kinds(), Vec::<&str>::new(), "{how}");
    }
    in_all_modes(&app.given("halves"), |run| {
        assert_eq!((run.status, run.kinds()), (Some(0), vec![]), "{run:?}");
    });
}

fn modules_are_loaded(headers: Option<&Path>) {
    let app = program("modules", headers);
    in_all_modes(&app, |run| {
        assert_eq!((run.status, &*run.stdout), (Some(0), "scaled\n"), "{run:?}");
        assert_eq!(run.stderr.matches("silent does nothing").count(), 1, "{run:?}");
        assert!(run.findings.is_empty(), "{run:?}");
    });
}

#[test]
fn kernels_of_modules_run_as_their_stand_ins() {
    modules_are_loaded(None);
}

#[test]
fn kernels_of_modules_with_the_headers_of_the_toolkit_run_as_their_stand_ins_too() {
    let Some(headers) = toolkit() else { return };
    modules_are_loaded(Some(headers));
}
