//! The files in which Linux describes the machine, below a folder that tests can choose.

use std::fs;
use std::path::PathBuf;

/// The folder that is `/`, except in tests.
pub struct System(PathBuf);

impl System {
    pub fn here() -> System {
        System("/".into())
    }

    /// The text of a file, without white space around it.
    pub fn read(&self, path: &str) -> Option<String> {
        let text = fs::read(self.0.join(path)).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// A file that is one number.
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    /// The value of the first line that begins with `name`, such as `MemTotal:`.
    pub fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.read(path)?;
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.trim_start_matches([' ', '\t', ':']).trim_end().to_owned())
    }

    /// The names in a folder, in order; none where there is no such folder.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.join(folder)) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

#[cfg(test)]
pub mod fake {
    //! Made-up trees.

    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::System;

    /// A tree of files, removed at the end.
    pub struct Tree(System);

    impl Tree {
        pub fn new(files: &[(&str, &str)]) -> Tree {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("pinlane-cli-{}-{number}", std::process::id());
            let root = std::env::temp_dir().join(name);
            fs::create_dir_all(&root).unwrap();
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Tree(System(root))
        }

        pub fn system(&self) -> &System {
            &self.0
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.0);
        }
    }
}
