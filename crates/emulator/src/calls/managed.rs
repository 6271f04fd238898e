//! Managed memory. It is the host's here, so that there is nothing to move; the machine notes where
//! a program last wanted it.

use std::ffi::c_void;
use std::ops::Range;

use super::Side;
use crate::emulator::Emulator;
use crate::machine::Machine;
use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Ordinal};

impl Emulator {
    /// Fails unless the range lies in managed memory. `cudaMemAdvise`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`]
    pub fn check_managed(&self, ptr: *const c_void, bytes: usize) -> DriverResult<()> {
        self.shared.with(|machine| machine.managed(ptr, bytes).map(drop))
    }

    /// Notes that a program wants the range on a device; -1 is the host. `cudaMemPrefetchAsync`
    ///
    /// # Errors
    ///
    /// As for [`check_managed`](Self::check_managed).
    pub fn prefetch(&self, ptr: *const c_void, bytes: usize, to: Ordinal) -> DriverResult<()> {
        self.shared.with(|machine| {
            let range = machine.managed(ptr, bytes)?;
            machine.prefetched.note(range, to);
            Ok(())
        })
    }

    /// Where the range was last prefetched to, if that is one place for all of it.
    /// `cudaMemRangeGetAttribute`
    ///
    /// # Errors
    ///
    /// As for [`check_managed`](Self::check_managed).
    pub fn last_prefetch(&self, ptr: *const c_void, bytes: usize) -> DriverResult<Option<Ordinal>> {
        self.shared.with(|machine| {
            let range = machine.managed(ptr, bytes)?;
            Ok(machine.prefetched.device_of(range))
        })
    }
}

impl Machine {
    /// The addresses of a range, if it lies in managed memory.
    fn managed(&self, ptr: *const c_void, bytes: usize) -> DriverResult<Range<usize>> {
        let (held, start) = (self.held(ptr), ptr.addr());
        let is_inside = bytes <= held.bytes - (start - held.base.addr()).min(held.bytes);
        match held.side {
            Side::Managed if is_inside => Ok(start..start + bytes),
            _ => Err(CudaCode::INVALID_VALUE),
        }
    }
}
