//! Device memory that several processes use (`cudaIpcGetMemHandle`). The bytes are the same; what
//! one process does to them, and when, the race checker of another does not know.

use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::memory::device::Allocation;
use crate::memory::foreign::{Opened, SharedMemory};
use crate::races::MemoryKind;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult};

/// The memory is the process's own (`cudaErrorDeviceUninitialized`).
const OF_THIS_PROCESS: CudaCode = CudaCode(201);

/// When a process began, in ticks; `None` if there is none.
fn began(process: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may have spaces. The time is the 20th word after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn this_process() -> u64 {
    std::process::id().into()
}

impl SharedMemory {
    fn open(&self) -> io::Result<File> {
        let path = format!("/proc/{}/fd/{}", self.process, self.file);
        File::options().read(true).write(true).open(path)
    }
}

impl Emulator {
    /// What another process needs to use the allocation that an address lies in.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if it did not come from `cudaMalloc`, or is another process's.
    /// [`CudaCode::NOT_SUPPORTED`] if the system does not say when this process began.
    pub fn share(&self, ptr: *const c_void) -> DriverResult<SharedMemory> {
        let process = this_process();
        let began = began(process).ok_or(CudaCode::NOT_SUPPORTED)?;
        self.with(|machine| {
            let found = machine.memory.allocation_of(ptr.addr() as u64);
            let of_malloc = |one: &Allocation| one.made.is_some_and(|made| made.pool.is_none());
            let (start, found) =
                found.filter(|(_, one)| of_malloc(one)).ok_or(CudaCode::INVALID_VALUE)?;
            let device = machine.memory.device_of(start).expect("has an allocation");
            let (file, offset) = machine.memory.place_of(start);
            Ok(SharedMemory { process, began, device, file, offset, bytes: found.bytes })
        })
    }

    /// Makes memory of another process's machine usable on this one. The same memory has the same
    /// address until it was [given up](Self::give_up) as often as it was adopted.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if the process is gone, or its memory cannot be opened; 201 if
    /// the process is this one. [`CudaCode::INVALID_DEVICE`] if there is no such device here.
    /// [`CudaCode::MEMORY_ALLOCATION`] if there are no addresses for it, or it cannot be mapped.
    ///
    /// # Safety
    ///
    /// * [`share`](Self::share) has given the description, in that process.
    pub unsafe fn adopt(&self, memory: SharedMemory) -> DriverResult<*mut c_void> {
        if began(memory.process) != Some(memory.began) {
            return Err(CudaCode::INVALID_VALUE);
        }
        if memory.process == this_process() {
            return Err(OF_THIS_PROCESS);
        }
        let SharedMemory { device, offset, bytes, .. } = memory;
        let address = self.call(Call::DeviceAlloc, device, |machine| {
            let mut opened = machine.opened.iter_mut();
            if let Some(known) = opened.find(|known| known.memory == memory) {
                known.times += 1;
                return Ok(known.address);
            }
            let file = memory.open().map_err(|_| CudaCode::INVALID_VALUE)?;
            let address = machine.memory.adopt(device, (file.as_raw_fd(), offset), bytes)?;
            machine.races.allocated(MemoryKind::OnDevice(device), address, bytes);
            machine.opened.push(Opened { memory, address, times: 1 });
            Ok(address)
        })?;
        Ok(std::ptr::without_provenance_mut(address as usize))
    }

    /// Ends a use of memory that was [adopted](Self::adopt); the last one when all work of its
    /// device is done.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if it was not, or is given up already.
    pub fn give_up(&self, ptr: *mut c_void) -> DriverResult<()> {
        self.refuse_in_host_function()?;
        let address = ptr.addr() as u64;
        let is_last = self.with(|machine| {
            let opened = &mut machine.opened;
            let at = opened.iter().position(|known| known.address == address)?;
            opened[at].times -= 1;
            let is_last = opened[at].times == 0;
            if is_last {
                opened.swap_remove(at);
            }
            Some(is_last)
        });
        if !is_last.ok_or(CudaCode::INVALID_VALUE)? {
            return Ok(());
        }
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
