//! Threads of the crate are started in one place (soundness rule 22): a thread of the standard
//! library takes a lock as it starts and as it ends, which a child may find held for ever.

use std::path::Path;

use crate::sources::sources_of;

const PLACE: &str = "process/thread.rs";

/// How a thread is started elsewhere.
const OTHERS: [&str; 4] =
    ["thread::spawn(", "thread::Builder::new(", "thread::scope(", "pthread_create("];

#[test]
fn rule_22_threads_are_started_in_one_place() {
    let mut wrong = Vec::new();
    for folder in ["src", "cudart/src"] {
        for source in sources_of(folder).iter().filter(|source| !source.is_a_test()) {
            let is_the_place = folder == "src" && source.path == Path::new(PLACE);
            for (number, line) in source.code().lines().enumerate().filter(|_| !is_the_place) {
                let names_std = line.trim_start().starts_with("use std::thread::");
                if names_std || OTHERS.iter().any(|other| line.contains(other)) {
                    wrong.push(format!(
                        "{folder}/{}:{}: {line}",
                        source.path.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "start them by {PLACE}:\n{}", wrong.join("\n"));
}
