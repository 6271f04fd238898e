//! Findings: what the emulated device saw that a correct program never does.
//!
//! A real GPU answers such a program with torn data or a crash, some day. A finding says at once
//! which operation it was, on which stream, over which bytes, and the seed that gives the same
//! schedule again.

use std::fmt;

/// What kind of misuse a [`Finding`] reports.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// An operation touched device memory that is not allocated (yet, or any more), or that its
    /// device cannot reach.
    IllegalAddress,
    /// A copy named host memory outside any one page-locked block; or, where that is allowed,
    /// memory that is page-locked in part.
    NotPageLocked,
    /// Page-locked memory was freed or unregistered while a pending operation names it.
    FreedInFlight,
    /// The host wrote to what a copy or kernel was to read before it had done so.
    SourceChanged,
    /// Memory was freed twice, or never came from the allocation function that matches.
    BadFree,
    /// Source and destination of a copy overlap, or are not what the copy's kind says; or copies of
    /// one batch depend on each other.
    BadCopy,
    /// A stream or event was used after its destruction, or on another device.
    BadHandle,
    /// A host function called the driver.
    CallInHostFunction,
    /// Memory was allocated or freed, or pageable memory copied, on a capturing stream.
    Capture,
}

/// One observed misuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of misuse it is.
    pub kind: FindingKind,
    /// What happened: the call, the bytes, the stream.
    pub message: String,
    /// The seed of the emulator that saw it.
    pub seed: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} (seed {})", self.kind, self.message, self.seed)
    }
}

/// The findings so far. A program that goes wrong in a loop does not fill the memory with them.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) seed: u64,
    list: Vec<Finding>,
}

impl Findings {
    const KEPT: usize = 1000;

    pub(super) fn new(seed: u64) -> Self {
        Findings { seed, list: Vec::new() }
    }

    #[cold]
    pub(super) fn report(&mut self, kind: FindingKind, message: impl Into<String>) {
        if self.list.len() < Self::KEPT {
            self.list.push(Finding { kind, message: message.into(), seed: self.seed });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn list(&self) -> Vec<Finding> {
        self.list.clone()
    }
}
