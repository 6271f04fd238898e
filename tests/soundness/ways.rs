//! Rule 21: all rules hold for every way of page-locking, with and without a watch of the host.

use std::process::Command;

use crate::common::{Pages, Target, target};

/// Runs this program again for each of the other ways.
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
