//! Each function of the driver fails, at each of its calls, in a program that a process runs on the
//! drop-in's driver: with an error that passes, with one that nobody expects, and with one that
//! loses the device.

mod program;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pinlane::CudaCode;

use crate::sources::{read, sources_of};

/// Set for the process that runs the program: the code that a call of it gives, or 0.
const CHILD: &str = "PINLANE_TEST_DRIVER_FAULT";

/// More calls than a program makes. At the end the drop-in says how many calls it made of a
/// function for which it waits so long.
const NEVER: u64 = 1_000_000_000;

const CODES: [CudaCode; 3] =
    [CudaCode::MEMORY_ALLOCATION, CudaCode::UNKNOWN, CudaCode::ILLEGAL_ADDRESS];

/// Two machines, which take all ways of the crate between them.
const MACHINES: [[(&str, &str); 2]; 2] = [
    [("PINLANE_CUDART_MODE", "lazy"), ("PINLANE_CUDART_POOLS", "on")],
    [("PINLANE_CUDART_MODE", "eager"), ("PINLANE_CUDART_POOLS", "off")],
];

/// Functions that make something, and those that end it.
const PAIRS: [(&[&str], &[&str]); 7] = [
    (&["cuMemHostAlloc"], &["cuMemFreeHost"]),
    (&["cuMemHostRegister_v2"], &["cuMemHostUnregister"]),
    (&["cuMemAlloc_v2", "cuMemAllocAsync"], &["cuMemFree_v2", "cuMemFreeAsync"]),
    (&["cuStreamCreateWithPriority"], &["cuStreamDestroy_v2"]),
    (&["cuEventCreate"], &["cuEventDestroy_v2"]),
    (&["cuStreamEndCapture"], &["cuGraphDestroy"]),
    (&["cuGraphInstantiateWithFlags"], &["cuGraphExecDestroy"]),
];

/// The pairs of events, of graphs and of executable graphs.
const EVENT: usize = 4;
const GRAPH: usize = 5;
const EXECUTABLE: usize = 6;

/// Each call of another function needs them. So one of these faults is a fault of any function.
const AROUND: [&str; 3] =
    ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode"];

/// If one of these fails, it may be unknown when the device is done with memory, and that is kept.
const ORDER: [&str; 3] = ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"];

type Counts = BTreeMap<String, u64>;

#[derive(Clone, Debug)]
struct Fault<'a> {
    function: &'a str,
    nth: u64,
    code: CudaCode,
}

/// What a run of the program left.
struct Left {
    calls: Counts,
    kept: usize,
    findings: String,
}

/// The folder of libcuda.so.1: that of `PINLANE_CUDART`, or it is built.
fn library() -> PathBuf {
    if let Some(folder) = env::var_os("PINLANE_CUDART") {
        return fs::canonicalize(folder).expect("the folder that PINLANE_CUDART names");
    }
    let work = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = work.parent().expect("cargo's folder for tests is in its target folder");
    let root = Path::new(env!("PINLANE_PROJECT"));
    let must = |command: &mut Command| {
        let status = command.current_dir(root).stdout(Stdio::null()).status();
        assert!(status.expect("it starts").success(), "{command:?}");
    };
    let cargo = ["build", "--quiet", "--package", "pinlane-cudart", "--target-dir"];
    must(Command::new(env!("CARGO")).args(cargo).arg(target));
    let folder = work.join("cudart");
    let archive = target.join("debug/libpinlane_cudart.a");
    let script = root.join("scripts/build-cudart");
    must(Command::new(script).arg(&folder).env("PINLANE_CUDART_ARCHIVE", archive));
    folder
}

/// The functions in the tables of the crate, by the names of the symbols that they are found as.
/// Not `cuGetProcAddress`, which finds them: a function that it does not find is one that the
/// driver lacks.
fn functions() -> Vec<String> {
    let exported = read("crates/cudart/exports/driver-versions.txt");
    let exported: Vec<(&str, u32)> = exported
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, since)| (name, since.parse().expect("a version")))
        .collect();
    let symbol = |name: &str, version: u32| {
        let is_version = |symbol: &str| {
            let rest = symbol.strip_prefix(name).map(|rest| rest.trim_start_matches("_v"));
            rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
        };
        let fits = exported.iter().filter(|(it, since)| is_version(it) && *since <= version);
        let newest = fits.max_by_key(|(_, since)| since);
        newest.unwrap_or_else(|| panic!("{name} of {version}")).0.to_owned()
    };
    let mut found = Vec::new();
    for source in sources_of("src/driver/cuda") {
        for row in source.text.lines().filter_map(|line| line.split_once(": c\"cu")) {
            let (name, rest) = row.1.split_once('"').expect("a name");
            let version = rest.split_whitespace().next().expect("a version");
            found.push(symbol(&format!("cu{name}"), version.parse().expect("a version")));
        }
    }
    found.sort();
    found.dedup();
    assert!(found.len() > 40, "the tables: {found:?}");
    found
}

/// Runs the program on a machine. `Err` with what it said, if it failed.
fn run(
    library: &Path,
    machine: &[(&str, &str)],
    functions: &[String],
    fault: Option<&Fault<'_>>,
) -> Result<Left, String> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let report = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("driver-faults-{}-{number}", std::process::id()));
    let mut faults: Vec<_> = functions.iter().map(|name| format!("{name}:{NEVER}:2")).collect();
    if let Some(Fault { function, nth, code }) = fault {
        faults.push(format!("{function}:{nth}:{}", code.0));
    }
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "driver_faults::the_child_runs_the_program", "--nocapture"])
        .env(CHILD, fault.map_or(0, |fault| fault.code.0).to_string())
        .env("LD_LIBRARY_PATH", library)
        .env("PINLANE_CUDART_DEVICES", "2")
        .env("PINLANE_CUDART_FAULT", faults.join(","))
        .env("PINLANE_CUDART_REPORT", &report)
        .envs(machine.iter().copied())
        .output()
        .expect("this program starts");
    let findings = fs::read_to_string(&report).unwrap_or_default();
    let _ = fs::remove_file(&report);
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let kept = said.lines().find_map(|line| line.strip_prefix("kept: "));
    let Some(kept) = kept.filter(|_| output.status.success()) else {
        return Err(format!("{}\n{said}\n{errors}\n{findings}", output.status));
    };
    let kept = kept.parse().expect("a number");
    let count = |line: &str| {
        let (name, made) = line.strip_prefix("pinlane-cudart: ")?.split_once(" was called ")?;
        Some((name.to_owned(), made.split_once(' ')?.0.parse().ok()?))
    };
    Ok(Left { calls: errors.lines().filter_map(count).collect(), kept, findings })
}

impl Left {
    /// How many more things of each kind were made than ended.
    fn balance(&self, fault: Option<&Fault<'_>>) -> [i64; PAIRS.len()] {
        let done = |names: &[&str]| -> i64 {
            let calls = names.iter().map(|&name| {
                let failed = fault.is_some_and(|fault| fault.function == name);
                self.calls.get(name).map_or(0, |&made| made as i64 - i64::from(failed))
            });
            calls.sum()
        };
        PAIRS.map(|(made, ended)| done(made) - done(ended))
    }

    /// `Err` if something leaked that the fault does not explain. `usual` is what a run without one
    /// leaves.
    fn check(&self, usual: &Left, fault: &Fault<'_>) -> Result<(), String> {
        let (before, after) = (usual.balance(None), self.balance(Some(fault)));
        let more = std::array::from_fn::<_, { PAIRS.len() }, _>(|kind| after[kind] - before[kind]);
        let is_release = PAIRS.iter().any(|(_, ended)| ended.contains(&fault.function));
        let releases = is_release || AROUND.contains(&fault.function);
        // A graph that could not be ended names memory that comes back. Nothing launches it again.
        let named = |line: &str| line.contains("\"FreedInFlight\"") && more[EXECUTABLE] > 0;
        let mut wrong: Vec<&str> = self.findings.lines().filter(|line| !named(line)).collect();
        if !fault.code.is_sticky() {
            let orders = ORDER.contains(&fault.function);
            if self.kept > 0 && !releases && !orders {
                wrong.push("memory is kept");
            }
            // What is kept has its uses, and with them streams and events. A capture that has ended
            // without a graph is ended once more. A graph that is not ended is two things. With
            // pools there is an event for each stream that has freed memory of `cuMemAlloc`, which
            // may be another one after a fault.
            let is_capture = fault.function == "cuGraphInstantiateWithFlags";
            let explained = i64::from(releases || is_capture)
                + i64::from(releases && more[GRAPH] > 0 && more[EXECUTABLE] > 0)
                + i64::from(before[EVENT] > 0 && more[EVENT] > 0);
            let leaked: i64 = more.iter().filter(|&&more| more > 0).sum();
            if self.kept == 0 && leaked > explained {
                wrong.push("something leaked");
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        Err(format!("{}\n{before:?} before, {after:?} after, {} kept", wrong.join("\n"), self.kept))
    }
}

/// The faults of a run that makes these calls: all, or some of each function.
fn faults<'a>(functions: &'a [String], calls: &Counts) -> Vec<Fault<'a>> {
    let wanted = match env::var("PINLANE_TEST_FAULTS").as_deref() {
        Ok("all") => usize::MAX,
        _ => 3,
    };
    let mut chosen = Vec::new();
    for function in functions {
        let calls = calls.get(function).copied().unwrap_or(0);
        let fault = |nth| CODES.map(|code| Fault { function, nth, code });
        let all: Vec<Fault<'_>> = (1..=calls).flat_map(fault).collect();
        let step = all.len().div_ceil(wanted).max(1);
        // Not the same code each time.
        let step = if step.is_multiple_of(CODES.len()) { step + 1 } else { step };
        chosen.extend(all.into_iter().step_by(step));
    }
    chosen
}

#[test]
fn the_child_runs_the_program() {
    let Some(code) = env::var_os(CHILD) else { return };
    match code.to_str().and_then(|code| code.parse().ok()).expect("a code") {
        0 => program::run_once(),
        code => program::run_twice(CudaCode(code)),
    }
}

#[test]
fn every_call_of_the_driver_may_fail() {
    let (library, functions) = (library(), functions());
    let mut uncalled: Vec<&String> = functions.iter().collect();
    for machine in &MACHINES {
        let usual =
            run(&library, machine, &functions, None).unwrap_or_else(|said| panic!("{said}"));
        assert_eq!((usual.kept, usual.findings.as_str()), (0, ""));
        uncalled.retain(|&function| usual.calls.get(function).is_none_or(|&calls| calls == 0));
        let faults = faults(&functions, &usual.calls);
        let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                let left = run(&library, machine, &functions, Some(fault));
                if let Err(said) = left.and_then(|left| left.check(&usual, fault)) {
                    wrong.lock().unwrap().push(format!("{machine:?}, {fault:?}: {said}"));
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let wrong = wrong.into_inner().unwrap();
        println!("{machine:?}: {} faults", faults.len());
        let first: String = wrong.iter().take(5).map(|it| format!("{it}\n\n")).collect();
        assert!(wrong.is_empty(), "{} of {} faults: {first}", wrong.len(), faults.len());
    }
    assert!(uncalled.is_empty(), "the program does not call {uncalled:?}");
}
