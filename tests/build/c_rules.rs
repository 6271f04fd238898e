//! docs/c-abi.md: each rule of the C interface has tests with its number, and the names in the
//! table exist. Also the rules about the whole text of the interface.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::{identifier, read, sources};

const RULES: usize = 18;

/// The names of the tests of each rule, from the table.
fn table() -> BTreeMap<usize, Vec<String>> {
    let text = read("docs/c-abi.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let rows = rows.filter_map(|(rule, tests)| Some((rule.parse().ok()?, tests)));
    rows.map(|(rule, tests)| (rule, tests.split('`').skip(1).step_by(2).map(str::to_owned)))
        .map(|(rule, tests)| (rule, tests.collect()))
        .collect()
}

/// The files that may have tests, in Rust, C and C++.
fn files() -> Vec<PathBuf> {
    let mut folders = vec!["src", "tests"].into_iter().map(PathBuf::from).collect::<Vec<_>>();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(Path::new(env!("PINLANE_PROJECT")).join(&folder));
        for entry in entries.expect("a folder of the project") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if ["rs", "c", "cpp", "cu"].iter().any(|e| path.extension() == Some(e.as_ref()))
            {
                found.push(path);
            }
        }
    }
    found
}

/// All tests with the number of a rule: those in Rust, and functions in C and C++ that are called.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in files() {
        let text = read(path.to_str().expect("UTF-8"));
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let start = if is_rust { "fn " } else { "void " };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            let line = line.strip_prefix("static ").unwrap_or(line);
            let Some(name) = line.strip_prefix(start).map(identifier) else { continue };
            if !name.starts_with("c_rule_") {
                continue;
            }
            let runs = match is_rust {
                true => lines[..number].ends_with(&["#[test]"]),
                false => lines.iter().any(|line| line.starts_with(&format!("{name}("))),
            };
            assert!(runs, "{}: nothing runs {name}", path.display());
            assert!(found.insert(name.to_owned()), "{name}: twice");
        }
    }
    found
}

#[test]
fn every_rule_of_the_c_interface_has_tests_by_its_number() {
    let table = table();
    assert_eq!(table.keys().copied().collect::<Vec<_>>(), (1..=RULES).collect::<Vec<_>>());
    let text = read("docs/c-abi.md");
    for (rule, tests) in &table {
        assert!(text.contains(&format!("\n{rule}. **")), "rule {rule} is not said");
        assert!(!tests.is_empty(), "rule {rule} has no test");
        let prefix = format!("c_rule_{rule:02}_");
        assert!(tests.iter().all(|test| test.starts_with(&prefix)), "{rule}: {tests:?}");
    }
    let named: BTreeSet<String> = table.into_values().flatten().collect();
    assert_eq!(named, tests(), "the tests that docs/c-abi.md names, and those that exist");
}

/// The functions that turn errors and panics into statuses, and their callers.
const BOUNDARIES: [&str; 10] = [
    "boundary(",
    "freeing(",
    ".give(",
    ".create(",
    ".enqueue(",
    ".start(",
    "give_sized(",
    "give_text(",
    ".allocate(",
    "next(",
];
/// They only read or write data of the thread, or read constants.
const WITHOUT: [&str; 8] = [
    "pinlane_last_error",
    "pinlane_set_last_error",
    "pinlane_last_cuda_error",
    "pinlane_last_producer_error",
    "pinlane_status_name",
    "pinlane_version",
    "pinlane_cuda_error_name",
    "pinlane_cuda_error_is_sticky",
];

#[test]
fn c_rule_01_every_function_goes_through_the_boundary() {
    let mut exported = 0;
    for source in sources().iter().filter(|source| source.module() == "capi") {
        let code = source.code();
        for part in code.split("#[unsafe(no_mangle)]").skip(1) {
            let (head, rest) = part.split_once("extern \"C\" fn ").expect("an exported function");
            assert!(head.trim_end().ends_with("pub") || head.trim_end().ends_with("pub unsafe"));
            let name = identifier(rest);
            let body = rest.split("\n}\n").next().expect("its end");
            let passes = BOUNDARIES.iter().any(|boundary| body.contains(boundary));
            assert!(passes || WITHOUT.contains(&name), "{}: {name}", source.path.display());
            exported += 1;
        }
    }
    assert!(exported > 100, "the sources were understood: {exported} functions");
}

/// The test is a shell script. This checks that the script runs, and what it runs.
#[test]
fn c_rule_11_ci_uses_an_installation_in_every_way() {
    for script in ["scripts/consumers", "scripts/cmake-matrix"] {
        assert!(read(".ci/run").lines().any(|line| line.trim_start().starts_with(script)));
    }
    let script = read("scripts/consumers");
    for way in [
        "WAY=find_package",
        "WAY=add_subdirectory",
        "WAY=FetchContent",
        "pkg-config --cflags pinlane",
        "cmake --install",
        "cargo cinstall",
        "no SONAME",
    ] {
        assert!(script.contains(way), "scripts/consumers does not use {way}");
    }
}

#[test]
fn c_rule_12_every_function_says_what_a_caller_must_know() {
    let header = read("include/pinlane/pinlane.h");
    let mut functions = 0;
    for declaration in header.split("/**").skip(1) {
        let (comment, code) = declaration.split_once("*/").expect("the end of a comment");
        let code = code.trim_start();
        let Some((head, parameters)) = code.split_once('(') else { continue };
        let name = head.split([' ', '*']).next_back().unwrap_or_default();
        if head.contains('{') || !name.starts_with("pinlane_") || head.starts_with("typedef") {
            continue;
        }
        functions += 1;
        let says = |what: &str| assert!(comment.contains(what), "{name} does not say: {what}");
        assert!(comment.split_whitespace().count() > 6, "{name} says next to nothing");
        if head.starts_with("pinlane_status ") && name != "pinlane_set_last_error" {
            let refers = comment.contains("As `pinlane_") && comment.contains("tatus `");
            assert!(refers || comment.contains("Statuses") || comment.contains("As `pinlane_"));
        }
        let parameters = parameters.split(')').next().unwrap_or_default();
        if parameters.contains("**") {
            says("# Safety");
        }
    }
    assert!(functions > 100, "the header was understood: {functions} functions");
}

/// A string of the sources, and the calls around it: the innermost last, with the number of the
/// argument.
struct Literal {
    text: String,
    inside: Vec<(String, usize)>,
    line: usize,
}

/// The strings of a source file. Comments and attributes are left out.
fn literals(code: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut inside: Vec<(String, usize)> = Vec::new();
    let (mut rest, mut word) = (code, String::new());
    let line_of = |rest: &str| code[..code.len() - rest.len()].matches('\n').count() + 1;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("#[") || rest.starts_with("#![") {
            rest = &rest[rest.find(']').map_or(rest.len(), |end| end + 1)..];
        } else if first == '"' {
            let line = line_of(rest);
            let mut end = 1;
            while !rest[end..].starts_with('"') {
                end += if rest[end..].starts_with('\\') { 2 } else { 1 };
                while !rest.is_char_boundary(end) {
                    end += 1;
                }
            }
            let text = rest[1..end].to_owned();
            found.push(Literal { text, inside: inside.clone(), line });
            rest = &rest[end + 1..];
        } else if first == '\'' {
            // A character, or a lifetime.
            let quoted =
                ["'\\''", "'\"'", "'('", "')'", "'['", "']'", "'{'", "'}'", "','", "'\\\\'"];
            let length = quoted.iter().find(|quoted| rest.starts_with(**quoted));
            rest = &rest[length.map_or(1, |quoted| quoted.len())..];
        } else if first.is_ascii_alphanumeric() || first == '_' {
            let name = identifier(rest);
            rest = &rest[name.len()..];
            word = name.to_owned();
        } else {
            match first {
                '(' | '[' | '{' => inside.push((std::mem::take(&mut word), 0)),
                ')' | ']' | '}' => drop(inside.pop()),
                ',' => {
                    if let Some((_, argument)) = inside.last_mut() {
                        *argument += 1;
                    }
                }
                _ => {}
            }
            // `name!(` is a call too.
            if !matches!(first, '!' | ' ' | '\n') {
                word.clear();
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// Whether a text that a C program may read names something of Rust.
fn names_rust(text: &str) -> bool {
    let rust = ["::", "()", "drop ", "Drop ", "dropped", "unwrap", "Option<", "Vec<", ".slice("];
    let methods = ["alloc_timeout", "try_alloc", "download_batch", "upload_batch", "alloc_async"];
    let bare = |name: &&str| {
        let of_c =
            |at: usize| ["pinlane_", "pinlane_buffer_"].iter().any(|c| text[..at].ends_with(c));
        text.match_indices(*name).any(|(at, _)| !of_c(at))
    };
    rust.iter().any(|rust| text.contains(rust)) || methods.iter().any(bare)
}

/// Whether it is the name of an operation, which the C interface replaces with the name of the C
/// function.
fn is_operation(text: &str) -> bool {
    let mut parts = text.split("::");
    let word = |part: &str| !part.is_empty() && identifier(part) == part;
    parts.by_ref().all(word) && text.contains("::")
}

/// No string of the crate that may be in an error names anything of Rust, except the name of its
/// operation and remedies for programs in Rust.
#[test]
fn c_rule_17_no_message_names_anything_of_rust() {
    // Panics are bugs, and name their origin. The others are not messages of errors.
    let calls = [
        "expect",
        "panic",
        "unreachable",
        "assert",
        "assert_eq",
        "assert_ne",
        "debug_assert",
        "debug_assert_eq",
        "event",
        "eprintln",
        "writeln",
        "debug_struct",
        "debug_tuple",
        "strip_prefix",
        "ends_with",
        "rsplit",
        "matches",
        "concat",
    ];
    let modules = ["pool/export.rs", "pool/keeper/limits.rs", "driver/linked.rs"];
    let (mut looked_at, mut remedies, mut wrong) = (0, 0, Vec::new());
    for source in sources().iter().filter(|source| !source.is_a_test()) {
        if modules.iter().any(|module| source.path.starts_with(module)) {
            continue;
        }
        for Literal { text, inside, line } in literals(source.code()) {
            let within = |name: &str| inside.iter().any(|(call, _)| call == name);
            looked_at += 1;
            // `src/capi/remedy.rs` has the same for C.
            if source.path.ends_with("error/remedy.rs") {
                remedies += 1;
                continue;
            }
            let exempt = calls.iter().any(|call| within(call)) || is_operation(&text);
            if !exempt && names_rust(&text) {
                wrong.push(format!("src/{}:{line}: \"{text}\"", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these name something of Rust:\n{}", wrong.join("\n"));
    assert!(looked_at > 500 && remedies >= 8, "{looked_at} strings, {remedies} remedies");
}
