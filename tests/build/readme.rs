//! The programs in README.md are files of the project, which other tests compile and run.

use crate::sources::read;

#[test]
fn every_program_in_the_readme_is_the_file_that_it_names() {
    let readme = read("README.md");
    for file in ["examples/01_first_copy.rs", "ffi-examples/cpp/01_first_copy.cpp"] {
        let text = read(file);
        // The example's documentation is above the program.
        let program = text.trim_start_matches('\n').lines();
        let program: Vec<&str> = program.skip_while(|line| line.starts_with("//!")).collect();
        let program = program.join("\n");
        let (_, after) = readme.split_once(&format!("(`{file}`)")).expect("the README names it");
        let block = after.split("```").nth(1).expect("a program below its name");
        let (_, block) = block.split_once('\n').expect("a language, then the program");
        assert_eq!(block.trim(), program.trim(), "README.md and {file} differ");
    }
}
