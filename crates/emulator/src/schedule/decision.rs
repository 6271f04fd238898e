//! Decisions as values: what a run did differently from an eager one, as a short text.
//!
//! ```text
//!   12:B#3,C#1+2,B#4?1,C#2/4,C#2.1+5
//!   |  |   |     |     |     piece 1 of C's second operation is passed over five times
//!   |  |   |     |     C's second operation lands in up to four pieces
//!   |  |   |     queries for B's fourth operation say once that it is not done
//!   |  |   C's first operation is passed over twice
//!   |  B's third operation is held until a wait needs it
//!   the seed: poison, pageable copies, the order of batches, liberties
//! ```
//!
//! `12:eager` is an eager run, which takes no liberties either: its seed decides what poison is,
//! and what becomes of a lost device.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::words::name::StreamName;
use crate::words::unreadable::Unreadable;

/// What is decided about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Into how many pieces it is cut, at most.
    Pieces,
    /// How often this piece of it is passed over when it is ready; [`HELD`]: until a wait needs it.
    Passed(u32),
    /// How often queries for it say that it is not done.
    Denials,
}

/// Until a wait needs it.
pub(super) const HELD: u32 = u32::MAX;

/// What a decision is about. Operations count from 1 in their streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(super) stream: StreamName,
    pub(super) operation: u64,
    pub(super) what: What,
}

/// A run of a program: its seed, and what was decided otherwise than in eager mode.
///
/// It is a short text, such as `12:B#3`, by `Display` and `FromStr`. Streams are named as in
/// reports of [races](crate::FindingKind::Race): `A` is the first that the program made,
/// `1A` the first that its second thread made, `@0` the legacy stream of device 0.
///
/// | text | what becomes of B's third operation |
/// |---|---|
/// | `B#3` | it is held until a wait needs it |
/// | `B#3+2` | it is passed over twice: another operation runs in its place, or a call returns |
/// | `B#3?1` | a query says once that it is not done |
/// | `B#3/4` | it lands in up to four pieces |
/// | `B#3.1+2` | the second of its pieces is passed over twice |
///
/// [`Emulator::replay`](crate::Emulator::replay) gives that of a run, and
/// [`Builder::replay`](crate::Builder::replay) takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    pub(super) seed: u64,
    /// An eager run: there are no decisions.
    pub(super) eager: bool,
    pub(super) decisions: BTreeMap<Spot, u32>,
}

impl Replay {
    /// The eager run of a seed.
    #[must_use]
    pub fn eager(seed: u64) -> Self {
        Replay { seed, eager: true, decisions: BTreeMap::new() }
    }

    /// The run of a seed that takes liberties, but runs each operation as soon as it is ready.
    pub(super) fn of(seed: u64) -> Self {
        Replay { seed, eager: false, decisions: BTreeMap::new() }
    }

    /// The seed of the run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The decisions, one by one.
    pub(crate) fn list(&self) -> Vec<(Spot, u32)> {
        self.decisions.iter().map(|(&spot, &value)| (spot, value)).collect()
    }

    /// What the decisions mean, one by one.
    pub fn in_words(&self) -> impl Iterator<Item = String> {
        self.decisions.iter().map(|(spot, value)| {
            let of = match spot.what {
                What::Passed(piece) if piece > 0 => format!("piece {piece} of "),
                _ => String::new(),
            };
            let becomes = match (spot.what, *value) {
                (What::Passed(_), HELD) => "is held until a wait needs it".into(),
                (What::Passed(_), 1) => "is passed over once".into(),
                (What::Passed(_), count) => format!("is passed over {count} times"),
                (What::Denials, 1) => "is not done, says one query".into(),
                (What::Denials, count) => format!("is not done, say {count} queries"),
                (What::Pieces, count) => format!("lands in up to {count} pieces"),
            };
            format!("{of}{}#{} {becomes}", spot.stream, spot.operation)
        })
    }

    /// The same run with these decisions only.
    pub(crate) fn with(&self, decisions: &[(Spot, u32)]) -> Self {
        Replay { decisions: decisions.iter().copied().collect(), ..Replay::of(self.seed) }
    }

    /// The same run, in which some of the operations that are passed over, by their numbers in the
    /// list, are held until a wait needs them.
    pub(crate) fn held(&self, which: impl Fn(usize) -> bool) -> Self {
        let mut held = self.clone();
        for (index, (spot, value)) in held.decisions.iter_mut().enumerate() {
            if matches!(spot.what, What::Passed(_)) && which(index) {
                *value = HELD;
            }
        }
        held
    }

    /// How many decisions differ from those of an eager run.
    #[must_use]
    pub fn decisions(&self) -> usize {
        self.decisions.len()
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, if self.eager { "eager" } else { "" })?;
        for (index, (spot, &value)) in self.decisions.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}#{}", spot.stream, spot.operation)?;
            match spot.what {
                What::Pieces => write!(f, "/{value}")?,
                What::Denials => write!(f, "?{value}")?,
                What::Passed(piece) => {
                    if piece > 0 {
                        write!(f, ".{piece}")?;
                    }
                    if value != HELD {
                        write!(f, "+{value}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl FromStr for Replay {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        read(text).ok_or_else(|| Unreadable {
            of: "Replay",
            what: format!("{text:?} is no replay of a run"),
            remedy: "copy the text that a run has printed, such as 12:B#3",
        })
    }
}

fn read(text: &str) -> Option<Replay> {
    let (seed, decisions) = text.trim().split_once(':')?;
    let seed = seed.parse().ok()?;
    if decisions == "eager" {
        return Some(Replay::eager(seed));
    }
    let texts = decisions.split(',').filter(|_| !decisions.is_empty());
    let decisions: Option<BTreeMap<Spot, u32>> = texts.map(decision).collect();
    Some(Replay { decisions: decisions?, ..Replay::of(seed) })
}

fn decision(text: &str) -> Option<(Spot, u32)> {
    let (stream, rest) = text.split_once('#')?;
    let stream = stream.parse().ok()?;
    let spot = |operation: &str, what| {
        let operation = operation.parse().ok().filter(|&number| number > 0)?;
        Some(Spot { stream, operation, what })
    };
    if let Some((operation, count)) = rest.split_once('/') {
        return Some((spot(operation, What::Pieces)?, count.parse().ok()?));
    }
    if let Some((operation, count)) = rest.split_once('?') {
        return Some((spot(operation, What::Denials)?, count.parse().ok()?));
    }
    let (rest, count) = match rest.split_once('+') {
        Some((rest, count)) => (rest, count.parse().ok().filter(|&count| count != HELD)?),
        None => (rest, HELD),
    };
    let (operation, piece) = rest.split_once('.').unwrap_or((rest, "0"));
    Some((spot(operation, What::Passed(piece.parse().ok()?))?, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replays_are_read_back() {
        for text in [
            "0:",
            "3:eager",
            "18446744073709551615:",
            "12:B#3",
            "7:2A#1,@0#4",
            "1:A#1/4,A#1+2,A#1.3",
        ] {
            assert_eq!(text.parse::<Replay>().unwrap().to_string(), text);
        }
        let replay: Replay = " 1:B#4?1,A#2+5 ".parse().unwrap();
        assert_eq!((replay.seed(), replay.decisions()), (1, 2));
        assert_eq!(replay.to_string(), "1:A#2+5,B#4?1");
    }

    #[test]
    fn what_is_no_replay_is_refused() {
        let bad =
            ["", "12", ":", "x:", "1:B", "1:B#", "1:B#0", "1:b#1", "1:B#1,", "1:B#1+", "1:B#1/x"];
        for text in bad {
            assert!(text.parse::<Replay>().is_err(), "{text:?}");
        }
    }
}
