//! What runs next on a machine that is not eager.
//!
//! An operation that is ready is *passed over* whenever another operation runs in its place, or a
//! call returns. How often that happens to each operation says all there is to say about a run: so
//! a run of any mode is written down, and replayed, as these numbers.

use super::super::execution::Execution;
use super::super::machine::Machine;
use super::super::name::StreamName;
use super::super::operation::{Action, Operation};
use super::super::rng::Rng;
use super::super::slots::Key;
use super::Front;
use super::decision::{HELD, Replay, Spot, What};
use super::drawn::{self, About, Speed};
use super::path::Path;
use super::pct::{self, Pct};

/// How a machine decides.
#[derive(Debug)]
pub(in super::super) struct Schedule {
    pub(in super::super) execution: Execution,
    eager: bool,
    seed: u64,
    /// The decisions that were given: they count instead of those of the seed.
    given: Option<Replay>,
    /// The decisions that were made, if they are to be known.
    made: Option<Replay>,
    pct: Pct,
    /// Every order is tried: that of this run.
    pub(in super::super) path: Option<Path>,
    /// How many calls found a device lost.
    pub(super) drifts: u64,
}

/// What is decided about a stream as a whole.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Standing {
    pub(in super::super) name: StreamName,
    speed: Speed,
    priority: u64,
}

impl Schedule {
    pub(in super::super) fn new(execution: Execution, seed: u64) -> Self {
        let eager = execution == Execution::Eager;
        let pct = Pct::default();
        Schedule { execution, eager, seed, given: None, made: None, pct, path: None, drifts: 0 }
    }

    /// Which decisions count, if they are given; whether they are written down; and how many
    /// operations there will be, if that is known.
    pub(in super::super) fn configure(
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
    pub(in super::super) fn is_eager(&self) -> bool {
        self.eager
    }

    pub(in super::super) fn draw(&self, stream: StreamName, operation: u64, about: About) -> Rng {
        drawn::draw(self.seed, stream, operation, about)
    }

    pub(in super::super) fn standing(&self, name: StreamName) -> Standing {
        let speed = Speed::drawn(&mut self.draw(name, 0, About::Speed));
        let priority = pct::first(&mut self.draw(name, 0, About::Priority));
        Standing { name, speed, priority }
    }

    /// How long a piece of an operation is held.
    pub(in super::super) fn hold(&self, of: Standing, operation: u64, piece: u32) -> u32 {
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
    pub(in super::super) fn pieces(&mut self, stream: StreamName, operation: u64) -> u32 {
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
    pub(in super::super) fn host_steps(&mut self) {
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

fn spot_of(stream: Standing, operation: &Operation) -> Spot {
    let what = What::Passed(operation.piece);
    Spot { stream: stream.name, operation: operation.number, what }
}

impl Replay {
    fn value(&self, spot: Spot) -> u32 {
        self.decisions.get(&spot).copied().unwrap_or(0)
    }
}

impl Machine {
    /// The stream that goes next; all others that could are passed over. In a wait, `needed` is the
    /// stream that has to go on, and some stream is picked.
    pub(super) fn pick(&mut self, needed: Option<Key>) -> Option<Key> {
        let waits = needed.is_some();
        let given = self.schedule.given.is_some();
        let lies = self.schedule.execution == Execution::Lazy && !given && !waits;
        let next = match self.schedule.execution {
            _ if lies => None,
            _ if self.schedule.path.is_some() => self.first_on_path(),
            Execution::Pct { .. } if !given => self.first_by_priority(waits),
            _ => self.first_not_held().or(needed),
        };
        self.pass_over(next, lies);
        next
    }

    pub(super) fn ready(&self) -> impl Iterator<Item = Key> {
        let ready = |key: &Key| matches!(self.front(*key), Front::Ready);
        self.backlog.iter().copied().filter(ready)
    }

    fn first(&self, key: Key) -> &Operation {
        let first = self.streams.get(key).and_then(|stream| stream.queue.front());
        first.expect("it is in the backlog")
    }

    fn first_not_held(&self) -> Option<Key> {
        self.ready().find(|&key| self.first(key).hold == 0)
    }

    /// What changes no memory is no choice: it goes first.
    fn first_on_path(&mut self) -> Option<Key> {
        let changes =
            |&key: &Key| !matches!(self.first(key).action, Action::Mark { .. } | Action::Join);
        let mut ready: Vec<Key> = self.ready().collect();
        ready.sort_by_key(|&key| self.streams.get(key).map(|stream| stream.standing.name));
        if let Some(&plain) = ready.iter().find(|key| !changes(key)) {
            return Some(plain);
        }
        let path = self.schedule.path.as_mut()?;
        match ready.len() {
            0 | 1 => ready.first().copied(),
            choices => Some(ready[path.choose(choices)]),
        }
    }

    /// All may go in a wait, since the host does not.
    fn first_by_priority(&self, all: bool) -> Option<Key> {
        let priority = |key: Key| self.streams.get(key).map_or(0, |s| s.standing.priority);
        let candidates = self.ready().map(|key| (priority(key), key));
        let (highest, first) = candidates.max_by_key(|&(priority, _)| priority)?;
        (all || self.schedule.pct.is_ahead(highest)).then_some(first)
    }

    /// All that are ready, but for the one that runs, are passed over. While a machine `lies` idle,
    /// no time counts for what it holds.
    fn pass_over(&mut self, next: Option<Key>, lies: bool) {
        for at in 0..self.backlog.len() {
            let key = self.backlog[at];
            if Some(key) == next || !matches!(self.front(key), Front::Ready) {
                continue;
            }
            let stream = self.streams.get_mut(key).expect("it is ready");
            let first = stream.queue.front_mut().expect("it is ready");
            first.passed = first.passed.saturating_add(1).min(HELD - 1);
            if first.hold != HELD && !lies {
                first.hold = first.hold.saturating_sub(1);
            }
        }
    }

    /// The run so far; `None` if it is not written down.
    pub(in super::super) fn replay(&self) -> Option<Replay> {
        let mut replay = self.schedule.made.clone()?;
        for &key in &self.backlog {
            let stream = self.streams.get(key).expect("it is in the backlog");
            let first = self.first(key);
            if first.passed > 0 && !stream.dispatched {
                replay.decisions.insert(spot_of(stream.standing, first), HELD);
            }
        }
        Some(replay)
    }
}
