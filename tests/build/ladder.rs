//! The numbered examples print what their comments say, in Rust and in C++.

use std::process::Command;

use crate::artifacts;
use crate::sources::read;

pub const NAMES: [&str; 9] = [
    "01_first_copy",
    "02_pool",
    "03_overlap",
    "04_batch",
    "05_prefetch",
    "06_async_await",
    "07_explore_a_race",
    "08_load_a_model",
    "09_graph",
];

/// Whether `text` is the pattern, in which `...` stands for any text.
fn fits(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last.is_some_and(|part| rest.ends_with(part))
}

/// The output in an example's comment: its last block.
fn said(name: &str) -> String {
    let source = read(&format!("examples/{name}.rs"));
    let comment: Vec<&str> = source.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let comment = comment.join("\n").replace("\n ", "\n");
    let (_, block) = comment.rsplit_once("```text\n").expect("what it prints");
    block.split_once("```").expect("the block ends").0.to_owned()
}

/// Asserts that an example printed what its comment says. The comment names the emulated device.
pub fn check(name: &str, printed: &str) {
    let device = pinlane::Device::open_or_emulated().expect("a device");
    let said = said(name).replace("Emulated device 0", device.name());
    assert!(fits(printed, &said), "{name} printed\n{printed}\nand says\n{said}");
}

#[test]
fn the_numbered_examples_print_what_they_say() {
    for name in NAMES {
        let output = Command::new(artifacts::example(name)).env_remove("PINLANE_REPLAY").output();
        let output = output.expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{errors}", output.status);
        check(name, &String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn a_numbered_example_has_less_than_60_lines() {
    for name in NAMES {
        for file in [format!("examples/{name}.rs"), format!("ffi-examples/cpp/{name}.cpp")] {
            let lines = read(&file).lines().count();
            assert!(lines < 60, "{file}: {lines} lines");
        }
    }
}

/// Replays the race with the text that the example prints.
#[test]
fn the_race_is_repeated_by_its_text() {
    let mut program = Command::new(artifacts::example("07_explore_a_race"));
    let output = program.env("PINLANE_REPLAY", "1:C#4").output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let expected = "without the wait\npinlane: run 1 failed\n  ...Race: read after write...\
                    by its bytes\npinlane: run 1 failed\n  ...wrong bytes...\
                    with the wait\n1 runs went well\n";
    assert!(fits(&printed, expected), "{printed}");
}

#[test]
fn dots_stand_for_any_text() {
    assert!(fits("a 12 b", "a ... b") && fits("a", "a") && fits("a b b", "a...b"));
    assert!(!fits("a 12 c", "a ... b") && !fits("b", "a") && !fits("a b c", "a...b"));
}
