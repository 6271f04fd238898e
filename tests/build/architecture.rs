//! The layers of the crate: no layer uses a higher one, and files stay small.
//!
//! ```text
//!   capi
//!   prefetch, file, batch, graph, staging, dlpack
//!   copy, device, elsewhere, stream
//!   pool
//!   memory
//!   timeline, ticket, context, trace, notice, wakers
//!   driver
//!   process
//! ```
//!
//! `device`, `stream` and `copy` share a layer. A device owns the engine of `copy`, which its
//! copies share, and the functions of `copy` are methods of `Stream`. So the three use each other,
//! and have no order.
//!
//! Everything may use `error` and `sync`. Unit tests may use everything, because they are callers.
//! Doc links and the re-exports of `lib.rs` do not count.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::{Source, identifier, published, sources};

/// From the top down. A layer may use itself and those below it.
const LAYERS: [&[&str]; 8] = [
    &["capi"],
    &["prefetch", "file", "batch", "graph", "staging", "dlpack"],
    &["copy", "device", "elsewhere", "stream"],
    &["pool"],
    &["memory"],
    &["timeline", "ticket", "context", "trace", "notice", "wakers"],
    &["driver"],
    &["process"],
];

/// Below all layers.
const FOUNDATION: [&str; 2] = ["error", "sync"];

const LONGEST_FILE: usize = 600;
const LONGEST_ROOT: usize = 100;

/// The modules of the crate root that a file's code names, as `crate::module`.
fn uses(source: &Source) -> BTreeSet<String> {
    if source.is_a_test() {
        return BTreeSet::new();
    }
    let code = source.code().lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n");
    let paths = code.split("crate::").skip(1);
    let names = paths.flat_map(|path| match path.strip_prefix('{') {
        // The names directly in the braces: those after a comma or the brace.
        Some(group) => group
            .split('}')
            .next()
            .unwrap_or_default()
            .split(',')
            .map(|name| identifier(name.trim()))
            .collect(),
        None => vec![identifier(path)],
    });
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

#[test]
fn no_arrow_runs_back_up() {
    let mut arrows = 0;
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| source.path != Path::new("lib.rs")) {
        let from = source.module();
        let Some(ours) = layer_of(&from) else {
            let path = source.path.display();
            assert!(FOUNDATION.contains(&&*from), "{path} has no layer: add it above");
            assert_eq!(uses(source), BTreeSet::new(), "{path} uses nothing");
            continue;
        };
        for used in uses(source).iter().filter(|used| !FOUNDATION.contains(&used.as_str())) {
            // A name that is not a module is a re-export of the root, which is above all layers.
            let theirs = layer_of(used).unwrap_or(0);
            arrows += 1;
            if theirs < ours {
                wrong.push(format!("{} uses crate::{used}", source.path.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(arrows > 50, "the walk found {arrows} arrows only: it looks in the wrong place");
}

#[test]
fn every_module_of_the_root_has_a_layer() {
    let mut modules: BTreeSet<String> = sources().iter().map(Source::module).collect();
    assert!(modules.remove("lib") && FOUNDATION.iter().all(|&module| modules.remove(module)));
    let layered: BTreeSet<String> =
        LAYERS.iter().flat_map(|l| l.iter()).map(|&m| m.into()).collect();
    assert_eq!(modules, layered);
}

/// The tag in a handle tells its type, so that a handle of another type is detected.
#[test]
fn no_two_types_of_handles_have_the_same_tag() {
    let sources = sources();
    let tags: Vec<&str> = sources
        .iter()
        .filter(|source| source.path.starts_with("capi") && !source.path.ends_with("tests.rs"))
        .flat_map(|source| source.text.lines())
        .filter(|line| line.starts_with("handle_type!("))
        .map(|line| line.split_once(", table ").expect("its number").1)
        .map(|rest| rest.split(',').next().expect("a number"))
        .collect();
    assert!(tags.len() > 8, "the walk found the types: {tags:?}");
    assert_eq!(tags.iter().collect::<BTreeSet<_>>().len(), tags.len(), "{tags:?}");
}

#[test]
fn files_are_small() {
    for source in published() {
        let is_root = source.path == Path::new("lib.rs");
        let longest = if is_root { LONGEST_ROOT - 1 } else { LONGEST_FILE };
        let lines = source.text.lines().count();
        assert!(lines <= longest, "{}: {lines} lines, more than {longest}", source.path.display());
    }
}

#[test]
fn the_walk_reads_paths_and_skips_comments_and_tests() {
    let text = "use crate::pool::{self, Pool};\n// crate::capi\n\
                use crate::{error, memory::Block};\n\
                /// [`x`](crate::copy)\nfn f() { crate::sys::g() }\n\
                #[cfg(test)]\nmod tests {\n    use crate::device::Device;\n}\n";
    let source = Source { path: "stream.rs".into(), text: text.into() };
    let used: Vec<_> = uses(&source).into_iter().collect();
    assert_eq!(used, ["error", "memory", "pool", "sys"]);
    assert_eq!(source.module(), "stream");
    let tests = Source { path: "pool/by_address/raw/tests.rs".into(), text: text.into() };
    assert_eq!(uses(&tests), BTreeSet::new());
}
