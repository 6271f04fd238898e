//! [`Driver`] on the emulated machine: each method checks its arguments as the CUDA call would, and
//! enqueues.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::calls::host::check_mapped;
use super::emulator::Emulator;
use super::machine::CaptureMode;
use super::memory::host::{Access, HostPtr, HostUse, Purpose};
use super::races::RacingAccess;
use pinlane_driver::CudaCode;
use pinlane_driver::{
    Attribute, Call, Capture, CopyKind, DevicePtr, Driver, DriverResult, Graphs, HostFlags,
    HostFunction, Item, Ordinal, Poll, RawEvent, RawGraph, RawNode, RawStream, StreamFlags,
    StridedCopy,
};

/// Methods of the seam that forward to the machine's method of the same name. `checked` marks those
/// that are `unsafe` in the seam and safe on the machine, which checks its arguments.
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
        checked fn device_free(stream: RawStream, ptr: DevicePtr) -> ();
        checked fn copy_d2d(stream: RawStream, dst: DevicePtr, src: DevicePtr, bytes: usize) -> ();
        checked fn copy_peer(
            stream: RawStream, dst: DevicePtr, dst_device: Ordinal,
            src: DevicePtr, src_device: Ordinal, bytes: usize
        ) -> ();
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

    /// Findings name who has made a call, and with [`Builder::threads_apart`](super::Builder) a
    /// thread knows of its own calls only.
    fn tells_callers_apart(&self) -> bool {
        self.with(|machine| machine.races.on)
    }

    fn supports_batches(&self, device: Ordinal) -> DriverResult<bool> {
        self.call(Call::Attributes, device, |machine| Ok(machine.batches))
    }

    fn host_alloc(
        &self,
        device: Ordinal,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<NonNull<u8>> {
        if flags.read_only {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.page_lock_new(device, bytes, None)
    }

    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: promised by the caller.
        unsafe { self.page_unlock(Call::HostFree, ptr, |_| Ok(())) }
    }

    unsafe fn host_register(
        &self,
        device: Ordinal,
        ptr: NonNull<u8>,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<()> {
        if flags.write_combined {
            return Err(CudaCode::INVALID_VALUE);
        }
        let purpose = if flags.read_only { Purpose::ToRead } else { Purpose::Any };
        check_mapped(ptr, bytes, purpose)?;
        // SAFETY: promised by the caller.
        unsafe { self.page_lock(device, ptr, bytes, purpose, None) }
    }

    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: the block is registered, or the call fails.
        unsafe { self.page_unlock(Call::HostUnregister, ptr, |_| Ok(())) }
    }

    unsafe fn device_alloc(&self, stream: RawStream, bytes: usize) -> DriverResult<DevicePtr> {
        self.on_stream(Call::DeviceAlloc, stream, |machine, key| {
            machine.refuse_in_capture(Call::DeviceAlloc, key)?;
            if bytes == 0 {
                return Err(CudaCode::INVALID_VALUE);
            }
            machine.device_alloc(key, stream.device, bytes)
        })
    }

    unsafe fn copy_h2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
    ) -> DriverResult<()> {
        let host = HostUse::new(HostPtr(src.cast_mut()), bytes, Access::Read);
        self.copy_page_locked(stream, host, dst)
    }

    unsafe fn copy_d2h(
        &self,
        stream: RawStream,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        let host = HostUse::new(HostPtr(dst), bytes, Access::Write);
        self.copy_page_locked(stream, host, src)
    }

    unsafe fn copy_batch(
        &self,
        stream: RawStream,
        kind: CopyKind,
        copies: &[Item],
    ) -> DriverResult<()> {
        self.on_stream(Call::CopyBatch, stream, |machine, key| {
            machine.copy_batch(key, kind, copies)
        })
    }

    unsafe fn copy_strided(
        &self,
        stream: RawStream,
        kind: CopyKind,
        copy: &StridedCopy,
    ) -> DriverResult<()> {
        self.on_stream(Call::CopyStrided, stream, |machine, key| {
            machine.copy_strided(key, kind, copy)
        })
    }

    unsafe fn copy_strided_peer(
        &self,
        stream: RawStream,
        copy: &StridedCopy,
        dst_device: Ordinal,
        src_device: Ordinal,
    ) -> DriverResult<()> {
        self.on_stream(Call::CopyStridedPeer, stream, |machine, key| {
            machine.copy_strided_peer((key, stream.device), copy, dst_device, src_device)
        })
    }

    fn sees_host_accesses(&self) -> bool {
        true
    }

    fn watches_allocated_memory(&self) -> bool {
        self.shared.with(|machine| machine.host.watcher.is_some())
    }

    fn host_access(&self, ptr: *const u8, bytes: usize, writes: bool) {
        let access = RacingAccess::of(writes);
        self.in_call(|machine| {
            machine.races.host_access(ptr.addr() as u64, bytes as u64, access);
            machine.report_races();
            machine.open_to_host(ptr.addr(), bytes);
        });
    }
}

// SAFETY: a captured operation runs as one that is enqueued, at each launch, and in the order of
// the capture (`graphs`).
unsafe impl Graphs for Emulator {
    unsafe fn capture_begin(&self, stream: RawStream) -> DriverResult<()> {
        self.on_stream(Call::CaptureBegin, stream, |machine, key| {
            machine.begin_capture(key, CaptureMode::Relaxed)
        })
    }

    unsafe fn capture_node(&self, stream: RawStream) -> DriverResult<Option<RawNode>> {
        self.on_stream(Call::CaptureNode, stream, |machine, key| Ok(machine.captured_last(key)))
    }

    unsafe fn capture_end(&self, stream: RawStream) -> DriverResult<RawGraph> {
        self.on_stream(Call::CaptureEnd, stream, |machine, key| {
            let (graph, _) = machine.end_capture(key)?;
            match machine.instantiate(graph, false) {
                Ok(executable) => Ok(RawGraph {
                    device: stream.device,
                    graph: machine.graphs.handle(graph),
                    executable: machine.graphs.handle(executable),
                }),
                Err(code) => {
                    machine.drop_graph(graph);
                    Err(code)
                }
            }
        })
    }

    unsafe fn graph_set_copy(
        &self,
        graph: RawGraph,
        node: RawNode,
        kind: CopyKind,
        copy: Item,
    ) -> DriverResult<()> {
        self.call(Call::GraphSetCopy, graph.device, |machine| {
            let graph = machine.graph("GraphSetCopy", graph.executable)?;
            machine.set_copy_of(graph, node.0, kind, copy)
        })
    }

    unsafe fn graph_launch(&self, graph: RawGraph, stream: RawStream) -> DriverResult<()> {
        // SAFETY: promised by the caller.
        unsafe { self.graph_launch(graph.executable, stream) }
    }

    unsafe fn graph_destroy(&self, graph: RawGraph) -> DriverResult<()> {
        let destroyed = self.call(Call::GraphDestroy, graph.device, |machine| {
            for handle in [graph.executable, graph.graph] {
                let key = machine.graph("GraphDestroy", handle)?;
                machine.drop_graph(key);
            }
            Ok(())
        });
        if destroyed.is_err() {
            // The caller gives it up, and so nothing launches it.
            self.shared.with(|machine| machine.disarm(graph.executable));
        }
        destroyed
    }
}
