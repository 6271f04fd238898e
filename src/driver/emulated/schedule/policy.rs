//! What runs next on a machine that is not eager.
//!
//! An operation that is ready may be *held*: passed over some number of times, or until a wait
//! needs it. It is passed over whenever another operation runs in its place, or a call returns.

use super::super::machine::{Execution, Machine};
use super::super::name::StreamName;
use super::super::rng::Rng;
use super::super::slots::Key;
use super::Front;
use super::drawn::{self, About, Speed};

/// How a machine decides.
#[derive(Debug)]
pub(in super::super) struct Schedule {
    pub(in super::super) execution: Execution,
    seed: u64,
    /// How many calls found a device lost.
    pub(super) drifts: u64,
}

impl Schedule {
    pub(in super::super) fn new(execution: Execution, seed: u64) -> Self {
        Schedule { execution, seed, drifts: 0 }
    }

    /// Whether everything runs as soon as it is ready.
    #[inline]
    pub(in super::super) fn is_eager(&self) -> bool {
        self.execution == Execution::Eager
    }

    pub(in super::super) fn draw(&self, stream: StreamName, operation: u64, about: About) -> Rng {
        drawn::draw(self.seed, stream, operation, about)
    }

    /// The tendency of a stream.
    pub(in super::super) fn speed(&self, stream: StreamName) -> Speed {
        Speed::drawn(&mut self.draw(stream, 0, About::Speed))
    }

    /// How long an operation is held.
    pub(in super::super) fn hold(&self, stream: StreamName, speed: Speed, operation: u64) -> u32 {
        speed.hold(&mut self.draw(stream, operation, About::Hold))
    }

    /// How often queries for an operation say "not ready": 1 to 4 times.
    pub(super) fn denials(&self, stream: StreamName, operation: u64) -> u8 {
        1 + self.draw(stream, operation, About::Denials).below(4) as u8
    }
}

impl Machine {
    /// The stream that goes next; all others that could are passed over. In a wait, `needed` is the
    /// stream that has to go on, and some stream is picked.
    pub(super) fn pick(&mut self, needed: Option<Key>) -> Option<Key> {
        let waits = needed.is_some();
        let may_run = waits || self.schedule.execution != Execution::Lazy;
        let next = match may_run {
            true => self.first_not_held().or(needed),
            false => None,
        };
        if may_run {
            self.pass_over(next);
        }
        next
    }

    fn first_not_held(&self) -> Option<Key> {
        let is_held = |key: Key| {
            let first = self.streams.get(key).and_then(|stream| stream.queue.front());
            first.is_none_or(|operation| operation.hold > 0)
        };
        let mut ready = self.backlog.iter().copied().filter(|&key| !is_held(key));
        ready.find(|&key| matches!(self.front(key), Front::Ready))
    }

    /// All that are ready, but for the one that runs, are passed over.
    fn pass_over(&mut self, next: Option<Key>) {
        for at in 0..self.backlog.len() {
            let key = self.backlog[at];
            if Some(key) == next || !matches!(self.front(key), Front::Ready) {
                continue;
            }
            let stream = self.streams.get_mut(key).expect("it is ready");
            let first = stream.queue.front_mut().expect("it is ready");
            if first.hold != u32::MAX {
                first.hold = first.hold.saturating_sub(1);
            }
        }
    }
}
