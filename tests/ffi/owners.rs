//! Other handlers of the signals that a watching machine needs (soundness rule 22).

use super::compiler::{Compiler, Language, Program};
use super::{library, project};

/// Each kind of handler. `tests/ffi/owners/owner.h` has them.
const OWNERS: [&str; 6] = ["handler", "info", "stack", "nested", "once", "signal"];

/// When the handler is installed, and whether that ends the watch: a handler that is installed
/// later, or that removes ours, does. An early store is also found without the watch, by the bytes,
/// at the next wait.
const MOMENTS: [(&str, bool); 4] =
    [("before", false), ("after", true), ("between", false), ("removed", true)];

fn beside_all_owners(program: &Program) {
    for owner in OWNERS {
        for (moment, ends) in MOMENTS {
            let output = program.run(&[owner, moment]);
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            let expected = "1 found, 0 times called, faults are the owner's\n";
            assert_eq!(text, expected, "{owner} {moment}: {} {errors}", output.status);
            let said = errors.matches("does not see any more").count();
            assert_eq!(said, usize::from(ends), "{owner} {moment}: {errors}");
            let who = if moment == "removed" { "by nobody" } else { "/program" };
            assert!(!ends || errors.contains(who), "{owner} {moment}: {errors}");
        }
    }
}

#[test]
fn rule_22_machines_watch_beside_other_owners_of_signals_in_c() {
    let source = project("tests/ffi/owners/library.c");
    beside_all_owners(&Compiler::of(Language::C).link("c11", &source, library::shared()));
}

#[test]
fn rule_22_machines_watch_beside_other_owners_of_signals_in_cpp() {
    let source = project("tests/ffi/owners/library.cpp");
    beside_all_owners(&Compiler::of(Language::Cpp).link("c++17", &source, library::shared()));
}

#[test]
fn rule_22_a_library_that_was_unloaded_leaves_no_handler_behind() {
    let source = project("tests/ffi/owners/unloaded.c");
    let program = Compiler::of(Language::C).link_alone("gnu11", &source);
    let library = library::shared().archive.to_str().expect("UTF-8");
    let output = program.run(&[library]);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "used, faults are the owner's\n", "{} {errors}", output.status);
}
