//! The static library, and what a program links beside it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::artifacts;

pub struct Library {
    /// `libpinlane.a`.
    pub archive: PathBuf,
    /// What follows the archive in the call of the linker: folders, then libraries.
    pub link_arguments: Vec<String>,
}

/// Builds once for all tests of the process.
pub fn get() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(build)
}

/// From the crate as it is compiled for these tests, instead of compiling it again as the static
/// library that users get. `ffi-examples/CMakeLists.txt` builds that one.
fn build() -> Library {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("static_library.rs");
    std::fs::write(&source, "extern crate pinlane;\n").expect("the tests' folder can be written");
    let archive = folder.join("libpinlane.a");
    let artifacts = artifacts::get();
    let mut rustc = artifacts.rustc(&["pinlane"]);
    rustc.args(["--crate-name", "pinlane_static", "--crate-type", "staticlib"]);
    rustc.args(["--print", "native-static-libs", "-o"]).arg(&archive).arg(&source);
    rustc.args(&artifacts.link_folders);
    let output = rustc.output().expect("rustc starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "no library\n{said}");
    let libraries = said
        .split_once("native-static-libs:")
        .map(|(_, rest)| rest.lines().next().unwrap_or_default())
        .map(|libraries| libraries.split_whitespace().map(str::to_owned))
        .expect("rustc names the libraries that the archive needs");
    let link_arguments = artifacts.link_folders.iter().cloned().chain(libraries).collect();
    Library { archive, link_arguments }
}
