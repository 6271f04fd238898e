//! Compilers of C, C++ and CUDA, called as a user would call them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::library::Library;

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// Warnings that users' projects turn on, and would see in our headers.
const STRICTER: [&str; 2] = ["-Wconversion", "-Wshadow"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
}

pub struct Compiler {
    language: Language,
    program: PathBuf,
    /// The first arguments, such as flags of a sanitizer.
    flags: Vec<String>,
}

impl Compiler {
    /// The compiler that `CC` or `CXX` names, or the system's, with the flags of `CFLAGS` or
    /// `CXXFLAGS`.
    pub fn of(language: Language) -> Compiler {
        let (variable, default, flags) = match language {
            Language::C => ("CC", "cc", "CFLAGS"),
            Language::Cpp => ("CXX", "c++", "CXXFLAGS"),
        };
        let program = std::env::var(variable).ok().filter(|program| !program.is_empty());
        let flags = std::env::var(flags).unwrap_or_default();
        Compiler {
            language,
            program: program.unwrap_or_else(|| default.to_owned()).into(),
            flags: flags.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// That compiler, and those of GNU and LLVM if they are installed; each program once.
    pub fn all(language: Language) -> Vec<Compiler> {
        let others = match language {
            Language::C => ["gcc", "clang"],
            Language::Cpp => ["g++", "clang++"],
        };
        let own = Compiler::of(language);
        let own_file = file_of(&own.program);
        let others = others.into_iter().filter(|program| {
            if own_file.is_some() && file_of(Path::new(program)) == own_file {
                return false;
            }
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        });
        let others =
            others.map(|program| Compiler { language, program: program.into(), flags: Vec::new() });
        std::iter::once(own).chain(others).collect()
    }

    /// The compiler with additional first arguments.
    pub fn with_flags(mut self, flags: &[&str]) -> Compiler {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    /// Whether it can compile and link `source`.
    pub fn can_link(&self, source: &str) -> bool {
        let scratch = Scratch::new();
        let file = scratch.0.join("source.cpp");
        std::fs::write(&file, source).expect("the tests' folder can be written");
        let mut command = self.command("c++17");
        output({
            command.arg(&file).arg("-o").arg(scratch.0.join(Program::NAME));
            command
        })
        .is_ok()
    }

    /// Searches that folder for headers before the project's own.
    pub fn with_headers_of(mut self, folder: &Path) -> Compiler {
        self.flags.push(format!("-I{}", folder.display()));
        self
    }

    /// The program, by the name that it was given.
    pub fn name(&self) -> String {
        self.program.display().to_string()
    }

    /// Whether it is that program.
    pub fn is(&self, program: &str) -> bool {
        let file = file_of(&self.program);
        file.is_some() && file == file_of(Path::new(program))
    }

    /// The nvcc of the toolkit that the library was built with.
    #[cfg(pinlane_toolkit)]
    pub fn nvcc(library: &Library) -> Compiler {
        let mut folders = library.link_arguments.iter().filter_map(|flag| flag.strip_prefix("-L"));
        let folder = folders
            .find(|folder| Path::new(folder).join("libcudart_static.a").is_file())
            .expect("the toolkit's libraries");
        let roots = Path::new(folder).ancestors();
        let program = roots.map(|root| root.join("bin/nvcc")).find(|nvcc| nvcc.is_file());
        // PTX that any GPU from 7.5 on can run.
        let flags = vec!["-arch=compute_75".to_owned()];
        Compiler { language: Language::Cpp, program: program.expect("the toolkit's nvcc"), flags }
    }

    /// Compiles `source`, with warnings as errors. The error is the compiler's message.
    pub fn check(&self, standard: &str, source: &str, flags: &[&str]) -> Result<(), String> {
        let extension = if self.language == Language::C { "c" } else { "cpp" };
        let scratch = Scratch::new();
        let file = scratch.0.join("source").with_extension(extension);
        std::fs::write(&file, source).expect("the tests' folder can be written");
        let mut command = self.command(standard);
        command.args(STRICT).args(STRICTER);
        if self.language == Language::Cpp {
            command.arg("-Wold-style-cast");
        }
        command.args(flags).arg("-fsyntax-only").arg(&file);
        output(command)
    }

    /// Compiles `source` and links it with the library.
    pub fn link(&self, standard: &str, source: &Path, library: &Library) -> Program {
        self.link_with(standard, source, &[], library)
    }

    /// Compiles `source` to an object file of that name.
    pub fn object(
        &self,
        standard: &str,
        source: &Path,
        flags: &[&str],
        scratch: &Scratch,
        name: &str,
    ) -> PathBuf {
        let object = scratch.0.join(name);
        let mut command = self.command(standard);
        command.args(STRICT).args(flags).arg("-c").arg(source).arg("-o").arg(&object);
        output(command).unwrap_or_else(|errors| panic!("{errors}"));
        object
    }

    /// Links object files, in this order, with the library.
    pub fn link_objects(&self, objects: &[PathBuf], library: &Library) -> Program {
        let scratch = Scratch::new();
        let program = scratch.0.join(Program::NAME);
        let mut command = Command::new(&self.program);
        command.args(&self.flags).args(objects).arg(&library.archive);
        command.args(&library.link_arguments).arg("-o").arg(&program);
        output(command).unwrap_or_else(|errors| panic!("{errors}"));
        Program(scratch)
    }

    /// Compiles a program that loads the library itself, or does not use it.
    pub fn link_alone(&self, standard: &str, source: &Path) -> Program {
        let scratch = Scratch::new();
        let program = scratch.0.join(Program::NAME);
        let mut command = self.command(standard);
        command.args(STRICT).arg(source).args(["-ldl", "-lpthread", "-o"]).arg(&program);
        output(command).unwrap_or_else(|errors| panic!("{errors}"));
        Program(scratch)
    }

    /// As [`link`](Self::link): the program gets these functions from `faults/machines.c`.
    pub fn link_with_machines(
        &self,
        standard: &str,
        source: &Path,
        wrapped: &[&str],
        library: &Library,
    ) -> Program {
        let machines = Path::new(env!("PINLANE_PROJECT")).join("tests/ffi/faults/machines.c");
        let machines = Compiler::of(Language::C).compiled("gnu11", &machines);
        let mut arguments = vec![machines.into_os_string()];
        arguments.extend(wrapped.iter().map(|name| format!("-Wl,--wrap={name}").into()));
        self.link_with(standard, source, &arguments, library)
    }

    fn link_with(
        &self,
        standard: &str,
        source: &Path,
        arguments: &[OsString],
        library: &Library,
    ) -> Program {
        let scratch = Scratch::new();
        let program = scratch.0.join(Program::NAME);
        let is_cuda = source.extension().is_some_and(|extension| extension == "cu");
        let source = if is_cuda { source.to_owned() } else { self.compiled(standard, source) };
        let mut command = self.command(standard);
        command
            .arg(source)
            .args(arguments)
            .arg(&library.archive)
            .args(&library.link_arguments)
            // Without the library's debug information, which no one needs here, linking takes half
            // the time.
            .args(["-Xlinker", "-S", "-o"])
            .arg(&program);
        output(command).unwrap_or_else(|errors| panic!("{errors}"));
        Program(scratch)
    }

    /// The object file of `source`, which all tests of the process share.
    fn compiled(&self, standard: &str, source: &Path) -> PathBuf {
        type Objects = BTreeMap<String, Arc<OnceLock<PathBuf>>>;
        static OBJECTS: Mutex<Objects> = Mutex::new(Objects::new());
        let mut command = self.command(standard);
        command.args(STRICT).arg("-c").arg(source).arg("-o");
        let call = format!("{command:?}");
        let mut hasher = DefaultHasher::new();
        call.hash(&mut hasher);
        let object = {
            let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(objects.entry(call).or_default())
        };
        let compile = || {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("objects");
            std::fs::create_dir_all(&folder).expect("the tests' folder can be written");
            let name = source.file_stem().expect("a file").to_string_lossy();
            let file = folder.join(format!("{name}-{:016x}.o", hasher.finish()));
            command.arg(&file);
            output(command).unwrap_or_else(|errors| panic!("{errors}"));
            file
        };
        object.get_or_init(compile).clone()
    }

    fn command(&self, standard: &str) -> Command {
        let mut include = OsString::from("-I");
        include.push(Path::new(env!("PINLANE_PROJECT")).join("include"));
        let mut command = Command::new(&self.program);
        command.args(&self.flags).arg(format!("-std={standard}")).arg(include);
        command
    }
}

/// The file that a shell would start, with links followed.
fn file_of(program: &Path) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.filter(|file| file.is_file()).find_map(|file| file.canonicalize().ok())
}

fn output(mut command: Command) -> Result<(), String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// A folder for one caller, because tests run at the same time. Dropping it removes the folder.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ffi-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("the tests' folder can be written");
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that was compiled and linked.
pub struct Program(Scratch);

impl Program {
    const NAME: &str = "program";
    const SECONDS: u32 = 300;

    pub fn path(&self) -> PathBuf {
        self.0.0.join(Self::NAME)
    }

    /// Runs the program. The system ends one that hangs.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut program = Command::new(self.path());
        // SAFETY: a signal handler may call it, and so may a child before it runs the program.
        unsafe {
            program.pre_exec(|| {
                libc::alarm(Self::SECONDS);
                Ok(())
            });
        }
        program.args(arguments).output().expect("the program starts")
    }
}
