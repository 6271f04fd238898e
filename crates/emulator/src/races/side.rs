//! What a copy that has run did to memory of the host.

use super::clock::{Called, Epoch};
use super::report::RacingAccess;
use pinlane_driver::Call;

/// The host's side of a copy that has run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) by: Epoch,
    pub(crate) call: Call,
    /// What the copy does to it.
    pub(crate) access: RacingAccess,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) called: Called,
}

impl Side {
    pub(crate) fn overlaps(&self, start: usize, bytes: usize) -> bool {
        self.start < start.saturating_add(bytes) && start < self.start + self.bytes
    }
}
