//! Threads of the crate are started in one place (soundness rule 22). A thread of the standard
//! library takes a lock when it starts and when it ends, and in a child that lock may stay locked
//! forever.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::{published, read, sources_of};

const PLACE: &str = "crates/base/src/thread.rs";

/// Other ways to start a thread.
const OTHERS: [&str; 4] =
    ["thread::spawn(", "thread::Builder::new(", "thread::scope(", "pthread_create("];

#[test]
fn rule_22_threads_are_started_in_one_place() {
    let mut wrong = Vec::new();
    let drop_in = sources_of("crates/cudart/src");
    for source in published().iter().chain(&drop_in).filter(|source| !source.is_a_test()) {
        let is_the_place = source.path == Path::new(PLACE);
        for (number, line) in source.code().lines().enumerate().filter(|_| !is_the_place) {
            let names_std = line.trim_start().starts_with("use std::thread::")
                && ["spawn", "Builder", "scope"].iter().any(|name| line.contains(name));
            if names_std || OTHERS.iter().any(|other| line.contains(other)) {
                wrong.push(format!("{}:{}: {line}", source.path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "start them by {PLACE}:\n{}", wrong.join("\n"));
}

/// The names of threads, and for each the case in which it cannot start (rule 19): a function of
/// `tests/soundness/without_threads.rs`, or the reason why there is none.
const REFUSED: [(&str, &str); 12] = [
    ("pinlane-call", "none: on a GPU alone; the call is then made in place"),
    ("pinlane-copy-", "copy_team"),
    ("pinlane-grow", "none: its caller is the keeper; `with_helpers` does without"),
    ("pinlane-host", "none: no thread, but memory"),
    ("pinlane-host-fn", "host_function"),
    ("pinlane-load-", "prefetch"),
    ("pinlane-pool", "keeper"),
    ("pinlane-release", "none: the tests of `refused_threads.rs`"),
    ("pinlane-wakers", "wakers"),
    ("pinlane-warm-up", "warm_up"),
    ("pinlane-watcher", "watcher"),
    ("pinlane-device", "none: no thread, but memory"),
];

#[test]
fn rule_19_each_thread_is_refused_in_a_test() {
    let cases = read("tests/soundness/without_threads.rs");
    let mut names = BTreeSet::new();
    for source in published().iter().filter(|source| !source.is_a_test()) {
        let lines = source.code().lines().filter(|line| !line.trim_start().starts_with("//"));
        let texts = lines.flat_map(|line| line.split("\"pinlane-").skip(1));
        let names_of = texts.map(|text| text.split(['"', '{']).next().unwrap_or_default());
        names.extend(names_of.map(|name| format!("pinlane-{name}")));
    }
    let known = |name: &&String| REFUSED.iter().any(|(known, _)| known == name);
    let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "refuse these in a test, and name it above: {unknown:?}");
    for (name, case) in REFUSED.iter().filter(|(_, case)| !case.starts_with("none: ")) {
        let is_there = [format!("rig.{case}();"), format!("rig.device.{case}();")];
        assert!(is_there.iter().any(|call| cases.contains(call)), "{name}: {case}");
    }
}
