//! The libraries, and what a program links beside the static one.

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
    LIBRARY.get_or_init(|| {
        let (archive, said) = build("staticlib", "libpinlane.a");
        let libraries = said
            .split_once("native-static-libs:")
            .map(|(_, rest)| rest.lines().next().unwrap_or_default())
            .map(|libraries| libraries.split_whitespace().map(str::to_owned))
            .expect("rustc names the libraries that the archive needs");
        let folders = artifacts::get().link_folders.iter().cloned();
        Library { archive, link_arguments: folders.chain(libraries).collect() }
    })
}

/// `libpinlane.so`. One test needs it.
pub fn shared() -> PathBuf {
    build("cdylib", "libpinlane.so").0
}

/// From the crate as it is compiled for these tests, instead of compiling it again as the libraries
/// that users get. The project's CMakeLists.txt builds those. Gives what rustc says, too.
fn build(crate_type: &str, name: &str) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(crate_type).with_extension("rs");
    std::fs::write(&source, "extern crate pinlane;\n").expect("the tests' folder can be written");
    let file = folder.join(name);
    let artifacts = artifacts::get();
    let mut rustc = artifacts.rustc(&["pinlane"]);
    rustc.args(["--crate-name", "pinlane_library", "--crate-type", crate_type]);
    rustc.args(["--print", "native-static-libs", "-o"]).arg(&file).arg(&source);
    rustc.args(&artifacts.link_folders);
    let output = rustc.output().expect("rustc starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "no library\n{said}");
    (file, said)
}
