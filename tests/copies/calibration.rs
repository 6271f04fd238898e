//! Costs that were measured once: the file, who reads it, and what happens without it.
//! `docs/calibration.md`.
//!
//! The variables that name the file belong to a process, so that every case has processes of its
//! own: each test starts itself again, and does there what it was asked for.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use pinlane::{Device, PinnedPool, Plan, Result, UploadItem};

use crate::common::process::full_name;

/// What a process that a test started is to do.
const TASK: &str = "PINLANE_TEST_CALIBRATION";
const FILE: &str = "PINLANE_CALIBRATION";

/// The plans for small blocks that lie apart, in page-locked and in ordinary memory.
fn plan(device: &Device) -> Result<Plan> {
    const BLOCKS: usize = 100;
    const BYTES: usize = 256;
    let stream = device.stream()?;
    let pool = PinnedPool::builder(device).mapped(true).build()?;
    let pinned = pool.alloc_zeroed::<u8>(2 * BLOCKS * BYTES)?;
    let ordinary = vec![0; BYTES];
    let mut gpu = device.alloc::<u8>(4 * BLOCKS * BYTES)?;
    let mut rest = gpu.as_slice_mut();
    let mut items = Vec::new();
    for block in 0..2 * BLOCKS {
        let (to, behind) = rest.split_at_mut(BYTES)?;
        rest = behind.split_at_mut(BYTES)?.1;
        items.push(if block < BLOCKS {
            let at = 2 * block * BYTES;
            UploadItem::new(pinned.slice(at..at + BYTES)?, to)?
        } else {
            UploadItem::new(&ordinary[..], to)?
        });
    }
    stream.plan_upload(&items)
}

/// Does the task of a process that a test started, and says on the standard error what came of it.
fn perform(task: &str) {
    let device = Device::emulated().expect("the emulated device always opens");
    let before = plan(&device).expect("no faults");
    if task == "calibrate in little memory" {
        limit_memory();
    }
    let calibrated = task.starts_with("calibrate").then(|| device.calibrate());
    match calibrated {
        None => {}
        Some(Ok(calibration)) => eprint!("path {:?}\n{calibration}", calibration.path()),
        Some(Err(error)) => eprintln!("{:?}: {error}", error.kind()),
    }
    eprintln!("before {before:?}\nafter {:?}", plan(&device).expect("no faults"));
}

/// From here on the process gets no 256 MiB more.
fn limit_memory() {
    let status = fs::read_to_string("/proc/self/status").expect("Linux says");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("its size");
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    let most = (kib << 10) + (200 << 20);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the call reads a live limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// A test, and a folder for it.
struct Case {
    test: &'static str,
    folder: PathBuf,
}

impl Case {
    /// `None` in a process that the test started; its task is done then.
    fn new(test: &'static str) -> Option<Case> {
        if let Ok(task) = std::env::var(TASK) {
            perform(&task);
            return None;
        }
        let name = format!("pinlane-calibration-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("the temporary folder takes folders");
        Some(Case { test, folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.join("calibration.txt")
    }

    /// What a process says that does `task` with these variables, and with none else that names a
    /// file.
    fn process(&self, task: &str, variables: &[(&str, &Path)]) -> Said {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let test = full_name(module_path!(), self.test);
        command.args([&test, "--exact", "--test-threads=1", "--nocapture"]).env(TASK, task);
        for place in [FILE, "XDG_CACHE_HOME", "HOME"] {
            command.env_remove(place);
        }
        let output = command.envs(variables.iter().copied()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{task}, {variables:?}: {said}");
        Said(said)
    }

    fn calibrate(&self, path: &Path) -> Said {
        self.process("calibrate", &[(FILE, path)])
    }

    /// The plan of a process that finds this file.
    fn plan(&self, path: &Path) -> String {
        self.process("plan", &[(FILE, path)]).after()
    }

    fn plan_without_a_file(&self) -> String {
        self.process("plan", &[]).after()
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Said(String);

impl Said {
    fn line(&self, start: &str) -> String {
        let line = self.0.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("no {start:?} in {}", self.0)).to_owned()
    }

    fn before(&self) -> String {
        self.line("before ")
    }

    fn after(&self) -> String {
        self.line("after ")
    }

    /// The costs, a line each.
    fn costs(&self) -> String {
        let costs = self.0.lines().filter(|line| line.contains(" = "));
        costs.map(|line| format!("{line}\n")).collect()
    }
}

/// `text` with another value for some costs.
fn with(text: &str, costs: &[(&str, f64)]) -> String {
    let edit = |line: &str| {
        let new = line.split_once(" = ").and_then(|(name, _)| {
            let (_, value) = costs.iter().find(|(cost, _)| *cost == name)?;
            Some(format!("{name} = {value}\n"))
        });
        new.unwrap_or_else(|| format!("{line}\n"))
    };
    text.lines().map(edit).collect()
}

#[test]
fn what_one_process_measures_the_next_one_plans_by() {
    let test = "what_one_process_measures_the_next_one_plans_by";
    let Some(case) = Case::new(test) else { return };
    let path = case.folder.join("made").join("on_demand.txt");
    let said = case.calibrate(&path);
    assert_eq!(said.line("path "), format!("{:?}", Some(&path)));
    assert_eq!(said.before(), case.plan_without_a_file());

    let text = fs::read_to_string(&path).expect("the file was written");
    let (header, rest) = text.split_once('\n').expect("lines");
    assert_eq!(header, "# pinlane calibration, version 1");
    let (section, costs) = rest.split_once('\n').expect("lines");
    assert_eq!(costs, said.costs());
    let device = Device::emulated().expect("the emulated device always opens");
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    assert!(section.starts_with(&format!("[{} | driver ", device.name())), "{section}");
    assert!(section.ends_with(&format!(" | {cores} cores]")), "{section}");
    let entries = fs::read_dir(path.parent().expect("a folder")).expect("the folder");
    assert_eq!(entries.count(), 1, "nothing is left beside the file");

    assert_eq!(case.plan(&path), said.after());
    assert_ne!(said.after(), said.before(), "the costs are those of this machine");
}

#[test]
fn plans_follow_an_edited_file() {
    let Some(case) = Case::new("plans_follow_an_edited_file") else { return };
    let path = case.path();
    case.calibrate(&path);
    let text = fs::read_to_string(&path).expect("the file was written");
    let (dear, cheap) = (1e6, 1e-3);
    let edits: [(_, _, &[_]); 4] = [
        ("Copies", "Copies", &[("copy", cheap), ("batch_entry", dear), ("kernel", dear)]),
        ("Batch", "Batch", &[("copy", dear), ("batch_entry", cheap), ("kernel", dear)]),
        ("Pull", "Pull", &[("copy", dear), ("batch_entry", dear), ("kernel", cheap)]),
        // 25,600 bytes at 1 byte a microsecond, or three copies of a millisecond, or a hundred of
        // them.
        (
            "Pull",
            "Packed",
            &[("copy", 1e3), ("batch_entry", dear), ("kernel", cheap), ("pull", 1.0)],
        ),
    ];
    for (direct, ordinary, costs) in edits {
        fs::write(&path, with(&text, costs)).expect("the file can be written");
        let plan = case.plan(&path);
        let paths = plan.split("Choice { path: ").skip(1);
        let paths: Vec<_> = paths.filter_map(|path| path.split(',').next()).collect();
        assert_eq!(paths, [ordinary, direct], "{costs:?}: {plan}");
    }
}

#[test]
fn the_cache_folder_holds_it_unless_said_and_off_is_off() {
    let test = "the_cache_folder_holds_it_unless_said_and_off_is_off";
    let Some(case) = Case::new(test) else { return };
    let (cache, off) = (("XDG_CACHE_HOME", &*case.folder), (FILE, Path::new("off")));
    let said = case.process("calibrate", &[cache, off]);
    assert_eq!(said.line("path "), "None");
    assert_ne!(said.after(), said.before(), "they are in use all the same");
    assert_eq!(fs::read_dir(&case.folder).expect("a folder").count(), 0, "nothing is written");

    let said = case.process("calibrate", &[cache]);
    let path = case.folder.join("pinlane").join("calibration.txt");
    assert_eq!(said.line("path "), format!("{:?}", Some(&path)));
    assert_eq!(case.process("plan", &[cache]).after(), said.after());
    let home = case.folder.join("home");
    fs::create_dir_all(home.join(".cache")).expect("folders");
    fs::rename(case.folder.join("pinlane"), home.join(".cache/pinlane")).expect("the same disk");
    assert_eq!(case.process("plan", &[("HOME", &*home)]).after(), said.after());
    let plan = case.process("plan", &[("HOME", &*home), off]);
    assert_eq!(plan.after(), case.plan_without_a_file(), "nothing is read");
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_the_costs_are_in_use() {
    let test = "a_file_that_cannot_be_written_is_named_and_the_costs_are_in_use";
    let Some(case) = Case::new(test) else { return };
    let file = case.folder.join("file");
    fs::write(&file, "no folder").expect("the folder takes files");
    let path = file.join("calibration.txt"); // not even by root
    let said = case.calibrate(&path);
    let error = said.line("Io: ");
    assert!(error.contains(&*path.to_string_lossy()), "{error}");
    assert!(error.contains("Device::calibrate") && error.contains(FILE), "{error}");
    assert_ne!(said.after(), said.before());
    assert_eq!(fs::read_to_string(&file).expect("still there"), "no folder");
}

#[test]
fn a_broken_file_is_as_good_as_none() {
    let Some(case) = Case::new("a_broken_file_is_as_good_as_none") else { return };
    let path = case.path();
    case.calibrate(&path);
    let whole = fs::read_to_string(&path).expect("the file was written");
    let without = case.plan_without_a_file();
    assert_ne!(case.plan(&path), without);
    let last = whole.trim_end().rfind('\n').expect("lines");
    let broken = [
        ("cut off", whole[..last].to_owned()),
        ("of another version", whole.replacen("version 1", "version 2", 1)),
        ("of another machine", whole.replacen(" | driver ", " | other driver ", 1)),
        ("a negative cost", with(&whole, &[("link", -1.0)])),
        ("an infinite cost", with(&whole, &[("link", f64::INFINITY)])),
        ("no calibration", "{}".to_owned()),
        ("empty", String::new()),
    ];
    for (what, text) in broken {
        fs::write(&path, text).expect("the file can be written");
        assert_eq!(case.plan(&path), without, "{what}");
    }
    let said = case.calibrate(&path);
    assert_eq!(case.plan(&path), said.after(), "a new calibration mends it");
}

/// A pipe would hang the first large upload, until somebody writes; and a file takes the place of
/// nothing else.
#[test]
fn what_is_no_regular_file_is_neither_read_nor_replaced() {
    let test = "what_is_no_regular_file_is_neither_read_nor_replaced";
    let Some(case) = Case::new(test) else { return };
    let (pipe, link, folder) = (case.path(), case.folder.join("link"), case.folder.join("folder"));
    let name = CString::new(pipe.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: a NUL-terminated string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "the folder takes pipes");
    symlink("/dev/zero", &link).expect("and links");
    fs::create_dir(&folder).expect("and folders");
    for path in [&pipe, &link, &folder] {
        assert_eq!(case.plan(path), case.plan_without_a_file());
        let before = fs::symlink_metadata(path).expect("made above").file_type();
        let said = case.calibrate(path);
        let error = said.line("Io: ");
        assert!(error.contains(&format!("{}: not a regular file", path.display())), "{error}");
        assert_ne!(said.after(), said.before(), "the costs are in use all the same");
        assert_eq!(fs::symlink_metadata(path).expect("still there").file_type(), before);
    }
    assert_eq!(fs::read_dir(&case.folder).expect("a folder").count(), 3, "nothing is left beside");
}

#[test]
fn memory_that_is_not_to_be_had_is_an_error() {
    let Some(case) = Case::new("memory_that_is_not_to_be_had_is_an_error") else { return };
    let path = case.path();
    let said = case.process("calibrate in little memory", &[(FILE, &path)]);
    let error = said.line("OutOfHostMemory: ");
    assert!(error.contains("Device::calibrate: 268435456 bytes of ordinary memory"), "{error}");
    assert_eq!(said.after(), said.before());
    assert!(!path.exists());
}
