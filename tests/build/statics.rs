//! Statics are safe in a forked child (soundness rules 14 and 22). A lock that a thread of the
//! parent held at the fork stays locked there.

use std::collections::BTreeSet;

use crate::sources::{Source, identifier, published, sources_of};

/// Each process has its own value of these.
const SAFE: [&str; 2] = ["PerProcess<", "FirstProcess"];

/// The others: their file, their names, and why they are safe.
const ALLOWED: [(&str, &[&str], &str); 36] = [
    ("crates/base/src/process.rs", &["EXITING", "NEXT", "CELL", "ORDINARY"], "atomics; marks"),
    ("crates/base/src/thread.rs", &["BYTES"], "an atomic: the same in a child"),
    ("trace/recorder.rs", &["NEXT"], "a counter"),
    ("timeline/mod.rs", &["STREAMS"], "a counter"),
    ("pool/core.rs", &["POOLS"], "a counter"),
    ("pool/keeper/limits.rs", &["UNASKED"], "a counter"),
    ("crates/emulator/src/shared.rs", &["NEXT"], "a counter"),
    ("crates/emulator/src/words/thread.rs", &["NEXT"], "a counter"),
    ("crates/emulator/src/races/site.rs", &["LOCK", "FORKS_WAIT"], "a fork waits for the lock"),
    ("crates/emulator/src/races/site.rs", &["ABOVE"], "atomic pointers to constants"),
    ("driver/emulated.rs", &["OWN"], "a constant"),
    ("crates/base/src/sanitizer.rs", &["STATE", "FUNCTIONS", "ADDRESSES", "NEXT"], "atomics"),
    ("sync/asymmetric.rs", &["ANSWER"], "an atomic: the same in a child"),
    ("copy/staged/team.rs", &["TEAM"], "an atomic pointer; a team knows its process"),
    (
        "crates/emulator/src/watch/owner.rs",
        &["OTHERS", "BESIDE"],
        "atomic pointers; a child has them",
    ),
    ("crates/emulator/src/watch/owner.rs", &["SAID"], "a flag: said once, by parent or child"),
    ("crates/emulator/src/watch/places.rs", &["BLOCKS"], "atomics, and a lock per process"),
    ("crates/emulator/src/watch/destinations.rs", &["LISTED"], "as in `places.rs`"),
    ("crates/emulator/src/watch/destinations.rs", &["ARE_NEW"], "a flag, looked at under the lock"),
    (
        "crates/emulator/src/watch/points.rs",
        &["PLACES", "HITS", "NOTES"],
        "atomics; a point has its process",
    ),
    ("crates/emulator/src/watch/watchpoint.rs", &["STATE"], "an atomic: the same in a child"),
    ("crates/emulator/src/watch/stand_in.rs", &["COUNT"], "a counter; too much does no harm"),
    ("crates/emulator/src/watch/stack.rs", &["IDLE"], "atomic pointers; a child has the stacks"),
    ("trace/nvtx.rs", &["SLOTS", "TABLES", "CALLBACKS", "VERSION"], "constants; atomic pointers"),
    ("driver/cuda/runtime/single.rs", &["FOUND"], "CUDA is not called in a forked child"),
    ("driver/cuda/runtime/strided.rs", &["FOUND"], "CUDA is not called in a forked child"),
    ("driver/cuda/runtime/graphs.rs", &["FOUND"], "CUDA is not called in a forked child"),
    ("graph/buffer.rs", &["GRAPHS"], "a counter"),
    ("driver/cuda/runtime/batch.rs", &["FOUND"], "CUDA is not called in a forked child"),
    ("driver/cuda/runtime/thread.rs", &["ONE"], "CUDA is not called in a forked child"),
    ("driver/cuda/libcuda/kernels.rs", &["IMAGE"], "a constant"),
    ("driver/cuda/unpooled.rs", &["BANKS"], "CUDA is not called in a forked child"),
    ("driver/cuda/early.rs", &["BANKS"], "the CUDA driver is not called in a forked child"),
    ("capi/handle.rs", &["TABLE"], "calls of C are refused in a forked child before they look"),
    ("capi/table/vacant.rs", &["RECORDS"], "calls of C are refused before they look"),
    ("capi/table/mod.rs", &["TABLE"], "as in `handle.rs`"),
];

/// The statics of a file, with their types, except thread-locals.
fn statics(source: &Source) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut of_a_thread = None;
    for line in source.code().lines() {
        let (indent, text) = (line.len() - line.trim_start().len(), line.trim_start());
        match of_a_thread {
            Some(begin) if indent == begin && text.starts_with('}') => of_a_thread = None,
            None if text.starts_with("thread_local! {") => of_a_thread = Some(indent),
            _ => {}
        }
        let text = text.strip_prefix("pub ").unwrap_or(text);
        let text = text.strip_prefix("pub(").and_then(|t| t.split_once(") ")).map_or(text, |t| t.1);
        let text = text.strip_prefix("static ").map(|text| text.trim_start_matches("mut "));
        // Statics in an extern block belong to another language.
        if let Some((name, rest)) = text.and_then(|text| text.split_once(": "))
            && of_a_thread.is_none()
            && identifier(name) == name
            && !rest.ends_with(';') | rest.contains('=')
        {
            let kind = rest.split(" = ").next().unwrap_or_default();
            found.push((name.to_owned(), kind.trim_end_matches(" =").to_owned()));
        }
    }
    found
}

#[test]
fn rule_22_statics_are_safe_in_a_forked_child() {
    let mut wrong = Vec::new();
    let mut met = BTreeSet::new();
    for source in published().iter().filter(|source| !source.is_a_test()) {
        let path = source.path.to_str().expect("UTF-8");
        for (name, kind) in statics(source) {
            let is_allowed =
                |(file, names, _): &(&str, &[&str], _)| *file == path && names.contains(&&*name);
            if let Some(at) = ALLOWED.iter().position(is_allowed) {
                met.insert((at, name));
            } else if !SAFE.iter().any(|safe| kind.starts_with(safe) || kind.contains(safe)) {
                wrong.push(format!("{path}: {name}: {kind}"));
            }
        }
    }
    assert!(wrong.is_empty(), "make each a PerProcess, or say here why not:\n{}", wrong.join("\n"));
    let known = ALLOWED.iter().map(|(_, names, _)| names.len()).sum::<usize>();
    assert!(met.len() + 2 >= known, "some of ALLOWED are gone: {met:?}");
}

/// The drop-in refuses all calls in a forked child before it uses anything with a lock. The list
/// names what it may use.
#[test]
fn rule_22_what_the_drop_in_looks_at_in_a_forked_child_has_no_lock() {
    const LOCKS: [&str; 6] = ["Mutex<", "RwLock<", "OnceLock<", "LazyLock<", "Once", "Condvar"];
    let looked_at = ["io/mod.rs", "io/real.rs", "io/calls.rs", "io/actions.rs"];
    let all = sources_of("crates/cudart/src");
    for file in looked_at {
        let source = all.iter().find(|source| source.path.to_str() == Some(file));
        let source = source.unwrap_or_else(|| panic!("crates/cudart/src/{file} is gone"));
        for (name, kind) in statics(source) {
            assert!(!LOCKS.iter().any(|lock| kind.contains(lock)), "{file}: {name}: {kind}");
        }
    }
}
