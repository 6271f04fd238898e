//! docs/parity.md lists every public function of Rust with its form in C and C++, or the reason why
//! it has none. It lists every function of C, and all names in the table exist.

use std::collections::BTreeSet;

use crate::sources::{Source, identifier, published, read};

/// A row of a table: its three cells, without the backquotes.
struct Row {
    line: usize,
    cells: [String; 3],
    /// The names in backquotes in each cell.
    names: [Vec<String>; 3],
}

fn rows() -> Vec<Row> {
    let text = read("docs/parity.md");
    let lines = text.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    let rows = lines.map(|(number, line)| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let line = number + 1;
        let cells: [&str; 3] = cells.try_into().unwrap_or_else(|_| panic!("line {line}: 3 cells"));
        let names =
            cells.map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect());
        Row { line, cells: cells.map(str::to_owned), names }
    });
    rows.filter(|row| row.cells[0] != "Rust").collect()
}

/// The public functions of a source file, as `Type::function`. In `pool`, `emulated` and `driver`
/// the module comes before that if there is no type, or the type is not unique.
fn functions_of(source: &Source) -> BTreeSet<String> {
    let code = source.code();
    let module = match source.path.to_str().expect("UTF-8") {
        path if path.starts_with("crates/emulator") => "emulated::",
        "crates/driver/src/codes.rs" => "",
        path if path.starts_with("driver") || path.starts_with("crates/driver") => "driver::",
        "pool/builder.rs" => "pool::",
        "dlpack/mod.rs" | "dlpack/legacy.rs" => "dlpack::",
        _ => "",
    };
    let mut found = BTreeSet::new();
    // The block that a line is in: its indentation, its type, and whether all its functions are
    // public.
    let mut block: Option<(usize, &str, bool)> = None;
    // The macro around a line, or the last one.
    let mut within = "";
    for line in code.lines() {
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        if let Some(rest) = line.strip_prefix("macro_rules! ") {
            within = identifier(rest);
        }
        if block.is_some_and(|(at, ..)| text.starts_with('}') && indent <= at) {
            block = None;
        } else if let Some(header) = text.strip_prefix("impl") {
            let of = behind_generics(header);
            block = (!of.contains(" for ")).then(|| (indent, type_of(of), false));
        } else if let Some(name) = line.strip_prefix("pub ").and_then(trait_of) {
            block = Some((0, name, true));
        } else if let Some((name, is_public)) = function(text) {
            let inside = block.filter(|&(at, ..)| indent == at + 4);
            let owners = match inside {
                Some((_, owner, _)) if owner.starts_with('$') => types_of_calls(within, code),
                Some((_, owner, _)) => vec![owner],
                None => Vec::new(),
            };
            let names = match owners[..] {
                [] => vec![name.to_owned()],
                _ => owners.iter().map(|owner| format!("{owner}::{name}")).collect(),
            };
            if is_public || inside.is_some_and(|(.., all)| all) {
                found.extend(names.iter().map(|name| format!("{module}{name}")));
            }
        }
    }
    found
}

/// `<'a, T> Type<'a> {` without the leading generics.
fn behind_generics(header: &str) -> &str {
    let mut depth = 0;
    let end = header.char_indices().find(|&(_, c)| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0
    });
    header[end.map_or(0, |(at, c)| at + c.len_utf8())..].trim_start()
}

/// `Type`, or `$type` in a macro.
fn type_of(text: &str) -> &str {
    let name = identifier(text.strip_prefix('$').unwrap_or(text));
    &text[..name.len() + usize::from(text.starts_with('$'))]
}

/// The name of a trait, after `pub`.
fn trait_of(line: &str) -> Option<&str> {
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    line.strip_prefix("trait ").map(identifier)
}

/// The name of a function that the line declares, and whether it is marked public.
fn function(line: &str) -> Option<(&str, bool)> {
    let (words, rest) = line.split_once("fn ")?;
    let mut words = words.split_whitespace();
    let is_public = words.clone().next() == Some("pub");
    let known = ["pub", "const", "unsafe"];
    words.all(|word| known.contains(&word)).then(|| (identifier(rest), is_public))
}

/// The types for which a file calls a macro.
fn types_of_calls<'c>(within: &str, code: &'c str) -> Vec<&'c str> {
    let call = format!("{within}!(");
    let calls = code.lines().filter(|line| line.ends_with(");"));
    calls.filter_map(|line| line.trim_start().strip_prefix(&call)).map(identifier).collect()
}

/// Hidden in the documentation: only the crates above use them.
const HIDDEN: [&str; 3] = ["emulated::asked_for", "emulated::leave_out", "Writable::part_mut"];

/// All public functions of Rust, except those of the C interface.
fn public_functions() -> BTreeSet<String> {
    let sources = published();
    let ours = sources.iter().filter(|source| source.module() != "capi" && !source.is_a_test());
    // Only the other crates use that crate.
    let ours = ours.filter(|source| !source.path.starts_with("crates/base"));
    ours.flat_map(functions_of).filter(|name| !HIDDEN.contains(&&**name)).collect()
}

/// Whether a name of the table, which may end in `*`, matches a function.
fn stands_for(name: &str, function: &str) -> bool {
    name.strip_suffix('*').map_or(name == function, |type_of| function.starts_with(type_of))
}

#[test]
fn every_function_of_rust_is_in_the_table_and_every_one_in_it_exists() {
    let (rows, functions) = (rows(), public_functions());
    assert!(functions.len() > 200, "the parse found {} functions only", functions.len());
    let named: Vec<(usize, &String)> = rows
        .iter()
        .flat_map(|row| row.names[0].iter().map(move |name| (row.line, name)))
        .filter(|(_, name)| name.contains("::"))
        .collect();
    let missing: Vec<_> = functions
        .iter()
        .filter(|function| !named.iter().any(|(_, name)| stands_for(name, function)))
        .collect();
    assert!(missing.is_empty(), "not in docs/parity.md: {missing:?}");
    for (line, name) in named {
        let exists = functions.iter().any(|function| stands_for(name, function));
        assert!(exists, "docs/parity.md:{line}: there is no {name}");
    }
}

#[test]
fn every_function_of_c_is_in_the_table_and_every_name_in_it_exists() {
    let (rows, header) = (rows(), read("include/pinlane/pinlane.h"));
    let words: BTreeSet<&str> =
        header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let declared: BTreeSet<&str> = header
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_once('(')?.0.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("pinlane_"))
        .collect();
    assert!(declared.len() > 80, "the header was understood: {declared:?}");
    let named: BTreeSet<&str> = rows.iter().flat_map(|row| &row.names[1]).map(|s| &**s).collect();
    let missing: Vec<_> = declared.difference(&named).collect();
    assert!(missing.is_empty(), "not in docs/parity.md: {missing:?}");
    for row in &rows {
        for name in row.names[1].iter().filter(|name| name.to_lowercase().starts_with("pinlane_")) {
            assert!(words.contains(&**name), "docs/parity.md:{}: there is no {name}", row.line);
        }
    }
}

#[test]
fn every_name_of_cpp_in_the_table_exists() {
    let folder = std::path::Path::new(env!("PINLANE_PROJECT")).join("include/pinlane/cpp");
    let headers = std::fs::read_dir(folder).expect("a folder of headers");
    let text: Vec<String> = headers
        .map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).expect("a header"))
        .collect();
    // Comments may contain names too.
    let code = text.iter().flat_map(|text| text.lines()).map(|line| line.split("//").next());
    let code: Vec<&str> = code.map(Option::unwrap_or_default).collect();
    let words: BTreeSet<&str> = code
        .iter()
        .flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .collect();
    let mut count = 0;
    for row in rows() {
        for name in row.names[2].iter().filter(|name| !name.starts_with("operator")) {
            for part in name.split("::") {
                let exists = words.contains(part) || ["co_await", "std", "nothrow"].contains(&part);
                assert!(exists, "docs/parity.md:{}: no header has {part} of {name}", row.line);
                count += 1;
            }
        }
    }
    assert!(count > 100, "the table was read: {count} names");
}

#[test]
fn what_has_no_form_has_a_reason() {
    for Row { line, cells, .. } in rows() {
        for cell in cells {
            let says = cell.strip_prefix("none").map_or(&*cell, |why| why.trim_start_matches(": "));
            assert!(says.len() > 3, "docs/parity.md:{line}: {cell:?} says nothing");
        }
    }
}

#[test]
fn the_parse_finds_what_is_public_and_nothing_else() {
    let text = r#"
pub fn free(a: u8) {}
impl<'a, T: Into<U<'a>>> Type<'a, T>
where
    T: V,
{
    /// pub fn no()
    pub const fn one() {
        fn inner() {}
    }
    pub(crate) fn two() {}
    fn three() {}
    pub unsafe fn four<T>() {}
}
pub unsafe trait Named: Send {
    fn five();
}
mod sealed {
    pub trait Hidden {
        fn six();
    }
}
impl Named for Type<'_, u8> {
    fn five() {}
}
macro_rules! m {
    ($t:ident) => {
        impl $t<'_> {
            pub fn seven() {}
        }
    };
}
m!(First of X);
m!(Second);
#[cfg(test)]
mod tests {
    pub fn eight() {}
}
"#;
    let source = Source { path: "a.rs".into(), text: text.into() };
    let found: Vec<_> = functions_of(&source).into_iter().collect();
    let expected =
        ["First::seven", "Named::five", "Second::seven", "Type::four", "Type::one", "free"];
    assert_eq!(found, expected);
}
