//! All programs, and how one is run.

use pinlane_driver::DriverResult;
use pinlane_emulator::Execution;

use crate::gpu::Gpu;
use crate::header::Header;
use crate::native::{self, Native};
use crate::outcome::{End, Found, Outcome};
use crate::programs;

/// How schedules are made, by the names of [`Execution`].
pub const MODES: [&str; 6] = ["eager", "lazy", "random", "pct:2", "pct:3", "chunked"];

/// What a program is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Against the emulated machine.
    Rust,
    /// Against the CUDA runtime.
    C,
    /// Against the CUDA runtime.
    Cpp,
}

/// A program in Rust: whether its result is right, or the error that ended it.
pub(crate) type Run = fn(&Gpu, bool) -> DriverResult<bool>;

enum Body {
    Rust(Run),
    Native(Native),
}

/// A program with its twin.
pub struct Program {
    /// The name of its file, without the ending.
    pub name: String,
    /// What it is written in.
    pub language: Language,
    /// What its comment says.
    pub header: Header,
    body: Body,
}

impl Program {
    /// All programs of a language, in the order of their names.
    ///
    /// # Panics
    ///
    /// If one cannot be read or has no proper comment.
    #[must_use]
    pub fn all(language: Language) -> Vec<Program> {
        let mut all: Vec<Program> = match language {
            Language::Rust => programs::ALL
                .iter()
                .map(|&(name, source, run)| Program {
                    name: name.into(),
                    language,
                    header: Header::of(name, source),
                    body: Body::Rust(run),
                })
                .collect(),
            Language::C | Language::Cpp => native::sources(language)
                .into_iter()
                .map(|(name, source)| Program {
                    header: Header::of(&name, &source),
                    body: Body::Native(Native::new(&name, language)),
                    name,
                    language,
                })
                .collect(),
        };
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The name with the ending of the file.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{}.{}", self.name, self.language.ending())
    }

    /// Runs the program, or its twin, once. `mode` is one of [`MODES`].
    ///
    /// # Panics
    ///
    /// If there is no such mode, or the program cannot be compiled or started.
    #[must_use]
    pub fn run(&self, fixed: bool, mode: &str, seed: u64) -> Outcome {
        match &self.body {
            Body::Native(native) => native.run(fixed, mode, seed, self.header.devices),
            Body::Rust(run) => {
                let execution: Execution = mode.parse().expect("a mode");
                let gpu = Gpu::new(self.header.devices, execution, seed);
                let end = match run(&gpu, fixed) {
                    Ok(true) => End::Right,
                    Ok(false) => End::Wrong,
                    Err(code) => End::Failed(code.to_string()),
                };
                let findings = gpu.emulator().findings().into_iter();
                let found = |finding: pinlane_emulator::Finding| Found {
                    kind: format!("{:?}", finding.kind),
                    message: finding.message,
                };
                Outcome { end, findings: findings.map(found).collect() }
            }
        }
    }

    /// Whether a run gives all that the comment says.
    #[must_use]
    pub fn is_found(&self, outcome: &Outcome) -> bool {
        let expected = &self.header.finds;
        expected.iter().all(|expected| outcome.findings.iter().any(|found| found.is(expected)))
    }

    /// Whether one eager run can find it: the machine knows of all accesses.
    #[must_use]
    pub fn is_known_by_calls(&self) -> bool {
        !self.header.needs_host_accesses || self.language == Language::Rust
    }
}

impl Language {
    /// All of them.
    pub const ALL: [Language; 3] = [Language::Rust, Language::C, Language::Cpp];

    /// What the names of its files end with.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Language::Rust => "rs",
            Language::C => "c",
            Language::Cpp => "cpp",
        }
    }
}
