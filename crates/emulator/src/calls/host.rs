//! Page-locked memory: allocated, or the program's own that is registered (rules 21, 22 and 25).
//!
//! What may be registered is what a GPU's driver can pin: memory that is mapped, that may be
//! written to unless the call says that the device only reads it, and that CUDA does not have yet.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;

use super::{Side, refuse_in_host_function};
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::host::{Purpose, Refusal, Removal};
use crate::memory::made::{HostKind, MadeHost, READ_ONLY};
use crate::races::MemoryKind;
use pinlane_base::process;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal};

/// `cudaHostRegisterIoMemory`
const IO_MEMORY: u32 = 4;
/// More than a process has addresses for.
const MOST: usize = 1 << 47;

impl Emulator {
    /// Allocates page-locked memory. `cudaHostAlloc`, `cudaMallocManaged`
    ///
    /// # Errors
    ///
    /// [`CudaCode::MEMORY_ALLOCATION`] if there is not enough memory.
    pub fn host_alloc(&self, bytes: usize, flags: u32, managed: bool) -> DriverResult<*mut c_void> {
        self.alloc_host(bytes, flags, if managed { HostKind::Managed } else { HostKind::Allocated })
    }

    pub(super) fn alloc_host(
        &self,
        bytes: usize,
        flags: u32,
        kind: HostKind,
    ) -> DriverResult<*mut c_void> {
        self.refuse_unsafe()?;
        let device = self.current_device();
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let ptr = self.page_lock_new(device, bytes, Some(MadeHost { flags, kind }))?;
        if kind == HostKind::Managed {
            let start = ptr.addr().get();
            self.with(|machine| machine.prefetched.forget(start..start + bytes));
        }
        self.may_synchronize(4);
        Ok(ptr.as_ptr().cast())
    }

    /// Frees page-locked memory; it may synchronize. A free while an operation uses the memory is a
    /// finding even so (rule 22). So is a call from a host function (rule 25). `cudaFreeHost`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if it is no such memory of this program, or
    /// freed already.
    pub fn free_host(&self, ptr: *mut c_void, managed: bool) -> DriverResult<()> {
        self.end_host(ptr, if managed { HostKind::Managed } else { HostKind::Allocated })
    }

    /// Frees page-locked memory that was made that way.
    pub(super) fn end_host(&self, ptr: *mut c_void, kind: HostKind) -> DriverResult<()> {
        self.refuse_unsafe()?;
        let Some(start) = NonNull::new(ptr.cast::<u8>()) else { return Ok(()) };
        let call = self.call_name();
        self.with(|machine| {
            machine.find_cycle();
            machine.check_made(call, ptr, kind)
        })?;
        let check = |machine: &mut Machine| {
            let bytes = machine.check_made(call, ptr, kind)?;
            if let HostKind::Pooled(pool) = kind {
                machine.pools.give_back(pool, bytes);
            }
            Ok(())
        };
        // SAFETY: a reference into the block is made by unsafe code of the program, which gives it
        // up here; operations that are pending keep the block, and are a finding.
        unsafe { self.page_unlock(Call::HostFree, start, check) }?;
        self.may_synchronize(2);
        Ok(())
    }

    /// Page-locks memory. `cudaHostRegister`
    ///
    /// # Errors
    ///
    /// As of rule 21. [`CudaCode::INVALID_VALUE`] for memory that CUDA allocated, that is not
    /// mapped, or that may not be written to and is not said to be for reading only; and for I/O
    /// memory, which no emulated machine has.
    ///
    /// # Safety
    ///
    /// * The range stays mapped until it is unregistered.
    pub unsafe fn register(&self, ptr: *mut c_void, bytes: usize, flags: u32) -> DriverResult<()> {
        self.refuse_unsafe()?;
        let start = NonNull::new(ptr.cast::<u8>()).ok_or(CudaCode::INVALID_VALUE)?;
        self.check_registration(ptr, bytes, flags)?;
        let purpose = purpose_of(flags);
        check_mapped(start, bytes, purpose)?;
        let made = MadeHost { flags, kind: HostKind::Registered };
        // SAFETY: the range was just found mapped, and stays so: promised by the caller. It may be
        // read, and written to unless it is for reading only.
        unsafe { self.page_lock(self.current_device(), start, bytes, purpose, Some(made)) }
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
        Ok(())
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
        let check = |machine: &mut Machine| machine.check_registered(self.call_name(), ptr);
        self.with(check)?;
        // SAFETY: only memory that is allocated may have no references afterwards.
        unsafe { self.page_unlock(Call::HostUnregister, start, check) }?;
        self.may_synchronize(2);
        Ok(())
    }

    /// Allocates page-locked memory, for the program if it is `made` by it.
    pub(crate) fn page_lock_new(
        &self,
        device: Ordinal,
        bytes: usize,
        made: Option<MadeHost>,
    ) -> DriverResult<NonNull<u8>> {
        self.call(Call::HostAlloc, device, |machine| {
            machine.host.check_call(bytes)?;
            let ptr = machine.host.allocate(device, bytes).ok_or(CudaCode::MEMORY_ALLOCATION)?;
            machine.host.note(ptr, made);
            machine.races.allocated(MemoryKind::PageLocked, ptr.addr().get() as u64, bytes);
            Ok(ptr)
        })
    }

    /// Page-locks a range, for the program if it is `made` by it.
    ///
    /// # Errors
    ///
    /// As of rule 21. [`CudaCode::NOT_SUPPORTED`] for memory to read only, on machines that cannot.
    ///
    /// # Safety
    ///
    /// * The range is mapped and readable, and stays so until it is unlocked. It is writable unless
    ///   it is only to be read.
    pub(crate) unsafe fn page_lock(
        &self,
        device: Ordinal,
        ptr: NonNull<u8>,
        bytes: usize,
        purpose: Purpose,
        made: Option<MadeHost>,
    ) -> DriverResult<()> {
        self.call(Call::HostRegister, device, |machine| {
            machine.host.check_call(bytes)?;
            if purpose == Purpose::ToRead && !machine.registers_read_only {
                return Err(CudaCode::NOT_SUPPORTED);
            }
            if !machine.host.has_room(bytes) {
                return Err(CudaCode::MEMORY_ALLOCATION);
            }
            machine.host.register(device, ptr, bytes, purpose)?;
            machine.host.note(ptr, made);
            machine.races.allocated(MemoryKind::HostRegistered, ptr.addr().get() as u64, bytes);
            Ok(())
        })
    }

    /// Frees or unregisters, by that call, the block that begins there, if `check` agrees under the
    /// same lock. Operations that are pending are a finding. They do not touch a range that is not
    /// registered any more (`HostMemory::end_use`).
    ///
    /// # Safety
    ///
    /// * No reference into an allocated block is used afterwards.
    pub(crate) unsafe fn page_unlock(
        &self,
        call: Call,
        ptr: NonNull<u8>,
        check: impl FnOnce(&mut Machine) -> DriverResult<()>,
    ) -> DriverResult<()> {
        self.in_call(|machine| {
            refuse_in_host_function(machine, call)?;
            let device = machine.host.device_of(ptr).unwrap_or(0);
            machine.enter(call, device, |machine| {
                check(machine)?;
                let outcome = match call {
                    // SAFETY: promised by the caller.
                    Call::HostFree => unsafe { machine.host.free(ptr) },
                    _ => machine.host.unregister(ptr),
                };
                machine.removed(call, ptr, outcome)
            })
        })
    }
}

impl Machine {
    /// Whether some of the range is page-locked memory that the program has allocated.
    fn has_allocated(&self, range: &Range<usize>) -> bool {
        let below = self.host.made_below(range.end);
        let mut reaching =
            below.filter(|(block, _)| block.ptr.address() + block.bytes > range.start);
        reaching.any(|(_, made)| made.kind != HostKind::Registered)
    }

    /// How the program made the block of page-locked memory that begins there, and its length.
    fn made(&self, ptr: *mut c_void) -> Option<(HostKind, usize)> {
        let found = self.host.made_at(ptr.addr());
        let found = found.filter(|(block, _)| block.ptr.address() == ptr.addr());
        found.map(|(block, made)| (made.kind, block.bytes))
    }

    /// The length of page-locked memory that was made that way.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], with a finding, if no such memory of the program begins there.
    fn check_made(&mut self, call: &str, ptr: *mut c_void, is: HostKind) -> DriverResult<usize> {
        let made = self.made(ptr);
        if let Some((kind, bytes)) = made
            && kind == is
        {
            return Ok(bytes);
        }
        let made = made.map_or("nothing".to_owned(), |(kind, _)| format!("{kind:?}"));
        Err(self.bad_free(format!("{call} of {ptr:p}, where this program has {made}")))
    }

    /// Fails, with a finding if other memory is there, unless a registration of the program's
    /// begins there.
    fn check_registered(&mut self, call: &str, ptr: *mut c_void) -> DriverResult<()> {
        if self.made(ptr).is_some_and(|(kind, _)| kind == HostKind::Registered) {
            return Ok(());
        }
        if self.held(ptr).side == Side::Pageable {
            return Err(CudaCode::HOST_MEMORY_NOT_REGISTERED);
        }
        Err(self.bad_free(format!("{call} of {ptr:p}, where no registration begins")))
    }

    /// What a removal from the registry of host memory means to the caller.
    fn removed(
        &mut self,
        call: Call,
        ptr: NonNull<u8>,
        outcome: Result<Removal, Refusal>,
    ) -> DriverResult<()> {
        let start = ptr.addr().get();
        match outcome {
            Ok(removal) => {
                let bytes = self.races.bytes_at(start as u64);
                self.sides.forget(start, bytes);
                self.destinations.forget(start, bytes);
                let races = self.races.host_freed(call, start as u64);
                // Those that only have its address are looked at when they run.
                if let Removal::InFlight(operations @ 1..) = removal
                    && races.is_empty()
                {
                    let message = match self.named_by_graphs(start, bytes) {
                        1 if operations == 1 => format!(
                            "{call:?} of {ptr:p}, which an operation of a graph names: free it \
                             when the graph is destroyed"
                        ),
                        graphs if operations == graphs => format!(
                            "{call:?} of {ptr:p}, which {graphs} operations of graphs name: free \
                             it when the graphs are destroyed"
                        ),
                        _ => format!(
                            "{call:?} of {ptr:p}, which {operations} pending operations name"
                        ),
                    };
                    self.report(FindingKind::FreedInFlight, message);
                }
                // One finding, though several operations may still use it.
                if let Some(race) = races.into_iter().next_back() {
                    self.findings.report_race(FindingKind::FreedInFlight, race);
                }
                Ok(())
            }
            // An answer that programs ask for: is it registered?
            Err(Refusal::Unknown) if call == Call::HostUnregister => {
                Err(CudaCode::HOST_MEMORY_NOT_REGISTERED)
            }
            Err(_) => {
                let message =
                    format!("{call:?} of {ptr:p}, which is not the start of such a block");
                Err(self.bad_free(message))
            }
        }
    }
}

/// What registered memory is for, by the flags of the call.
fn purpose_of(flags: u32) -> Purpose {
    if flags & READ_ONLY == 0 { Purpose::Any } else { Purpose::ToRead }
}

/// Fails unless a range is mapped as its purpose needs.
pub(crate) fn check_mapped(start: NonNull<u8>, bytes: usize, purpose: Purpose) -> DriverResult<()> {
    let start = start.as_ptr().addr();
    let end = start.checked_add(bytes).ok_or(CudaCode::INVALID_VALUE)?;
    // Where the system does not say, the range is taken to be mapped.
    let is_mapped = process::is_mapped(&(start..end), purpose == Purpose::Any).unwrap_or(true);
    if is_mapped { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
}
