//! The file: text, a section for each kind of machine and device.
//!
//! ```text
//! # pinlane calibration, version 1
//! [NVIDIA H100 80GB HBM3 | driver 13000 | 16 cores]
//! fixed = 8.125
//! copy = 2.4
//! ```
//!
//! A section that lacks a cost, has one that is no positive number, or one that is not known is as
//! good as none: it was written by another version. Whoever writes keeps the other sections, and
//! replaces the file in one step, so that a reader sees the old one or the new one. Two processes
//! that write at once may lose one of their sections, and nothing else.
//!
//! Only a regular file of a sensible size is read or replaced: a pipe would hang whoever opens it,
//! and a device may have no end. The new file is made beside the old one, under a name that nobody
//! can foresee, so that nobody can lay a link there.

use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::sync::Mutex;
use crate::transfer::file::open_regular;
use crate::transfer::machine::Costs;

const HEADER: &str = "# pinlane calibration, version 1\n";
const VARIABLE: &str = "PINLANE_CALIBRATION";
/// More than any machine's sections take.
const LARGEST: u64 = 1 << 20;

/// Where the file is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There is to be none.
    Off,
    At(PathBuf),
}

impl Place {
    pub(super) fn of_process() -> Place {
        Place::find(|variable| std::env::var_os(variable).map(PathBuf::from))
    }

    fn find(variable: impl Fn(&str) -> Option<PathBuf>) -> Place {
        let set = |name| variable(name).filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = set(VARIABLE) {
            return if path.as_os_str() == "off" { Place::Off } else { Place::At(path) };
        }
        let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        cache.map_or(Place::Off, |cache| Place::At(cache.join("pinlane").join("calibration.txt")))
    }
}

/// The costs of a machine; `None` if the file has no whole section for it, or cannot be read.
pub(super) fn read(path: &Path, identity: &str) -> Option<Costs> {
    let text = contents(path).ok()?;
    let (_, section) = sections(&text).into_iter().find(|(name, _)| name == identity)?;
    let mut missing: Vec<_> = Costs::DEFAULT.values().into_iter().map(|(name, _)| name).collect();
    let mut costs = Costs::DEFAULT;
    for line in section.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (name, value) = line.split_once('=')?;
        let (name, value) = (name.trim(), value.trim().parse::<f64>().ok()?);
        if !value.is_finite() || value <= 0.0 {
            return None;
        }
        *costs.value_mut(name)? = value;
        missing.retain(|known| *known != name);
    }
    missing.is_empty().then_some(costs)
}

/// The text of the file; empty if it is none of ours.
fn contents(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    open_regular(path, 0)?.take(LARGEST).read_to_end(&mut text)?;
    let text = String::from_utf8(text).unwrap_or_default();
    Ok(if text.starts_with(HEADER) { text } else { String::new() })
}

/// Puts the costs of a machine into the file, in place of those that it has.
pub(super) fn write(path: &Path, identity: &str, costs: &Costs) -> io::Result<()> {
    // Two devices may be calibrated at once.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let old = match contents(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        old => old.unwrap_or_default(),
    };
    let mut text = String::from(HEADER);
    for (name, section) in sections(&old).into_iter().filter(|(name, _)| name != identity) {
        text += &format!("[{name}]\n{section}");
    }
    text += &format!("[{identity}]\n{}", section(costs));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let (mut file, beside) = create_beside(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// A new file in the folder of `path`.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut tries = 0;
    loop {
        // The system's randomness, as every map of the standard library has it.
        let random = RandomState::new().build_hasher().finish();
        let beside = path.with_extension(format!("{random:016x}.tmp"));
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).custom_flags(libc::O_NOFOLLOW);
        match options.open(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 8 => tries += 1,
            opened => return Ok((opened?, beside)),
        }
    }
}

/// A line for each cost.
pub(super) fn section(costs: &Costs) -> String {
    costs.values().iter().map(|(name, value)| format!("{name} = {value}\n")).collect()
}

/// Name and text of each section.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            found.push((name.to_owned(), String::new()));
        } else if let Some((_, section)) = found.last_mut() {
            section.push_str(line);
            section.push('\n');
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pinlane-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn costs(copy: f64) -> Costs {
        Costs { copy, ..Costs::DEFAULT }
    }

    #[test]
    fn each_machine_has_its_section() {
        let folder = folder("sections");
        let path = folder.join("below").join("calibration.txt");
        assert_eq!(read(&path, "a"), None);
        write(&path, "a", &costs(1.5)).unwrap();
        write(&path, "b", &costs(2.5)).unwrap();
        write(&path, "a", &costs(3.5)).unwrap();
        assert_eq!(read(&path, "a"), Some(costs(3.5)));
        assert_eq!(read(&path, "b"), Some(costs(2.5)));
        assert_eq!(read(&path, "c"), None);
        let entries = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(entries, 1, "nothing is left beside it");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_not_whole_is_not_used() {
        let folder = folder("broken");
        let path = folder.join("calibration.txt");
        write(&path, "a", &costs(1.5)).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [
            ("copy = 1.5", "copy = -1"),
            ("copy = 1.5", "copy = NaN"),
            ("copy = 1.5", "copy = much"),
            ("copy = 1.5\n", ""),
            ("copy = 1.5", "copy"),
            ("copy = 1.5", "copy = 1.5\nunheard_of = 1"),
            ("version 1", "version 2"),
        ] {
            assert!(whole.contains(from));
            std::fs::write(&path, whole.replace(from, to)).unwrap();
            assert_eq!(read(&path, "a"), None, "{to}");
        }
        std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
        assert_eq!(read(&path, "a"), None);
        write(&path, "a", &costs(2.5)).unwrap();
        assert_eq!(read(&path, "a"), Some(costs(2.5)), "what is no calibration is replaced");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn threads_that_write_at_once_lose_nothing() {
        let folder = folder("at-once");
        let path = folder.join("calibration.txt");
        let names: Vec<String> = (0..16).map(|number| format!("machine {number}")).collect();
        let path = &path;
        std::thread::scope(|scope| {
            let writers = names.iter().map(|name| scope.spawn(|| write(path, name, &costs(1.5))));
            let writers: Vec<_> = writers.collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
        });
        for name in &names {
            assert_eq!(read(path, name), Some(costs(1.5)), "{name}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Names that a process can foresee, a link there, and a file far too large.
    #[test]
    fn links_are_not_followed_and_no_file_is_read_without_end() {
        let folder = folder("links");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("calibration.txt");
        let victim = folder.join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let foreseen = path.with_extension(format!("{}.tmp", std::process::id()));
        std::os::unix::fs::symlink(&victim, foreseen).unwrap();
        let large = File::create(&path).unwrap();
        large.set_len(1 << 40).unwrap();
        assert_eq!(read(&path, "a"), None);
        write(&path, "a", &costs(1.5)).unwrap();
        assert_eq!(read(&path, "a"), Some(costs(1.5)));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_place_is_the_variables_or_the_cache() {
        let find = |set: &[(&str, &str)]| {
            Place::find(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
            })
        };
        let at = |path: &str| Place::At(PathBuf::from(path));
        assert_eq!(find(&[]), Place::Off);
        assert_eq!(find(&[(VARIABLE, "off"), ("HOME", "/h")]), Place::Off);
        assert_eq!(find(&[(VARIABLE, "/x/y"), ("HOME", "/h")]), at("/x/y"));
        assert_eq!(find(&[("HOME", "/h")]), at("/h/.cache/pinlane/calibration.txt"));
        assert_eq!(
            find(&[(VARIABLE, ""), ("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]),
            at("/c/pinlane/calibration.txt")
        );
    }
}
