//! Lines of Python in findings: for calls, accesses of the host and allocations, by every CPython
//! that is there.
//!
//! These are the ones in `PINLANE_PYTHONS` (paths with colons between), those of `PATH`, and those
//! that pyenv has installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use serde_json::{Value, json};

use crate::support::{App, Run, shared_library};

/// An interpreter of CPython.
struct Interpreter {
    /// Such as 3.14.8, and where it is.
    name: String,
    minor: u32,
    is_free_threaded: bool,
    file: PathBuf,
}

impl Interpreter {
    /// `None` if the file is no CPython of version 3.
    fn at(file: PathBuf) -> Option<Interpreter> {
        let about = "import os, sys, sysconfig
print(sys.implementation.name, *sys.version_info[:2], sep='\\n')
print(int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))
print(*sys.version_info[:3], sep='.', end=' of ')
print(os.path.realpath(sys.executable))";
        let output = Command::new(&file).args(["-c", about]).output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let [kind, major, minor, is_free, name] = &*said.lines().collect::<Vec<_>>() else {
            return None;
        };
        (*kind == "cpython" && *major == "3").then_some(Interpreter {
            name: (*name).to_owned(),
            minor: minor.parse().ok()?,
            is_free_threaded: *is_free == "1",
            file,
        })
    }

    fn is_known(&self) -> bool {
        (10..=15).contains(&self.minor) && !self.is_free_threaded
    }
}

/// Those whose lines are known. Fails if there is none.
fn interpreters() -> Vec<Interpreter> {
    let found: Vec<_> = all_interpreters().into_iter().filter(Interpreter::is_known).collect();
    assert!(!found.is_empty(), "there is no CPython of 3.10 to 3.15 in PINLANE_PYTHONS or PATH");
    found
}

fn all_interpreters() -> Vec<Interpreter> {
    let mut files: Vec<PathBuf> = Vec::new();
    if let Some(named) = env::var_os("PINLANE_PYTHONS") {
        files.extend(env::split_paths(&named));
    }
    let names = ["3", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t", "3.15", "3.15t"];
    for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        files.extend(names.map(|version| folder.join(format!("python{version}"))));
    }
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from).or(home);
    let versions = pyenv.and_then(|pyenv| fs::read_dir(pyenv.join("versions")).ok());
    let folders = versions.into_iter().flatten().flatten().map(|folder| folder.path());
    files.extend(folders.map(|folder| folder.join("bin/python3")));

    let mut found: BTreeMap<String, Interpreter> = BTreeMap::new();
    for file in files.into_iter().filter(|file| file.exists()) {
        if let Some(interpreter) = Interpreter::at(file) {
            found.entry(interpreter.name.clone()).or_insert(interpreter);
        }
    }
    found.into_values().collect()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/cases.py")
}

/// The number of the line that is marked with this.
fn marked(mark: &str) -> u64 {
    let text = fs::read_to_string(script()).expect("is there");
    let is_marked = |line: &str| line.split('#').skip(1).any(|it| it.trim() == mark);
    text.lines().position(is_marked).expect(mark) as u64 + 1
}

struct Ran {
    version: String,
    run: Run,
    folder: PathBuf,
    findings: Vec<Value>,
}

/// Runs a case by every interpreter.
fn in_all(case: &str, more: &[&str], mut look: impl FnMut(&Ran)) {
    let interpreters = interpreters();
    for python in &interpreters {
        let ran = ran(case, more, python);
        assert_eq!(ran.run.stderr, "", "{}", python.name);
        look(&ran);
        fs::remove_dir_all(&ran.folder).expect("is there");
    }
    let names: Vec<&str> = interpreters.iter().map(|python| python.name.as_str()).collect();
    eprintln!("{case} was run by {names:?}");
}

/// Runs a case by one of them.
fn ran(case: &str, more: &[&str], python: &Interpreter) -> Ran {
    ran_by(App::of_the_system(path(&python.file)), case, more, python)
}

/// The same by a program that starts it.
fn ran_by(app: App, case: &str, more: &[&str], python: &Interpreter) -> Ran {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("python-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).expect("can be made");
    let app = app.given(path(&script())).given(case);
    let app = more.iter().fold(app.given(path(&folder)), |app, more| app.given(more));
    let run = app.python(true);
    let findings = run.findings.iter().map(|line| serde_json::from_str(line).expect("JSON"));
    let findings = findings.collect();
    assert_eq!((run.status, &*run.stdout), (Some(0), "done\n"), "{} {run:?}", python.name);
    Ran { version: python.name.clone(), folder, findings, run }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The place of a site, and the names of the functions that led there.
fn place(site: &Value) -> (String, u64, String) {
    let text = |name: &str| site[name].as_str().unwrap_or_default().to_owned();
    (text("file"), site["line"].as_u64().unwrap_or_default(), text("function"))
}

fn callers(site: &Value) -> Vec<(String, u64, String)> {
    site["callers"].as_array().into_iter().flatten().map(place).collect()
}

/// Asserts that the only finding is the race of a case, and that both its lines are named.
fn is_found(ran: &Ran, case: &str, function: &str) {
    let Ran { version, findings, run, .. } = ran;
    let [finding] = &findings[..] else { panic!("{version} {case}: {run:?}") };
    names_lines(finding, case, function, version);
}

/// Asserts that a race names the lines of a case.
fn names_lines(finding: &Value, case: &str, function: &str, version: &str) {
    let race = &finding["race"];
    let file = script().to_str().expect("UTF-8").to_owned();
    for (used, mark) in [("first", "copy"), ("second", "write")] {
        let line = marked(&format!("{mark} {case}"));
        let expected = (file.clone(), line, function.to_owned());
        assert_eq!(place(&race[used]["site"]), expected, "{version} {case} {used}: {finding}");
    }
    let allocated = "<module>";
    let site = &race["memory"]["site"];
    assert_eq!(place(site), (file, marked_allocation(), allocated.to_owned()), "{version}");
}

fn marked_allocation() -> u64 {
    let text = fs::read_to_string(script()).expect("is there");
    text.lines().position(|line| line.contains("cudaMallocHost(")).expect("is there") as u64 + 1
}

#[test]
fn calls_and_accesses_have_their_lines() {
    for (case, function) in [
        ("in_function", "in_function"),
        ("in_lambda", "<lambda>"),
        ("in_generator", "steps"),
        ("with_gil", "with_gil"),
    ] {
        in_all(case, &[], |ran| {
            is_found(ran, case, function);
            let race = &ran.findings[0]["race"];
            let last = callers(&race["first"]["site"]).pop().expect("callers");
            assert_eq!(last.2, "<module>", "{} {case}", ran.version);
            assert_eq!(race["second"]["site"]["thread"], Value::Null);
        });
    }
}

#[test]
fn the_text_has_the_source_of_the_lines() {
    in_all("in_function", &[], |ran| {
        let message = ran.findings[0]["message"].as_str().expect("a text");
        let (copy, write) = (marked("copy in_function"), marked("write in_function"));
        for line in [
            format!("  second: host write  cases.py:{write}  host #"),
            "          in in_function: memory[7] = 1  # write in_function".to_owned(),
            format!("  first:  CopyH2D     cases.py:{copy}  stream A #1"),
            "          in in_function: cuda.cudaMemcpyAsync(*COPY)  # copy in_function".to_owned(),
        ] {
            assert!(message.lines().any(|it| it.starts_with(&line)), "{line}: {message}");
        }
    });
}

#[test]
fn a_thread_has_its_own_lines_and_those_of_the_library_that_began_it() {
    in_all("in_thread", &[], |ran| {
        is_found(ran, "in_thread", "work");
        let all = callers(&ran.findings[0]["race"]["first"]["site"]);
        assert_eq!(all[0].2, "work", "{all:?}");
        assert!(all[1].0.ends_with("/threading.py") && all[1].2 == "run", "{all:?}");
    });
}

#[test]
fn the_line_of_the_program_counts_and_not_that_of_a_library() {
    in_all("in_library", &[], |ran| {
        is_found(ran, "in_library", "in_library");
        let library = ran.folder.join("site-packages/library.py");
        let library = library.to_str().expect("UTF-8").to_owned();
        for (used, line, function) in [("first", 2, "copies"), ("second", 6, "writes")] {
            let all = callers(&ran.findings[0]["race"][used]["site"]);
            assert_eq!(all[0], (library.clone(), line, function.to_owned()), "{all:?}");
            assert_eq!((&*all[1].2, &*all[2].2), ("in_library", "<module>"), "{all:?}");
        }
        let message = ran.findings[0]["message"].as_str().expect("a text");
        let text = "in in_library: library.copies(cuda, COPY)  # copy in_library  \
                    (library.py:2 in copies)";
        assert!(message.contains(text), "{message}");
    });
}

#[test]
fn a_line_is_that_of_the_statement_and_not_of_its_function() {
    in_all("in_class", &[], |ran| {
        let race = &ran.findings[0]["race"];
        let [first, second] = ["first", "second"].map(|used| place(&race[used]["site"]));
        assert_eq!((first.1, &*first.2), (marked("copy in_class"), "__enter__"));
        assert_eq!(&*second.2, "__exit__");
        // A statement of many lines begins some lines above.
        let end = marked("write in_class");
        assert!((end - 5..=end).contains(&second.1), "{} {second:?}", ran.version);
    });
    in_all("in_comprehension", &[], |ran| {
        // A function of its own until 3.11.
        let race = &ran.findings[0]["race"];
        for (used, mark) in [("first", "copy"), ("second", "write")] {
            let (file, line, function) = place(&race[used]["site"]);
            assert!(file.ends_with("/cases.py"), "{file}");
            assert_eq!(line, marked(&format!("{mark} in_comprehension")), "{}", ran.version);
            assert!(["<listcomp>", "in_comprehension"].contains(&&*function), "{function}");
        }
    });
    in_all("far_below", &[], |ran| {
        is_found(ran, "far_below", "below");
        let all = callers(&ran.findings[0]["race"]["first"]["site"]);
        assert!(all.len() == 8 && all.iter().all(|caller| caller.2 == "below"), "{all:?}");
    });
}

#[test]
fn names_of_files_have_any_characters() {
    in_all("in_paths", &[], |ran| {
        let names = ["plain", "caf\u{e9}", "\u{65e5}\u{672c}", "\u{1f680}"];
        assert_eq!(ran.findings.len(), names.len(), "{:?}", ran.run);
        for (finding, name) in ran.findings.iter().zip(names) {
            let file = ran.folder.join(name).join("step.py");
            let file = file.to_str().expect("UTF-8");
            for (used, line) in [("first", 2), ("second", 3)] {
                let found = place(&finding["race"][used]["site"]);
                assert_eq!(found, (file.to_owned(), line, "both".to_owned()), "{}", ran.version);
            }
            assert!(finding["message"].as_str().expect("a text").contains("in both: to[7] = 1"));
        }
    });
}

#[test]
fn code_that_was_freed_is_not_taken_for_the_one_at_its_address() {
    in_all("in_replaced", &[], |ran| {
        assert_eq!(ran.findings.len(), 300, "{}", ran.version);
        for (finding, line) in ran.findings.iter().zip(1..) {
            for used in ["first", "second"] {
                let found = place(&finding["race"][used]["site"]);
                assert_eq!(found, ("<made>".to_owned(), line, "<module>".to_owned()));
            }
        }
    });
}

#[test]
fn the_main_thread_stands_for_a_thread_without_python() {
    let library = shared_library("python/native");
    in_all("in_native", &[library.to_str().expect("UTF-8")], |ran| {
        // From two lines, one after the other.
        assert_eq!(ran.findings.len(), 2, "{} {:?}", ran.version, ran.run);
        for (finding, case) in ran.findings.iter().zip(["before", "in_native"]) {
            names_lines(finding, case, "in_native", &ran.version);
            let race = &finding["race"];
            for used in ["first", "second"] {
                assert_eq!(race[used]["site"]["thread"], json!("worker"), "{}", ran.version);
            }
            assert_eq!(race["memory"]["site"]["thread"], Value::Null, "{}", ran.version);
            let text = "(on another thread, while the main thread was here)";
            assert!(finding["message"].as_str().expect("a text").contains(text));
        }
    });
}

#[test]
fn a_finding_without_a_race_has_its_line_too() {
    in_all("freed", &[], |ran| {
        let finding = ran.findings.last().expect("a finding");
        assert_eq!((&finding["kind"], &finding["race"]), (&json!("BadFree"), &Value::Null));
        let (file, line, function) = place(&finding["site"]);
        assert!(file.ends_with("/cases.py"), "{file}");
        assert_eq!((line, &*function), (marked("freed"), "freed"), "{}", ran.version);
        let message = finding["message"].as_str().expect("a text");
        let text = format!("called at cases.py:{line}\n    in freed: cuda.cudaFree(device)");
        assert!(message.contains(&text), "{message}");
    });
}

#[test]
fn a_version_that_is_not_known_has_no_lines_and_says_so_once() {
    let mut others = all_interpreters();
    others.retain(|python| !python.is_known());
    for python in &others {
        // It says so to those, too, who want no other remarks.
        let quiet = App::of_the_system("env").given("PINLANE_CUDART_QUIET=1");
        let ran = ran_by(quiet.given(path(&python.file)), "in_function", &[], python);
        assert_eq!(ran.run.kinds(), ["Race"], "{}", python.name);
        let build = if python.is_free_threaded { "free-threaded " } else { "" };
        let expected = format!(
            "pinlane-cudart: findings do not name lines of Python: frames of this {build}CPython \
             3.{} are not known\n",
            python.minor
        );
        assert_eq!(ran.run.stderr, expected, "{}", python.name);
        let site = &ran.findings[0]["race"]["first"]["site"];
        assert_eq!((&site["function"], callers(site)), (&Value::Null, vec![]), "{}", python.name);
        fs::remove_dir_all(&ran.folder).expect("is there");
    }
    let names: Vec<&str> = others.iter().map(|python| python.name.as_str()).collect();
    eprintln!("not known: {names:?}");
}

#[test]
fn a_load_that_a_watchpoint_sees_has_its_line() {
    if !pinlane_emulator::Emulator::watchpoints_are_lent() {
        return;
    }
    in_all("loaded", &[], |ran| {
        let [finding] = &ran.findings[..] else { panic!("{}: {:?}", ran.version, ran.run) };
        let load = &finding["race"]["second"];
        let file = script().to_str().expect("UTF-8").to_owned();
        let expected = (file.clone(), marked("load"), "loads".to_owned());
        assert_eq!(place(&load["site"]), expected, "{}: {finding}", ran.version);
        let led_there = callers(&load["site"]).into_iter().map(|(_, _, function)| function);
        let led_there: Vec<String> = led_there.collect();
        assert_eq!(led_there, ["loads", "loaded", "<module>"], "{}", ran.version);
    });
}
