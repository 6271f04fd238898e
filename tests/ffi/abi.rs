//! The C interface of releases. The current header must keep it.
//!
//! `docs/abi/VERSION.txt` lists what a release promises to compiled programs: each function with
//! its types, each struct with its size, its members and their offsets, each constant with its
//! value. [`WORDS`] turns the list into assertions, and a C compiler checks them with the header.
//! Everything else in the header is an addition.
//!
//! `tests/ffi/released/VERSION` has the header of each release. Programs are compiled with it and
//! run with the current library.
//!
//! This writes both for the current version, for its release. Then read the changes:
//!
//! ```sh
//! PINLANE_ABI=overwrite cargo test --all-features --test build ffi::abi
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::fs;

use super::compiler::{Compiler, Language};
use super::{c_header, declared_functions, library, project};

/// A struct that begins with its size may grow at its end. Others may not.
const WORDS: &str = r#"
#include <pinlane/pinlane.h>
#define KEPT(condition, name) _Static_assert(condition, name " is not what it was");
#define IS(expression, ...) _Generic((expression), __VA_ARGS__: 1, default: 0)
#define CONSTANT(name, value) KEPT(name == value, #name)
#define TYPE(name, ...) KEPT(IS((name)0, __VA_ARGS__), #name)
#define HANDLE(name) KEPT(IS((name *)0, name *), #name)
#define STRUCT(name, bytes) KEPT(sizeof(name) == bytes, #name)
#define GROWING_STRUCT(name, bytes) KEPT(sizeof(name) >= bytes, #name)
#define MEMBER(name, member, offset, ...) \
  KEPT(offsetof(name, member) == offset, #name "." #member) \
  KEPT(IS(((name *)0)->member, __VA_ARGS__), #name "." #member)
#define FUNCTION(name, result, ...) KEPT(IS(&name, result (*)(__VA_ARGS__)), #name)
"#;

/// Whether the current header keeps the list. The error is the compiler's message.
fn check(list: &str) -> Result<(), String> {
    Compiler::of(Language::C).check("c11", &format!("{WORDS}{list}int main(void) {{}}\n"), &[])
}

#[test]
fn c_rule_09_compatible_releases_keep_the_c_interface() {
    let version = env!("CARGO_PKG_VERSION");
    let own = project(&format!("docs/abi/{version}.txt"));
    if std::env::var("PINLANE_ABI").is_ok_and(|wish| wish == "overwrite") {
        fs::write(&own, list(&c_header())).expect("docs/abi can be written");
    }
    assert!(
        own.is_file(),
        "no list of {version}: tests/ffi/abi.rs says at its top how to write it"
    );
    for entry in fs::read_dir(project("docs/abi")).expect("a folder") {
        let file = entry.expect("an entry").path();
        let release = file.file_stem().expect("a name").to_str().expect("UTF-8");
        if line_of(release) == line_of(version) {
            let promises = fs::read_to_string(&file).expect("a list");
            check(&promises).unwrap_or_else(|errors| {
                panic!("{version} says that it is compatible with {release}\n{errors}")
            });
        }
    }
}

/// Until 0.1.0 is released, its header may be written again when the C interface changes. The
/// programs use only functions of 0.1.0: replace a program that begins to use others.
#[test]
fn c_rule_15_programs_of_a_release_run_with_this_library() {
    let version = env!("CARGO_PKG_VERSION");
    let own = project(&format!("tests/ffi/released/{version}/pinlane/pinlane.h"));
    if std::env::var("PINLANE_ABI").is_ok_and(|wish| wish == "overwrite") {
        fs::create_dir_all(own.parent().expect("a folder")).expect("a folder can be made");
        fs::write(&own, c_header()).expect("the header can be written");
    }
    assert!(own.is_file(), "no header of {version}: see the top of tests/ffi/abi.rs");
    for entry in fs::read_dir(project("tests/ffi/released")).expect("a folder") {
        let folder = entry.expect("an entry").path();
        let release = folder.file_name().expect("a name").to_str().expect("UTF-8");
        if line_of(release) != line_of(version) {
            continue;
        }
        for (source, says) in [
            ("ffi-examples/c/roundtrip.c", "bit for bit"),
            ("ffi-examples/c/pool.c", "1000 allocations reused memory"),
            ("tests/ffi/c/pools.c", ", 0 failed"),
        ] {
            let compiler = Compiler::of(Language::C).with_headers_of(&folder);
            let output = compiler.link("c11", &project(source), library::shared()).run(&[]);
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains(says), "{source}: {text}{errors}");
        }
    }
}

/// The part of a version that compatible releases share; the SONAME has it too.
fn line_of(version: &str) -> &str {
    let parts = if version.starts_with("0.") { 2 } else { 1 };
    version.match_indices('.').nth(parts - 1).map_or(version, |(end, _)| &version[..end])
}

#[test]
fn the_list_has_what_the_header_has() {
    let header = c_header();
    let list = list(&header);
    check(&list).unwrap_or_else(|errors| panic!("{errors}"));
    let functions = list.lines().filter_map(|line| line.strip_prefix("FUNCTION("));
    let functions: BTreeSet<&str> = functions.filter_map(|line| line.split(',').next()).collect();
    assert_eq!(functions, declared_functions(&header));
    let lines = |start, end| {
        header.lines().filter(|line| line.starts_with(start) && line.ends_with(end)).count()
    };
    assert_eq!(list.matches("STRUCT(").count(), lines("typedef struct", "{"));
    assert_eq!(
        list.matches("CONSTANT(PINLANE_STATUS_").count(),
        lines("#define PINLANE_STATUS_", "")
    );
}

#[test]
fn c_rule_09_a_change_is_noticed() {
    let list = list(&c_header());
    check(&list).expect("as it is, it is kept");
    for (old, new) in [
        ("CONSTANT(PINLANE_STATUS_OK, 0)", "CONSTANT(PINLANE_STATUS_OK, 1)"),
        ("CONSTANT(PINLANE_STATUS_OK, 0)", "CONSTANT(PINLANE_STATUS_REMOVED, 0)"),
        ("TYPE(pinlane_status, int32_t)", "TYPE(pinlane_status, uint32_t)"),
        ("HANDLE(pinlane_file)", "HANDLE(pinlane_removed)"),
        ("STRUCT(pinlane_copy, 64)", "STRUCT(pinlane_copy, 56)"),
        ("GROWING_STRUCT(pinlane_batch_options, 16)", "GROWING_STRUCT(pinlane_batch_options, 24)"),
        ("MEMBER(pinlane_copy, dst, 8, void *)", "MEMBER(pinlane_copy, dst, 0, void *)"),
        ("MEMBER(pinlane_copy, dst, 8, void *)", "MEMBER(pinlane_copy, dst, 8, const void *)"),
        ("MEMBER(pinlane_copy, dst, 8, void *)", "MEMBER(pinlane_copy, removed, 8, void *)"),
        ("FUNCTION(pinlane_file_size, ", "FUNCTION(pinlane_file_size, void, "),
        ("FUNCTION(pinlane_file_size, ", "FUNCTION(pinlane_removed, "),
        ("const struct pinlane_file *, uint64_t *)", "const struct pinlane_file *, int64_t *)"),
    ] {
        assert!(list.contains(old), "{old}");
        assert!(check(&list.replacen(old, new, 1)).is_err(), "{new}");
    }
}

/// The promises of this header. Panics if its form is not cbindgen's.
fn list(header: &str) -> String {
    let text = without_comments(header).replace("\\\n", " ");
    // The part between these two is for C++ only: the linkage of the functions.
    let for_c = text.split("#ifdef __cplusplus").enumerate().map(|(number, part)| match number {
        0 => part,
        _ => part.split_once("\n#endif").expect("its end").1.trim_start_matches(|c| c != '\n'),
    });
    let for_c: String = for_c.collect();
    let (directives, code): (Vec<&str>, Vec<&str>) =
        for_c.lines().partition(|line| line.starts_with('#'));

    let mut list = String::new();
    for macro_ in directives.iter().filter_map(|line| line.strip_prefix("#define PINLANE_")) {
        // Skips the guard of the header, which has no value.
        let Some((name, value)) = macro_.trim().split_once(' ') else { continue };
        if !name.ends_with("_INIT") && !name.starts_with("VERSION") {
            writeln!(list, "CONSTANT(PINLANE_{name}, {})", value.trim()).unwrap();
        }
    }
    let mut layouts = Layouts::new();
    let mut declaration = String::new();
    for part in code.join(" ").trim_end().split_inclusive(';') {
        declaration += part;
        if declaration.matches('{').count() == declaration.matches('}').count() {
            let words: Vec<&str> = declaration.trim_end_matches(';').split_whitespace().collect();
            list += &layouts.entry(&words.join(" "));
            declaration.clear();
        }
    }
    list
}

fn without_comments(header: &str) -> String {
    let mut parts = header.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("*/").expect("the end of a comment").1)
}

/// Sizes and alignments of the types that structs may have as members. The compiler checks them.
struct Layouts(HashMap<String, (usize, usize)>);

impl Layouts {
    fn new() -> Layouts {
        let numbers = [("int32_t", 4), ("int64_t", 8), ("size_t", 8), ("uint8_t", 1)];
        let numbers = numbers.iter().chain(&[("uint16_t", 2), ("uint32_t", 4), ("uint64_t", 8)]);
        Layouts(numbers.map(|(name, size)| ((*name).to_owned(), (*size, *size))).collect())
    }

    fn of(&self, type_: &str) -> (usize, usize) {
        let is_pointer = type_.ends_with('*') || type_.contains("(*)");
        let layout = if is_pointer { Some(&(8, 8)) } else { self.0.get(type_) };
        *layout.unwrap_or_else(|| panic!("the layout of {type_}"))
    }

    /// The lines of one declaration.
    fn entry(&mut self, code: &str) -> String {
        let Some(definition) = code.strip_prefix("typedef ") else {
            // Otherwise it is a foreign type, which is only named.
            let Some((function, parameters)) = code.split_once('(') else { return String::new() };
            let (result, name) = declarator(function);
            return wrapped(format!("FUNCTION({name}, {result}, {})\n", types(parameters)));
        };
        if let Some((_, rest)) = definition.split_once('{') {
            let (members, name) = rest.rsplit_once('}').expect("the end of a struct");
            return self.structure(name.trim(), members);
        }
        let (type_, name) = declarator(definition);
        if type_.starts_with("struct ") {
            return format!("HANDLE({name})\n");
        }
        self.0.insert(name.to_owned(), self.of(&type_));
        wrapped(format!("TYPE({name}, {type_})\n"))
    }

    fn structure(&mut self, name: &str, members: &str) -> String {
        let mut lines = String::new();
        let (mut end, mut alignment) = (0usize, 1);
        let members = members.split(';').map(str::trim).filter(|member| !member.is_empty());
        for (type_, member) in members.map(declarator) {
            let (size, align) = self.of(&type_);
            let offset = end.next_multiple_of(align);
            lines += &wrapped(format!("MEMBER({name}, {member}, {offset}, {type_})\n"));
            end = offset + size;
            alignment = alignment.max(align);
        }
        let size = end.next_multiple_of(alignment);
        self.0.insert(name.to_owned(), (size, alignment));
        let grows = lines.starts_with(&format!("MEMBER({name}, size, 0, size_t)"));
        format!("{}STRUCT({name}, {size})\n{lines}", if grows { "GROWING_" } else { "" })
    }
}

/// In lines of at most 100 columns.
fn wrapped(line: String) -> String {
    if line.len() <= 101 {
        return line;
    }
    let end = line[..100].rfind(", ").expect("several parameters") + 1;
    format!("{}\n{}", &line[..end], wrapped(format!("   {}", &line[end..])))
}

/// The types of a function's parameters, without their names.
fn types(parameters: &str) -> String {
    let parameters = parameters.trim_end_matches(')').split(',');
    parameters.map(|parameter| declarator(parameter).0).collect::<Vec<_>>().join(", ")
}

/// The type and the name of a member or a parameter; `void` is a type without a name.
fn declarator(code: &str) -> (String, &str) {
    if let Some((result, rest)) = code.split_once("(*") {
        let (name, parameters) = rest.split_once(")(").expect("the parameters of a callback");
        return (format!("{result}(*)({})", types(parameters)), name);
    }
    let code = code.trim();
    let name = code.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(|at| at + 1);
    let (type_, name) = code.split_at(name.unwrap_or(code.len()));
    (type_.trim().to_owned(), name)
}
