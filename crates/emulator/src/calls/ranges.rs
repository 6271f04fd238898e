//! What an address names, and the checks of every copy's ranges. Also copies of one range whose
//! kind of memory the caller names, as [`Driver`](pinlane_driver::Driver) makes them.

use std::ffi::c_void;

use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Machine;
use crate::memory::host::{Access, Cover, HostUse};
use crate::memory::made::{HostKind, READ_ONLY};
use crate::memory::pools::PoolId;
use crate::operation::{Action, Source, Transfer};
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DevicePtr, DriverResult, Ordinal, RawStream};

/// What memory an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Memory of the host that CUDA does not know.
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

    /// How memory of the host was made that `cudaFree` and `cudaFreeAsync` free as well.
    pub(super) fn host_kind(&self) -> Option<HostKind> {
        match self.pool {
            _ if self.side == Side::Managed => Some(HostKind::Managed),
            Some(pool) if self.side == Side::PageLocked => Some(HostKind::Pooled(pool)),
            _ => None,
        }
    }
}

impl Emulator {
    /// What an address names (rule 23). An address of a device that no allocation has is `OnDevice`
    /// with no bytes.
    #[must_use]
    pub fn held(&self, ptr: *const c_void) -> Held {
        self.with(|machine| machine.held(ptr))
    }

    /// A copy between page-locked memory and the device.
    #[inline]
    pub(crate) fn copy_page_locked(
        &self,
        stream: RawStream,
        host: HostUse,
        device: DevicePtr,
    ) -> DriverResult<()> {
        let call = call_of(host.access);
        self.on_stream(call, stream, |machine, key| {
            if host.bytes == 0 {
                return Ok(());
            }
            machine.check_page_locked(call, key, &host)?;
            machine.submit(key, Vec::new(), Action::Copy(call, transfer(host, device)))
        })
    }

    /// A copy within a device.
    pub(crate) fn copy_d2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        self.on_stream(Call::CopyD2D, stream, |machine, key| {
            if bytes == 0 {
                return Ok(());
            }
            // Rule 18: the stream may be another device's, but the two ranges have one.
            let device = machine.memory.device_of(src).unwrap_or(stream.device);
            machine.check_across(Call::CopyD2D, key, (dst, device), (src, device), bytes)?;
            let copy = Transfer::Across { dst, src, bytes };
            machine.submit(key, Vec::new(), Action::Copy(Call::CopyD2D, copy))
        })
    }

    /// A copy between two devices.
    pub(crate) fn copy_peer(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        dst_device: Ordinal,
        src: DevicePtr,
        src_device: Ordinal,
        bytes: usize,
    ) -> DriverResult<()> {
        self.on_stream(Call::CopyPeer, stream, |machine, key| {
            let devices = [dst_device, src_device];
            machine.check_present(devices)?;
            if bytes == 0 {
                return Ok(());
            }
            let (dst_at, src_at) = ((dst, dst_device), (src, src_device));
            machine.check_across(Call::CopyPeer, key, dst_at, src_at, bytes)?;
            let action = Action::Copy(Call::CopyPeer, Transfer::Across { dst, src, bytes });
            machine.submit_across(key, stream.device, devices, action)
        })
    }
}

impl Machine {
    /// Fails if one of two devices is not there, or is lost.
    pub(super) fn check_present(&mut self, devices: [Ordinal; 2]) -> DriverResult<()> {
        devices.into_iter().try_for_each(|device| self.device(device)?.lost.map_or(Ok(()), Err))
    }

    /// Enqueues a copy between two devices on a stream of `home`.
    pub(super) fn submit_across(
        &mut self,
        key: Key,
        home: Ordinal,
        devices: [Ordinal; 2],
        action: Action,
    ) -> DriverResult<()> {
        if key != self.devices[home as usize].legacy {
            return self.submit(key, Vec::new(), action);
        }
        // Rule 19: on a legacy stream it waits for, and holds up, both devices.
        let others = devices.into_iter().filter(|&device| device != home);
        // Before anything is enqueued: a call that fails must not have copied.
        for device in others.clone() {
            self.refuse_implicit(self.devices[device as usize].legacy)?;
        }
        let mut waits = Vec::new();
        others.clone().for_each(|device| self.device_waits(device, &mut waits));
        let agent = self.streams.get(key).expect("just resolved").agent;
        others.clone().for_each(|device| self.races.follows_device(agent, device));
        self.submit(key, waits, action)?;
        for device in others {
            let (legacy, tail) = (self.devices[device as usize].legacy, self.tail(key));
            let follower = self.streams.get(legacy).expect("lives for ever").agent;
            self.races.follows(follower, agent);
            self.submit(legacy, vec![tail], Action::Join)?;
        }
        Ok(())
    }

    /// What an address names.
    pub(crate) fn held(&self, ptr: *const c_void) -> Held {
        let address = ptr.addr();
        if let Some(device) = self.memory.device_of(address as u64) {
            let found = self.memory.allocation_of(address as u64);
            let range = match found {
                Some((_, one)) if one.is_reserved() => self.memory.mapped(address as u64),
                _ => found.map(|(start, one)| (start, one.bytes)),
            };
            let (start, bytes) = range.unwrap_or((address as u64, 0));
            return Held {
                side: Side::OnDevice,
                device,
                base: std::ptr::without_provenance_mut(start as usize),
                bytes,
                flags: 0,
                pool: found.and_then(|(_, one)| one.made?.pool),
            };
        }
        match self.host.made_at(address) {
            Some((block, made)) => Held {
                side: if made.kind == HostKind::Managed { Side::Managed } else { Side::PageLocked },
                device: block.device,
                base: block.ptr.0.cast(),
                bytes: block.bytes,
                flags: made.flags,
                pool: match made.kind {
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

    /// The host's side of a copy has to lie in one page-locked block, which is writable if it is
    /// the destination.
    #[inline]
    pub(super) fn check_page_locked(
        &mut self,
        call: Call,
        key: Key,
        host: &HostUse,
    ) -> DriverResult<()> {
        if self.host.is_page_locked(host.ptr, host.bytes) {
            let address = host.ptr.address();
            if host.access == Access::Write && self.host.is_to_read(address) {
                let what = format!("{address:#x} was registered for reading only");
                return Err(self.bad_copy(call, key, &what));
            }
            return Ok(());
        }
        Err(self.not_page_locked(call, key, host, "are not in one page-locked block"))
    }

    /// Whether the host's side of a copy is pageable memory (rule 7): it is page-locked as a whole,
    /// or not at all.
    pub(super) fn is_pageable(
        &mut self,
        call: Call,
        key: Key,
        host: &HostUse,
    ) -> DriverResult<bool> {
        match self.host.cover(host.ptr, host.bytes) {
            Cover::Whole => Ok(false),
            Cover::None => Ok(true),
            Cover::Part => Err(self.not_page_locked(call, key, host, "are page-locked in part")),
        }
    }

    #[cold]
    fn not_page_locked(&mut self, call: Call, key: Key, host: &HostUse, what: &str) -> CudaCode {
        let (stream, bytes, at) = (self.describe(key), host.bytes, host.ptr.address());
        let message = format!("{call:?} on {stream}: {bytes} bytes at {at:#x} {what}");
        self.misuse(FindingKind::NotPageLocked, message, CudaCode::INVALID_VALUE)
    }

    /// Checks that two ranges of device memory do not overlap, and that each lies on the device
    /// given with it.
    pub(super) fn check_across(
        &mut self,
        call: Call,
        key: Key,
        dst: (DevicePtr, Ordinal),
        src: (DevicePtr, Ordinal),
        bytes: usize,
    ) -> DriverResult<()> {
        if dst.0.abs_diff(src.0) < bytes as u64 {
            let what = format!("{bytes} bytes at {:#x} and at {:#x} overlap", src.0, dst.0);
            return Err(self.bad_copy(call, key, &what));
        }
        let misplaced = [src, dst].into_iter().find(|&(address, device)| {
            self.memory.device_of(address).is_some_and(|actual| actual != device)
        });
        misplaced.map_or(Ok(()), |(address, device)| {
            let what = format!("{address:#x} is not memory of device {device}");
            Err(self.bad_copy(call, key, &what))
        })
    }

    #[cold]
    pub(super) fn bad_copy(&mut self, call: Call, key: Key, what: &str) -> CudaCode {
        let message = format!("{call:?} on {}: {what}", self.describe(key));
        self.misuse(FindingKind::BadCopy, message, CudaCode::INVALID_VALUE)
    }

    /// The range lies in one live allocation, as of this call.
    pub(crate) fn check_allocated(
        &mut self,
        call: Call,
        key: Key,
        address: u64,
        bytes: usize,
    ) -> DriverResult<()> {
        let what = match self.memory.allocation_of(address) {
            None => format!("{address:#x} is freed, or was never allocated"),
            Some((start, one)) if bytes as u64 > start + one.bytes as u64 - address => {
                let (all, over) = (one.bytes, bytes as u64 - (start + one.bytes as u64 - address));
                format!(
                    "{bytes} bytes at {address:#x} run {over} bytes past the end of an \
                     allocation of {all}"
                )
            }
            Some((start, one)) => {
                let range = ((address - start) as usize, bytes);
                let Some(what) = one.refusal(start, range, false) else { return Ok(()) };
                what
            }
        };
        let message = format!("{call:?} on {}: {what}", self.describe(key));
        Err(self.misuse(FindingKind::IllegalAddress, message, CudaCode::INVALID_VALUE))
    }
}

/// The copy of a range between host and device.
pub(super) fn transfer(host: HostUse, device: DevicePtr) -> Transfer {
    match host.access {
        Access::Read => Transfer::In { dst: device, src: Source::Host(host) },
        Access::Write => Transfer::Out { dst: host, src: device },
    }
}

/// The call that copies host memory which the device reads, or writes.
pub(super) fn call_of(access: Access) -> Call {
    match access {
        Access::Read => Call::CopyH2D,
        Access::Write => Call::CopyD2H,
    }
}
