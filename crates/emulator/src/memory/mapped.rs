//! Virtual memory of devices: addresses that a program reserves, and memory that it maps there
//! (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`, `cuMemSetAccess`).
//!
//! ```text
//!   a reservation   addresses without bytes; its mappings, by their offsets
//!   a backing       bytes without addresses: a part of the arena's file that no address shows
//!   a mapping       shows a backing at addresses of a reservation, to devices that have access
//! ```
//!
//! Both have an entry among the allocations of a device, so that each has addresses of its own and
//! no other memory comes to lie there. A range that a program uses may go over many mappings, and
//! over all of them it is checked. A backing lives as long as it has a mapping or a handle.

use std::collections::BTreeMap;

use crate::memory::arena::PAGE;
use crate::memory::device::{Allocation, DeviceMemory, Role, Violation};
use pinlane_driver::CudaCode;
use pinlane_driver::{DevicePtr, DriverResult, Ordinal};

/// What addresses and lengths of mappings are multiples of, as on GPUs.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// What a device may do with mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedAccess {
    /// Nothing: `CU_MEM_ACCESS_FLAGS_PROT_NONE`.
    None,
    /// It reads.
    Read,
    /// It reads and writes.
    ReadWrite,
}

/// What a program has asked for when it made memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedMemory {
    /// The device that the memory belongs to.
    pub device: Ordinal,
    /// How long it is.
    pub bytes: usize,
    /// In which forms other processes may get its handle (`CUmemAllocationHandleType`). No call
    /// gives one.
    pub handle_types: i32,
}

/// Memory that a program has a handle of. The handle is the address of its entry.
#[derive(Debug)]
pub(super) struct Backing {
    created: CreatedMemory,
    handles: usize,
    mappings: usize,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    backing: DevicePtr,
    /// The devices that have access, and whether they may write.
    access: BTreeMap<Ordinal, bool>,
}

/// The mappings of a reservation, by their offsets.
#[derive(Debug, Default)]
pub(super) struct Reservation(BTreeMap<u64, Mapping>);

impl Reservation {
    /// The mapping that an offset lies in, and where it begins.
    fn mapping_at(&self, offset: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.0.range(..=offset).next_back()?;
        (offset - start < mapping.bytes).then_some((start, mapping))
    }

    /// Why a range cannot be used, if it cannot: where nothing is mapped, or no device may do that.
    pub(super) fn refusal(
        &self,
        start: DevicePtr,
        range: (usize, usize),
        writes: bool,
    ) -> Option<Violation> {
        let (mut at, end) = (range.0 as u64, range.0 as u64 + range.1.max(1) as u64);
        while at < end {
            let address = start + at;
            let Some((first, mapping)) = self.mapping_at(at) else {
                return Some(format!("{address:#x} is reserved, and no memory is mapped there"));
            };
            if mapping.access.is_empty() {
                let text = "is mapped, and no device has access to it (cuMemSetAccess)";
                return Some(format!("{address:#x} {text}"));
            }
            if writes && !mapping.access.values().any(|&may_write| may_write) {
                return Some(format!("{address:#x} is mapped for reading only"));
            }
            at = first + mapping.bytes;
        }
        None
    }

    /// The backings of a range.
    fn backings(&self, offset: usize, bytes: usize) -> impl Iterator<Item = DevicePtr> {
        let (from, to) = (offset as u64, (offset + bytes) as u64);
        let inside = self.0.range(..to).filter(move |(start, one)| *start + one.bytes > from);
        inside.map(|(_, one)| one.backing)
    }

    /// The offsets of the mappings that make up a range, if it consists of whole ones.
    fn whole(&self, offset: u64, bytes: u64) -> DriverResult<Vec<u64>> {
        let (mut at, end) = (offset, offset + bytes);
        let mut found = Vec::new();
        while at < end {
            let mapping = self.0.get(&at).ok_or(CudaCode::INVALID_VALUE)?;
            found.push(at);
            at += mapping.bytes;
        }
        if at == end { Ok(found) } else { Err(CudaCode::INVALID_VALUE) }
    }
}

/// Whether two ranges of mapped memory show the same backing.
pub(super) fn share(
    (one, offset): (&Allocation, usize),
    (other, at): (&Allocation, usize),
    bytes: usize,
) -> bool {
    match (&one.role, &other.role) {
        (Role::Reserved(one), Role::Reserved(other)) => one
            .backings(offset, bytes)
            .any(|backing| other.backings(at, bytes).any(|other| other == backing)),
        _ => false,
    }
}

impl DeviceMemory {
    /// Reserves addresses of a device's: at a multiple of `alignment`, which is a power of two.
    pub(crate) fn reserve_addresses(
        &mut self,
        device: Ordinal,
        bytes: usize,
        alignment: u64,
    ) -> DriverResult<DevicePtr> {
        if self.arena.is_none() {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        let address = self.take(device, bytes, alignment.max(GRANULARITY))?;
        let allocation = self.allocation(address).expect("just taken");
        allocation.role = Role::Reserved(Reservation::default());
        allocation.storage.appear();
        Ok(address)
    }

    /// Gives up a reservation.
    ///
    /// # Errors
    ///
    /// Why it cannot be given up: none of this length begins there, or memory is mapped in it.
    pub(crate) fn free_addresses(
        &mut self,
        address: DevicePtr,
        bytes: usize,
    ) -> Result<(), Violation> {
        match self.allocation(address) {
            Some(Allocation { role: Role::Reserved(of), bytes: all, .. }) => {
                if let Some((&offset, _)) = of.0.first_key_value() {
                    return Err(format!("memory is still mapped at {:#x}", address + offset));
                }
                if *all != bytes {
                    return Err(format!("{all} bytes are reserved at {address:#x}, not {bytes}"));
                }
            }
            _ => return Err(format!("no reservation begins at {address:#x}")),
        }
        self.remove(address);
        Ok(())
    }

    /// Makes memory without addresses. Gives its handle.
    pub(crate) fn create(&mut self, created: CreatedMemory) -> DriverResult<DevicePtr> {
        let CreatedMemory { device, bytes, .. } = created;
        if self.arena.is_none() {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        if bytes > self.free_and_total(device).0 {
            return Err(CudaCode::MEMORY_ALLOCATION);
        }
        let handle = self.take(device, bytes, PAGE)?;
        self.commit(handle);
        self.allocation(handle).expect("just taken").role =
            Role::Backing(Backing { created, handles: 1, mappings: 0 });
        self.count(handle, bytes as isize);
        Ok(handle)
    }

    fn backing(&mut self, handle: DevicePtr) -> DriverResult<&mut Backing> {
        match self.allocation(handle) {
            Some(Allocation { role: Role::Backing(backing), .. }) => Ok(backing),
            _ => Err(CudaCode::INVALID_VALUE),
        }
    }

    /// What a handle's memory is.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if there is no such handle; so for all that take one.
    pub(crate) fn created(&mut self, handle: DevicePtr) -> DriverResult<CreatedMemory> {
        let backing = self.backing(handle)?;
        if backing.handles == 0 { Err(CudaCode::INVALID_VALUE) } else { Ok(backing.created) }
    }

    /// Gives a handle up, once.
    pub(crate) fn release_handle(&mut self, handle: DevicePtr) -> DriverResult<()> {
        let backing = self.backing(handle)?;
        backing.handles = backing.handles.checked_sub(1).ok_or(CudaCode::INVALID_VALUE)?;
        self.drop_if_unused(handle);
        Ok(())
    }

    fn drop_if_unused(&mut self, handle: DevicePtr) {
        let Ok(&mut Backing { created, handles: 0, mappings: 0 }) = self.backing(handle) else {
            return;
        };
        self.count(handle, -(created.bytes as isize));
        self.release(handle);
    }

    /// The reservation that a whole range lies in, and where in it.
    fn reservation(
        &mut self,
        address: DevicePtr,
        bytes: usize,
    ) -> DriverResult<(&mut Reservation, u64)> {
        let found = self.containing(address).ok_or(CudaCode::INVALID_VALUE)?;
        let (start, allocation) = found;
        let offset = address - start;
        match &mut allocation.role {
            Role::Reserved(of) if bytes as u64 <= allocation.bytes as u64 - offset => {
                Ok((of, offset))
            }
            _ => Err(CudaCode::INVALID_VALUE),
        }
    }

    /// Shows the first bytes of a handle's memory at reserved addresses. No device has access yet.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if the range is no part of one reservation, or something is mapped there; or
    /// if the memory is shorter.
    pub(crate) fn map(
        &mut self,
        address: DevicePtr,
        bytes: usize,
        handle: DevicePtr,
    ) -> DriverResult<()> {
        let CreatedMemory { device, bytes: all, .. } = self.created(handle)?;
        let (reservation, offset) = self.reservation(address, bytes)?;
        if bytes > all || reservation.backings(offset as usize, bytes).next().is_some() {
            return Err(CudaCode::INVALID_VALUE);
        }
        let arena = self.arena.as_ref().ok_or(CudaCode::NOT_SUPPORTED)?;
        if arena.map_pages(address, bytes, Some(arena.place_of(handle))).is_err() {
            let _ = arena.map_pages(address, bytes, None);
            return Err(CudaCode::MEMORY_ALLOCATION);
        }
        let mapping = Mapping { bytes: bytes as u64, backing: handle, access: BTreeMap::new() };
        self.reservation(address, bytes)?.0.0.insert(offset, mapping);
        self.backing(handle)?.mappings += 1;
        if self.bank_of(address) != Some(device) {
            self.elsewhere.insert(address, (bytes as u64, device));
        }
        Ok(())
    }

    /// Takes memory away from a range that consists of whole mappings. Gives their addresses.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if it does not.
    pub(crate) fn unmap(&mut self, address: DevicePtr, bytes: usize) -> DriverResult<Vec<u64>> {
        let (reservation, offset) = self.reservation(address, bytes)?;
        let offsets = reservation.whole(offset, bytes as u64)?;
        let gone: Vec<_> = offsets.iter().filter_map(|at| reservation.0.remove(at)).collect();
        // It only lets go of the backings.
        let _ = self.arena.as_ref().map(|arena| arena.map_pages(address, bytes, None));
        for mapping in gone {
            self.backing(mapping.backing)?.mappings -= 1;
            self.drop_if_unused(mapping.backing);
        }
        let starts: Vec<_> = offsets.into_iter().map(|at| address + (at - offset)).collect();
        self.elsewhere.retain(|start, _| !starts.contains(start));
        Ok(starts)
    }

    /// Says what a device may do with a range that consists of whole mappings.
    ///
    /// # Errors
    ///
    /// As for [`unmap`](Self::unmap).
    pub(crate) fn set_access(
        &mut self,
        address: DevicePtr,
        bytes: usize,
        device: Ordinal,
        access: MappedAccess,
    ) -> DriverResult<()> {
        let (reservation, offset) = self.reservation(address, bytes)?;
        for at in reservation.whole(offset, bytes as u64)? {
            let devices = &mut reservation.0.get_mut(&at).expect("just found").access;
            match access {
                MappedAccess::None => devices.remove(&device),
                _ => devices.insert(device, access == MappedAccess::ReadWrite),
            };
        }
        Ok(())
    }

    /// The mapping that an address lies in.
    fn mapping(&self, address: DevicePtr) -> Option<(DevicePtr, &Mapping)> {
        let bank = &self.banks[self.bank_of(address)? as usize];
        let (start, allocation) = bank.allocations.below(address)?;
        let Role::Reserved(reservation) = &allocation.role else { return None };
        let (offset, mapping) = reservation.mapping_at(address - start)?;
        Some((start + offset, mapping))
    }

    /// Where the mapping begins that an address lies in, and how long it is.
    pub(crate) fn mapped(&self, address: DevicePtr) -> Option<(DevicePtr, usize)> {
        self.mapping(address).map(|(start, mapping)| (start, mapping.bytes as usize))
    }

    /// What a device may do with mapped memory; `None` if nothing is mapped there.
    pub(crate) fn access(&self, address: DevicePtr, device: Ordinal) -> Option<MappedAccess> {
        self.mapping(address).map(|(_, mapping)| match mapping.access.get(&device) {
            None => MappedAccess::None,
            Some(false) => MappedAccess::Read,
            Some(true) => MappedAccess::ReadWrite,
        })
    }

    /// One more handle of the memory that is mapped at an address.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if nothing is mapped there.
    pub(crate) fn retain_handle(&mut self, address: DevicePtr) -> DriverResult<DevicePtr> {
        let handle = self.mapping(address).ok_or(CudaCode::INVALID_VALUE)?.1.backing;
        self.backing(handle)?.handles += 1;
        Ok(handle)
    }
}
