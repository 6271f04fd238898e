//! Allocating and freeing; what a pointer is.
//!
//! The calls that free are safe, because they free only what the books of the program contain: what
//! it was given as a raw pointer, or has [registered](Emulator::register). Memory that somebody
//! else has on the same machine, such as a buffer of a pool, is refused. An entry leaves the books
//! under the lock under which its memory is freed, so that two threads cannot free one address, of
//! which the second belongs to somebody else by then.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::refuse_in_host_function;
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::books::{DeviceNote, HostKind, HostNote, PoolId, READ_ONLY};
use crate::memory::host::{Refusal, Removal};
use crate::operation::Action;
use crate::races::MemoryKind;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DevicePtr, DriverResult, Ordinal, RawStream};

/// The flags of managed memory that came from a pool.
pub(super) const OF_POOL: u32 = 0;

/// What memory an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Of the host, and nothing that CUDA knows.
    Pageable,
    /// Of the host, allocated or registered.
    PageLocked,
    /// Of a device.
    OnDevice,
    /// Of both: `cudaMallocManaged`.
    Managed,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// What memory it names.
    pub side: Side,
    /// The device that the memory belongs to, or was current when it was made.
    pub device: Ordinal,
    /// Where the allocation begins; the address itself if there is none.
    pub base: *mut c_void,
    /// How long it is; 0 if there is none.
    pub bytes: usize,
    /// The flags that it was made with.
    pub flags: u32,
    /// The pool that it came from.
    pub pool: Option<PoolId>,
}

impl Held {
    /// Fails if the memory was registered for reading only.
    pub(super) fn check_writable(&self) -> DriverResult<()> {
        let is_read_only = self.side == Side::PageLocked && self.flags & READ_ONLY != 0;
        if is_read_only { Err(CudaCode::INVALID_VALUE) } else { Ok(()) }
    }

    pub(super) fn is_device(&self) -> bool {
        self.side == Side::OnDevice
    }
}

impl Emulator {
    /// What an address names (rule 23). An address of a device that no allocation has is `OnDevice`
    /// with no bytes.
    #[must_use]
    pub fn held(&self, ptr: *const c_void) -> Held {
        self.with(|machine| machine.held(ptr))
    }

    /// Allocates memory of the current device; it may synchronize (rule 13). `cudaMalloc`
    ///
    /// # Errors
    ///
    /// [`CudaCode::MEMORY_ALLOCATION`] if it has not so much.
    pub fn malloc(&self, bytes: usize) -> DriverResult<*mut c_void> {
        self.refuse_unsafe()?;
        let device = self.current_device();
        let address = self.call(Call::DeviceAlloc, device, |machine| {
            if bytes == 0 {
                return Ok(0);
            }
            let address = machine.memory.reserve(device, bytes)?;
            machine.memory.commit(address);
            machine.races.allocated(MemoryKind::OnDevice(device), address, bytes);
            machine.books.device.insert(address, DeviceNote { bytes, pool: None });
            Ok(address)
        })?;
        if address != 0 {
            self.may_synchronize(4);
        }
        Ok(std::ptr::without_provenance_mut(address as usize))
    }

    /// Frees memory, once all work of its device is done, as GPUs were seen to. Memory of a pool is
    /// freed at once: who frees it that way says that nobody uses it any more. `cudaFree`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if it is no allocation of this program, or freed
    /// already.
    pub fn free(&self, ptr: *mut c_void) -> DriverResult<()> {
        self.refuse_in_host_function()?;
        self.refuse_unsafe()?;
        if ptr.is_null() {
            return Ok(());
        }
        let held = self.held(ptr);
        if held.side == Side::Managed {
            self.synchronize_all()?;
            return self.free_host(ptr, true);
        }
        if held.side == Side::PageLocked && held.pool.is_some() {
            self.synchronize_all()?;
            return self.free_pooled(ptr, &held);
        }
        if held.side == Side::OnDevice && held.pool.is_none() {
            self.drain_all(held.device, true)?;
        }
        let address = ptr.addr() as u64;
        let call = self.call_name();
        self.with(|machine| {
            machine.check_own(call, address)?;
            machine.retire(call, address)?;
            machine.memory.release(address);
            // One finding, though several operations may still use it.
            if let Some(race) = machine.races.host_freed(Call::DeviceFree, address).pop() {
                machine.findings.report_race(FindingKind::FreedInFlight, race);
            }
            machine.strike_out(address);
            Ok(())
        })
    }

    fn synchronize_all(&self) -> DriverResult<()> {
        let devices = self.with(|machine| machine.devices.len());
        (0..devices as Ordinal).try_for_each(|device| self.drain_all(device, true))
    }

    /// Allocates page-locked memory. `cudaHostAlloc`, `cudaMallocManaged`
    ///
    /// # Errors
    ///
    /// [`CudaCode::MEMORY_ALLOCATION`] if there is not so much.
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
        let ptr = self.call(Call::HostAlloc, device, |machine| {
            let ptr = machine.host_alloc(device, bytes)?.as_ptr();
            let note = HostNote { bytes, device, flags, kind };
            machine.books.host.insert(ptr.expose_provenance(), note);
            Ok(ptr)
        })?;
        self.may_synchronize(4);
        Ok(ptr.cast())
    }

    /// Frees page-locked memory; it may synchronize. In flight, that is a finding all the same
    /// (rule 22), and so is a call from a host function (rule 25). `cudaFreeHost`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if it is no such memory of this program, or
    /// freed already.
    pub fn free_host(&self, ptr: *mut c_void, managed: bool) -> DriverResult<()> {
        self.end_host(ptr, if managed { HostKind::Managed } else { HostKind::Allocated })
    }

    /// Frees memory of a pool of the host, of which nothing is in use any more.
    pub(super) fn free_pooled(&self, ptr: *mut c_void, held: &Held) -> DriverResult<()> {
        let pool = held.pool.ok_or(CudaCode::INVALID_VALUE)?;
        self.end_host(ptr, HostKind::Pooled(pool))?;
        self.with(|machine| machine.books.pools.give_back(pool, held.bytes));
        Ok(())
    }

    fn end_host(&self, ptr: *mut c_void, wanted: HostKind) -> DriverResult<()> {
        self.refuse_unsafe()?;
        let Some(start) = NonNull::new(ptr.cast::<u8>()) else { return Ok(()) };
        let call = self.call_name();
        self.with(|machine| {
            machine.find_cycle();
            machine.check_own_host(call, ptr, wanted)
        })?;
        self.in_call(|machine| {
            refuse_in_host_function(machine, Call::HostFree)?;
            let device = machine.host.device_of(start).unwrap_or(0);
            machine.enter(Call::HostFree, device, |machine| {
                machine.check_own_host(call, ptr, wanted)?;
                // SAFETY: a reference into the block is made by unsafe code of the program, which
                // gives it up here; operations that are pending keep the block, and are a finding.
                unsafe { machine.host_free(start) }?;
                machine.books.host.remove(&ptr.addr());
                Ok(())
            })
        })?;
        self.may_synchronize(2);
        Ok(())
    }

    /// Frees memory in stream order. `cudaFreeAsync`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if it is no allocation of this program, or freed
    /// already. The same on a capturing stream, whose capture goes on: a graph frees only what it
    /// has allocated, and graphs that allocate there are not. [`CudaCode::NOT_SUPPORTED`] for
    /// managed memory, unless it came from a pool.
    pub fn free_async(&self, stream: RawStream, ptr: *mut c_void) -> DriverResult<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let held = self.held(ptr);
        if held.side == Side::Managed && held.flags != OF_POOL {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        if self.is_capturing(stream) {
            let message = format!("{} on {stream:?}, which is capturing", self.call_name());
            self.with(|machine| machine.report(FindingKind::Capture, message));
            return Err(CudaCode::INVALID_VALUE);
        }
        let of_host_pool = held.side == Side::PageLocked && held.pool.is_some();
        if held.side == Side::Managed || of_host_pool {
            // Later than CUDA would let it go on, and not earlier.
            self.drain(stream, true)?;
            let managed = !of_host_pool;
            return if managed { self.free_host(ptr, true) } else { self.free_pooled(ptr, &held) };
        }
        let address = ptr.addr() as u64;
        let call = self.call_name();
        self.with(|machine| machine.check_own(call, address))?;
        self.on_stream(Call::DeviceFree, stream, |machine, key| {
            machine.device_free(key, address)?;
            machine.strike_out(address);
            Ok(())
        })
    }
}

impl Machine {
    /// Marks an allocation as freed.
    fn retire(&mut self, call: &str, address: u64) -> DriverResult<()> {
        self.memory.retire(address).map_err(|violation| {
            let message = format!("{call}: {violation}");
            self.misuse(FindingKind::BadFree, message, CudaCode::INVALID_VALUE)
        })
    }

    /// What an address names.
    pub(crate) fn held(&self, ptr: *const c_void) -> Held {
        let address = ptr.addr();
        if let Some(device) = self.memory.device_of(address as u64) {
            let found = self.memory.allocation_of(address as u64);
            let (start, bytes) = found.unwrap_or((address as u64, 0));
            let note = self.books.device.get(&start);
            return Held {
                side: Side::OnDevice,
                device,
                base: std::ptr::without_provenance_mut(start as usize),
                bytes,
                flags: 0,
                pool: note.and_then(|note| note.pool),
            };
        }
        let note = self.books.host.range(..=address).next_back();
        match note.filter(|(start, note)| address - **start < note.bytes) {
            Some((&start, note)) => Held {
                side: if note.kind == HostKind::Managed { Side::Managed } else { Side::PageLocked },
                device: note.device,
                base: std::ptr::with_exposed_provenance_mut(start),
                bytes: note.bytes,
                flags: note.flags,
                pool: match note.kind {
                    HostKind::Pooled(pool) => Some(pool),
                    _ => None,
                },
            },
            None => Held {
                side: Side::Pageable,
                device: -2,
                base: ptr.cast_mut(),
                bytes: 0,
                flags: 0,
                pool: None,
            },
        }
    }

    /// Fails, with a finding, unless an allocation of the program's begins there.
    fn check_own(&mut self, call: &str, address: u64) -> DriverResult<()> {
        if self.books.device.contains_key(&address) {
            return Ok(());
        }
        let live = self.memory.allocation_of(address).is_some_and(|(start, _)| start == address);
        let whose = if live { "somebody else's allocation" } else { "no live allocation" };
        let message = format!("{call}: {address:#x} is {whose}");
        Err(self.misuse(FindingKind::BadFree, message, CudaCode::INVALID_VALUE))
    }

    /// The same of page-locked memory that was made so.
    fn check_own_host(&mut self, call: &str, ptr: *mut c_void, is: HostKind) -> DriverResult<()> {
        let made = self.books.host.get(&ptr.addr()).map(|note| note.kind);
        if made == Some(is) {
            return Ok(());
        }
        let made = made.map_or("nothing".to_owned(), |kind| format!("{kind:?}"));
        let message = format!("{call} of {ptr:p}, where this program has {made}");
        Err(self.misuse(FindingKind::BadFree, message, CudaCode::INVALID_VALUE))
    }

    /// An allocation that is freed leaves the books, and its pool.
    fn strike_out(&mut self, address: u64) {
        let note = self.books.device.remove(&address);
        if let Some(DeviceNote { bytes, pool: Some(pool) }) = note {
            self.books.pools.give_back(pool, bytes);
        }
    }

    /// A block of page-locked memory.
    pub(crate) fn host_alloc(
        &mut self,
        device: Ordinal,
        bytes: usize,
    ) -> DriverResult<NonNull<u8>> {
        if bytes == 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.host.check_call(bytes)?;
        let ptr = self.host.allocate(device, bytes).ok_or(CudaCode::MEMORY_ALLOCATION)?;
        self.races.allocated(MemoryKind::PageLocked, ptr.addr().get() as u64, bytes);
        Ok(ptr)
    }

    /// Frees one.
    ///
    /// # Safety
    ///
    /// * No reference into the block is used afterwards.
    pub(crate) unsafe fn host_free(&mut self, ptr: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: promised by the caller.
        let outcome = unsafe { self.host.free(ptr) };
        self.removed(Call::HostFree, ptr, outcome)
    }

    /// What a removal from the registry of host memory means to the caller.
    pub(crate) fn removed(
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
                    let message =
                        format!("{call:?} of {ptr:p}, which {operations} pending operations name");
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
                Err(self.misuse(FindingKind::BadFree, message, CudaCode::INVALID_VALUE))
            }
        }
    }

    /// Frees memory of a device in the order of a stream.
    pub(crate) fn device_free(&mut self, key: Key, ptr: DevicePtr) -> DriverResult<()> {
        self.refuse_in_capture(Call::DeviceFree, key)?;
        if let Err(violation) = self.memory.retire(ptr) {
            let message = format!("DeviceFree on {}: {violation}", self.describe(key));
            return Err(self.misuse(FindingKind::BadFree, message, CudaCode::INVALID_VALUE));
        }
        self.submit(key, Vec::new(), Action::Free { ptr })
    }
}
