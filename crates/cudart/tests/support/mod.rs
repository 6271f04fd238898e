//! Builds the library and the programs, and runs them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{env, fs};

/// How many seeds a program is run with.
pub const MODES: u64 = 20;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn work() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Runs a command that must end well.
fn must(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}");
    String::from_utf8(output.stdout).expect("text")
}

/// The libraries, as scripts/build-cudart links them.
pub struct Library(PathBuf);

/// Built once for all tests of the process, as the archive that these tests belong to.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = work().parent().expect("cargo's folder for tests is in its target folder");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "pinlane-cudart", "--target-dir"]);
        must(cargo.arg(target).current_dir(root()));
        let folder = work().join("cudart");
        let mut script = Command::new(root().join("scripts/build-cudart"));
        script.arg(&folder).env("PINLANE_CUDART_ARCHIVE", target.join("debug/libpinlane_cudart.a"));
        must(&mut script);
        Library(folder)
    })
}

impl Library {
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The names that libcuda.so.1 exports.
    pub fn driver_symbols(&self) -> Vec<String> {
        let file = self.0.join("libcuda.so.1");
        let listed = must(Command::new("nm").args(["-D", "--defined-only"]).arg(file));
        listed.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect()
    }

    /// The names that one of the libraries exports under its version.
    pub fn symbols(&self, major: u32) -> Vec<String> {
        let version = format!("@@libcudart.so.{major}");
        let names = self.exported(major).into_iter();
        names.filter_map(|name| Some(name.strip_suffix(&version)?.to_owned())).collect()
    }

    /// What else it exports; not the name of the version itself.
    pub fn other_symbols(&self, major: u32) -> Vec<String> {
        let name = format!("libcudart.so.{major}");
        let version = format!("@@{name}");
        let names = self.exported(major).into_iter();
        names.filter(|other| *other != name && !other.ends_with(&version)).collect()
    }

    fn exported(&self, major: u32) -> Vec<String> {
        let file = self.0.join(format!("libcudart.so.{major}"));
        let listed = must(Command::new("nm").args(["-D", "--defined-only"]).arg(file));
        listed.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect()
    }
}

/// The names that one of NVIDIA's libraries exports: `"12"`, `"13"`, `"driver"`.
pub fn exports(library: &str) -> Vec<String> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("exports/{library}.txt"));
    fs::read_to_string(list).expect("is there").lines().map(str::to_owned).collect()
}

/// The toolkit's headers, if it is installed. Says so if not.
pub fn toolkit() -> Option<&'static Path> {
    static HEADERS: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let nvidia = fs::read_dir(root().join(".toolkit/nvidia")).ok()?;
        let folders = nvidia.flatten().map(|folder| folder.path().join("include"));
        folders.into_iter().find(|folder| folder.join("cuda_runtime_api.h").exists())
    };
    let headers = HEADERS.get_or_init(find).as_deref();
    if headers.is_none() {
        eprintln!("skipped: there is no toolkit in .toolkit (scripts/install-toolkit)");
    }
    headers
}

fn compiler() -> Command {
    let name = env::var("CXX").ok().filter(|name| !name.is_empty());
    let mut compiler = Command::new(name.unwrap_or_else(|| "c++".to_owned()));
    compiler.args(["-std=c++17", "-g", "-O1", "-Wall", "-Wextra"]);
    compiler
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("cpp")
}

/// A program that is compiled.
#[derive(Clone)]
pub struct App {
    file: PathBuf,
    arguments: Vec<String>,
}

/// Compiles a program and links it with our libraries of CUDA 13, as far as it uses them. Once for
/// each set of headers.
pub fn program(name: &str, headers: Option<&Path>) -> App {
    compiled(name, &[source(name)], headers, 13)
}

/// The same for a thread sanitizer. `None` if the compiler has none.
pub fn watched(name: &str) -> Option<App> {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    let is_there = IS_THERE.get_or_init(|| {
        let file = work().join("sanitizer");
        fs::write(file.with_extension("cpp"), "int main() {}").expect("can be written");
        let mut command = compiler();
        command.arg("-fsanitize=thread").arg(file.with_extension("cpp")).arg("-o").arg(&file);
        command.output().is_ok_and(|output| output.status.success())
    });
    if !is_there {
        eprintln!("skipped: the compiler has no thread sanitizer");
        return None;
    }
    Some(compiled_with(&["-fsanitize=thread"], &format!("{name}-tsan"), &[source(name)], None, 13))
}

/// The same with our libraries of CUDA 12.
pub fn program_of_12(name: &str) -> App {
    compiled(name, &[source(name)], None, 12)
}

/// The same of all sources in a folder beside this one.
pub fn folder(name: &str, headers: Option<&Path>) -> App {
    compiled(name, &sources(name), headers, 13)
}

/// The sources in a folder beside this one.
pub fn sources(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let files = fs::read_dir(folder).expect("is there").flatten().map(|file| file.path());
    files.filter(|file| file.extension().is_some_and(|end| end == "cpp")).collect()
}

fn compiled(name: &str, sources: &[PathBuf], headers: Option<&Path>, major: u32) -> App {
    compiled_with(&[], name, sources, headers, major)
}

fn compiled_with(
    flags: &[&str],
    name: &str,
    sources: &[PathBuf],
    headers: Option<&Path>,
    major: u32,
) -> App {
    static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let app = if headers.is_some() { format!("{name}-toolkit") } else { format!("{name}-{major}") };
    let file = work().join(app).with_extension("app");
    // A test may run it, and read its lines, while another asks for it.
    if !done.insert(file.clone()) {
        return App { file, arguments: Vec::new() };
    }
    let mut command = compiler();
    if let Some(headers) = headers {
        command.arg("-DWITH_TOOLKIT").arg("-isystem").arg(headers);
    }
    let library = &library().0;
    command.args(flags).args(sources).arg("-o").arg(&file).arg("-Wl,--as-needed");
    command.arg(library.join("libcuda.so.1")).arg(library.join(format!("libcudart.so.{major}")));
    // Stand-ins for kernels are found by their names.
    command.args(["-rdynamic", "-pthread", "-Wl,-rpath"]).arg(library);
    must(&mut command);
    App { file, arguments: Vec::new() }
}

/// Compiles a program without our libraries; with the toolkit, links it with its static runtime.
pub fn unlinked(name: &str, headers: Option<&Path>) -> App {
    let folder = work().join(if headers.is_some() { "unlinked-toolkit" } else { "unlinked" });
    fs::create_dir_all(&folder).expect("the tests' folder can be written");
    let file = folder.join(name).with_extension("app");
    let mut command = compiler();
    command.arg(source(name)).arg("-o").arg(&file).arg("-pthread");
    if let Some(headers) = headers {
        command.arg("-DWITH_TOOLKIT").arg("-isystem").arg(headers);
        command.arg(headers.with_file_name("lib").join("libcudart_static.a")).arg("-lrt");
    }
    must(command.arg("-ldl"));
    App { file, arguments: Vec::new() }
}

/// Compiles a library that a program loads, which finds our libraries there.
pub fn shared_library(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let file = work().join(name.replace('/', "-")).with_extension("so");
    let mut command = compiler();
    command.args(["-shared", "-fPIC", "-pthread"]).arg(source.with_extension("cpp"));
    must(command.arg("-o").arg(&file));
    file
}

/// The functions that one of the toolkit's headers declares, in each of its forms: for the default
/// stream, for that of the thread, and those of older versions.
pub fn declared(headers: &Path, header: &str, prefix: &str) -> BTreeSet<String> {
    // Headers of others, of which nothing but the names of types is used.
    let others = work().join("others");
    for name in ["GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h"] {
        let file = others.join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("can be written");
        fs::write(file, "").expect("can be written");
    }
    let is_of_cuda = |name: &&str| {
        let rest = name.strip_prefix(prefix).unwrap_or_default();
        rest.starts_with(|letter: char| letter.is_ascii_uppercase())
    };
    let mut names = BTreeSet::new();
    for form in ["PLAIN", "CUDA_API_PER_THREAD_DEFAULT_STREAM", "__CUDA_API_VERSION_INTERNAL"] {
        let mut command = Command::new(env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
        command.args(["-E", "-P", "-x", "c", "-D"]).arg(form).arg("-isystem").arg(&others);
        command.arg("-isystem").arg(headers).arg(headers.join(header).with_extension("h"));
        let text = must(&mut command);
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        for (at, _) in text.match_indices('(') {
            let name = text[..at].trim_end().rsplit(|letter| !is_part(letter)).next();
            names.extend(name.filter(is_of_cuda).map(str::to_owned));
        }
    }
    names
}

/// Compiles a program and links it with a library that only looks like NVIDIA's.
pub fn stub(name: &str, major: u32) -> App {
    let folder = work().join(format!("stub{major}"));
    fs::create_dir_all(&folder).expect("the tests' folder can be written");
    let library = format!("libcudart.so.{major}");
    let version = folder.join("version");
    fs::write(&version, format!("{library} {{ global: *; }};")).expect("can be written");
    let mut command = compiler();
    command.args(["-shared", "-fPIC"]).arg(source("stub")).arg("-o").arg(folder.join(&library));
    command.arg(format!("-Wl,-soname,{library}"));
    command.arg(format!("-Wl,--version-script={}", version.display()));
    must(&mut command);
    let file = folder.join(name);
    let mut command = compiler();
    command.arg(source(name)).arg("-o").arg(&file).arg(folder.join(&library));
    must(command.arg("-Wl,-rpath").arg(&folder));
    App { file, arguments: Vec::new() }
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Run {
    /// None if a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// The lines of its report.
    pub findings: Vec<String>,
}

impl Run {
    /// Asserts that the program found all right, and that nothing was found in it.
    #[track_caller]
    pub fn is_right(&self) {
        assert_eq!((self.status, &*self.stdout), (Some(0), "all is right\n"), "{self:?}");
        assert!(self.findings.is_empty(), "{self:?}");
    }

    /// The kinds of the findings.
    pub fn kinds(&self) -> Vec<&str> {
        let kind = |line: &'_ String| line.split('"').nth(3).map(str::len);
        let start = "{\"kind\":\"".len();
        let kinds = self.findings.iter().filter_map(|line| Some((line, kind(line)?)));
        kinds.map(|(line, length)| &line[start..start + length]).collect()
    }

    fn of(command: &mut Command, report: Option<&Path>) -> Run {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let report = report.and_then(|report| fs::read_to_string(report).ok());
        Run {
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            findings: report.unwrap_or_default().lines().map(str::to_owned).collect(),
        }
    }
}

impl App {
    fn command(&self, mode: &str, seed: u64) -> Command {
        let mut command = self.as_usual();
        command.env("PINLANE_CUDART_MODE", mode).env("PINLANE_CUDART_SEED", seed.to_string());
        command
    }

    fn as_usual(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.args(&self.arguments).env_remove("PINLANE_REPLAY");
        let others = ["MODE", "SEED", "REPORT", "QUIET", "EXIT", "DEVICES", "MEMORY_GIB", "FAULT"];
        for name in others.into_iter().chain(["HOST_FUNCTION_SECONDS"]) {
            command.env_remove(format!("PINLANE_CUDART_{name}"));
        }
        command
    }

    /// A program that is not of these tests.
    pub fn of_the_system(name: &str) -> App {
        App { file: name.into(), arguments: Vec::new() }
    }

    /// With one more argument.
    pub fn given(&self, argument: &str) -> App {
        let mut app = self.clone();
        app.arguments.push(argument.to_owned());
        app
    }

    /// A script that loads the library which `LIBRARY` names, and which may be preloaded.
    pub fn python(&self, preloaded: bool) -> Run {
        let ours = library().0.join("libcudart.so.13");
        let mut command = self.command("eager", 0);
        command.env("LIBRARY", &ours);
        if preloaded {
            command.env("LD_PRELOAD", &ours);
        }
        App::reported(command, &[])
    }

    pub fn eager(&self) -> Run {
        self.with("eager", 0, &[])
    }

    pub fn with(&self, mode: &str, seed: u64, more: &[(&str, &str)]) -> Run {
        App::reported(self.command(mode, seed), more)
    }

    /// The run that `PINLANE_REPLAY` says.
    pub fn replayed(&self, replay: &str, more: &[(&str, &str)]) -> Run {
        let mut command = self.as_usual();
        command.env("PINLANE_REPLAY", replay);
        App::reported(command, more)
    }

    fn reported(mut command: Command, more: &[(&str, &str)]) -> Run {
        static REPORTS: AtomicU32 = AtomicU32::new(0);
        let number = REPORTS.fetch_add(1, Ordering::Relaxed);
        let report = work().join(format!("report-{number}"));
        let _ = fs::remove_file(&report);
        command.env("PINLANE_CUDART_REPORT", &report).envs(more.iter().copied());
        let run = Run::of(&mut command, Some(&report));
        let _ = fs::remove_file(&report);
        run
    }

    pub fn without_report(&self, mode: &str, seed: u64) -> Run {
        Run::of(&mut self.command(mode, seed), None)
    }

    /// Without our library.
    pub fn alone(&self) -> Run {
        Run::of(&mut Command::new(&self.file), None)
    }

    pub fn preloaded(&self, name: &str) -> Run {
        let ours = library().0.join(name);
        Run::of(self.command("lazy", 1).env("LD_PRELOAD", ours), None)
    }

    /// The status and the table of scripts/explore-program.
    pub fn explored(&self, runs: u32) -> (Option<i32>, String) {
        self.explored_with(runs, &[])
    }

    pub fn explored_with(&self, runs: u32, more: &[(&str, &str)]) -> (Option<i32>, String) {
        let mut script = Command::new(root().join("scripts/explore-program"));
        script.env("PINLANE_CUDART", &library().0).arg(runs.to_string()).arg(&self.file);
        script.envs(more.iter().copied());
        let run = Run::of(&mut script, None);
        (run.status, run.stdout + &run.stderr)
    }
}
