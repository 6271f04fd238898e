//! The book's reference of C and C++ is made from the headers' comments. A mistake there ends its
//! build (`scripts/reference`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn headers() -> PathBuf {
    Path::new(env!("PINLANE_PROJECT")).join("include/pinlane")
}

/// The output of the script for the headers in a folder if it finds a mistake.
fn mistakes(folder: &Path) -> Option<String> {
    let mut script = Command::new("python3");
    script.current_dir(env!("PINLANE_PROJECT")).args(["scripts/reference", "--check"]);
    let output = script.arg(folder).output().expect("Python runs");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The mistakes of the headers if in `file` the text `from` is replaced with `to`.
fn mistakes_with(file: &str, from: &str, to: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("headers of {}", file.replace('/', " ")));
    fs::create_dir_all(folder.join("cpp")).expect("a folder of the test");
    for part in ["", "cpp"] {
        for entry in fs::read_dir(headers().join(part)).expect("the headers") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let copy = folder.join(part).join(path.file_name().expect("a name"));
                fs::copy(&path, copy).expect("a file of the test");
            }
        }
    }
    let text = fs::read_to_string(folder.join(file)).expect("a header");
    assert!(text.contains(from), "{file} has no {from}");
    fs::write(folder.join(file), text.replacen(from, to, 1)).expect("a file of the test");
    mistakes(&folder).expect("a mistake is found")
}

#[test]
fn every_comment_of_the_headers_is_right() {
    assert_eq!(mistakes(&headers()), None);
}

#[test]
fn a_comment_that_names_what_is_not_there_is_found() {
    let said = mistakes_with("pinlane.h", "with `pinlane_pool_free`", "with `pinlane_pool_fre`");
    assert!(said.contains("names pinlane_pool_fre, which no header has"), "{said}");
}

#[test]
fn a_declaration_without_a_comment_is_found() {
    let (commented, bare) = ("/// Options of a pipeline.\nstruct ", "struct ");
    let said = mistakes_with("cpp/prefetch.hpp", commented, bare);
    assert!(said.contains("prefetch.hpp: `struct prefetch_options {` has no comment"), "{said}");
}
