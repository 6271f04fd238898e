//! The crate as compiled by the running build, for tests that compile against it.
//!
//! The tests let Cargo build the crate again, in the same folder, with the same profile and
//! features. Cargo then has nothing to do, and prints where everything is.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub struct Artifacts {
    /// The crate and its dependencies.
    libraries: Vec<PathBuf>,
    /// Their folder.
    dependencies: PathBuf,
    /// The folders of system libraries, as arguments of a linker.
    #[cfg_attr(not(feature = "capi"), allow(dead_code))]
    pub link_folders: Vec<String>,
}

pub fn get() -> &'static Artifacts {
    static ARTIFACTS: OnceLock<Artifacts> = OnceLock::new();
    ARTIFACTS.get_or_init(find)
}

impl Artifacts {
    /// A Rust compiler that knows these crates. It runs in the project's folder.
    pub fn rustc(&self, crates: &[&str]) -> Command {
        let mut command = Command::new(rustc());
        command.args(["--edition", "2024"]);
        for name in crates {
            let library = self.library(name);
            command.arg("--extern").arg(named(&format!("{name}="), library));
        }
        command.arg("-L").arg(named("dependency=", &self.dependencies));
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        command.args(flags.split_whitespace()).current_dir(env!("PINLANE_PROJECT"));
        command
    }

    fn library(&self, name: &str) -> &Path {
        let start = format!("lib{name}-");
        let is_meant = |file: &&PathBuf| {
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start))
        };
        self.libraries.iter().find(is_meant).expect("Cargo names the library")
    }
}

pub fn rustc() -> OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// Whether it is the name of a target. The folder of all targets may have any other name.
fn is_triple(name: &OsStr) -> bool {
    let list = Command::new(rustc()).args(["--print", "target-list"]).output();
    let list = list.expect("rustc starts").stdout;
    String::from_utf8_lossy(&list).lines().any(|triple| triple == name)
}

fn named(name: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(name);
    argument.push(path);
    argument
}

fn find() -> Artifacts {
    let (dependencies, text) = cargo(&["test", "--no-run", "--test", "build"]);
    // Strings in Cargo's messages: files of libraries, and folders of the build script.
    let libraries = text.split('"').filter(|string| string.ends_with(".rlib"));
    let folders = text.split('"').filter_map(|string| string.strip_prefix("native="));
    Artifacts {
        libraries: libraries.map(PathBuf::from).collect(),
        dependencies,
        link_folders: folders.map(|folder| format!("-L{folder}")).collect(),
    }
}

/// The program of an example, as Cargo builds it for the tests.
pub fn example(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let (dependencies, _) = cargo(&["build", "--examples"]);
        dependencies.with_file_name("examples")
    });
    folder.join(name)
}

/// Calls Cargo for the profile, features and folder of this program. Returns the folder of
/// libraries, and Cargo's messages.
fn cargo(arguments: &[&str]) -> (PathBuf, String) {
    // target/[TRIPLE/]PROFILE/deps/PROGRAM
    let program = std::env::current_exe().expect("this program");
    let dependencies = program.parent().expect("the folder deps");
    let profile = dependencies.parent().expect("the folder of the profile");
    let mut target = profile.parent().expect("the folder of the target");

    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).args(["--locked", "--message-format=json"]);
    match profile.file_name().and_then(|name| name.to_str()).expect("the profile's name") {
        "debug" => {}
        name => drop(command.args(["--profile", name])),
    }
    if let Some(triple) = target.file_name().filter(|name| is_triple(name)) {
        command.arg("--target").arg(triple);
        target = target.parent().expect("the folder of all targets");
    }
    command.args(["--no-default-features", "--features", &features()]);
    command.arg("--target-dir").arg(target).current_dir(env!("PINLANE_PROJECT"));
    let output = command.stderr(Stdio::inherit()).output().expect("cargo starts");
    assert!(output.status.success(), "{command:?} failed");
    (dependencies.to_owned(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn features() -> String {
    let all = [
        ("default", cfg!(feature = "default")),
        ("cuda", cfg!(feature = "cuda")),
        ("emulated", cfg!(feature = "emulated")),
        ("capi", cfg!(feature = "capi")),
        ("allocator-api2", cfg!(feature = "allocator-api2")),
        ("tracing", cfg!(feature = "tracing")),
        ("futures", cfg!(feature = "futures")),
        ("nvtx", cfg!(feature = "nvtx")),
    ];
    all.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect::<Vec<_>>().join(",")
}
