//! Priorities: see [`Execution::Pct`](crate::Execution::Pct).

use super::drawn::{About, draw_once};
use crate::words::rng::Rng;

/// All first priorities are above this; one that has fallen is below.
const FIRST: u64 = 1 << 32;

/// The host's priority, and when priorities change.
#[derive(Debug, Default)]
pub(super) struct Pct {
    host: u64,
    /// The numbers of the steps at which priorities change. The agent that makes such a step gets
    /// the new priority.
    changes: Vec<(u64, u64)>,
    /// How many operations have been enqueued or run.
    steps: u64,
}

impl Pct {
    /// `steps` is how many there will be, if that is known.
    pub(super) fn new(seed: u64, depth: u32, steps: Option<usize>) -> Self {
        let mut rng = draw_once(seed, About::Changes);
        // Those that fall later fall deeper.
        let points = depth.saturating_sub(1).min(1000);
        let mut changes: Vec<u64> = (0..points)
            .map(|_| match steps {
                Some(steps) => 1 + rng.below(steps.max(1)) as u64,
                None => {
                    // Each power of two is as likely as another.
                    let octave = 1 << rng.below(16);
                    (octave + rng.below(octave)) as u64
                }
            })
            .collect();
        changes.sort_unstable();
        let changes = changes.into_iter().zip((0..u64::from(points)).rev()).collect();
        let host = first(&mut draw_once(seed, About::Priority));
        Pct { host, changes, steps: 0 }
    }

    /// Whether a stream of this priority goes ahead of the host.
    pub(super) fn is_ahead(&self, priority: u64) -> bool {
        priority > self.host
    }

    /// A stream or the host makes a step; gives its new priority, if that changes.
    pub(super) fn step(&mut self) -> Option<u64> {
        self.steps += 1;
        let now = |change: &&(u64, u64)| change.0 == self.steps;
        self.changes.iter().filter(now).map(|change| change.1).next_back()
    }

    pub(super) fn host_steps(&mut self) {
        self.host = self.step().unwrap_or(self.host);
    }
}

/// The first priority of a stream or of the host.
pub(super) fn first(rng: &mut Rng) -> u64 {
    FIRST | rng.next() >> 1
}
