//! The names that pinlane.h declares for a whole program. cbindgen exports all `pub` items that it
//! finds.

use std::collections::BTreeSet;

use crate::sources::{identifier, read};

/// The header without comments and directives, and the macros that it defines or tests.
fn preprocessed(header: &str) -> (String, Vec<&str>) {
    let (mut code, mut macros, mut rest) = (String::new(), Vec::new(), header);
    let is_past = |end: Option<usize>, length: usize| end.map_or(usize::MAX, |at| at + length);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("/*") {
            is_past(rest.find("*/"), 2)
        } else if rest.starts_with("//") {
            is_past(rest.find('\n'), 0)
        } else if first == '#' {
            let directive = rest.lines().next().expect("a line");
            let words: Vec<&str> = directive[1..].split_whitespace().collect();
            if let [directive, name, ..] = words[..]
                && ["define", "ifndef", "ifdef", "undef"].contains(&directive)
            {
                macros.push(identifier(name));
            }
            let lines = rest.split_inclusive('\n');
            let more = lines.clone().take_while(|line| line.trim_end().ends_with('\\')).count();
            lines.take(more + 1).map(str::len).sum()
        } else {
            code.push(first);
            first.len_utf8()
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    (code.replace("extern \"C\" {", ""), macros)
}

/// The names that a header declares for a whole program: macros, types, tags, enumerators, and
/// functions, but not parameters and members.
fn declared(header: &str) -> Vec<String> {
    let (code, macros) = preprocessed(header);
    let mut found: Vec<String> = macros.into_iter().map(str::to_owned).collect();
    // The kind of each open bracket, the last word, and the last signs before it.
    let (mut open, mut last, mut signs) = (Vec::new(), "", String::new());
    let mut rest = code.as_str();
    while let Some(first) = rest.chars().next() {
        if !first.is_ascii_alphabetic() && first != '_' {
            match first {
                '{' => open.push(if signs.starts_with("enum") { '}' } else { first }),
                '(' => open.push(first),
                ')' | '}' => drop(open.pop()),
                _ => {}
            }
            if first == ';' {
                signs.clear();
            } else if !first.is_whitespace() {
                signs.push(first);
            }
            let number = first.is_ascii_digit();
            rest = &rest[if number { identifier(rest).len() } else { first.len_utf8() }..];
            continue;
        }
        let name = identifier(rest);
        let is_tag = ["struct", "enum", "union"].contains(&last);
        let is_callback = open == ['('] && signs.ends_with("(*");
        let is_enumerator = open == ['}'] && (signs.ends_with('{') || signs.ends_with(','));
        if open.is_empty() || is_tag || is_callback || is_enumerator {
            found.push(name.to_owned());
        }
        (last, rest) = (name, &rest[name.len()..]);
        signs.push_str(name);
    }
    found
}

#[test]
fn c_rule_10_every_name_of_the_header_begins_as_those_of_pinlane_do() {
    // C's own words, and the tags of DLPack's structs.
    let others = [
        "__cplusplus",
        "typedef",
        "struct",
        "enum",
        "const",
        "void",
        "char",
        "size_t",
        "int32_t",
        "uint32_t",
        "uint64_t",
        "DLManagedTensor",
        "DLManagedTensorVersioned",
    ];
    let ours = |name: &String| ["pinlane_", "PINLANE_"].iter().any(|own| name.starts_with(own));
    let foreign = |header: &str| -> BTreeSet<String> {
        let names = declared(header).into_iter();
        names.filter(|name| !ours(name) && !others.contains(&name.as_str())).collect()
    };
    let header = read("include/pinlane/pinlane.h");
    let known = declared(&header).iter().filter(|name| ours(name)).count();
    assert!(known > 500, "the header was understood: {known} names");
    assert_eq!(foreign(&header), BTreeSet::new(), "the names of others in pinlane.h");

    let all_kinds = "#ifndef Guard\n#define Macro(x) \\\n  not_this\n/* nor_this */\n\
        typedef struct Opaque Opaque; // nor_this\nenum Tag { One = 1, Two };\n\
        typedef struct pinlane_s { struct Inside *member; } Typed;\n\
        typedef void (*Callback)(int p);\n\
        void function(struct Parameter *parameter);\n";
    let found = foreign(all_kinds);
    let expected = [
        "Guard",
        "Macro",
        "Opaque",
        "Tag",
        "One",
        "Two",
        "Inside",
        "Typed",
        "Callback",
        "function",
        "Parameter",
    ];
    assert_eq!(found, expected.map(str::to_owned).into_iter().collect::<BTreeSet<_>>());
}
