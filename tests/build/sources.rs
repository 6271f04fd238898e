//! The project's own files, as text.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the project.
pub fn read(file: &str) -> String {
    let path = Path::new(env!("PINLANE_PROJECT")).join(file);
    fs::read_to_string(path).expect("a file of the project")
}

pub struct Source {
    /// Relative to the folder, `src` for the crate.
    pub path: PathBuf,
    pub text: String,
}

/// The crates below this one, which are published with it. Each uses only those before it.
pub const BELOW: [&str; 3] = ["crates/base", "crates/driver", "crates/emulator"];

/// Every file of the crate.
pub fn sources() -> Vec<Source> {
    sources_of("src")
}

/// Every file of the crate and of the crates below it. The paths of the latter are those in the
/// project.
pub fn published() -> Vec<Source> {
    let mut all = sources();
    for of_crate in BELOW {
        let folder = Path::new(of_crate).join("src");
        let files = sources_of(folder.to_str().expect("UTF-8")).into_iter();
        all.extend(files.map(|source| Source { path: folder.join(source.path), ..source }));
    }
    all
}

/// Every Rust file in a folder of the project.
pub fn sources_of(folder: &str) -> Vec<Source> {
    let of_rust = files(folder).into_iter().filter(|path| path.ends_with(".rs"));
    let source = |path: String| Source {
        text: read(&path),
        path: Path::new(&path).strip_prefix(folder).expect("a file in it").to_owned(),
    };
    of_rust.map(source).collect()
}

/// Every file in a folder of the project and in the folders below, by its path in the project.
pub fn files(folder: &str) -> Vec<String> {
    let root = Path::new(env!("PINLANE_PROJECT"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(root).expect("below it");
                found.push(path.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found
}

impl Source {
    /// The module of the crate root that the file belongs to.
    pub fn module(&self) -> String {
        let first = self.path.components().next().expect("not empty");
        let first = Path::new(first.as_os_str()).with_extension("");
        first.to_str().expect("UTF-8").to_owned()
    }

    /// A file of unit tests: `tests.rs`, or one in a folder `tests`.
    pub fn is_a_test(&self) -> bool {
        self.path.with_extension("").components().any(|part| part.as_os_str() == "tests")
    }

    /// The file without its unit tests, which are at its end.
    pub fn code(&self) -> &str {
        self.text.split("\nmod tests {").next().unwrap_or_default()
    }
}

/// The identifier at the start of a text.
pub fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}
