//! Calls inside host functions (rules 24 and 25).

use super::Face;
use crate::finding::FindingKind;
use crate::runtime::refuse_in_host_function;
use crate::words::thread::{in_host_function, though_in_host_function};
use pinlane_driver::DriverResult;

impl Face {
    /// Whether the calling thread is inside a host function.
    #[must_use]
    pub fn is_in_host_function(&self) -> bool {
        in_host_function()
    }

    /// For calls that a host function may not make.
    ///
    /// # Errors
    ///
    /// [`pinlane_driver::CudaCode::NOT_PERMITTED`], and a finding, inside a host function.
    pub fn refuse_in_host_function(&self) -> DriverResult<()> {
        let call = self.call();
        self.emulator.with(|machine| refuse_in_host_function(machine, format_args!("{call}")))
    }

    /// Makes a call that GPUs were seen to answer inside a host function, where CUDA's documents
    /// allow none: there it is a finding.
    ///
    /// # Errors
    ///
    /// Those of the call.
    pub fn answered<R>(&self, call: impl FnOnce() -> DriverResult<R>) -> DriverResult<R> {
        if !in_host_function() {
            return call();
        }
        let message = format!("{} was called from inside a host function", self.call());
        self.emulator.with(|machine| machine.report(FindingKind::CallInHostFunction, message));
        though_in_host_function(call)
    }
}
