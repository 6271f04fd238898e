//! Builds the drop-in, and calls this program on it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use super::Suite;

/// How many programs a process runs. Each process has a seed and a mode of its own.
const AT_ONCE: u64 = 100;

const MODES: [&str; 5] = ["eager", "lazy", "random", "chunked", "pct:2"];

/// Runs a command that must end well.
fn must(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// The folder of libcuda.so.1: that of `PINLANE_CUDART`, or it is built.
fn library() -> PathBuf {
    if let Some(folder) = env::var_os("PINLANE_CUDART") {
        return fs::canonicalize(folder).expect("the folder that PINLANE_CUDART names");
    }
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let work = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = work.parent().expect("cargo's folder for tests is in its target folder");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "pinlane-cudart", "--target-dir"]);
    must(cargo.arg(target).current_dir(root));
    let folder = work.join("cudart");
    let mut script = Command::new(root.join("scripts/build-cudart"));
    let archive = target.join("debug/libpinlane_cudart.a");
    must(script.arg(&folder).env("PINLANE_CUDART_ARCHIVE", archive).stdout(std::io::stderr()));
    folder
}

/// Calls this program with these words and variables, in a mode. Whether all is well.
fn once(
    library: &Path,
    words: &[String],
    mode: &str,
    seed: u64,
    variables: [(&str, u64); 2],
) -> bool {
    let report = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let report = report.join(format!("findings-{}", std::process::id()));
    let _ = fs::remove_file(&report);
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(words).env("LD_LIBRARY_PATH", library).env("PINLANE_TEST_DEVICE", "cuda");
    command.env("PINLANE_CUDART_REPORT", &report).env("PINLANE_CUDART_QUIET", "1");
    command.env("PINLANE_CUDART_DEVICES", "2").env("PINLANE_CUDART_MODE", mode);
    command.env("PINLANE_CUDART_SEED", seed.to_string());
    command.envs(variables.map(|(name, value)| (name, value.to_string())));
    let output = command.output().expect("this program starts");
    let findings = fs::read_to_string(&report).unwrap_or_default();
    let passed = output.status.success() && findings.is_empty();
    if !passed {
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        println!("{mode}, seed {seed}, {words:?}: {}\n{said}{errors}{findings}", output.status);
    }
    passed
}

/// Runs the tests whose names have one of these words, in all modes, or in that of
/// `PINLANE_CUDART_MODE`.
pub fn run(suite: &Suite, words: &[String]) -> ExitCode {
    let library = library();
    let mode = env::var("PINLANE_CUDART_MODE");
    let modes = mode.as_ref().map_or(MODES.to_vec(), |mode| vec![mode.as_str()]);
    let mut runs = 0;
    let mut failed = 0;
    let mut count = |passed: bool| {
        runs += 1;
        failed += u32::from(!passed);
    };
    let only_programs = words == ["programs"];
    let wants_programs = words.is_empty() || only_programs;
    let (mut left, mut first) = if wants_programs { suite.wanted() } else { (0, 1) };
    let [count_name, seed_name] = suite.variables;
    let variables = |count, seed| [(count_name, count), (seed_name, seed)];
    let tests = if only_programs { 0 } else { modes.len() as u64 };
    println!("running {} processes on the drop-in", tests + left.div_ceil(AT_ONCE));
    for (seed, mode) in (1..).zip(modes.iter().copied()).filter(|_| !only_programs) {
        let conformance = ["conformance".to_owned()];
        let words = if words.is_empty() { &conformance } else { words };
        count(once(&library, words, mode, seed, variables(0, 1)));
    }
    let mut modes = modes.into_iter().cycle();
    while left > 0 {
        let programs = left.min(AT_ONCE);
        let mode = modes.next().expect("endless");
        let words = ["programs".to_owned()];
        count(once(&library, &words, mode, first, variables(programs, first)));
        (left, first) = (left - programs, first + programs);
    }
    println!("{runs} runs on the drop-in, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
