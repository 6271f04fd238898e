//! The programs in README.md are files of the project, which other tests compile and run; so are
//! the passages of programs, which run here.

use crate::sources::read;

#[cfg(feature = "emulated")]
#[allow(dead_code)] // the program's own start
#[path = "../../examples/transfers.rs"]
mod transfers;

#[test]
fn every_program_in_the_readme_is_the_file_that_it_names() {
    let readme = read("README.md");
    let files =
        ["examples/roundtrip.rs", "ffi-examples/c/shortest.c", "ffi-examples/cpp/shortest.cpp"];
    for file in files {
        let text = read(file);
        // The example's own documentation stands above the program.
        let program = text.trim_start_matches('\n').lines();
        let program: Vec<&str> = program.skip_while(|line| line.starts_with("//!")).collect();
        let program = program.join("\n");
        let (_, after) = readme.split_once(&format!("(`{file}`)")).expect("the README names it");
        let block = after.split("```").nth(1).expect("a program below its name");
        let (_, block) = block.split_once('\n').expect("a language, then the program");
        assert_eq!(block.trim(), program.trim(), "README.md and {file} differ");
    }
}

#[test]
fn every_passage_in_the_readme_is_one_of_the_example() {
    let (readme, example) = (read("README.md"), read("examples/transfers.rs"));
    let blocks = readme.split("```").skip(1).step_by(2);
    let passages = blocks.filter_map(|block| block.strip_prefix("rust\n"));
    let mut count = 0;
    for passage in passages.filter(|block| !block.contains("fn main()")) {
        let indented = passage.trim_end().lines().map(|line| match line {
            "" => "\n".to_owned(),
            line => format!("    {line}\n"),
        });
        let passage: String = indented.collect();
        assert!(example.contains(&passage), "not in examples/transfers.rs:\n{passage}");
        count += 1;
    }
    assert_eq!(count, 8, "passages");
}

#[test]
fn every_passage_in_cpp_is_one_of_the_test_that_it_names() {
    let readme = read("README.md");
    let mut count = 0;
    for (before, block) in readme.split("```").zip(readme.split("```").skip(1)) {
        let Some(passage) = block.strip_prefix("cpp\n").filter(|block| !block.contains("main()"))
        else {
            continue;
        };
        let name = before.rsplit('`').find(|part| part.ends_with(".cpp")).expect("a file's name");
        let indented: String = passage.lines().map(|line| format!("  {line}\n")).collect();
        assert!(read(name).contains(&indented), "not in {name}:\n{passage}");
        count += 1;
    }
    assert_eq!(count, 1, "passages");
}

#[cfg(feature = "emulated")]
#[test]
fn the_passages_run() {
    let device = pinlane::Device::emulated().expect("the emulated device always opens");
    transfers::options(&device).expect("before the first copy");
    transfers::all(&device).expect("all of it");
}
