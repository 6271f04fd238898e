//! The library, static and shared, and what a program links in addition.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::artifacts;

pub struct Library {
    /// `libpinlane.a`, or `libpinlane.so`.
    pub archive: PathBuf,
    /// The arguments after it in the linker's call: folders, then libraries.
    pub link_arguments: Vec<String>,
}

/// The static library. Built once for all tests of the process.
pub fn get() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let (archive, said) = build("libpinlane.a", "staticlib");
        let libraries = said
            .split_once("native-static-libs:")
            .map(|(_, rest)| rest.lines().next().unwrap_or_default())
            .map(|libraries| libraries.split_whitespace().map(str::to_owned))
            .expect("rustc names the libraries that the archive needs");
        let folders = artifacts::get().link_folders.iter().cloned();
        Library { archive, link_arguments: folders.chain(libraries).collect() }
    })
}

/// The shared library. In a build with CUDA it has a CUDA runtime of its own inside.
pub fn shared() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let (archive, _) = build("libpinlane.so", "cdylib");
        let rpath = format!("-rpath={}", env!("CARGO_TARGET_TMPDIR"));
        // nvcc links its own runtime from one of the folders.
        let folders = artifacts::get().link_folders.iter().cloned();
        let link_arguments =
            folders.chain(["-lpthread".to_owned(), "-Xlinker".to_owned(), rpath]).collect();
        Library { archive, link_arguments }
    })
}

/// Builds the library from the crate that is compiled for these tests, instead of compiling it
/// again. The project's CMakeLists.txt builds the libraries for users. Also returns rustc's output.
fn build(name: &str, crate_type: &str) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(crate_type).with_extension("rs");
    std::fs::write(&source, "extern crate pinlane;\n").expect("the tests' folder can be written");
    let file = folder.join(name);
    let artifacts = artifacts::get();
    let mut rustc = artifacts.rustc(&["pinlane"]);
    rustc.args(["--crate-name", "pinlane_library", "--crate-type", crate_type]);
    rustc.args(["--print", "native-static-libs", "-o"]).arg(&file).arg(&source);
    rustc.args(&artifacts.link_folders).arg(format!("-Clink-arg=-Wl,-soname,{name}"));
    let output = rustc.output().expect("rustc starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "no library\n{said}");
    (file, said)
}

/// The library for a program that nvcc links with the toolkit's shared CUDA runtime.
#[cfg(pinlane_toolkit)]
pub fn with_shared_runtime(library: &Library) -> Library {
    let folders = get().link_arguments.iter().filter_map(|flag| flag.strip_prefix("-L"));
    let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut files = files.map(|file| file.path());
    let is_runtime = |file: &PathBuf| {
        file.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("libcudart.so.") && name.matches('.').count() == 2)
    };
    let runtime = files.find(is_runtime).expect("the toolkit's shared runtime");
    let rpath = format!("-Xlinker=-rpath={}", runtime.parent().expect("a folder").display());
    let runtime = format!("-Xlinker={}", runtime.display());
    let more = ["--cudart=none".to_owned(), rpath, runtime];
    let link_arguments = library.link_arguments.iter().cloned().chain(more).collect();
    Library { archive: library.archive.clone(), link_arguments }
}
