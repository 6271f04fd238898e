//! What the seed picks.
//!
//! Each decision has a generator of its own, made of the seed, the stream's name, the number of the
//! operation in its stream, and what is decided. So it does not depend on what other threads do,
//! nor on what a program does elsewhere: a program that loses a step keeps its other decisions.

use super::decision::HELD;
use crate::words::name::StreamName;
use crate::words::rng::Rng;

/// What a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
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
    /// How long a piece of an operation is held.
    Hold(u32),
    /// Into how many pieces an operation is cut.
    Pieces,
    /// Where it is cut.
    Cuts,
    /// The priority of a stream, or of the host.
    Priority,
    /// Where priorities change.
    Changes,
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
            About::Hold(piece) => [7, piece.into()],
            About::Pieces => [12, 0],
            About::Cuts => [9, 0],
            About::Priority => [10, 0],
            About::Changes => [11, 0],
            About::Liberty => [8, 0],
        }
    }
}

/// The generator of one decision. `operation` counts from 1 in its stream.
pub(super) fn draw(seed: u64, stream: StreamName, operation: u64, about: About) -> Rng {
    let [what, which] = about.words();
    Rng::keyed(seed, [stream.word(), operation, what, which])
}

/// The generator of what is decided once for a machine.
pub(super) fn draw_once(seed: u64, about: About) -> Rng {
    let [what, which] = about.words();
    Rng::keyed(seed, [0, u64::MAX, what, which])
}

/// How soon the operations of a stream run, by tendency. Many bugs need one stream that is slow
/// altogether.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speed {
    Quick,
    Mixed,
    Slow,
}

impl Speed {
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        [Speed::Quick, Speed::Mixed, Speed::Mixed, Speed::Slow][rng.below(4)]
    }

    /// How often an operation is passed over when it is ready.
    pub(super) fn hold(self, rng: &mut Rng) -> u32 {
        match self {
            Speed::Quick if !rng.one_in(8) => 0,
            Speed::Slow if !rng.one_in(8) => HELD,
            _ => match rng.below(4) {
                0 => 0,
                1 => 1 + rng.below(3) as u32,
                2 => 1 + rng.below(16) as u32,
                _ => HELD,
            },
        }
    }
}
