//! Programs that must not compile (soundness rules 1 to 3, 5, 8, 10 and 17), in `tests/ui`.
//!
//! Beside each program is the compiler's message. Other versions of the compiler have other texts,
//! so the suite runs only with [`COMPILER`]. For a new version, change the constant, run the suite
//! with `PINLANE_UI=overwrite`, and read the changes: each message must still be about the rule.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artifacts;

/// The version of Rust with these messages.
const COMPILER: &str = "1.95";

#[test]
fn what_is_unsound_does_not_compile() {
    let version = compiler();
    if !is_expected(&version) {
        // Bypasses the capture of the test runner, so that the output shows that nothing was
        // tested.
        let mut stderr = std::io::stderr();
        let _ = writeln!(
            stderr,
            "tests/ui steps aside: it compares messages of Rust {COMPILER}, and this is {version}"
        );
        return;
    }
    let programs = programs();
    assert!(programs.len() >= 17, "only {} programs: is tests/ui complete?", programs.len());
    let overwrite = std::env::var("PINLANE_UI").is_ok_and(|wish| wish == "overwrite");
    let mut wrong = Vec::new();
    for program in programs {
        let said = errors_of(&program);
        let file = program.with_extension("stderr");
        if overwrite {
            fs::write(in_project(&file), &said).expect("tests/ui can be written");
        }
        let expected = fs::read_to_string(in_project(&file)).unwrap_or_default();
        if said != expected {
            let name = program.display();
            wrong.push(format!("{name}\n-- expected\n{expected}\n-- the compiler says\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn in_project(file: &Path) -> PathBuf {
    Path::new(env!("PINLANE_PROJECT")).join(file)
}

/// The programs in `tests/ui`, relative to the project.
fn programs() -> Vec<PathBuf> {
    let folder = Path::new("tests/ui");
    let entries = fs::read_dir(in_project(folder));
    let names = entries.expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut programs: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
    programs.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    programs.sort();
    programs
}

/// The compiler's message about a program that it must refuse, in [`plain`] form.
fn errors_of(program: &Path) -> String {
    let mut rustc = artifacts::get().rustc(&["pinlane", "bytemuck"]);
    rustc.args(["--emit", "metadata", "-A", "unused", "-o"]);
    rustc.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui.rmeta")).arg(program);
    let output = rustc.output().expect("rustc starts");
    assert!(!output.status.success(), "{} compiles", program.display());
    plain(&String::from_utf8(output.stderr).expect("UTF-8"))
}

/// `text` without the parts that depend on the machine or change with every edit of the crate:
/// lines of other files, their numbers, the number of types that are not listed, and the summary.
fn plain(text: &str) -> String {
    let mut lines = Vec::new();
    let mut own = true;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(place) = trimmed.strip_prefix("--> ").or(trimmed.strip_prefix("::: ")) {
            own = place.starts_with("tests/ui/");
            lines.push(format!(" {} {}", &trimmed[..3], if own { place } else { file_of(place) }));
        } else if let Some((number, rest)) = quoted(trimmed) {
            if own || rest.starts_with("= ") {
                lines.push(format!("{number:>3} {rest}").trim_end().to_owned());
            }
        } else if ["error: aborting", "For more information", "Some errors have detailed"]
            .iter()
            .any(|summary| line.starts_with(summary))
        {
            break;
        } else {
            lines.push(without_count(line));
        }
    }
    lines.join("\n").trim_end().to_owned() + "\n"
}

/// The number of other types that implement a trait depends on the versions of other crates.
fn without_count(line: &str) -> String {
    match line.trim_start().strip_prefix("and ").and_then(|rest| rest.strip_suffix(" others")) {
        Some(_) => "            and others".to_owned(),
        None => line.to_owned(),
    }
}

/// A file without its line, and without the folder of the standard library.
fn file_of(place: &str) -> &str {
    let file = place.split(':').next().expect("a file");
    file.split_once("/library/").map_or(file, |(_, inside)| inside)
}

/// The number in the margin, if any, and the text from the bar on.
fn quoted(line: &str) -> Option<(&str, &str)> {
    let digits = line.find(|c: char| !c.is_ascii_digit()).unwrap_or(line.len());
    let (number, rest) = line.split_at(digits);
    let rest = rest.trim_start();
    (rest.starts_with("| ") || rest == "|" || number.is_empty() && rest.starts_with("= "))
        .then_some((number, rest))
}

/// The version of the compiler that would compile the programs.
fn compiler() -> String {
    let output = Command::new(artifacts::rustc()).arg("--version").output().expect("rustc starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Whether `version` is a release of [`COMPILER`], not a nightly or beta.
fn is_expected(version: &str) -> bool {
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    let patch = number.strip_prefix(COMPILER).and_then(|rest| rest.strip_prefix('.'));
    patch.is_some_and(|patch| patch.parse::<u32>().is_ok())
}

#[test]
fn only_releases_of_that_compiler_are_asked() {
    let expected = |number: &str| is_expected(&format!("rustc {number} (59807616e 2026-04-14)"));
    assert!(expected("1.95.0") && expected("1.95.1"));
    for other in ["1.94.1", "1.96.0", "1.9.5", "1.950.0", "1.95.0-nightly", "1.95.0-beta.3"] {
        assert!(!expected(other), "{other}");
    }
    assert!(!is_expected(""));
}
