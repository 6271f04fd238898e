//! Programs in C and C++: compiled against the CUDA runtime, linked with the drop-in library, and
//! run as processes of their own.
//!
//! `PINLANE_CUDART` names the folder of the library. Without it, it is built as its own tests
//! build it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::Value;

use crate::outcome::{End, Found, Outcome};
use crate::program::Language;

/// How long a run may take. A program takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

fn zoo() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where programs and reports go.
fn work() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| zoo().join("../../target")).join("zoo")
}

/// Runs a command that must end well.
fn must(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}");
}

/// The folder of the drop-in library.
fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = env::var_os("PINLANE_CUDART") {
            return folder.into();
        }
        fs::create_dir_all(work()).expect("the folder of programs can be made");
        let (root, target) = (zoo().join("../.."), work().join(".."));
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "pinlane-cudart", "--target-dir"]);
        must(cargo.arg(&target).current_dir(&root));
        let mut script = Command::new(root.join("scripts/build-cudart"));
        let archive = target.join("debug/libpinlane_cudart.a");
        must(script.arg(work().join("cudart")).env("PINLANE_CUDART_ARCHIVE", archive));
        work().join("cudart")
    })
}

/// The names and texts of the programs in a language.
///
/// # Panics
///
/// If they cannot be read.
#[must_use]
pub fn sources(language: Language) -> Vec<(String, String)> {
    let files = fs::read_dir(zoo().join("programs")).expect("the zoo is there");
    let paths = files.flatten().map(|file| file.path());
    let ours = paths.filter(|path| path.extension().is_some_and(|e| e == language.ending()));
    let read = |path: PathBuf| {
        let name = path.file_stem().expect("has an ending").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("can be read"))
    };
    ours.map(read).collect()
}

/// A program that is compiled when it is first run.
pub struct Native {
    source: PathBuf,
    compiler: Vec<&'static str>,
    file: OnceLock<PathBuf>,
}

impl Native {
    pub(crate) fn new(name: &str, language: Language) -> Self {
        let compiler = match language {
            Language::C => vec!["CC", "cc", "-std=c11"],
            _ => vec!["CXX", "c++", "-std=c++17"],
        };
        let source = zoo().join("programs").join(format!("{name}.{}", language.ending()));
        Native { source, compiler, file: OnceLock::new() }
    }

    /// Compiles it, unless that was done since it was written.
    fn file(&self) -> &Path {
        // Another test may be about to compile the same program.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        self.file.get_or_init(|| {
            let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
            let programs = zoo().join("programs");
            let folder = library();
            let file = work().join(self.source.file_stem().expect("has one"));
            let library = folder.join("libcudart.so.13");
            let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
            let headers =
                ["zoo.h", "kernel.h", "cuda_runtime_api.h"].map(|header| programs.join(header));
            let inputs = headers.iter().chain([&self.source, &library]);
            let newest = inputs.map(|path| changed(path).expect("is there")).max();
            if changed(&file) > newest {
                return file;
            }
            let [variable, name, standard] = self.compiler[..] else { unreachable!() };
            let compiler = env::var(variable).ok().filter(|name| !name.is_empty());
            let mut command = Command::new(compiler.unwrap_or_else(|| name.to_owned()));
            // Findings name lines of the program, by its debug information.
            command
                .args([standard, "-g", "-O1", "-Wall", "-Wextra", "-pthread", "-I"])
                .arg(&programs);
            command.arg(&self.source).arg("-o").arg(&file).arg(&library);
            fs::create_dir_all(work()).expect("the target folder can be written");
            // Stand-ins for kernels are found by their names.
            must(command.args(["-rdynamic", "-Wl,-rpath"]).arg(folder));
            file
        })
    }

    pub(crate) fn run(&self, fixed: bool, mode: &str, seed: u64, devices: usize) -> Outcome {
        static REPORTS: AtomicU32 = AtomicU32::new(0);
        let number = REPORTS.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(self.file());
        let report = work().join(format!("report-{}-{number}", std::process::id()));
        command.args(fixed.then_some("fixed")).stdout(Stdio::null()).stderr(Stdio::null());
        for (name, value) in [("MODE", mode), ("SEED", &seed.to_string())] {
            command.env(format!("PINLANE_CUDART_{name}"), value);
        }
        command
            .env("PINLANE_CUDART_DEVICES", devices.to_string())
            .env_remove("PINLANE_CUDART_EXIT")
            // For host functions that never return. Those of the zoo take no time.
            .env("PINLANE_CUDART_HOST_FUNCTION_SECONDS", "0.5");
        let end = ended(command.env("PINLANE_CUDART_REPORT", &report));
        let lines = fs::read_to_string(&report).unwrap_or_default();
        let _ = fs::remove_file(&report);
        Outcome { end, findings: lines.lines().map(found).collect() }
    }
}

/// Runs a program to its end, or until the time limit.
fn ended(command: &mut Command) -> End {
    let start = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    loop {
        if let Some(status) = child.try_wait().expect("our own process") {
            return match status.code() {
                Some(0) => End::Right,
                Some(3) => End::Wrong,
                _ => End::Failed(status.to_string()),
            };
        }
        if start.elapsed() > PATIENCE {
            child.kill().and_then(|()| child.wait()).expect("our own process");
            return End::Failed("it hangs".into());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn found(line: &str) -> Found {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    Found { kind: text("kind"), message: text("message") }
}
