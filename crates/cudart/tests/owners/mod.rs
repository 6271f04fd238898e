//! Other handlers of the signals that the watch needs (soundness rule 22). The library replaces
//! `sigaction`, so they come after its own handler, whenever they are installed.

use std::path::Path;
use std::process::Command;

use crate::support::{App, Run, program};

const OWNERS: [&str; 6] = ["handler", "info", "stack", "nested", "once", "signal"];
const MOMENTS: [&str; 4] = ["before", "after", "between", "removed"];

#[test]
fn rule_22_the_watch_goes_on_beside_other_owners_of_signals() {
    let app = program("owners", None);
    for owner in OWNERS {
        for moment in MOMENTS {
            let run = app.given(&format!("{owner} {moment}")).eager();
            let expected = "0 found, 0 times called, faults are the owner's\n";
            assert_eq!((&*run.stdout, run.kinds()), (expected, vec!["Race"]), "{moment}: {run:?}");
            assert!(run.findings[0].contains("owner.h:"), "{owner} {moment}: {run:?}");
            assert_eq!(run.stderr, "", "{owner} {moment}");
        }
    }
}

/// Python, its `faulthandler`, and the library, which is preloaded or not. Then its `sigaction` is
/// not the one that is called.
fn python(moment: &str, preloaded: bool) -> Option<Run> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/owners/faulthandler.py");
    let found = Command::new("python3").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let app = App::of_the_system("python3").given(script.to_str().expect("UTF-8")).given(moment);
    Some(app.python(preloaded))
}

#[test]
fn rule_22_the_watch_goes_on_beside_the_fault_handler_of_an_interpreter() {
    for moment in ["before", "after", "between"] {
        let Some(run) = python(moment, true) else { return };
        assert_eq!((&*run.stdout, run.kinds()), ("all is right\n", vec!["Race"]), "{run:?}");
        // It gets a fault of the program's own.
        assert!(run.stderr.contains("Fatal Python error: Segmentation fault"), "{run:?}");
        assert!(run.stderr.contains("does_wrong"), "{run:?}");
        assert!(!run.stderr.contains("does not see any more"), "{run:?}");
    }
}

#[test]
fn rule_22_the_watch_ends_when_an_interpreter_handles_faults_and_nothing_else_changes() {
    for moment in ["before", "after", "between"] {
        let Some(run) = python(moment, false) else { return };
        let ends = moment == "after";
        // The store is found by the bytes then, when the program waits.
        let kind = if ends { "SourceChanged" } else { "Race" };
        assert_eq!((&*run.stdout, run.kinds()), ("all is right\n", vec![kind]), "{run:?}");
        assert!(run.stderr.contains("Fatal Python error: Segmentation fault"), "{run:?}");
        assert_eq!(run.stderr.contains("does not see any more"), ends, "{run:?}");
    }
}
