//! What the seed picks.
//!
//! Each decision has a generator of its own, made of the seed, the stream's name, the number of the
//! operation in its stream, and what is decided. So it does not depend on what other threads do,
//! nor on what a program does elsewhere: a program that loses a step keeps its other decisions.

use super::super::name::StreamName;
use super::super::rng::Rng;

/// What a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum About {
    /// When a copy of pageable memory uses the bytes of the host.
    Way,
    /// The order of the copies of a batch.
    BatchOrder,
    /// What becomes of the work of a device that is lost.
    LeftWork,
    /// What becomes of those who wait for it.
    Waiters,
    /// Whether an operation of a lost device runs at this refused call.
    Drift(u64),
    /// How often a query says "not ready".
    Denials,
    /// How fast a stream is.
    Speed,
    /// How long an operation is held.
    Hold,
    /// Whether a call takes a liberty.
    Liberty,
}

impl About {
    fn words(self) -> [u64; 2] {
        match self {
            About::Way => [0, 0],
            About::BatchOrder => [1, 0],
            About::LeftWork => [2, 0],
            About::Waiters => [3, 0],
            About::Drift(count) => [4, count],
            About::Denials => [5, 0],
            About::Speed => [6, 0],
            About::Hold => [7, 0],
            About::Liberty => [8, 0],
        }
    }
}

/// The generator of one decision. `operation` counts from 1 in its stream.
pub(super) fn draw(seed: u64, stream: StreamName, operation: u64, about: About) -> Rng {
    let [what, which] = about.words();
    Rng::keyed(seed, [stream.word(), operation, what, which])
}

/// How soon the operations of a stream run, by tendency. Many bugs need one stream that is slow
/// altogether.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Speed {
    Quick,
    Mixed,
    Slow,
}

impl Speed {
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        [Speed::Quick, Speed::Mixed, Speed::Mixed, Speed::Slow][rng.below(4)]
    }

    /// How often an operation is passed over when it is ready; [`u32::MAX`]: until somebody needs
    /// it.
    pub(super) fn hold(self, rng: &mut Rng) -> u32 {
        match self {
            Speed::Quick if !rng.one_in(8) => 0,
            Speed::Slow if !rng.one_in(8) => u32::MAX,
            _ => match rng.below(4) {
                0 => 0,
                1 => 1 + rng.below(3) as u32,
                2 => 1 + rng.below(16) as u32,
                _ => u32::MAX,
            },
        }
    }
}
