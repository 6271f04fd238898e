//! Device memory: storage of its own, under addresses that the host cannot use by accident.
//!
//! ```text
//!  63      52 51    44 43                              0
//! +----------+--------+---------------------------------+
//! |   0xDEA  | device | offset: only grows, from 4 KiB   |
//! +----------+--------+---------------------------------+
//! ```
//!
//! * No such number is a canonical address on x86-64, nor one of user space on AArch64: a host
//!   dereference faults instead of finding some other object.
//! * An address is not given out twice while there are others, so that a use after free is found
//!   however late it comes. Only an arena that had to be small runs out of them.
//! * Fresh memory holds a poison pattern of its own generation, never what was there before.
//! * Memory is reserved when `cudaMallocAsync` is called (that is when it can fail), becomes usable
//!   when the allocation is reached in stream order, and stops being so when the free is. Its bytes
//!   count as free from the call of `cudaFreeAsync`, as under
//!   `cudaMemPoolReuseAllowInternalDependencies`.
//!
//! For programs that call CUDA directly, addresses lie in an [`Arena`] instead: the numbers above
//! the offset are then those of the arena's view. Only there can a program
//! [map](super::mapped) memory.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use crate::memory::area::Area;
use crate::memory::arena::{Arena, PAGE};
use crate::memory::made::MadeOnDevice;
use crate::memory::mapped::{self, Backing, Reservation};
use crate::memory::pools::PoolId;
use crate::memory::storage::Storage;
use crate::words::rng;
use crate::words::spans::Spans;
use pinlane_driver::CudaCode;
use pinlane_driver::{DevicePtr, DriverResult, Ordinal};

const TAG: u64 = 0xdea << 52;
const DEVICE_SHIFT: u32 = 44;
/// The most devices that addresses have room for.
pub(crate) const MAX_DEVICES: usize = 256;
/// The size of each of an arena's two views, for all devices together, as a power of two: 16 TiB.
/// If the process has no room for that, it is halved until it fits, down to 256 MiB.
const MOST_ADDRESSES: u32 = 44;
const LEAST_ADDRESSES: u32 = 28;
/// As `cudaMalloc` documents.
pub(super) const ALIGNMENT: u64 = 256;
/// Where the addresses of a device begin.
const FIRST: u64 = 4096;

/// Whether an address can only be one of device memory.
pub(crate) fn is_device_address(address: u64) -> bool {
    address >> 52 == TAG >> 52
}

/// The memory of all devices.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    seed: u64,
    /// What the addresses of device 0 begin with, and how many each device has.
    base: u64,
    shift: u32,
    pub(super) arena: Option<Arena>,
    pub(super) banks: Vec<Bank>,
    /// Ranges of one device's addresses where memory of another is mapped.
    pub(super) elsewhere: BTreeMap<DevicePtr, (u64, Ordinal)>,
}

/// The memory of one device.
#[derive(Debug)]
pub(super) struct Bank {
    capacity: usize,
    used: usize,
    blocks: usize,
    next: u64,
    pub(super) allocations: Spans<Allocation>,
}

impl Bank {
    /// The first place after `start`, the first address of the device, where so many bytes are free
    /// between two allocations, though they were given out before.
    fn gap(&self, start: DevicePtr, bytes: u64, alignment: u64) -> Option<u64> {
        let aligned = |place: u64| (start + place).next_multiple_of(alignment) - start;
        let mut free = aligned(FIRST);
        for (at, allocation) in self.allocations.iter() {
            let (mut from, mut to) = (at - start, (at - start) + padded(allocation.bytes)?);
            if !matches!(allocation.role, Role::Plain) {
                (from, to) = (from & !(PAGE - 1), to.next_multiple_of(PAGE));
            }
            if from >= free + bytes {
                return Some(free);
            }
            free = aligned(to);
        }
        (self.next >= free + bytes).then_some(free)
    }
}

/// How many addresses an allocation takes. The gap at its end keeps an overrun from landing in the
/// next one.
fn padded(bytes: usize) -> Option<u64> {
    (bytes as u64).checked_next_multiple_of(ALIGNMENT)?.checked_add(ALIGNMENT)
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) bytes: usize,
    pub(super) storage: Storage,
    /// How the program made it, if a call of the program may free it.
    pub(crate) made: Option<MadeOnDevice>,
    /// Free has been called, but not yet reached; or it is a graph's, and not allocated.
    pub(super) freeing: bool,
    /// What is known of it if a graph allocates it.
    pub(super) graph: Option<OfGraph>,
    pub(super) role: Role,
}

/// What is known of an allocation that a graph makes.
#[derive(Debug)]
pub(super) struct OfGraph {
    /// How many graphs, executable ones included, can allocate it. A graph that is being captured
    /// is one.
    pub(super) graphs: u32,
    /// Frees that were called and are not reached.
    pub(super) frees: u32,
    /// Where it was captured, as the race checker numbers the places.
    pub(super) site: u32,
}

/// What addresses are for. All but the first have whole pages.
#[derive(Debug)]
pub(super) enum Role {
    Plain,
    /// Memory of another process.
    Adopted,
    /// Addresses at which the program maps memory.
    Reserved(Reservation),
    /// Memory that it maps. Nothing can use it here.
    Backing(Backing),
}

impl Allocation {
    fn new(bytes: usize, storage: Storage, role: Role) -> Self {
        Allocation { bytes, storage, made: None, freeing: false, graph: None, role }
    }

    fn contents(&self) -> &[u8] {
        self.storage.contents(self.bytes)
    }

    fn contents_mut(&mut self) -> &mut [u8] {
        self.storage.contents_mut(self.bytes)
    }

    /// Whether the program maps memory there.
    pub(crate) fn is_reserved(&self) -> bool {
        matches!(self.role, Role::Reserved(_))
    }

    /// Why nothing can use a range of it, an offset and a length, if it is reserved.
    pub(crate) fn refusal(
        &self,
        start: DevicePtr,
        range: (usize, usize),
        writes: bool,
    ) -> Option<Violation> {
        match &self.role {
            Role::Reserved(reservation) => reservation.refusal(start, range, writes),
            _ => None,
        }
    }
}

/// Where a range lies.
#[derive(Clone, Copy, Debug)]
struct Place {
    device: usize,
    /// That of the allocation.
    number: usize,
    start: DevicePtr,
    offset: usize,
}

/// Why a range cannot be accessed, for a finding.
pub(crate) type Violation = String;

// Apart from the checks, which come before every access.

#[cold]
fn not_of_device(address: DevicePtr) -> Violation {
    format!("{address:#x} is not a device address")
}

#[cold]
fn not_reached(address: DevicePtr) -> Violation {
    format!("{address:#x} is used before its allocation is reached")
}

#[cold]
fn past_end(address: DevicePtr, bytes: usize, rest: usize, all: usize) -> Violation {
    let over = bytes - rest;
    format!("{bytes} bytes at {address:#x} run {over} bytes past the end of an allocation of {all}")
}

impl DeviceMemory {
    /// Sets how much memory each device has: in an arena, at most half as many bytes as a device
    /// has addresses.
    pub(crate) fn set_capacity(&mut self, bytes: usize) {
        // Twice as many addresses as bytes: the same ones do not come back at once.
        let bytes = if self.arena.is_some() { bytes.min(1 << (self.shift - 1)) } else { bytes };
        self.banks.iter_mut().for_each(|bank| bank.capacity = bytes);
    }

    pub(crate) fn new(devices: usize, capacity: usize, seed: u64) -> Self {
        let bank =
            || Bank { capacity, used: 0, blocks: 0, next: FIRST, allocations: Spans::default() };
        DeviceMemory {
            seed,
            base: TAG,
            shift: DEVICE_SHIFT,
            arena: None,
            elsewhere: BTreeMap::new(),
            banks: (0..devices).map(|_| bank()).collect(),
        }
    }

    /// From now on addresses are those of the process. A device has less memory where there are few
    /// of them. False if there is no room for the least.
    pub(crate) fn use_host_addresses(&mut self) -> bool {
        let devices = self.banks.len().next_power_of_two().trailing_zeros();
        let arena = |shift: u32| Some((shift, Arena::new(1usize << shift).ok()?));
        let found = (LEAST_ADDRESSES..=MOST_ADDRESSES).rev().find_map(arena);
        let Some((shift, arena)) = found else { return false };
        (self.base, self.shift) = (arena.base(), shift - devices);
        self.arena = Some(arena);
        let capacity = self.banks.iter().map(|bank| bank.capacity).max().unwrap_or(0);
        self.set_capacity(capacity);
        true
    }

    /// Runs what dereferences addresses of devices.
    pub(crate) fn opened(&self, work: impl FnOnce()) {
        match &self.arena {
            Some(arena) => arena.opened(work),
            None => work(),
        }
    }

    /// Where the bytes of an address of a device's are, if addresses are those of the process.
    pub(crate) fn storage_of(&self, address: DevicePtr) -> Option<NonNull<u8>> {
        let arena = self.arena.as_ref().filter(|arena| arena.area().contains(address as usize))?;
        NonNull::new(arena.storage_of(address))
    }

    /// The addresses of all devices, for a stand-in to run on, if they are those of the process.
    pub(crate) fn area(&self) -> Option<Area> {
        self.arena.as_ref().map(Arena::area)
    }

    /// Closes what a stand-in has opened of it.
    pub(crate) fn close(&self) {
        self.arena.iter().for_each(Arena::close);
    }

    /// The allocation that an address lies in, from the call that makes it to the one that frees
    /// it, and its start.
    pub(crate) fn allocation_of(&self, address: DevicePtr) -> Option<(DevicePtr, &Allocation)> {
        let bank = &self.banks[self.bank_of(address)? as usize];
        let (start, found) = bank.allocations.below(address)?;
        let inside = address - start < found.bytes as u64 && !found.freeing;
        (inside && !matches!(found.role, Role::Backing(_))).then_some((start, found))
    }

    /// The entry that an address lies in, whatever it is for.
    pub(super) fn containing(
        &mut self,
        address: DevicePtr,
    ) -> Option<(DevicePtr, &mut Allocation)> {
        let bank = self.bank_of(address).map(|device| &mut self.banks[device as usize])?;
        let (start, found) = bank.allocations.below_mut(address)?;
        (address - start < found.bytes as u64).then_some((start, found))
    }

    /// Notes how the program made an allocation.
    pub(crate) fn note(&mut self, address: DevicePtr, made: MadeOnDevice) {
        if let Some(allocation) = self.allocation(address) {
            allocation.made = Some(made);
        }
    }

    /// Where the program's allocations on a device begin.
    pub(crate) fn made_on(&self, device: Ordinal) -> Vec<DevicePtr> {
        let all = self.banks[device as usize].allocations.iter();
        let made = all.filter(|(_, one)| one.made.is_some() && !one.freeing);
        made.map(|(start, _)| start).collect()
    }

    /// The device that the memory at an address belongs to.
    pub(crate) fn device_of(&self, address: DevicePtr) -> Option<Ordinal> {
        if let Some((&start, &(bytes, device))) = self.elsewhere.range(..=address).next_back()
            && address - start < bytes
        {
            return Some(device);
        }
        self.bank_of(address)
    }

    /// The device whose addresses have that one.
    pub(super) fn bank_of(&self, address: DevicePtr) -> Option<Ordinal> {
        let device = (address.checked_sub(self.base)? >> self.shift) as usize;
        (device < self.banks.len()).then_some(device as Ordinal)
    }

    pub(crate) fn free_and_total(&self, device: Ordinal) -> (usize, usize) {
        let bank = &self.banks[device as usize];
        (bank.capacity.saturating_sub(bank.used), bank.capacity)
    }

    /// Bytes and blocks that are allocated on all devices together.
    pub(crate) fn usage(&self) -> (usize, usize) {
        self.banks.iter().fold((0, 0), |(bytes, blocks), b| (bytes + b.used, blocks + b.blocks))
    }

    pub(crate) fn reserve(&mut self, device: Ordinal, bytes: usize) -> DriverResult<DevicePtr> {
        if bytes > self.free_and_total(device).0 {
            return Err(CudaCode::MEMORY_ALLOCATION);
        }
        let address = self.take(device, bytes, ALIGNMENT)?;
        self.count(address, bytes as isize);
        Ok(address)
    }

    /// Takes addresses of a device, at a multiple of `alignment`.
    pub(super) fn take(
        &mut self,
        device: Ordinal,
        bytes: usize,
        alignment: u64,
    ) -> DriverResult<DevicePtr> {
        let bank = &mut self.banks[device as usize];
        let start = self.base + ((device as u64) << self.shift);
        let taken = padded(bytes).ok_or(CudaCode::MEMORY_ALLOCATION)?;
        let next = (start + bank.next).checked_next_multiple_of(alignment).map(|at| at - start);
        let fits = |next: &u64| next.checked_add(taken).is_some_and(|end| end <= 1 << self.shift);
        let fresh = next.filter(fits);
        let place = fresh.or_else(|| bank.gap(start, taken, alignment));
        let place = place.ok_or(CudaCode::MEMORY_ALLOCATION)?;
        let address = start + place;
        let storage = Storage::new(self.arena.as_ref(), address, bytes)?;
        bank.next = bank.next.max(place + taken);
        bank.allocations.insert(address, Allocation::new(bytes, storage, Role::Plain));
        Ok(address)
    }

    /// A block of so many bytes is allocated, or freed if the number is negative.
    pub(super) fn count(&mut self, address: DevicePtr, bytes: isize) {
        let device = self.bank_of(address).expect("has an allocation");
        let bank = &mut self.banks[device as usize];
        bank.used = bank.used.wrapping_add_signed(bytes);
        bank.blocks = bank.blocks.wrapping_add_signed(bytes.signum());
    }

    /// The file of the arena, and where in it an address lies.
    pub(crate) fn place_of(&self, address: DevicePtr) -> (i32, u64) {
        self.arena.as_ref().expect("addresses are those of the process").place_of(address)
    }

    /// Gives an address to memory of another arena's file, which does not count as this device's.
    pub(crate) fn adopt(
        &mut self,
        device: Ordinal,
        (file, offset): (i32, u64),
        bytes: usize,
    ) -> DriverResult<DevicePtr> {
        let arena = self.arena.as_ref().ok_or(CudaCode::NOT_SUPPORTED)?;
        let bank = &mut self.banks[device as usize];
        let before = offset % PAGE;
        let place = bank.next.next_multiple_of(PAGE);
        let room = (bytes as u64).checked_add(before + PAGE).map(|room| room & !(PAGE - 1));
        let room = room.filter(|room| place + room + PAGE <= 1 << self.shift);
        let room = room.ok_or(CudaCode::MEMORY_ALLOCATION)?;
        let page = self.base + ((device as u64) << self.shift) + place;
        let other = Some((file, offset - before));
        if arena.map_pages(page, room as usize, other).is_err() {
            let _ = arena.map_pages(page, room as usize, None);
            return Err(CudaCode::MEMORY_ALLOCATION);
        }
        let address = page + before;
        let storage = Storage::Mapped { at: arena.storage_of(address), present: true };
        bank.next = place + room + PAGE;
        bank.allocations.insert(address, Allocation::new(bytes, storage, Role::Adopted));
        Ok(address)
    }

    /// Takes the address away from memory of another arena.
    pub(crate) fn give_up(&mut self, address: DevicePtr) -> DriverResult<()> {
        let arena = self.arena.as_ref().ok_or(CudaCode::INVALID_VALUE)?;
        let bank = self.bank_of(address).map(|device| &mut self.banks[device as usize]);
        let bank = bank.ok_or(CudaCode::INVALID_VALUE)?;
        let known = bank.allocations.get(address);
        let is_adopted = known.is_some_and(|one| matches!(one.role, Role::Adopted));
        let gone = is_adopted.then(|| bank.allocations.remove(address)).flatten();
        let bytes = gone.ok_or(CudaCode::INVALID_VALUE)?.bytes as u64;
        let page = address & !(PAGE - 1);
        let room = (bytes + (address - page)).next_multiple_of(PAGE);
        // It only lets go of the other file.
        let _ = arena.map_pages(page, room as usize, None);
        Ok(())
    }

    /// The allocation is reached in stream order.
    pub(crate) fn commit(&mut self, address: DevicePtr) {
        let poison = rng::poison(self.seed, address);
        if let Some(allocation) = self.allocation(address) {
            allocation.storage.commit(allocation.bytes, poison);
        }
    }

    /// Free is called: from here on the address may not be freed again. Gives the pool that the
    /// allocation goes back to, and its length.
    pub(crate) fn retire(
        &mut self,
        address: DevicePtr,
    ) -> Result<Option<(PoolId, usize)>, Violation> {
        match self.allocation(address) {
            None => Err(format!("{address:#x} is not the start of an allocation")),
            Some(allocation) if allocation.freeing => Err(format!("{address:#x} is freed already")),
            Some(allocation) => {
                allocation.freeing = true;
                allocation.graph.iter_mut().for_each(|graph| graph.frees += 1);
                let bytes = allocation.bytes;
                let pool = allocation.made.and_then(|made| made.pool);
                self.count(address, -(bytes as isize));
                Ok(pool.map(|pool| (pool, bytes)))
            }
        }
    }

    /// The free is reached in stream order.
    pub(crate) fn release(&mut self, address: DevicePtr) {
        let Some(allocation) = self.allocation(address) else { return };
        let bytes = allocation.bytes;
        if !allocation.stays_with_graph() {
            self.remove(address);
        }
        if let Some(arena) = &self.arena {
            arena.discard(address, bytes);
        }
    }

    pub(super) fn remove(&mut self, address: DevicePtr) -> Option<Allocation> {
        let device = self.bank_of(address)?;
        self.banks[device as usize].allocations.remove(address)
    }

    pub(crate) fn read(&self, address: DevicePtr, bytes: usize) -> Result<&[u8], Violation> {
        let place = self.locate(address, bytes, false)?;
        Ok(&self.there(place).contents()[place.offset..][..bytes])
    }

    pub(crate) fn write(
        &mut self,
        address: DevicePtr,
        bytes: usize,
    ) -> Result<&mut [u8], Violation> {
        let place = self.locate(address, bytes, true)?;
        let allocation = self.at(place);
        Ok(&mut allocation.contents_mut()[place.offset..][..bytes])
    }

    /// Copies within a device or between two. Overlapping ranges are copied as by `memmove`.
    pub(crate) fn copy(
        &mut self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    ) -> Result<(), Violation> {
        let (to, from) = (self.locate(dst, bytes, true)?, self.locate(src, bytes, false)?);
        let of = |place: Place| (self.there(place), place.offset);
        if to.start != from.start && mapped::share(of(to), of(from), bytes) {
            // The same bytes at two addresses must not be borrowed twice.
            let taken = self.read(src, bytes)?.to_vec();
            self.write(dst, bytes)?.copy_from_slice(&taken);
            return Ok(());
        }
        let target = self.at(to);
        if to.start == from.start {
            target.contents_mut().copy_within(from.offset..from.offset + bytes, to.offset);
            return Ok(());
        }
        // The target's storage is taken out for the time of the copy: two allocations of one map
        // cannot be borrowed at once.
        let (mut storage, all) = (std::mem::take(&mut target.storage), target.bytes);
        let source = self.there(from);
        storage.contents_mut(all)[to.offset..][..bytes]
            .copy_from_slice(&source.contents()[from.offset..][..bytes]);
        self.at(to).storage = storage;
        Ok(())
    }

    pub(super) fn allocation(&mut self, address: DevicePtr) -> Option<&mut Allocation> {
        let device = self.bank_of(address)?;
        self.banks[device as usize].allocations.get_mut(address)
    }

    fn there(&self, place: Place) -> &Allocation {
        self.banks[place.device].allocations.numbered(place.number)
    }

    fn at(&mut self, place: Place) -> &mut Allocation {
        self.banks[place.device].allocations.numbered_mut(place.number)
    }

    fn locate(&self, address: DevicePtr, bytes: usize, writes: bool) -> Result<Place, Violation> {
        let Some(device) = self.bank_of(address) else { return Err(not_of_device(address)) };
        let bank = &self.banks[device as usize];
        let Some(number) = bank.allocations.number_below(address) else {
            return Err(self.absent(bank, address));
        };
        let (start, found) = bank.allocations.entry(number);
        let offset = (address - start) as usize;
        if offset >= found.bytes || matches!(found.role, Role::Backing(_)) {
            return Err(self.absent(bank, address));
        }
        if !found.storage.is_present() {
            return Err(not_reached(address));
        }
        if bytes > found.bytes - offset {
            return Err(past_end(address, bytes, found.bytes - offset, found.bytes));
        }
        found.refusal(start, (offset, bytes), writes).map_or(Ok(()), Err)?;
        Ok(Place { device: device as usize, number, start, offset })
    }

    #[cold]
    fn absent(&self, bank: &Bank, address: DevicePtr) -> Violation {
        if (address - self.base) & ((1 << self.shift) - 1) < bank.next {
            format!("{address:#x} is freed, or outside every allocation")
        } else {
            format!("{address:#x} was never allocated")
        }
    }
}

#[cfg(test)]
mod tests;
