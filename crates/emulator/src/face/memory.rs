//! Allocating and freeing; what a pointer is.
//!
//! The calls that free are safe, because they free only what the face's own books contain: what it
//! has handed out as a raw pointer, or was given by [`register`](Face::register). Memory that
//! somebody else has on the same machine, such as a buffer of a pool, is refused. An entry leaves
//! the books before its memory is free, so that two threads cannot free one address, of which the
//! second belongs to somebody else by then.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::Face;
use super::books::{DeviceNote, HostKind, HostNote, PoolId};
use super::registration::READ_ONLY;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::races::MemoryKind;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, HostFlags, Ordinal, RawStream};

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

impl Face {
    /// What an address names (rule 23). An address of a device that no allocation has is `OnDevice`
    /// with no bytes.
    #[must_use]
    pub fn held(&self, ptr: *const c_void) -> Held {
        let address = ptr.addr();
        let (device, found) = self.emulator.with(|machine| {
            let memory = &machine.memory;
            (memory.device_of(address as u64), memory.allocation_of(address as u64))
        });
        let books = self.books.lock();
        if let Some(device) = device {
            let (start, bytes) = found.unwrap_or((address as u64, 0));
            let note = books.device.get(&start);
            return Held {
                side: Side::OnDevice,
                device,
                base: std::ptr::without_provenance_mut(start as usize),
                bytes,
                flags: 0,
                pool: note.and_then(|note| note.pool),
            };
        }
        let note = books.host.range(..=address).next_back();
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

    /// Allocates memory of the current device; it may synchronize (rule 13). `cudaMalloc`
    ///
    /// # Errors
    ///
    /// [`CudaCode::MEMORY_ALLOCATION`] if it has not so much.
    pub fn malloc(&self, bytes: usize) -> DriverResult<*mut c_void> {
        self.refuse_unsafe()?;
        let device = self.current_device();
        let address = self.emulator.call(Call::DeviceAlloc, device, |machine| {
            if bytes == 0 {
                return Ok(0);
            }
            let address = machine.memory.reserve(device, bytes)?;
            machine.memory.commit(address);
            machine.races.allocated(MemoryKind::OnDevice(device), address, bytes);
            Ok(address)
        })?;
        if address != 0 {
            self.books.lock().device.insert(address, DeviceNote { bytes, pool: None });
            self.may_synchronize(4);
        }
        Ok(std::ptr::without_provenance_mut(address as usize))
    }

    /// Frees memory, once all work of its device is done, as GPUs were seen to. Memory of a pool is
    /// freed at once: who frees it that way says that nobody uses it any more. `cudaFree`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if it is no allocation of this face, or freed
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
        self.take_out(address, || {
            self.emulator.with(|machine| {
                let call = self.call_name();
                machine.retire(call, address)?;
                machine.memory.release(address);
                // One finding, though several operations may still use it.
                if let Some(race) = machine.races.host_freed(Call::DeviceFree, address).pop() {
                    machine.findings.report_race(FindingKind::FreedInFlight, race);
                }
                Ok(())
            })
        })
    }

    /// Frees an allocation, which leaves the books, and its pool, unless that fails.
    fn take_out(&self, address: u64, free: impl FnOnce() -> DriverResult<()>) -> DriverResult<()> {
        let Some(note) = self.books.lock().device.remove(&address) else {
            let call = self.call_name();
            return Err(self.emulator.with(|machine| machine.not_ours(call, address)));
        };
        let freed = free();
        let mut books = self.books.lock();
        match (freed, note.pool) {
            (Err(_), _) => drop(books.device.insert(address, note)),
            (Ok(()), Some(pool)) => books.pools.give_back(pool, note.bytes),
            (Ok(()), None) => {}
        }
        freed
    }

    fn synchronize_all(&self) -> DriverResult<()> {
        let devices = self.emulator.with(|machine| machine.devices.len());
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
        let driver = self.emulator.driver();
        let ptr = driver.host_alloc(device, bytes, HostFlags::default())?.as_ptr();
        let note = HostNote { bytes, device, flags, kind };
        self.books.lock().host.insert(ptr.expose_provenance(), note);
        self.may_synchronize(4);
        Ok(ptr.cast())
    }

    /// Frees page-locked memory; it may synchronize. In flight, that is a finding all the same
    /// (rule 22), and so is a call from a host function (rule 25). `cudaFreeHost`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if it is no such memory of this face, or freed
    /// already.
    pub fn free_host(&self, ptr: *mut c_void, managed: bool) -> DriverResult<()> {
        self.end_host(ptr, if managed { HostKind::Managed } else { HostKind::Allocated })
    }

    /// Frees memory of a pool of the host, of which nothing is in use any more.
    pub(super) fn free_pooled(&self, ptr: *mut c_void, held: &Held) -> DriverResult<()> {
        let pool = held.pool.ok_or(CudaCode::INVALID_VALUE)?;
        self.end_host(ptr, HostKind::Pooled(pool))?;
        self.books.lock().pools.give_back(pool, held.bytes);
        Ok(())
    }

    fn end_host(&self, ptr: *mut c_void, wanted: HostKind) -> DriverResult<()> {
        self.refuse_unsafe()?;
        let Some(start) = NonNull::new(ptr.cast::<u8>()) else { return Ok(()) };
        self.emulator.with(Machine::find_cycle);
        // Before the memory is free: another thread may get this address at once.
        let note = self.books.lock().host.remove(&ptr.addr());
        let keep = |note| self.books.lock().host.insert(ptr.addr(), note);
        let Some(note) = note.filter(|note| note.kind == wanted) else {
            let made = note.map_or("nothing".to_owned(), |note| format!("{:?}", note.kind));
            note.map(keep);
            let message = format!("{} of {ptr:p}, where this program has {made}", self.call_name());
            let code = CudaCode::INVALID_VALUE;
            let report =
                |machine: &mut Machine| machine.misuse(FindingKind::BadFree, message, code);
            return Err(self.emulator.with(report));
        };
        // SAFETY:
        // * the block came from `host_alloc` of this driver, and was not freed: it was in the
        //   books until now;
        // * operations that are pending keep it (the machine quarantines it), and are a finding;
        // * a reference into it is made by unsafe code of the program, which gives it up here;
        // * the machine refuses the call inside a host function.
        if let Err(code) = unsafe { self.emulator.driver().host_free(start) } {
            keep(note);
            return Err(code);
        }
        self.may_synchronize(2);
        Ok(())
    }

    /// Frees memory in stream order. `cudaFreeAsync`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if it is no allocation of this face, or freed
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
            self.emulator.with(|machine| machine.report(FindingKind::Capture, message));
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
        // SAFETY: it is a live allocation of this face; the machine checks the stream, and finds
        // what still uses the memory.
        self.take_out(address, || unsafe { self.emulator.driver().device_free(stream, address) })
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

    /// The answer of a call that frees what its face has not allocated.
    fn not_ours(&mut self, call: &str, address: u64) -> CudaCode {
        let live = self.memory.allocation_of(address).is_some_and(|(start, _)| start == address);
        let whose = if live { "somebody else's allocation" } else { "no live allocation" };
        let message = format!("{call}: {address:#x} is {whose}");
        self.misuse(FindingKind::BadFree, message, CudaCode::INVALID_VALUE)
    }
}
