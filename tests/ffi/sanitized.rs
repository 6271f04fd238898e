//! Programs with a thread sanitizer, linked with the library as users get it: the sanitizer reports
//! nothing in the library, and each race of the program.

use super::compiler::{Compiler, Language, Program};
use super::{library, project};

/// The program, if the compiler has a thread sanitizer.
fn watched(source: &str) -> Option<Program> {
    let compiler = Compiler::of(Language::Cpp).with_flags(&["-fsanitize=thread", "-g"]);
    if !compiler.can_link("int main() {}") {
        eprintln!("skipped: the compiler has no thread sanitizer");
        return None;
    }
    Some(compiler.link("c++17", &project(source), library::shared()))
}

/// The sanitizer's reports of a run.
fn reports(program: &Program, arguments: &[&str]) -> Vec<String> {
    let output = program.run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains(" 0 failed"), "{printed}{said}");
    said.lines().filter(|line| line.starts_with("SUMMARY:")).map(str::to_owned).collect()
}

#[test]
fn a_thread_sanitizer_of_the_program_is_told_what_the_library_orders() {
    let Some(program) = watched("tests/ffi/cpp/threads.cpp") else { return };
    assert_eq!(reports(&program, &[]), Vec::<String>::new());
}

#[test]
fn a_thread_sanitizer_of_the_program_still_sees_the_programs_own_races() {
    let Some(program) = watched("tests/ffi/cpp/threads.cpp") else { return };
    let reports = reports(&program, &["races"]);
    assert!(reports.iter().any(|report| report.contains("meet")), "{reports:?}");
}

#[test]
fn a_thread_sanitizer_sees_nothing_in_callbacks_and_producers() {
    for source in ["tests/ffi/cpp/callbacks.cpp", "tests/ffi/cpp/prefetch.cpp"] {
        let Some(program) = watched(source) else { return };
        assert_eq!(reports(&program, &[]), Vec::<String>::new(), "{source}");
    }
}
