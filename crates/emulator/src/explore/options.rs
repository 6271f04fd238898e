//! What is to be explored, and how the end is reported.

use std::time::Duration;

use super::report::{Explored, FailedRun};
use crate::emulator::Builder;
use crate::schedule::Replay;
use crate::schedule::execution::Execution;
use crate::words::unreadable::Unreadable;

/// The variable of the environment that names one run.
const VARIABLE: &str = "PINLANE_REPLAY";

/// Which runs [`explore`](super::explore) makes.
#[derive(Clone, Debug)]
#[must_use = "nothing is run before `explore`"]
pub struct Exploration {
    pub(super) machine: Builder,
    pub(super) runs: Option<u64>,
    pub(super) time: Option<Duration>,
    pub(super) seed: u64,
    modes: Vec<Execution>,
    pub(super) shrink_runs: u64,
    quiet: bool,
}

impl Default for Exploration {
    fn default() -> Self {
        Exploration {
            machine: Builder::default(),
            runs: None,
            time: None,
            seed: 1,
            modes: vec![
                Execution::Lazy,
                Execution::Random,
                Execution::Chunked,
                Execution::Pct { depth: 2 },
                Execution::Pct { depth: 3 },
            ],
            shrink_runs: 1000,
            quiet: false,
        }
    }
}

impl Exploration {
    /// 100 runs in all modes, on a machine with one device.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many runs; 100 unless said, or as many as there is [time](Self::time) for.
    pub fn runs(mut self, runs: u64) -> Self {
        self.runs = Some(runs);
        self
    }

    /// No run starts after this time.
    pub fn time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// The first seed; 1 unless said.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// In which modes the runs take turns, after the first one, which is eager. Unless said, lazy,
    /// random, chunked, and pct of depth 2 and 3. None means that all runs are eager.
    pub fn modes(mut self, modes: impl IntoIterator<Item = Execution>) -> Self {
        self.modes = modes.into_iter().collect();
        self
    }

    /// The machine of each run, but for its mode and seed.
    pub fn machine(mut self, machine: Builder) -> Self {
        self.machine = machine;
        self
    }

    /// How many more runs may be made to find a smaller one that fails; 1000 unless said.
    pub fn shrink_runs(mut self, runs: u64) -> Self {
        self.shrink_runs = runs;
        self
    }

    /// Whether nothing is printed.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// The mode and the seed of a run; the first one is number 0.
    pub(super) fn schedule(&self, number: u64) -> (Execution, u64) {
        let modes = self.modes.len() as u64;
        match number.checked_sub(1) {
            None => (Execution::Eager, self.seed),
            Some(number) if modes == 0 => (Execution::Eager, self.seed.wrapping_add(number + 1)),
            Some(number) => {
                let mode = self.modes[(number % modes) as usize];
                (mode, self.seed.wrapping_add(number / modes))
            }
        }
    }
}

/// The run that the environment asks for.
pub fn asked_for() -> Result<Option<Replay>, Unreadable> {
    std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().parse()).transpose()
}

/// The same, for callers that cannot return an error: panics if the text is no replay.
pub(super) fn given() -> Option<Replay> {
    asked_for().unwrap_or_else(|error| panic!("{VARIABLE}: {error}"))
}

/// Prints and returns how it ended.
pub(super) fn told(
    exploration: &Exploration,
    failed: Option<FailedRun>,
    runs: u64,
) -> Result<Explored, Box<FailedRun>> {
    let Some(failed) = failed else { return Ok(Explored { runs, complete: true }) };
    if !exploration.quiet {
        eprintln!("{failed}");
    }
    Err(Box::new(failed))
}
