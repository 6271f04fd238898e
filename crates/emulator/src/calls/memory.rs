//! Memory of devices: allocating and freeing.
//!
//! The calls that free are safe, because they free only memory with a note that the program
//! [made](crate::memory::made) it. Memory of other users of the machine, such as a buffer of a
//! pool, is refused. The note goes under the lock under which the memory is freed. So two threads
//! cannot free one address, where the second would free memory that has another owner by then.

use std::ffi::c_void;

use super::Side;
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::device::Violation;
use crate::memory::made::MadeOnDevice;
use crate::operation::Action;
use crate::races::MemoryKind;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DevicePtr, DriverResult, Ordinal, RawStream};

/// The flags of managed memory that came from a pool.
pub(super) const OF_POOL: u32 = 0;

impl Emulator {
    /// Allocates memory of the current device; it may synchronize (rule 13). `cudaMalloc`
    ///
    /// # Errors
    ///
    /// [`CudaCode::MEMORY_ALLOCATION`] if there is not enough memory.
    pub fn malloc(&self, bytes: usize) -> DriverResult<*mut c_void> {
        self.refuse_unsafe()?;
        let device = self.current_device();
        let address = self.call(Call::DeviceAlloc, device, |machine| {
            if bytes == 0 {
                return Ok(0);
            }
            let address = machine.reserve(device, bytes)?;
            machine.memory.commit(address);
            machine.memory.note(address, MadeOnDevice { pool: None });
            Ok(address)
        })?;
        if address != 0 {
            self.may_synchronize(4);
        }
        Ok(std::ptr::without_provenance_mut(address as usize))
    }

    /// Frees memory, once all work of its device is done, as GPUs were seen to. Memory of a pool is
    /// freed at once: the caller promises that it is not in use any more. `cudaFree`
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
        if let Some(kind) = held.host_kind() {
            self.synchronize_all()?;
            return self.end_host(ptr, kind);
        }
        if held.side == Side::OnDevice && held.pool.is_none() {
            self.drain_all(held.device, true)?;
        }
        let address = ptr.addr() as u64;
        let call = self.call_name();
        self.with(|machine| {
            machine.check_own(call, address)?;
            machine
                .retire(address)
                .map_err(|violation| machine.bad_free(format!("{call}: {violation}")))?;
            machine.memory.release(address);
            // One finding, though several operations may still use it.
            if let Some(race) = machine.races.host_freed(Call::DeviceFree, address).pop() {
                machine.findings.report_race(FindingKind::FreedInFlight, race);
            }
            Ok(())
        })
    }

    fn synchronize_all(&self) -> DriverResult<()> {
        let devices = self.with(|machine| machine.devices.len());
        (0..devices as Ordinal).try_for_each(|device| self.drain_all(device, true))
    }

    /// Frees memory in stream order. `cudaFreeAsync`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`], and a finding, if it is no allocation of this program, or freed
    /// already. The same on a capturing stream, whose capture stays valid, unless a graph allocates
    /// the memory. [`CudaCode::NOT_SUPPORTED`] for managed memory, unless it came from a pool.
    pub fn free_async(&self, stream: RawStream, ptr: *mut c_void) -> DriverResult<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let held = self.held(ptr);
        if held.side == Side::Managed && held.flags != OF_POOL {
            return Err(CudaCode::NOT_SUPPORTED);
        }
        if self.is_capturing(stream) {
            return self.on_stream(Call::DeviceFree, stream, |machine, key| {
                let address = ptr.addr() as u64;
                if machine.memory.of_graph(address).is_some() {
                    return machine.capture_free(key, address);
                }
                let message = format!(
                    "{} on {stream:?}, which is capturing, of memory that no graph allocates",
                    self.call_name()
                );
                Err(machine.misuse(FindingKind::Capture, message, CudaCode::INVALID_VALUE))
            });
        }
        if let Some(kind) = held.host_kind() {
            // The call waits until the stream has drained: longer than CUDA would, never shorter.
            self.drain(stream, true)?;
            return self.end_host(ptr, kind);
        }
        let address = ptr.addr() as u64;
        let call = self.call_name();
        self.with(|machine| machine.check_own(call, address))?;
        self.device_free(stream, address)
    }

    /// Frees memory of a device in stream order: the program's, or that of other users of the
    /// machine.
    pub(crate) fn device_free(&self, stream: RawStream, ptr: DevicePtr) -> DriverResult<()> {
        self.on_stream(Call::DeviceFree, stream, |machine, key| machine.device_free(key, ptr))
    }
}

impl Machine {
    /// Fails, with a finding, unless an allocation of the program's begins there.
    fn check_own(&mut self, call: &str, address: u64) -> DriverResult<()> {
        let found = self.memory.allocation_of(address).filter(|&(start, _)| start == address);
        let whose = match found {
            Some((_, one)) if one.made.is_some() => return Ok(()),
            Some((_, one)) if one.is_reserved() => "reserved, and mapped with cuMemMap",
            Some(_) => "somebody else's allocation",
            None if self.memory.of_graph(address).is_some() => {
                "memory of a graph that no launch has allocated, or freed already"
            }
            None => "no live allocation",
        };
        Err(self.bad_free(format!("{call}: {address:#x} is {whose}")))
    }

    #[cold]
    pub(crate) fn bad_free(&mut self, message: String) -> CudaCode {
        self.misuse(FindingKind::BadFree, message, CudaCode::INVALID_VALUE)
    }

    /// Addresses for memory of a device.
    fn reserve(&mut self, device: Ordinal, bytes: usize) -> DriverResult<DevicePtr> {
        let address = self.memory.reserve(device, bytes)?;
        self.races.allocated(MemoryKind::OnDevice(device), address, bytes);
        Ok(address)
    }

    /// Allocates memory of a device in the order of a stream.
    pub(crate) fn device_alloc(
        &mut self,
        key: Key,
        device: Ordinal,
        bytes: usize,
    ) -> DriverResult<DevicePtr> {
        let ptr = self.reserve(device, bytes)?;
        self.submit(key, Vec::new(), Action::Alloc { ptr })?;
        Ok(ptr)
    }

    /// Frees memory of a device in the order of a stream.
    pub(crate) fn device_free(&mut self, key: Key, ptr: DevicePtr) -> DriverResult<()> {
        self.refuse_in_capture(Call::DeviceFree, key)?;
        self.retire(ptr).map_err(|violation| {
            let message = format!("DeviceFree on {}: {violation}", self.describe(key));
            self.bad_free(message)
        })?;
        self.submit(key, Vec::new(), Action::Free { ptr })
    }

    /// Marks an allocation as freed; it goes back to its pool.
    fn retire(&mut self, address: DevicePtr) -> Result<(), Violation> {
        if let Some((pool, bytes)) = self.memory.retire(address)? {
            self.pools.give_back(pool, bytes);
        }
        Ok(())
    }
}
