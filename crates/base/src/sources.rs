//! The place of a crate's sources, as in debug information.
//!
//! The search for the program's own line in a backtrace skips the lines of these crates. Packed
//! crates are in separate folders, so each names its place: [`own_sources!`](crate::own_sources).

/// The folder of a crate's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    /// One of them, with the path that the compiler got, and its path inside the folder.
    file: &'static str,
    inside: &'static str,
    /// The folder of the crate's Cargo.toml.
    package: &'static str,
}

/// The sources of the calling crate. The argument is the path of the calling file inside `src`.
#[macro_export]
macro_rules! own_sources {
    ($inside:literal) => {
        $crate::sources::Sources::new(file!(), $inside, env!("CARGO_MANIFEST_DIR"))
    };
}

impl Sources {
    /// See [`own_sources!`](crate::own_sources).
    #[must_use]
    pub const fn new(file: &'static str, inside: &'static str, package: &'static str) -> Self {
        Sources { file, inside, package }
    }

    /// Whether a file is one of them. A backtrace names it by an absolute path, or, below the
    /// current folder `here`, by one that begins with a dot.
    #[must_use]
    pub fn contain(&self, file: &str, here: &str) -> bool {
        if self.file.strip_suffix(self.inside).is_some_and(|folder| file.starts_with(folder)) {
            return true;
        }
        let whole = file.strip_prefix('.').map(|rest| format!("{here}{rest}"));
        let whole = whole.as_deref().unwrap_or(file);
        whole.strip_prefix(self.package).is_some_and(|rest| rest.starts_with("/src/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_a_workspace_is_known_by_its_package() {
        let sources = Sources::new("crates/x/src/lib.rs", "lib.rs", "/build/pinlane/crates/x");
        assert!(sources.contain("/build/pinlane/crates/x/src/a/b.rs", "/"));
        assert!(sources.contain("./crates/x/src/b.rs", "/build/pinlane"));
        assert!(sources.contain("./src/b.rs", "/build/pinlane/crates/x"));
        assert!(sources.contain("crates/x/src/b.rs", "/"), "the beginning was taken away");
        assert!(!sources.contain("./src/b.rs", "/build/pinlane"));
        assert!(!sources.contain("/build/pinlane/crates/x/tests/b.rs", "/"));
        assert!(!sources.contain("/build/pinlane/crates/xy/src/b.rs", "/"));
    }

    #[test]
    fn a_packed_crate_is_known_by_its_root() {
        let folder = "/home/me/.cargo/registry/src/index/pinlane-x-0.1.0";
        let sources = Sources::new("/remapped/pinlane-x-0.1.0/src/a/b.rs", "a/b.rs", folder);
        assert!(sources.contain("/remapped/pinlane-x-0.1.0/src/b.rs", "/"));
        assert!(sources.contain(&format!("{folder}/src/b.rs"), "/"));
        assert!(!sources.contain("./src/main.rs", "/home/me/app"));
    }
}
