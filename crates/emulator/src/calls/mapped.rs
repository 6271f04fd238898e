//! Virtual memory: addresses that the program reserves, memory without addresses, and which of it
//! is mapped where.

use std::ffi::c_void;

use super::refuse_in_host_function;
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::mapped::{CreatedMemory, GRANULARITY, MappedAccess};
use crate::races::MemoryKind;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal};

/// What `cuMemAddressReserve` demands of lengths.
const PAGE: usize = 4096;

/// Some bytes, and whole units of what is mapped.
fn check_units(address: u64, bytes: usize) -> DriverResult<()> {
    let is_multiple = |number: u64| number.is_multiple_of(GRANULARITY);
    let is_right = bytes != 0 && is_multiple(address) && is_multiple(bytes as u64);
    if is_right { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
}

impl Emulator {
    /// What addresses and lengths of mappings are multiples of. `cuMemGetAllocationGranularity`
    pub const MAPPED_GRANULARITY: usize = GRANULARITY as usize;

    fn in_mapping<R>(&self, work: impl FnOnce(&mut Machine) -> DriverResult<R>) -> DriverResult<R> {
        let call = self.call_name();
        self.in_call(|machine| {
            refuse_in_host_function(machine, call)?;
            machine.check_loaded()?;
            work(machine)
        })
    }

    /// Reserves addresses of the current device's, at a multiple of `alignment`; 0 is any.
    /// `cuMemAddressReserve`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if the length is 0 or no multiple of 4096, or the alignment no
    /// power of two. [`CudaCode::MEMORY_ALLOCATION`] if there are not so many addresses.
    pub fn reserve_addresses(&self, bytes: usize, alignment: usize) -> DriverResult<*mut c_void> {
        let is_aligned = alignment == 0 || alignment.is_power_of_two();
        if bytes == 0 || !bytes.is_multiple_of(PAGE) || !is_aligned {
            return Err(CudaCode::INVALID_VALUE);
        }
        let device = self.current_device();
        let address = self.in_mapping(|machine| {
            machine.memory.reserve_addresses(device, bytes, alignment as u64)
        })?;
        Ok(std::ptr::without_provenance_mut(address as usize))
    }

    /// Gives up addresses. `cuMemAddressFree`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, unless a reservation of this length begins there
    /// in which nothing is mapped.
    pub fn free_addresses(&self, ptr: *mut c_void, bytes: usize) -> DriverResult<()> {
        let call = self.call_name();
        self.in_mapping(|machine| {
            let freed = machine.memory.free_addresses(ptr.addr() as u64, bytes);
            freed.map_err(|violation| machine.bad_free(format!("{call}: {violation}")))
        })
    }

    /// Makes memory of a device that has no addresses. Gives its handle. `cuMemCreate`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if the length is 0 or not in whole
    /// [units](Self::MAPPED_GRANULARITY), [`CudaCode::INVALID_DEVICE`] if there is no such device,
    /// [`CudaCode::MEMORY_ALLOCATION`] if it has not enough memory.
    pub fn create_memory(&self, memory: CreatedMemory) -> DriverResult<u64> {
        check_units(0, memory.bytes)?;
        self.check_device(memory.device)?;
        self.call(Call::DeviceAlloc, memory.device, |machine| machine.memory.create(memory))
    }

    /// Gives a handle up. Its memory is freed when no handle and no mapping is left. `cuMemRelease`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if there is no such handle.
    pub fn release_memory(&self, handle: u64) -> DriverResult<()> {
        let call = self.call_name();
        self.in_mapping(|machine| {
            machine.memory.release_handle(handle).map_err(|_| no_memory(machine, call, handle))
        })
    }

    /// Shows the first bytes of a handle's memory at reserved addresses. `cuMemMap`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], with a finding if there is no such handle; if address and
    /// length are not in whole [units](Self::MAPPED_GRANULARITY); unless the range is part of one
    /// reservation in which nothing is mapped there; and if the memory is shorter.
    pub fn map_memory(&self, ptr: *mut c_void, bytes: usize, handle: u64) -> DriverResult<()> {
        let (call, address) = (self.call_name(), ptr.addr() as u64);
        check_units(address, bytes)?;
        self.in_mapping(|machine| {
            let created = machine.memory.created(handle);
            let CreatedMemory { device, .. } =
                created.map_err(|_| no_memory(machine, call, handle))?;
            machine.memory.map(address, bytes, handle)?;
            machine.races.allocated(MemoryKind::OnDevice(device), address, bytes);
            Ok(())
        })
    }

    /// Takes memory away from addresses, which stay reserved. It does not wait: CUDA
    /// promises that only "for most use cases". `cuMemUnmap`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, unless the range consists of whole mappings.
    pub fn unmap_memory(&self, ptr: *mut c_void, bytes: usize) -> DriverResult<()> {
        let (call, address) = (self.call_name(), ptr.addr() as u64);
        check_units(address, bytes)?;
        self.in_mapping(|machine| {
            let Ok(mappings) = machine.memory.unmap(address, bytes) else {
                let what = "no whole mappings";
                return Err(
                    machine.bad_free(format!("{call}: {bytes} bytes at {address:#x} are {what}"))
                );
            };
            // One finding, though several operations may still use it.
            let races = mappings
                .into_iter()
                .flat_map(|start| machine.races.host_freed(Call::DeviceFree, start));
            if let Some(race) = races.last() {
                machine.findings.report_race(FindingKind::FreedInFlight, race);
            }
            Ok(())
        })
    }

    /// Says what a device may do with mapped memory. `cuMemSetAccess`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device. [`CudaCode::INVALID_VALUE`] unless
    /// the range consists of whole mappings.
    pub fn set_mapped_access(
        &self,
        ptr: *mut c_void,
        bytes: usize,
        device: Ordinal,
        access: MappedAccess,
    ) -> DriverResult<()> {
        let address = ptr.addr() as u64;
        check_units(address, bytes)?;
        self.check_device(device)?;
        self.in_mapping(|machine| machine.memory.set_access(address, bytes, device, access))
    }

    /// What a device may do with the memory that is mapped at an address. `cuMemGetAccess`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device. [`CudaCode::INVALID_VALUE`] if
    /// nothing is mapped there.
    pub fn mapped_access(&self, ptr: *const c_void, device: Ordinal) -> DriverResult<MappedAccess> {
        self.check_device(device)?;
        let address = ptr.addr() as u64;
        let access = self.with(|machine| machine.memory.access(address, device));
        access.ok_or(CudaCode::INVALID_VALUE)
    }

    /// One more handle of the memory that is mapped at an address. `cuMemRetainAllocationHandle`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] if nothing is mapped there.
    pub fn retain_memory(&self, ptr: *const c_void) -> DriverResult<u64> {
        self.in_mapping(|machine| machine.memory.retain_handle(ptr.addr() as u64))
    }

    /// What a handle's memory is. `cuMemGetAllocationPropertiesFromHandle`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if there is no such handle.
    pub fn created_memory(&self, handle: u64) -> DriverResult<CreatedMemory> {
        let call = self.call_name();
        self.in_mapping(|machine| {
            machine.memory.created(handle).map_err(|_| no_memory(machine, call, handle))
        })
    }
}

#[cold]
fn no_memory(machine: &mut Machine, call: &str, handle: u64) -> CudaCode {
    let message = format!("{call} names {handle:#x}, which is no live handle of memory");
    machine.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_VALUE)
}
