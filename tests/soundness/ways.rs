//! Rule 21: what holds by default holds for every way of page-locking, watched and not.

use std::path::Path;
use std::process::Command;

use crate::common::{Pages, Target, target};

/// This program again, for each of the other ways.
#[test]
fn rule_21_every_rule_holds_for_every_way_of_page_locking() {
    if std::env::var_os("PINLANE_TEST_PAGES").is_some() || target() == Target::Cuda {
        return;
    }
    let mut failed = Vec::new();
    for (name, pages) in Pages::ALL {
        if pages == Pages::Registered {
            continue;
        }
        let mut suite = Command::new(std::env::current_exe().expect("this program"));
        let output = suite.env("PINLANE_TEST_PAGES", name).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            eprintln!("PINLANE_TEST_PAGES={name}\n{said}{errors}");
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "with PINLANE_TEST_PAGES as one of {failed:?}");
}

/// A pool or machine that is made otherwise is the same one in every run.
#[test]
fn rule_21_all_tests_of_the_rules_make_their_pools_and_machines_by_the_helpers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/soundness");
    let mut files = 0;
    for file in folder.read_dir().expect("the suite") {
        let path = file.expect("a file").path();
        if path.ends_with("ways.rs") {
            continue;
        }
        files += 1;
        let text = std::fs::read_to_string(&path).expect("a source file");
        for maker in ["PinnedPool::builder", "Emulator::builder", "Emulator::new", "::emulated()"] {
            let file = path.display();
            assert!(!text.contains(maker), "{file} says {maker}: use tests/common/mod.rs");
        }
    }
    assert!(files > 5, "the suite has moved");
}
