//! What the machine has found and allowed so far.

use super::Face;
use pinlane_driver::{DriverResult, Ordinal};

impl Face {
    /// How many findings there are; cheaper than asking for them.
    #[must_use]
    pub fn finding_count(&self) -> usize {
        self.emulator.with(|machine| machine.findings.len())
    }

    /// Whether memory of pools of `owner` is open to `peer`.
    ///
    /// # Errors
    ///
    /// [`pinlane_driver::CudaCode::INVALID_DEVICE`] if there is no such device.
    pub fn is_opened(&self, owner: Ordinal, peer: Ordinal) -> DriverResult<bool> {
        self.emulator.with(|machine| Ok(machine.device(peer)?.peers.contains(&owner)))
    }
}
