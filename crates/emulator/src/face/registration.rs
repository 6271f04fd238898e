//! Page-locking memory of the program's own (rule 21).
//!
//! What may be registered is what a GPU's driver can pin: memory that is mapped, that may be
//! written to unless the call says that the device only reads it, and that CUDA does not have yet.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::ptr::NonNull;

use super::books::{HostKind, HostNote};
use super::{Face, Side};
use crate::finding::FindingKind;
use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, HostFlags};

/// `cudaHostRegisterIoMemory`
const IO_MEMORY: u32 = 4;
/// `cudaHostRegisterReadOnly`
pub(super) const READ_ONLY: u32 = 8;
/// More than a process has addresses for.
const MOST: usize = 1 << 47;

impl Face {
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
        let driver = self.emulator.driver();
        // SAFETY: the range is mapped, as was just checked, and stays so, as the caller says. It
        // may be read, and written to where copies to it are not refused (`check_writable`).
        unsafe { driver.host_register(device, start, bytes, HostFlags::default()) }?;
        let note = HostNote { bytes, device, flags, kind: HostKind::Registered };
        self.books.lock().host.insert(ptr.expose_provenance(), note);
        Ok(())
    }

    fn check_registration(&self, ptr: *mut c_void, bytes: usize, flags: u32) -> DriverResult<()> {
        let end = ptr.addr().checked_add(bytes).ok_or(CudaCode::INVALID_VALUE)?;
        if bytes > MOST {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        let range = ptr.addr()..end;
        let is_cudas = self.held(ptr).side == Side::OnDevice || self.has_allocated(&range);
        if bytes == 0 || flags & IO_MEMORY != 0 || is_cudas {
            return Err(CudaCode::INVALID_VALUE);
        }
        let writable = flags & READ_ONLY == 0;
        // One that is registered has been looked at; the driver has the answer for it.
        let is_mapped = is_mapped(&range, writable).unwrap_or(true);
        if is_mapped { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
    }

    /// Whether some of the range is page-locked memory that the face has allocated.
    fn has_allocated(&self, range: &Range<usize>) -> bool {
        let books = self.books.lock();
        let before = books.host.range(..range.end);
        let mut reaching = before.filter(|(start, note)| **start + note.bytes > range.start);
        reaching.any(|(_, note)| note.kind != HostKind::Registered)
    }

    /// Undoes [`register`](Self::register). `cudaHostUnregister`
    ///
    /// # Errors
    ///
    /// As of rule 21; [`CudaCode::HOST_MEMORY_NOT_REGISTERED`] for what this face has not
    /// registered.
    pub fn unregister(&self, ptr: *mut c_void) -> DriverResult<()> {
        self.refuse_unsafe()?;
        let start = NonNull::new(ptr.cast::<u8>()).ok_or(CudaCode::INVALID_VALUE)?;
        let note = self.books.lock().host.remove(&ptr.addr());
        let keep = |note| self.books.lock().host.insert(ptr.addr(), note);
        let Some(note) = note.filter(|note| note.kind == HostKind::Registered) else {
            note.map(keep);
            return Err(self.not_registered(ptr));
        };
        // SAFETY: operations that are pending do not touch it any more (`HostMemory::end_use`), and
        // are a finding.
        if let Err(code) = unsafe { self.emulator.driver().host_unregister(start) } {
            keep(note);
            return Err(code);
        }
        self.may_synchronize(2);
        Ok(())
    }

    /// The answer of a call that unregisters what is not registered there.
    fn not_registered(&self, ptr: *mut c_void) -> CudaCode {
        if self.held(ptr).side == Side::Pageable {
            return CudaCode::HOST_MEMORY_NOT_REGISTERED;
        }
        let message = format!("{} of {ptr:p}, where no registration begins", self.call_name());
        let code = CudaCode::INVALID_VALUE;
        self.emulator.with(|machine| machine.misuse(FindingKind::BadFree, message, code))
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
