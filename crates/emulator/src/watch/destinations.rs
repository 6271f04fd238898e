//! Destinations of copies whose pages cannot be closed: in pageable and in registered memory.
//!
//! A load of them is not seen. But a program also hands memory to calls, and these are asked
//! whether they read or write a destination that is pending: system calls ([`calls`](super::calls))
//! and calls of CUDA that use host memory at once.
//!
//! # Invariants
//!
//! * A destination is listed from the call that is given it until the host knows that its operation
//!   is complete. A correct program uses none that is listed, so its calls take no lock here.
//! * The list only says whom to ask: whether it is a race, the race checker says.

use std::collections::VecDeque;
use std::ops::Range;

use super::places::Places;
use crate::memory::host::{Access, HostUse};
use crate::races::Epoch;
use crate::words::thread::is_held;
use pinlane_driver::Ordinal;

/// The most that a machine lists. The oldest goes first.
const MOST: usize = 1024;

/// Those of all machines of the process.
static LISTED: Places = Places::new();

/// Whether a call that uses the buffer uses a pending destination. It takes no lock. Calls of the
/// machine's own do not count: it may be locked.
pub(super) fn is_pending(buffer: &Range<usize>) -> bool {
    LISTED.find(buffer).is_some_and(|found| found.is_own) && !is_held()
}

#[derive(Debug)]
struct Destination {
    range: Range<usize>,
    by: Epoch,
    device: Ordinal,
}

impl Destination {
    fn new(range: Range<usize>, by: Epoch, device: Ordinal) -> Self {
        LISTED.insert(range.clone());
        Destination { range, by, device }
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        LISTED.remove(&self.range);
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The pending ones of a machine.
#[derive(Debug, Default)]
pub(crate) struct Destinations(VecDeque<Destination>);

impl Destinations {
    /// An operation writes there, of which the host does not know that it is complete.
    pub(super) fn begin(&mut self, host: &HostUse, by: Epoch, device: Ordinal) {
        if host.access != Access::Write || host.waited {
            return;
        }
        let start = host.ptr.address();
        let range = start..start + host.bytes;
        // Who knows of a later operation of a stream knows of the earlier ones.
        self.0.retain(|earlier| {
            let is_covered = range.start <= earlier.range.start && earlier.range.end <= range.end;
            earlier.by.agent != by.agent || !is_covered
        });
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(Destination::new(range, by, device));
    }

    /// The host knows that some are complete.
    #[inline]
    pub(super) fn settle(&mut self, is_settled: impl Fn(Epoch) -> bool) {
        if !self.0.is_empty() {
            self.0.retain(|destination| !is_settled(destination.by));
        }
    }

    /// Whether an operation that is pending writes to some of the range. Not on a lost device,
    /// whose operations nobody can wait for.
    pub(super) fn have(&self, range: &Range<usize>, is_lost: impl Fn(Ordinal) -> bool) -> bool {
        let is_it = |one: &Destination| overlap(&one.range, range) && !is_lost(one.device);
        self.0.iter().any(is_it)
    }

    /// The device is reset.
    pub(crate) fn forget_device(&mut self, device: Ordinal) {
        self.0.retain(|destination| destination.device != device);
    }

    /// Host memory is unregistered: of what is pending there, that call tells.
    pub(crate) fn forget(&mut self, start: usize, bytes: usize) {
        let gone = start..start.saturating_add(bytes);
        self.0.retain(|destination| !overlap(&destination.range, &gone));
    }
}
