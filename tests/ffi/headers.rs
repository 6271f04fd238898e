//! The headers alone, with every compiler, standard and mode of compilation that they support.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use super::compiler::{Compiler, Language};
use super::{C_STANDARDS, CPP_STANDARDS, c_header, declared_functions, library, project};

fn headers() -> Vec<PathBuf> {
    files("include/pinlane").chain(files("include/pinlane/cpp")).collect()
}

fn files(folder: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(project(folder)).expect("a folder of the project");
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file())
}

#[test]
fn the_checked_in_c_header_is_what_src_capi_says() {
    let generated = fs::read_to_string(env!("PINLANE_GENERATED_HEADER")).expect("as build.rs says");
    assert!(generated == c_header(), "run scripts/update-header, and look at what has changed");
}

/// A source that is compiled under all of these standards, with each of these sets of flags.
struct Case {
    language: Language,
    standards: &'static [&'static str],
    flags: &'static [&'static [&'static str]],
    source: String,
}

const NEITHER: &[&str] = &["-fno-exceptions", "-fno-rtti"];

/// Most of the time goes into the standard library's headers, so all code that is compiled in the
/// same way is one source.
fn cases() -> Vec<Case> {
    let c = |language, standards| Case { language, standards, flags: &[&[]], source: c_source() };
    let cpp = |standards, flags, source| Case { language: Language::Cpp, standards, flags, source };

    // These instantiate the templates: gcc does not look for exceptions in unused ones. Another
    // test compiles the example of C++20.
    let examples = files("ffi-examples/cpp").filter(|path| path.extension().unwrap() == "cpp");
    let examples = examples.map(|path| fs::read_to_string(path).expect("an example"));
    let examples: Vec<String> =
        examples.filter(|source| !source.contains("#include <coroutine>")).collect();
    let without: Vec<String> = examples.iter().filter_map(|source| without_catch(source)).collect();
    assert!(without.len() >= 5, "most examples have one handler: {without:?}");

    let header = "#include <pinlane/pinlane.hpp>\n".to_owned();
    vec![
        c(Language::C, &C_STANDARDS),
        c(Language::Cpp, &["c++11", "c++14"]),
        cpp(&CPP_STANDARDS, &[&[]], together(&examples)),
        // The effects of a mode do not depend on the standard.
        cpp(&["c++2b"], &[NEITHER], together(&without)),
        cpp(&["c++17"], &[&["-fno-exceptions"], &["-fno-rtti"]], header),
    ]
}

/// The examples as one source: all includes, then each example in a namespace of its own. Other
/// tests compile each alone.
fn together(examples: &[String]) -> String {
    let is_include = |line: &&str| line.starts_with("#include ");
    let own = "#include <pinlane/pinlane.hpp>";
    let includes: BTreeSet<&str> =
        examples.iter().flat_map(|source| source.lines().filter(is_include)).collect();
    assert!(includes.contains(own), "{includes:?}");
    let mut lines = vec![own.to_owned()];
    lines.extend(includes.into_iter().filter(|line| *line != own).map(str::to_owned));
    for (number, source) in examples.iter().enumerate() {
        // Of all functions, only `main` may end without a `return`.
        let source = source.replace("int main(", "int run(");
        let source = source.replace("\n} catch (", "\nreturn 0;\n} catch (");
        let body = source.trim_end().strip_suffix('}').expect("a function stands at the end");
        lines.push(format!("namespace example_{number} {{"));
        lines.extend(body.lines().filter(|line| !is_include(line)).map(str::to_owned));
        lines.push("return 0;\n}\n}".to_owned());
    }
    lines.join("\n") + "\n"
}

/// An example whose only exception handler comes after the body of `main`, without that handler.
fn without_catch(source: &str) -> Option<String> {
    let source = source.replace(") try {", ") {");
    let (before, _) = source.split_once("\n} catch (")?;
    let uses_them = ["catch (", "throw "].iter().any(|word| before.contains(word));
    (!uses_them).then(|| format!("{before}\n}}\n"))
}

/// The header twice, and an object of each struct that has an initialiser.
fn c_source() -> String {
    let header = c_header();
    let macros = header.lines().filter_map(|line| line.strip_prefix("#define PINLANE_"));
    let names = macros.filter_map(|line| line.split_once("_INIT")).map(|(name, _)| name);
    let objects: Vec<String> = names
        .map(|name| {
            let object = name.to_lowercase();
            format!(
                "  pinlane_{object} {object} = PINLANE_{name}_INIT;\n  \
                 if ({object}.size != sizeof {object}) return 1;\n"
            )
        })
        .collect();
    assert!(objects.len() >= 7, "the header was understood: {objects:?}");
    let include = "#include <pinlane/pinlane.h>\n".repeat(2);
    format!("{include}int main(void) {{\n{}  return 0;\n}}\n", objects.concat())
}

#[test]
fn c_rule_10_the_headers_compile_without_warnings_everywhere() {
    let (mut compiled, mut failures) = (0, Vec::new());
    for case in cases() {
        for compiler in Compiler::all(case.language) {
            for standard in case.standards {
                for flags in case.flags {
                    match compiler.check(standard, &case.source, flags) {
                        Ok(()) => compiled += 1,
                        Err(errors) => failures.push(errors),
                    }
                }
            }
        }
    }
    // Bypasses the capture of the test runner, so that the output shows what was not tested.
    let compilers: Vec<String> = [Language::C, Language::Cpp]
        .into_iter()
        .flat_map(Compiler::all)
        .map(|c| c.name())
        .collect();
    let all = compiled + failures.len();
    let compilers = compilers.join(", ");
    let _ = writeln!(std::io::stderr(), "headers: {compiled} of {all} compile, by {compilers}");
    assert!(failures.is_empty(), "{compiled} of {all} compile\n{}", failures.join("\n"));
}

/// With C++20, programs name the members that they set; each other member has its default.
#[test]
fn structs_of_cpp_take_designated_initialisers_without_warnings() {
    let mut source = "#include <pinlane/pinlane.hpp>\n".to_owned();
    let headers = files("include/pinlane/cpp").map(|header| fs::read_to_string(header).unwrap());
    let structs: Vec<String> = headers.flat_map(|header| plain_structs(&header)).collect();
    assert!(structs.len() >= 9, "the headers were understood: {structs:?}");
    for (number, initialiser) in structs.iter().enumerate() {
        source += &format!("auto f{number}() {{ return pinlane::{initialiser}; }}\n");
    }
    for compiler in Compiler::all(Language::Cpp) {
        // Nothing declares these functions before.
        let checked = compiler.check("c++20", &source, &["-Wno-missing-declarations"]);
        checked.unwrap_or_else(|errors| panic!("{errors}"));
    }
}

/// The structs of the interface that have members and no base, each with its first member set.
fn plain_structs(header: &str) -> Vec<String> {
    let mut parts = header.split("namespace detail {");
    let first = parts.next().unwrap_or_default();
    let public = parts.filter_map(|part| Some(part.split_once("} // namespace detail")?.1));
    let text: String = std::iter::once(first).chain(public).collect();
    let of_struct = |part: &str| {
        let (name, body) = part.split_once(" {\n")?;
        let body = body.split_once("\n};")?.0;
        let is_member = |line: &&str| !line.contains("//") && line.ends_with([';', ',']);
        let first = body.lines().find(is_member)?;
        let member = first.split([';', '=', '{', ',']).next()?.split_whitespace().next_back()?;
        let has_constructor = body.contains(&format!("  {name}("));
        let is_plain = !name.contains([' ', ':', ';']) && !first.contains('(') && !has_constructor;
        is_plain.then(|| format!("{name}{{.{member} = {{}}}}"))
    };
    text.split("\nstruct ").skip(1).filter_map(of_struct).collect()
}

/// What a header includes does not depend on the compiler.
#[test]
fn c_rule_10_each_header_of_cpp_compiles_alone() {
    let is_cpp = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "hpp");
    for header in headers().iter().filter(|path| is_cpp(path)) {
        let source = format!("#include \"{}\"\n", header.display());
        let checked = Compiler::of(Language::Cpp).check("c++17", &source, &[]);
        checked.unwrap_or_else(|errors| panic!("{errors}"));
    }
}

#[test]
fn headers_define_no_macros_of_other_names() {
    for header in headers() {
        let text = fs::read_to_string(&header).expect("a header");
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("#define ")) {
            assert!(line.starts_with("PINLANE_"), "{}: #define {line}", header.display());
        }
    }
}

#[test]
fn c_rule_10_the_libraries_export_what_the_header_declares_and_no_more() {
    let header = c_header();
    let declared = declared_functions(&header);
    assert!(declared.len() > 40, "the header was understood: {declared:?}");

    let shared = nm(&["-D"], &library::shared().archive);
    assert_eq!(names(&shared), declared, "the shared library");

    // Rust's own symbols are visible in an archive, under mangled names.
    let archive = nm(&["-g"], &library::get().archive);
    let mut ours = names(&archive);
    ours.retain(|name| name.starts_with("pinlane_"));
    // cuda/kernels.h: used only between our own objects.
    let is_of_kernels =
        |name: &str| name.starts_with("pinlane_kernel_") || name == "pinlane_launch_kernel";
    ours.retain(|name| !is_of_kernels(name));
    assert_eq!(ours, declared, "the static library");
}

fn nm(flags: &[&str], library: &std::path::Path) -> String {
    let output = Command::new("nm").arg("--defined-only").args(flags).arg(library).output();
    let output = output.expect("nm of the binutils starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn names(symbols: &str) -> BTreeSet<&str> {
    symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect()
}
