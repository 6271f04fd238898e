//! Page-locking memory of the program's own (rule 21).
//!
//! What may be registered is what a GPU's driver can pin: memory that is mapped, that may be
//! written to unless the call says that the device only reads it, and that CUDA does not have yet.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::ptr::NonNull;

use super::{Side, refuse_in_host_function};
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::books::{HostKind, HostNote, READ_ONLY};
use crate::races::MemoryKind;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal};

/// `cudaHostRegisterIoMemory`
const IO_MEMORY: u32 = 4;
/// More than a process has addresses for.
const MOST: usize = 1 << 47;

impl Emulator {
    /// Page-locks memory. `cudaHostRegister`
    ///
    /// # Errors
    ///
    /// As of rule 21. [`CudaCode::INVALID_VALUE`] for memory that CUDA allocated, that is not
    /// mapped, or that may not be written to and is not said to be for reading only; and for I/O
    /// memory, of which there is none.
    ///
    /// # Safety
    ///
    /// * The range stays mapped until it is unregistered.
    pub unsafe fn register(&self, ptr: *mut c_void, bytes: usize, flags: u32) -> DriverResult<()> {
        self.refuse_unsafe()?;
        let start = NonNull::new(ptr.cast::<u8>()).ok_or(CudaCode::INVALID_VALUE)?;
        self.check_registration(ptr, bytes, flags)?;
        let device = self.current_device();
        // The range is mapped, as was just checked, and stays so, as the caller says. It may be
        // read, and written to where copies to it are not refused (`check_writable`).
        self.call(Call::HostRegister, device, |machine| {
            machine.host_register(device, start, bytes)?;
            let note = HostNote { bytes, device, flags, kind: HostKind::Registered };
            machine.books.host.insert(ptr.expose_provenance(), note);
            Ok(())
        })
    }

    fn check_registration(&self, ptr: *mut c_void, bytes: usize, flags: u32) -> DriverResult<()> {
        let end = ptr.addr().checked_add(bytes).ok_or(CudaCode::INVALID_VALUE)?;
        if bytes > MOST {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        let range = ptr.addr()..end;
        let is_cudas = self.with(|machine| {
            machine.held(ptr).side == Side::OnDevice || machine.has_allocated(&range)
        });
        if bytes == 0 || flags & IO_MEMORY != 0 || is_cudas {
            return Err(CudaCode::INVALID_VALUE);
        }
        let writable = flags & READ_ONLY == 0;
        // One that is registered has been looked at; the driver has the answer for it.
        let is_mapped = is_mapped(&range, writable).unwrap_or(true);
        if is_mapped { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
    }

    /// Undoes [`register`](Self::register). `cudaHostUnregister`
    ///
    /// # Errors
    ///
    /// As of rule 21; [`CudaCode::HOST_MEMORY_NOT_REGISTERED`] for what this program has
    /// not registered.
    pub fn unregister(&self, ptr: *mut c_void) -> DriverResult<()> {
        self.refuse_unsafe()?;
        let start = NonNull::new(ptr.cast::<u8>()).ok_or(CudaCode::INVALID_VALUE)?;
        self.with(|machine| machine.check_registered(self.call_name(), ptr))?;
        self.in_call(|machine| {
            refuse_in_host_function(machine, Call::HostUnregister)?;
            let device = machine.host.device_of(start).unwrap_or(0);
            machine.enter(Call::HostUnregister, device, |machine| {
                machine.check_registered(self.call_name(), ptr)?;
                machine.host_unregister(start)?;
                machine.books.host.remove(&ptr.addr());
                Ok(())
            })
        })?;
        self.may_synchronize(2);
        Ok(())
    }
}

impl Machine {
    /// Whether some of the range is page-locked memory that the program has allocated.
    fn has_allocated(&self, range: &Range<usize>) -> bool {
        let before = self.books.host.range(..range.end);
        let mut reaching = before.filter(|(start, note)| **start + note.bytes > range.start);
        reaching.any(|(_, note)| note.kind != HostKind::Registered)
    }

    /// Fails, with a finding if other memory is there, unless a registration of the program's
    /// begins there.
    fn check_registered(&mut self, call: &str, ptr: *mut c_void) -> DriverResult<()> {
        let made = self.books.host.get(&ptr.addr()).map(|note| note.kind);
        if made == Some(HostKind::Registered) {
            return Ok(());
        }
        if self.held(ptr).side == Side::Pageable {
            return Err(CudaCode::HOST_MEMORY_NOT_REGISTERED);
        }
        let message = format!("{call} of {ptr:p}, where no registration begins");
        Err(self.misuse(FindingKind::BadFree, message, CudaCode::INVALID_VALUE))
    }

    /// A range of the program's own is page-locked.
    pub(crate) fn host_register(
        &mut self,
        device: Ordinal,
        ptr: NonNull<u8>,
        bytes: usize,
    ) -> DriverResult<()> {
        if bytes == 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.host.check_call(bytes)?;
        if !self.host.has_room(bytes) {
            return Err(CudaCode::MEMORY_ALLOCATION);
        }
        if !self.host.register(device, ptr, bytes) {
            return Err(CudaCode::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.races.allocated(MemoryKind::HostRegistered, ptr.addr().get() as u64, bytes);
        Ok(())
    }

    /// Undoes that. Operations that are pending do not touch the range any more
    /// (`HostMemory::end_use`), and are a finding.
    pub(crate) fn host_unregister(&mut self, ptr: NonNull<u8>) -> DriverResult<()> {
        let outcome = self.host.unregister(ptr);
        self.removed(Call::HostUnregister, ptr, outcome)
    }
}

/// Whether all of a range is mapped, and may be read, and written to if that is asked. `None` if
/// the system does not say.
fn is_mapped(range: &Range<usize>, writable: bool) -> Option<bool> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut reached = range.start;
    for line in maps.lines() {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        if end <= reached {
            continue;
        }
        let permits = rest.starts_with('r') && (!writable || rest[1..].starts_with('w'));
        if start > reached || !permits {
            return Some(false);
        }
        reached = end;
        if reached >= range.end {
            return Some(true);
        }
    }
    Some(false)
}
