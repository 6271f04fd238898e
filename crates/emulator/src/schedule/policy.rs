//! How a machine decides what runs next, and what it writes down of that.
//!
//! An operation that is ready is *passed over* whenever another operation runs in its place, or a
//! call returns. How often that happens to each operation says all there is to say about a run: so
//! a run of any mode is written down, and replayed, as these numbers.

use super::decision::{Replay, Spot, What};
use super::drawn::{self, About, Speed};
use super::path::Path;
use super::pct::{self, Pct};
use crate::operation::Operation;
use crate::schedule::execution::Execution;
use crate::words::name::StreamName;
use crate::words::rng::Rng;

/// How a machine decides.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) execution: Execution,
    eager: bool,
    seed: u64,
    /// The decisions that were given: they count instead of those of the seed.
    pub(super) given: Option<Replay>,
    /// The decisions that were made, if they are to be known.
    pub(super) made: Option<Replay>,
    pub(super) pct: Pct,
    /// The path of this run, if every order is tried.
    pub(crate) path: Option<Path>,
    /// How many calls found a device lost.
    pub(super) drifts: u64,
}

/// What is decided about a stream as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) name: StreamName,
    speed: Speed,
    pub(super) priority: u64,
}

impl Schedule {
    pub(crate) fn new(execution: Execution, seed: u64) -> Self {
        let eager = execution == Execution::Eager;
        let pct = Pct::default();
        Schedule { execution, eager, seed, given: None, made: None, pct, path: None, drifts: 0 }
    }

    /// Which decisions count, if they are given; whether they are written down; and how many
    /// operations there will be, if that is known.
    pub(crate) fn configure(
        &mut self,
        given: Option<Replay>,
        record: bool,
        operations: Option<u64>,
    ) {
        self.eager = match &given {
            Some(given) => given.eager,
            None => self.execution == Execution::Eager,
        };
        self.given = given;
        let none = if self.eager { Replay::eager } else { Replay::of };
        self.made = record.then(|| none(self.seed));
        if let Execution::Pct { depth } = self.execution {
            // Each is enqueued, and run.
            let steps = operations.map(|count| count.saturating_mul(2).min(1 << 31) as usize);
            self.pct = Pct::new(self.seed, depth, steps);
        }
    }

    /// Whether everything runs as soon as it is ready.
    #[inline]
    pub(crate) fn is_eager(&self) -> bool {
        self.eager
    }

    pub(crate) fn draw(&self, stream: StreamName, operation: u64, about: About) -> Rng {
        drawn::draw(self.seed, stream, operation, about)
    }

    pub(crate) fn standing(&self, name: StreamName) -> Standing {
        let speed = Speed::drawn(&mut self.draw(name, 0, About::Speed));
        let priority = pct::first(&mut self.draw(name, 0, About::Priority));
        Standing { name, speed, priority }
    }

    /// How long a piece of an operation is held.
    pub(crate) fn hold(&self, of: Standing, operation: u64, piece: u32) -> u32 {
        let what = What::Passed(piece);
        match (&self.given, self.execution) {
            (Some(given), _) => given.value(Spot { stream: of.name, operation, what }),
            (None, Execution::Pct { .. } | Execution::Eager) => 0,
            (None, Execution::Lazy | Execution::Random | Execution::Chunked) => {
                of.speed.hold(&mut self.draw(of.name, operation, About::Hold(piece)))
            }
        }
    }

    /// Into how many pieces an operation is cut, at most.
    pub(crate) fn pieces(&mut self, stream: StreamName, operation: u64) -> u32 {
        let spot = Spot { stream, operation, what: What::Pieces };
        let pieces = match (&self.given, self.execution) {
            (Some(given), _) => given.value(spot),
            (None, Execution::Chunked) => {
                1 + self.draw(stream, operation, About::Pieces).below(4) as u32
            }
            _ => 1,
        };
        if pieces > 1 {
            self.note(spot, pieces);
        }
        pieces
    }

    /// How often queries for an operation say "not ready" first.
    pub(super) fn denials(&mut self, stream: StreamName, operation: u64) -> u8 {
        let spot = Spot { stream, operation, what: What::Denials };
        let denials = match &self.given {
            Some(given) => given.value(spot).min(100),
            None if self.path.is_some() => 0,
            None => 1 + self.draw(stream, operation, About::Denials).below(4) as u32,
        };
        if denials > 0 {
            self.note(spot, denials);
        }
        denials as u8
    }

    fn note(&mut self, spot: Spot, value: u32) {
        if let Some(made) = &mut self.made {
            made.decisions.insert(spot, value);
        }
    }

    /// The host makes a step.
    pub(crate) fn host_steps(&mut self) {
        self.pct.host_steps();
    }

    /// What is to be known of an operation that runs: how often it was passed over.
    pub(super) fn ran(&mut self, stream: &mut Standing, operation: &Operation) {
        stream.priority = self.pct.step().unwrap_or(stream.priority);
        if operation.passed > 0 {
            self.note(spot_of(*stream, operation), operation.passed);
        }
    }
}

pub(super) fn spot_of(stream: Standing, operation: &Operation) -> Spot {
    let what = What::Passed(operation.piece);
    Spot { stream: stream.name, operation: operation.number, what }
}

impl Replay {
    fn value(&self, spot: Spot) -> u32 {
        self.decisions.get(&spot).copied().unwrap_or(0)
    }
}
