//! Every call of the driver fails, at every point of the programs in C and C++: the examples, which
//! check every status, and the tests, which continue after an error.
//!
//! Whatever fails: no crash, no panic, no hang, no misuse. An example reports the error, or prints
//! its usual output and leaks nothing. `PINLANE_TEST_FAULTS` sets how many faults each program
//! gets, or `all`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pinlane::CudaCode;
use pinlane::driver::Call;

use super::compiler::{Compiler, Language, Program};
use super::{library, project, scratch_file};

/// The exit code of a program that uses a NULL from a failed call, or aborts by itself.
const OWN_MISTAKE: i32 = 77;
/// How long a program may take. On an idle machine it takes some milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

struct Subject {
    name: &'static str,
    program: Program,
    report: PathBuf,
    arguments: Vec<String>,
    /// It checks every status.
    careful: bool,
}

#[derive(Debug)]
struct Outcome {
    status: ExitStatus,
    said: String,
    errors: String,
    /// By call, with `findings` and `left`.
    counts: BTreeMap<String, u64>,
}

#[derive(Clone, Copy)]
struct Fault {
    call: Call,
    nth: u64,
    code: CudaCode,
    forever: bool,
    late: bool,
}

impl Subject {
    fn new(name: &'static str, language: Language) -> Subject {
        let standard = if language == Language::C { "c11" } else { "c++17" };
        let (compiler, source) = (Compiler::of(language), project(name));
        let careful = name.starts_with("ffi-examples");
        let wrapped = ["pinlane_emulator_create", "pinlane_device_open_or_emulated", "abort"];
        let wrapped = &wrapped[..if careful { 2 } else { 3 }];
        // Linking with the static library takes ten times as long.
        let library = library::shared();
        let program = compiler.link_with_machines(standard, &source, wrapped, library);
        let plain = name.replace(['/', '.'], "-");
        let file = name.contains("checkpoint").then(|| scratch_file(&plain));
        let report = scratch_file(&format!("{plain}-report")).into();
        Subject { name, program, report, arguments: file.into_iter().collect(), careful }
    }

    fn run(&self, fault: Option<Fault>) -> Outcome {
        let calls = Call::ALL.map(|call| format!("{call:?} ")).concat();
        let _ = fs::remove_file(&self.report);
        let mut command = Command::new(self.program.path());
        command.args(&self.arguments);
        command.env("PINLANE_TEST_CALLS", calls).env("PINLANE_TEST_REPORT", &self.report);
        if let Some(Fault { call, nth, code, forever, late }) = fault {
            let repeat = i32::from(forever) + 2 * i32::from(late);
            let fault = format!("{call:?} {nth} {} {repeat}", code.0);
            command.env("PINLANE_TEST_FAULT", fault);
        }
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let reader = |mut pipe: Box<dyn Read + Send>| {
            thread::spawn(move || {
                let mut said = Vec::new();
                pipe.read_to_end(&mut said).expect("what it says");
                String::from_utf8_lossy(&said).into_owned()
            })
        };
        let said = reader(Box::new(child.stdout.take().expect("a pipe")));
        let errors = reader(Box::new(child.stderr.take().expect("a pipe")));
        let end = Instant::now() + LIMIT;
        let status = loop {
            match child.try_wait().expect("it is ours") {
                Some(status) => break status,
                None if Instant::now() > end => {
                    child.kill().expect("it is ours");
                    panic!("{}: hangs with {}", self.name, shown(fault));
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let (said, errors) = (said.join().expect("no panic"), errors.join().expect("no panic"));
        let report = fs::read_to_string(&self.report).unwrap_or_default();
        let counts = report.lines().filter_map(|line| line.split_once(' '));
        let counts = counts.map(|(what, count)| (what.to_owned(), count.parse().expect("a count")));
        Outcome { status, said, errors, counts: counts.collect() }
    }

    /// The faults that the program gets, and the number of all possible ones.
    fn faults(&self, counts: &BTreeMap<String, u64>, wanted: usize) -> (Vec<Fault>, usize) {
        let mut groups = Vec::new();
        for call in Call::ALL {
            let codes = call.documented_codes().iter().chain(&Call::ANY_RETURNS);
            let codes: Vec<CudaCode> = codes.copied().collect();
            let mut group = Vec::new();
            for nth in 1..=counts.get(&format!("{call:?}")).copied().unwrap_or(0) {
                for (forever, late) in [(false, false), (true, false), (false, true), (true, true)]
                {
                    let fault = |&code: &CudaCode| Fault { call, nth, code, forever, late };
                    group.extend(codes.iter().map(fault));
                }
            }
            groups.extend(Some(group).filter(|group| !group.is_empty()));
        }
        let all = groups.iter().map(Vec::len).sum();
        let each = wanted.div_ceil(groups.len().max(1));
        let chosen = groups.iter().enumerate().flat_map(|(kind, group)| {
            let count = each.min(group.len());
            // Not all with the same code, and not all at the first call.
            let at = move |n: usize| n * group.len() / count + 7 * (n + kind);
            (0..count).map(move |n| group[at(n) % group.len()])
        });
        let chosen: Vec<Fault> = chosen.collect();
        let step = (chosen.len() / wanted).max(1);
        (chosen.into_iter().step_by(step).collect(), all)
    }

    fn check(&self, fault: Fault, usual: &Outcome) {
        let outcome = self.run(Some(fault));
        let Outcome { status, said, errors, counts } = &outcome;
        let context = || format!("{} with {}: {outcome:#?}", self.name, shown(Some(fault)));
        assert!(!errors.contains("panicked at") && !said.contains("PANIC"), "{}", context());
        let loses = fault.code.is_sticky() || fault.code == CudaCode::CUDART_UNLOADING;
        if status.signal() == Some(libc::SIGABRT) {
            let is_told = errors.contains("pinlane: aborting. The device may still use");
            assert!(is_told && (loses || fault.forever), "{}", context());
            return;
        }
        let expected: &[i32] = if self.careful { &[0, 1] } else { &[0, 1, OWN_MISTAKE] };
        assert!(status.code().is_some_and(|code| expected.contains(&code)), "{}", context());
        if !self.careful {
            return; // its next calls may be a misuse
        }
        assert_eq!(counts.get("findings"), Some(&0), "{}", context());
        // These print numbers of a pool, which a fault may change.
        let tell_of_pools = ["/pool.c", "/pmr.cpp", "/pipeline.cpp"];
        let tells_of_pool = tell_of_pools.iter().any(|end| self.name.ends_with(end));
        match status.code() {
            Some(0) => assert!(tells_of_pool || *said == usual.said, "{}", context()),
            _ => assert!(errors.contains("pinlane"), "says why: {}", context()),
        }
    }
}

fn shown(fault: Option<Fault>) -> String {
    fault.map_or("no fault".to_owned(), |Fault { call, nth, code, forever, late }| {
        let repeat = if forever { "forever" } else { "once" };
        let late = if late { ", late" } else { "" };
        format!("{call:?} number {nth} giving {code}, {repeat}{late}")
    })
}

fn survive(language: Language, names: &[&'static str], sample: usize) {
    let wanted = match std::env::var("PINLANE_TEST_FAULTS").as_deref() {
        Err(_) | Ok("") => sample,
        Ok("all") => usize::MAX,
        Ok(number) => number.parse().expect("PINLANE_TEST_FAULTS: a number, or all"),
    };
    for name in names {
        let (subject, start) = (Subject::new(name, language), Instant::now());
        let usual = subject.run(None);
        // Some tests count handles, and here there are more.
        assert!(usual.status.success() || !subject.careful, "{name}: {usual:#?}");
        let (faults, all) = subject.faults(&usual.counts, wanted);
        assert!(!faults.is_empty(), "{name}: {usual:#?}");
        faults.iter().for_each(|&fault| subject.check(fault, &usual));
        println!(
            "{name}: {} faults of {all}, {:.1?}: nothing crashed, hung or panicked, no misuse",
            faults.len(),
            start.elapsed()
        );
    }
}

#[test]
fn examples_in_c_survive_every_fault() {
    let names = [
        "ffi-examples/c/shortest.c",
        "ffi-examples/c/roundtrip.c",
        "ffi-examples/c/pool.c",
        "ffi-examples/c/checkpoint.c",
    ];
    survive(Language::C, &names, 20);
}

#[test]
fn examples_in_cpp_survive_every_fault() {
    let names = [
        "ffi-examples/cpp/01_first_copy.cpp",
        "ffi-examples/cpp/04_batch.cpp",
        "ffi-examples/cpp/05_prefetch.cpp",
        "ffi-examples/cpp/09_graph.cpp",
        "ffi-examples/cpp/pipeline.cpp",
        "ffi-examples/cpp/pmr.cpp",
        "ffi-examples/cpp/checkpoint.cpp",
    ];
    survive(Language::Cpp, &names, 20);
}

/// Without `callbacks.c` and `prefetch.c`, which wait for callbacks that may not come if a call
/// fails, and without `pool_memory.c`, whose budgets take seconds to spend.
#[test]
fn tests_in_c_survive_every_fault() {
    let names = [
        "tests/ffi/c/batches.c",
        "tests/ffi/c/diagnostics.c",
        "tests/ffi/c/dlpack.c",
        "tests/ffi/c/dlpack_imports.c",
        "tests/ffi/c/dlpack_strided.c",
        "tests/ffi/c/foreign.c",
        "tests/ffi/c/graphs.c",
        "tests/ffi/c/lifetimes.c",
        "tests/ffi/c/pairs.c",
        "tests/ffi/c/pools.c",
        "tests/ffi/c/recordings.c",
        "tests/ffi/c/rows.c",
        "tests/ffi/c/rules.c",
        "tests/ffi/c/slices.c",
    ];
    survive(Language::C, &names, 6);
}

/// The tests that catch unexpected exceptions and exit with 1.
#[test]
fn tests_in_cpp_survive_every_fault() {
    survive(Language::Cpp, &["tests/ffi/cpp/pairs.cpp", "tests/ffi/cpp/recordings.cpp"], 12);
}
