//! [`Driver`] on the emulated machine: each method checks its arguments as the CUDA call would, and
//! enqueues.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::calls::refuse_in_host_function;
use super::copies::bad_copy;
use super::emulator::Emulator;
use super::finding::FindingKind;
use super::memory::host::{Access, HostPtr, HostUse};
use super::operation::{Action, Transfer};
use super::races::{MemoryKind, RacingAccess};
use pinlane_driver::CudaCode;
use pinlane_driver::{
    Attribute, BatchCopy, BatchKind, Call, Capture, DevicePtr, Driver, DriverResult, HostFlags,
    HostFunction, Ordinal, Poll, RawEvent, RawStream, StreamFlags,
};

/// Methods of the seam that are calls of the machine as they are. `checked` are those of which the
/// seam demands more than the machine needs.
macro_rules! translate {
    () => {};
    (fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty; $($rest:tt)*) => {
        #[inline]
        fn $name(&self, $($arg: $ty),*) -> DriverResult<$out> {
            self.$name($($arg),*)
        }
        translate! { $($rest)* }
    };
    (checked fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty; $($rest:tt)*) => {
        #[inline]
        unsafe fn $name(&self, $($arg: $ty),*) -> DriverResult<$out> {
            self.$name($($arg),*)
        }
        translate! { $($rest)* }
    };
    (unsafe fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty; $($rest:tt)*) => {
        #[inline]
        unsafe fn $name(&self, $($arg: $ty),*) -> DriverResult<$out> {
            // SAFETY: the seam demands what the call does; promised by the caller.
            unsafe { self.$name($($arg),*) }
        }
        translate! { $($rest)* }
    };
}

// SAFETY: operations run in stream order under one lock and touch the ranges in their arguments
// only (`execute`); `Poll::Done` and a successful synchronize are given for complete positions, and
// the lock makes what was written visible (`schedule`, `shared`); host memory is initialised,
// aligned to 4096 and freed by `host_free` alone (`memory/host`). There is no current device and no
// last-error slot to disturb, and only calls that name a capturing stream, or that the contract
// rules out, touch a capture.
unsafe impl Driver for Emulator {
    translate! {
        fn device_name(device: Ordinal) -> String;
        fn attribute(device: Ordinal, attribute: Attribute) -> i32;
        fn memory_info(device: Ordinal) -> (usize, usize);
        fn can_access_peer(device: Ordinal, peer: Ordinal) -> bool;
        fn pool_access(owner: Ordinal, peer: Ordinal) -> ();
        fn stream_create(device: Ordinal, flags: StreamFlags) -> RawStream;
        fn event_create(device: Ordinal, timing: bool) -> RawEvent;
        checked fn stream_query(stream: RawStream) -> Poll;
        checked fn stream_synchronize(stream: RawStream) -> ();
        checked fn stream_capture(stream: RawStream) -> Capture;
        checked fn event_query(event: RawEvent) -> Poll;
        checked fn event_synchronize(event: RawEvent) -> ();
        checked fn event_elapsed(start: RawEvent, end: RawEvent) -> f32;
        unsafe fn stream_destroy(stream: RawStream) -> ();
        unsafe fn stream_wait_event(stream: RawStream, event: RawEvent) -> ();
        unsafe fn event_destroy(event: RawEvent) -> ();
        unsafe fn event_record(event: RawEvent, stream: RawStream) -> ();
        unsafe fn launch_host(stream: RawStream, function: HostFunction, data: *mut c_void) -> ();
    }

    fn device_count(&self) -> DriverResult<i32> {
        self.devices()
    }

    fn enable_peer_access(&self, device: Ordinal, peer: Ordinal) -> DriverResult<()> {
        match self.enable_peer_access(device, peer) {
            Err(CudaCode::PEER_ACCESS_ALREADY_ENABLED) => Ok(()),
            enabled => enabled,
        }
    }

    fn versions(&self) -> DriverResult<(i32, i32)> {
        self.shared.with(|machine| machine.check_loaded())?;
        // The semantics are those of CUDA 13.0.
        Ok((13_000, 13_000))
    }

    fn host_alloc(&self, device: Ordinal, bytes: usize, _: HostFlags) -> DriverResult<NonNull<u8>> {
        self.call(Call::HostAlloc, device, |machine| machine.host_alloc(device, bytes))
    }

    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        self.in_call(|machine| {
            refuse_in_host_function(machine, Call::HostFree)?;
            machine.enter(Call::HostFree, machine.host.device_of(ptr).unwrap_or(0), |machine| {
                // SAFETY: the caller promises that no reference into the block is used afterwards.
                unsafe { machine.host_free(ptr) }
            })
        })
    }

    unsafe fn host_register(
        &self,
        device: Ordinal,
        ptr: NonNull<u8>,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<()> {
        self.call(Call::HostRegister, device, |machine| {
            if flags.write_combined {
                return Err(CudaCode::INVALID_VALUE);
            }
            machine.host_register(device, ptr, bytes)
        })
    }

    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        self.in_call(|machine| {
            refuse_in_host_function(machine, Call::HostUnregister)?;
            let device = machine.host.device_of(ptr).unwrap_or(0);
            machine.enter(Call::HostUnregister, device, |machine| machine.host_unregister(ptr))
        })
    }

    unsafe fn device_alloc(&self, stream: RawStream, bytes: usize) -> DriverResult<DevicePtr> {
        self.on_stream(Call::DeviceAlloc, stream, |machine, key| {
            machine.refuse_in_capture(Call::DeviceAlloc, key)?;
            if bytes == 0 {
                return Err(CudaCode::INVALID_VALUE);
            }
            let ptr = machine.memory.reserve(stream.device, bytes)?;
            machine.races.allocated(MemoryKind::OnDevice(stream.device), ptr, bytes);
            machine.submit(key, Vec::new(), Action::Alloc { ptr })?;
            Ok(ptr)
        })
    }

    unsafe fn device_free(&self, stream: RawStream, ptr: DevicePtr) -> DriverResult<()> {
        self.on_stream(Call::DeviceFree, stream, |machine, key| machine.device_free(key, ptr))
    }

    unsafe fn copy_h2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
    ) -> DriverResult<()> {
        self.copy_host(stream, HostUse::new(HostPtr(src.cast_mut()), bytes, Access::Read), dst)
    }

    unsafe fn copy_d2h(
        &self,
        stream: RawStream,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        self.copy_host(stream, HostUse::new(HostPtr(dst), bytes, Access::Write), src)
    }

    fn supports_batches(&self, device: Ordinal) -> DriverResult<bool> {
        self.call(Call::Attributes, device, |machine| Ok(machine.batches))
    }

    unsafe fn copy_batch(
        &self,
        stream: RawStream,
        kind: BatchKind,
        copies: &[BatchCopy],
    ) -> DriverResult<()> {
        self.on_stream(Call::CopyBatch, stream, |machine, key| {
            machine.copy_batch(key, kind, copies)
        })
    }

    unsafe fn copy_d2d(
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
            if let Some(message) = bad_copy(machine, (dst, device), (src, device), bytes) {
                let message = format!("CopyD2D on {}: {message}", machine.describe(key));
                return Err(machine.misuse(FindingKind::BadCopy, message, CudaCode::INVALID_VALUE));
            }
            let copy = Transfer::Across { dst, src, bytes };
            machine.submit(key, Vec::new(), Action::Copy(Call::CopyD2D, copy))
        })
    }

    unsafe fn copy_peer(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        dst_device: Ordinal,
        src: DevicePtr,
        src_device: Ordinal,
        bytes: usize,
    ) -> DriverResult<()> {
        self.on_stream(Call::CopyPeer, stream, |machine, key| {
            for device in [dst_device, src_device] {
                machine.device(device)?.lost.map_or(Ok(()), Err)?;
            }
            if bytes == 0 {
                return Ok(());
            }
            if let Some(message) = bad_copy(machine, (dst, dst_device), (src, src_device), bytes) {
                let message = format!("CopyPeer on {}: {message}", machine.describe(key));
                return Err(machine.misuse(FindingKind::BadCopy, message, CudaCode::INVALID_VALUE));
            }
            let action = Action::Copy(Call::CopyPeer, Transfer::Across { dst, src, bytes });
            if key != machine.devices[stream.device as usize].legacy {
                return machine.submit(key, Vec::new(), action);
            }
            // Rule 19: on a legacy stream it waits for, and holds up, both devices.
            let others = [dst_device, src_device].into_iter().filter(|&d| d != stream.device);
            // Before anything is enqueued: a call that fails must not have copied.
            for device in others.clone() {
                machine.refuse_implicit(machine.devices[device as usize].legacy)?;
            }
            let mut waits = Vec::new();
            others.clone().for_each(|device| machine.device_waits(device, &mut waits));
            let agent = machine.streams.get(key).expect("just resolved").agent;
            others.clone().for_each(|device| machine.races.follows_device(agent, device));
            machine.submit(key, waits, action)?;
            for device in others {
                let (legacy, tail) = (machine.devices[device as usize].legacy, machine.tail(key));
                let follower = machine.streams.get(legacy).expect("lives for ever").agent;
                machine.races.follows(follower, agent);
                machine.submit(legacy, vec![tail], Action::Join)?;
            }
            Ok(())
        })
    }

    fn sees_host_accesses(&self) -> bool {
        true
    }

    fn watches_allocated_memory(&self) -> bool {
        self.shared.with(|machine| machine.host.watcher.is_some())
    }

    fn host_access(&self, ptr: *const u8, bytes: usize, writes: bool) {
        let access = if writes { RacingAccess::Write } else { RacingAccess::Read };
        self.in_call(|machine| {
            machine.races.host_access(ptr.addr() as u64, bytes as u64, access);
            machine.report_races();
            machine.open_to_host(ptr.addr(), bytes);
        });
    }
}
