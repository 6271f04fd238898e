//! Device memory that several processes use (`cudaIpcGetMemHandle`). The bytes are the same; what
//! one process does to them, and when, the race checker of another does not know.

use std::ffi::c_void;

use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::memory::device::Allocation;
use crate::races::MemoryKind;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal};

/// An allocation as part of the file that all device memory of a process lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// The device that it belongs to.
    pub device: Ordinal,
    /// The descriptor of the file, in the process that owns the memory or, to
    /// [`adopt`](Emulator::adopt) it, in this one.
    pub file: i32,
    /// Where in the file it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: usize,
}

impl Emulator {
    /// What another process needs to use the allocation that an address lies in.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if it is none of `cudaMalloc`, or another process's.
    pub fn share(&self, ptr: *const c_void) -> DriverResult<SharedMemory> {
        self.with(|machine| {
            let found = machine.memory.allocation_of(ptr.addr() as u64);
            let of_malloc = |one: &Allocation| one.made.is_some_and(|made| made.pool.is_none());
            let (start, found) =
                found.filter(|(_, one)| of_malloc(one)).ok_or(CudaCode::INVALID_VALUE)?;
            let device = machine.memory.device_of(start).expect("has an allocation");
            let (file, offset) = machine.memory.place_of(start);
            Ok(SharedMemory { device, file, offset, bytes: found.bytes })
        })
    }

    /// Makes memory of another process's machine usable on this one. The file may be closed then.
    ///
    /// # Errors
    ///
    /// [`CudaCode::MEMORY_ALLOCATION`] if there are no addresses for it, or it cannot be mapped.
    ///
    /// # Safety
    ///
    /// * The descriptor is open, and its file is that of another machine, which
    ///   [`share`](Self::share) has given.
    pub unsafe fn adopt(&self, memory: SharedMemory) -> DriverResult<*mut c_void> {
        let SharedMemory { device, file, offset, bytes } = memory;
        let address = self.call(Call::DeviceAlloc, device, |machine| {
            let address = machine.memory.adopt(device, (file, offset), bytes)?;
            machine.races.allocated(MemoryKind::OnDevice(device), address, bytes);
            Ok(address)
        })?;
        Ok(std::ptr::without_provenance_mut(address as usize))
    }

    /// Ends the use of memory that was [adopted](Self::adopt), when all work of its device is done.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if it was not, or is given up already.
    pub fn give_up(&self, ptr: *mut c_void) -> DriverResult<()> {
        self.refuse_in_host_function()?;
        let address = ptr.addr() as u64;
        self.device_synchronize(self.held(ptr).device)?;
        self.with(|machine| {
            machine.memory.give_up(address)?;
            if let Some(race) = machine.races.host_freed(Call::DeviceFree, address).pop() {
                machine.findings.report_race(FindingKind::FreedInFlight, race);
            }
            Ok(())
        })
    }
}
