//! How runs are reported.

use std::fmt;

use super::run::Ended;
use crate::finding::Finding;
use crate::schedule::Replay;
use crate::schedule::execution::Execution;

/// That all runs went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// How many there were.
    pub runs: u64,
    /// Whether all were made that were to be made.
    pub complete: bool,
}

/// The smallest run found that fails. As a text it says why, and how to repeat it.
#[derive(Clone, Debug)]
pub struct FailedRun {
    /// Why, if the program itself failed: its panic or its error.
    pub failure: Option<String>,
    /// The misuse that the machine saw.
    pub findings: Vec<Finding>,
    /// The run, for [`Builder::replay`](crate::Builder::replay), or as a text for the
    /// variable `PINLANE_REPLAY`.
    pub replay: Replay,
    /// How many runs it took, up to the first that failed.
    pub runs: u64,
    /// Mode and seed of that one, and how many decisions it had; `None` if a replay was asked for.
    pub first: Option<(Execution, u64, usize)>,
    /// The numbers of the steps that are left, of a program that is a list of steps.
    pub steps: Vec<usize>,
}

impl FailedRun {
    pub(super) fn of(ended: Ended, replay: Replay, runs: u64, steps: Vec<usize>) -> Self {
        let Ended { failure, findings, .. } = ended;
        FailedRun { failure, findings, replay, runs, first: None, steps }
    }

    pub(super) fn in_mode(mut self, mode: Execution, seed: u64, decisions: usize) -> Self {
        self.first = Some((mode, seed, decisions));
        self
    }
}

impl fmt::Display for FailedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pinlane: run {} failed", self.runs)?;
        if let Some((mode, seed, _)) = self.first {
            write!(f, " ({mode}, seed {seed})")?;
        }
        if let Some(failure) = &self.failure {
            write!(f, "\n  the program: {failure}")?;
        }
        // Every race that follows from the first one is not worth reading.
        for finding in self.findings.iter().take(3) {
            write!(f, "\n  {}", finding.to_string().replace('\n', "\n  "))?;
        }
        if let Some(more) = self.findings.len().checked_sub(4) {
            write!(f, "\n  and {} more findings", more + 1)?;
        }
        let count = self.replay.decisions();
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "\n  smallest run: {count} decision{plural}")?;
        if let Some((_, _, decisions)) = self.first {
            write!(f, " of {decisions}")?;
        }
        if !self.steps.is_empty() {
            write!(f, ", steps {:?}", self.steps)?;
        }
        for line in self.replay.in_words().take(8) {
            write!(f, "\n    {line}")?;
        }
        write!(f, "\n  replay: PINLANE_REPLAY={}", self.replay)
    }
}

impl std::error::Error for FailedRun {}
