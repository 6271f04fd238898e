//! The suite of the soundness rules runs for every way of page-locking (rule 21).

use std::path::Path;

/// A pool or machine that is made without the helpers would be the same in every run.
#[test]
fn all_tests_of_the_rules_make_their_pools_and_machines_by_the_helpers() {
    let folder = Path::new(env!("PINLANE_PROJECT")).join("tests/soundness");
    let mut files = 0;
    for file in folder.read_dir().expect("the suite") {
        let path = file.expect("a file").path();
        files += 1;
        let text = std::fs::read_to_string(&path).expect("a source file");
        for maker in ["PinnedPool::builder", "Emulator::builder", "Emulator::new", "::emulated()"] {
            let file = path.display();
            assert!(!text.contains(maker), "{file} says {maker}: use tests/common/mod.rs");
        }
    }
    assert!(files > 5, "the suite has moved");
}
