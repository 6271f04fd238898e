//! The static library, which the tests build by a call of Cargo, and what a program links with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

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

/// It has its own target folder: Cargo may hold the lock of the usual one, and would rebuild the
/// library there whenever its crate type changes. Settings such as `PINLANE_CUDA` and `RUSTFLAGS`
/// are inherited.
fn build() -> Library {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ffi");
    let output = Command::new(env!("CARGO"))
        .args(["rustc", "--lib", "--crate-type=staticlib", "--features=capi"])
        .args(["--locked", "--quiet", "--message-format=json", "--target-dir"])
        .arg(&target)
        .args(["--", "--print=native-static-libs"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    let messages: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let rendered = || messages.iter().filter_map(|message| message["message"]["rendered"].as_str());
    assert!(output.status.success(), "no library\n{}", rendered().collect::<String>());

    let archive = strings(&messages, "compiler-artifact", "filenames")
        .find(|file| file.ends_with("libpinlane.a"))
        .expect("Cargo names the archive that it built");
    let folders = strings(&messages, "build-script-executed", "linked_paths")
        .map(|path| format!("-L{}", path.strip_prefix("native=").unwrap_or(path)));
    // rustc prints them in a note. Cargo repeats the note if nothing was rebuilt.
    let libraries = rendered()
        .find_map(|text| text.split_once("native-static-libs:"))
        .map(|(_, libraries)| libraries.split_whitespace().map(str::to_owned))
        .expect("rustc names the libraries that the archive needs");
    Library { archive: archive.into(), link_arguments: folders.chain(libraries).collect() }
}

/// The strings in the list `member` of Cargo's messages of one kind.
fn strings<'a>(messages: &'a [Value], reason: &str, member: &str) -> impl Iterator<Item = &'a str> {
    messages
        .iter()
        .filter(move |message| message["reason"] == reason)
        .filter_map(move |message| message[member].as_array())
        .flatten()
        .filter_map(Value::as_str)
}
