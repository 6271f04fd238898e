//! Findings: what the emulated device saw that a correct program never does.
//!
//! On a real GPU such a program gets torn data or a crash, sooner or later. A finding names at once
//! the operation, its stream, the bytes, and the seed that repeats the schedule.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::races::{Race, Site};
use super::schedule::execution::Execution;

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
    /// Page-locked memory was freed or unregistered while an operation names it that is pending, or
    /// that the caller does not know to be complete. A kernel counts if its stand-in has used the
    /// memory.
    FreedInFlight,
    /// The host wrote to the source of a copy or kernel before it was read, or before the program
    /// knew that it was.
    SourceChanged,
    /// The host wrote to the destination of a copy, or freed it, before the copy was done, or
    /// before the program knew that it was. In the first case the copy is not made.
    DestinationChanged,
    /// Memory was freed twice, or never came from the allocation function that matches.
    BadFree,
    /// Source and destination of a copy overlap, or are not what the copy's kind says; or copies of
    /// one batch depend on each other.
    BadCopy,
    /// A stream or event was used after its destruction, or on another device; or a kernel was
    /// launched on a stream of another device than the current one.
    BadHandle,
    /// A host function called the driver.
    CallInHostFunction,
    /// A call waits for a host function that cannot return before the call does, or that has not
    /// returned for longer than [`Builder::host_function_limit`](super::Builder) allows.
    Deadlock,
    /// Memory was allocated or freed, or an [`Emulator`](super::Emulator) copied pageable memory,
    /// on a capturing stream.
    Capture,
    /// Two operations use the same bytes, at least one of them writes, and nothing orders them.
    /// [`Finding::race`] names both. It is found in any mode and with any seed, though the run
    /// itself may have gone well.
    Race,
    /// The program needs something that the emulated device does not do: a kernel without a
    /// stand-in, where the program must not go on without it; or what a library says that runs its
    /// own operations on the device ([`Emulator::unsupported`](super::Emulator::unsupported)).
    Unsupported,
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
    /// When that emulator runs operations.
    pub execution: Execution,
    race: Option<Box<Race>>,
    site: Option<Site>,
    label: Option<&'static str>,
}

impl Finding {
    /// Where the call was made in which a finding without a [`race`](Finding::race) was seen, if
    /// that is known.
    #[must_use]
    pub fn site(&self) -> Option<&Site> {
        self.site.as_ref()
    }

    /// What that call was made for, if the library says so that made it
    /// ([`Emulator::label_calls`](crate::Emulator::label_calls)).
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label
    }

    /// The two operations that nothing orders: for [`FindingKind::Race`], and for
    /// [`FindingKind::FreedInFlight`] where the memory was in use by a known operation. For
    /// [`FindingKind::SourceChanged`] and [`FindingKind::DestinationChanged`], where the copy had
    /// run: the second one is what the host did, at a time that is not known.
    #[must_use]
    pub fn race(&self) -> Option<&Race> {
        self.race.as_deref()
    }
}

impl fmt::Display for Finding {
    /// The kind, what happened, and the seed; more lines about a race.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) =
            self.message.split_at(self.message.find('\n').unwrap_or(self.message.len()));
        write!(f, "{:?}: {first} (seed {}){rest}", self.kind, self.seed)
    }
}

/// The findings so far. A program that goes wrong in a loop does not fill the memory with them.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) seed: u64,
    execution: Execution,
    list: Vec<Finding>,
    /// How many of them were taken.
    taken: usize,
    /// Whether there are findings that were not taken, for threads that do not hold the lock.
    pub(super) are_new: Arc<AtomicBool>,
}

impl Findings {
    const KEPT: usize = 1000;

    pub(super) fn new(execution: Execution, seed: u64) -> Self {
        Findings { seed, execution, list: Vec::new(), taken: 0, are_new: Arc::default() }
    }

    /// The text says where the call was made and what for, if that is given.
    #[cold]
    pub(super) fn report(
        &mut self,
        kind: FindingKind,
        message: impl Into<String>,
        site: Option<Site>,
        label: Option<&'static str>,
    ) {
        let mut message = message.into();
        message += &site.as_ref().map(|site| site.as_line("called at")).unwrap_or_default();
        message += &label.map(|label| format!("\n  called for {label}")).unwrap_or_default();
        self.push(kind, message, None, (site, label));
    }

    #[cold]
    pub(super) fn report_race(&mut self, kind: FindingKind, race: Race) {
        self.push(kind, race.text(), Some(Box::new(race)), (None, None));
    }

    /// The same for a race, with a message of its own.
    #[cold]
    pub(super) fn report_with(&mut self, kind: FindingKind, message: String, race: Race) {
        self.push(kind, message, Some(Box::new(race)), (None, None));
    }

    fn push(
        &mut self,
        kind: FindingKind,
        message: String,
        race: Option<Box<Race>>,
        (site, label): (Option<Site>, Option<&'static str>),
    ) {
        if self.list.len() < Self::KEPT {
            let Findings { seed, execution, .. } = *self;
            self.list.push(Finding { kind, message, seed, execution, race, site, label });
            self.are_new.store(true, Ordering::Release);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Those that were not taken yet.
    pub(super) fn take_new(&mut self) -> Vec<Finding> {
        self.are_new.store(false, Ordering::Relaxed);
        let first = std::mem::replace(&mut self.taken, self.list.len());
        self.list[first..].to_vec()
    }

    pub(super) fn list(&self) -> Vec<Finding> {
        self.list.clone()
    }
}
