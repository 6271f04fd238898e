//! Soundness rule 18: a safe public function does not free or change the object of an address or a
//! raw handle.
//!
//! The test finds every safe public function that takes one. Each such function has its reason
//! below. One without a reason must be `unsafe`.

use std::collections::BTreeSet;

use crate::sources::{Source, identifier, published};

/// Types that name an object without keeping it alive.
const RAW: [&str; 10] = [
    "*mut ",
    "*const ",
    "NonNull<",
    "RawStream",
    "RawEvent",
    "DevicePtr",
    "Range<usize>",
    "Target",
    "Plane",
    "PoolId",
];

/// The names of numbers that are addresses or handles.
const NUMBERS: [&str; 8] = ["handle", "address", "ptr", "graph", "node", "exec", "event", "stream"];

/// An allowed function: `what` is the end of its file and its name.
struct Allowed {
    why: &'static str,
    what: &'static [&'static str],
}

const ALLOWED: [Allowed; 5] = [
    Allowed {
        why: "the range counts elements of a buffer that it has",
        what: &["graph/buffer.rs part_mut"],
    },
    Allowed {
        why: "honours only what the books of the program contain",
        what: &[
            "calls/events.rs let_others_use",
            "calls/graphs.rs graph_destroy",
            "calls/graphs.rs graph_instantiate",
            "calls/graphs.rs graph_set_copy",
            "calls/host.rs free_host",
            "calls/host.rs unregister",
            "calls/ipc.rs give_up",
            "calls/managed.rs prefetch",
            "calls/mapped.rs free_addresses",
            "calls/mapped.rs map_memory",
            "calls/mapped.rs release_memory",
            "calls/mapped.rs retain_memory",
            "calls/mapped.rs set_mapped_access",
            "calls/mapped.rs unmap_memory",
            "calls/memory.rs free",
            "calls/memory.rs free_async",
            "calls/pools.rs malloc_async",
            "calls/pools.rs pool_destroy",
            "calls/pools.rs pool_figure",
            "calls/pools.rs pool_switch",
            "calls/pools.rs pool_trim",
            "calls/pools.rs set_device_pool",
        ],
    },
    Allowed {
        why: "only says what is there, or waits for it",
        what: &[
            "calls/copies.rs line",
            "calls/events.rs event",
            "calls/events.rs event_elapsed",
            "calls/events.rs event_is_for_others",
            "calls/events.rs event_query",
            "calls/events.rs event_synchronize",
            "calls/events.rs is_captured",
            "calls/graphs.rs capture_id",
            "calls/graphs.rs capture_info",
            "calls/graphs.rs graph_node",
            "calls/graphs.rs graph_nodes",
            "calls/graphs.rs is_capturing",
            "calls/graphs.rs stream_capture",
            "calls/ipc.rs share",
            "calls/kernels.rs storage_of",
            "calls/managed.rs check_managed",
            "calls/managed.rs last_prefetch",
            "calls/mapped.rs created_memory",
            "calls/mapped.rs mapped_access",
            "calls/ranges.rs held",
            "calls/pools.rs is_host_pool",
            "calls/pools.rs pool_device",
            "calls/streams.rs stream_flags",
            "calls/streams.rs stream_query",
            "calls/streams.rs stream_synchronize",
            "calls/system_calls.rs must_be_said",
            "src/process.rs is_mapped",
            "calls/threads.rs stream",
        ],
    },
    Allowed {
        why: "tells the race checker, or the watch, of accesses; the memory stays as it is",
        what: &[
            "calls/system_calls.rs call_begins",
            "calls/system_calls.rs call_ends",
            "calls/system_calls.rs stand_in_calls",
            "src/emulator.rs host_reads",
            "src/emulator.rs host_writes",
            "src/lib.rs host_access",
        ],
    },
    Allowed {
        why: "what a stream does later is no promise of its owner's: rule 11 holds for captures \
              that anybody begins at any time, and rules 2 and 4 for work that never runs",
        what: &[
            "calls/graphs.rs refuse_captured",
            "calls/graphs.rs refuse_unsafe_on",
            "calls/graphs.rs stream_begin_capture",
            "calls/graphs.rs stream_end_capture",
            "src/emulator.rs abandon",
            "src/emulator.rs begin_capture",
            "src/emulator.rs end_capture",
            "src/emulator.rs release",
            "src/emulator.rs slow",
            "src/emulator.rs stall",
        ],
    },
];

/// The safe public functions of a text, each with its arguments: `pub fn`, and those of public
/// traits.
fn safe_functions(source: &Source) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut in_trait = false;
    let code = source.code();
    for (at, line) in code.match_indices('\n').map(|(at, _)| (at + 1, rest(code, at + 1))) {
        if line.starts_with('}') {
            in_trait = false;
        } else if line.starts_with("pub trait ") || line.starts_with("pub unsafe trait ") {
            in_trait = true;
        }
        let text = line.trim_start();
        let indented = text.len() < line.len();
        let text = text.strip_prefix("pub ").or((in_trait && indented).then_some(text));
        let Some(text) = text else { continue };
        let text = text.strip_prefix("const ").unwrap_or(text);
        let Some(name) = text.strip_prefix("fn ").map(identifier) else { continue };
        let signature = &code[at..];
        let end = signature.find(['{', ';']).unwrap_or(signature.len());
        let arguments = signature[..end].split("->").next().unwrap_or_default();
        let arguments = arguments.split_once('(').map_or("", |(_, arguments)| arguments);
        found.push((name.to_owned(), arguments.to_owned()));
    }
    found
}

fn rest(code: &str, at: usize) -> &str {
    code[at..].lines().next().unwrap_or_default()
}

/// Whether one of the arguments names an object without keeping it alive.
fn takes_raw(arguments: &str) -> bool {
    let number = |name: &&str| {
        ["usize", "u64"].iter().any(|ty| {
            let argument = format!("{name}: {ty}");
            arguments.match_indices(&argument).any(|(at, _)| {
                !arguments[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
            })
        })
    };
    RAW.iter().any(|ty| arguments.contains(ty)) || NUMBERS.iter().any(number)
}

/// Other crates do not call unit tests and the C interface as safe Rust, and `sys` is private.
fn is_public(source: &Source) -> bool {
    !source.is_a_test() && !["capi", "sys"].contains(&&*source.module())
}

#[test]
fn a_safe_public_function_ends_nothing_that_others_own() {
    let mut found = BTreeSet::new();
    for source in published().iter().filter(|source| is_public(source)) {
        for (name, arguments) in safe_functions(source) {
            let parts: Vec<_> = source.path.iter().map(|part| part.to_string_lossy()).collect();
            let file = parts[parts.len().saturating_sub(2)..].join("/");
            if takes_raw(&arguments) {
                found.insert(format!("{file} {name}"));
            }
        }
    }
    let allowed: Vec<&str> = ALLOWED.iter().flat_map(|allowed| allowed.what).copied().collect();
    let wrong: Vec<&String> = found.iter().filter(|name| !allowed.contains(&&***name)).collect();
    assert!(wrong.is_empty(), "make them unsafe, or say why not in tests/build: {wrong:#?}");
    let gone: Vec<_> = allowed.iter().filter(|&&name| !found.contains(name)).collect();
    assert!(gone.is_empty(), "the walk does not find {gone:?}");
    assert!(ALLOWED.iter().all(|allowed| !allowed.why.is_empty()));
}

#[test]
fn the_walk_finds_functions_by_what_they_take() {
    let text = "\nimpl A {\n    pub fn end(&self, at: *mut u8) {}\n    pub fn close(\n        \
                &self,\n        stream: RawStream,\n    ) {}\n    \
                pub unsafe fn gone(at: *mut u8) {}\n\
                \x20   pub(super) fn own(at: *mut u8) {}\n    pub fn of(handle: usize) {}\n    \
                pub fn give(&self) -> *mut u8 {}\n    pub fn count(&self, my_handle: usize) {}\n\
                }\npub trait T {\n    fn tell(&self, at: *const u8);\n    \
                unsafe fn u(at: *mut u8);\n}\nfn private(at: *mut u8) {}\n";
    let source = Source { path: "a.rs".into(), text: text.into() };
    let raw = safe_functions(&source).into_iter().filter(|(_, arguments)| takes_raw(arguments));
    assert_eq!(raw.map(|(name, _)| name).collect::<Vec<_>>(), ["end", "close", "of", "tell"]);
}
