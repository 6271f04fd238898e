//! Programs whose files are compiled in different ways: each file keeps its own mode, whichever
//! file the linker sees first.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::compiler::{Compiler, Language, Scratch};
use super::{library, project};

/// The files of the program: a name, a standard, and flags.
const PARTS: [(&str, &str, &[&str]); 5] = [
    ("plain", "c++17", &[]),
    ("c++20", "c++20", &[]),
    ("no_exceptions", "c++17", &["-fno-exceptions"]),
    ("no_rtti", "c++17", &["-fno-rtti"]),
    ("neither", "c++20", &["-fno-exceptions", "-fno-rtti"]),
];

fn source(name: &str) -> PathBuf {
    project("tests/ffi/cpp/modes").join(name)
}

fn parts(compiler: &Compiler, level: &str, scratch: &Scratch) -> Vec<PathBuf> {
    let compile = |&(name, standard, flags): &(&str, &str, &[&str])| {
        let part = format!("-DPART=\"{name} by {} {level}\"", compiler.name());
        let flags = [flags, &[level, &part]].concat();
        let object = format!("{name}-{}{level}.o", file_name(compiler));
        compiler.object(standard, &source("part.cpp"), &flags, scratch, &object)
    };
    PARTS.iter().map(compile).collect()
}

fn file_name(compiler: &Compiler) -> String {
    Path::new(&compiler.name()).file_name().expect("a program").to_string_lossy().into_owned()
}

#[test]
fn files_of_one_program_keep_their_own_exceptions_and_types() {
    let compilers = Compiler::all(Language::Cpp);
    for wanted in ["g++", "clang++"] {
        if !compilers.iter().any(|compiler| compiler.is(wanted)) {
            let _ = writeln!(std::io::stderr(), "modes: not tried with {wanted}, which is absent");
        }
    }
    // Each compiler uses one level, or both if it is the only one. The last program has the files
    // of all.
    let scratch = Scratch::new();
    let programs = compilers.len().max(2);
    let mut of_all = Vec::new();
    for (number, level) in ["-O0", "-O2"].into_iter().cycle().take(programs).enumerate() {
        let compiler = &compilers[number % compilers.len()];
        let main = format!("main-{}{level}.o", file_name(compiler));
        let main = compiler.object("c++17", &source("main.cpp"), &[level], &scratch, &main);
        let parts = parts(compiler, level, &scratch);
        keeps_its_own(compiler, level, &main, &parts);
        of_all.extend(parts);
        if number + 1 == programs {
            keeps_its_own(compiler, "-O0 and -O2", &main, &of_all);
        }
    }
}

/// Links the files in both orders, and runs the programs.
fn keeps_its_own(compiler: &Compiler, level: &str, main: &Path, parts: &[PathBuf]) {
    let mut objects = [&[main.to_owned()], parts].concat();
    for order in ["as they stand", "backwards"] {
        let program = compiler.link_objects(&objects, library::shared());
        let output = program.run(&[]);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let right = format!("{} parts, 0 failed\n", parts.len());
        let said =
            format!("{} {level}, {order}: {}\n{text}{errors}", compiler.name(), output.status);
        assert!(output.status.success() && text == right, "{said}");
        objects.reverse();
    }
}
