//! A machine, and its calls in a form that is safe to make.
//!
//! Many of the tests break the rules of CUDA on purpose. That is safe on the emulated device: it
//! looks up every handle and every address of device memory, and refuses the ones that are wrong.

// What the blocks below rest on:
//
// * Checked: the emulated device follows no handle and no address of device memory that it does not
//   know.
// * Owned: host memory is the test's own, and no other thread uses it. The test keeps it until the
//   work on it is done, unregisters it, or frees it as a block, which the device keeps while it is
//   in use.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Builder, Emulator, Execution, FindingKind, Kind, Plane};
use pinlane_driver::{
    Capture, CopyKind, DevicePtr, Driver, DriverResult, HostFlags, Item, Ordinal, Poll, RawEvent,
    RawStream, StreamFlags,
};

pub(super) const BYTES: usize = 64;

pub(super) const MODES: [Execution; 7] = [
    Execution::Eager,
    Execution::Lazy,
    Execution::Random,
    Execution::Chunked,
    Execution::Pct { depth: 1 },
    Execution::Pct { depth: 2 },
    Execution::Pct { depth: 3 },
];

pub(super) struct Rig {
    pub(super) emulator: Emulator,
    pub(super) driver: Arc<dyn Driver>,
}

impl Rig {
    pub(super) fn new(builder: Builder) -> Self {
        let emulator = builder.devices(2).memory_bytes(1 << 20).build();
        Rig { driver: emulator.driver(), emulator }
    }

    pub(super) fn eager() -> Self {
        Self::new(Emulator::builder())
    }

    pub(super) fn lazy(seed: u64) -> Self {
        Self::new(Emulator::builder().execution(Execution::Lazy).seed(seed))
    }

    /// A machine of each mode.
    pub(super) fn of_each_mode(seed: u64) -> impl Iterator<Item = Self> {
        let machine = move |execution| Emulator::builder().execution(execution).seed(seed);
        MODES.into_iter().map(machine).map(Self::new)
    }

    pub(super) fn found(&self) -> Vec<FindingKind> {
        self.emulator.findings().iter().map(|finding| finding.kind).collect()
    }

    /// A page-locked block of zeros.
    pub(super) fn host(&self) -> NonNull<u8> {
        let ptr = self.driver.host_alloc(0, BYTES, HostFlags::default()).unwrap();
        write(ptr, &[0; BYTES]);
        ptr
    }

    pub(super) fn free_host(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: owned.
        unsafe { self.driver.host_free(ptr) }
    }

    pub(super) fn register(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: owned.
        unsafe { self.driver.host_register(0, ptr, BYTES, HostFlags::default()) }
    }

    pub(super) fn unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        // SAFETY: owned.
        unsafe { self.driver.host_unregister(ptr) }
    }

    /// Memory that every stream may use.
    pub(super) fn memory(&self, device: Ordinal) -> DevicePtr {
        let stream = self.stream(device);
        let ptr = self.alloc(stream, BYTES).unwrap();
        self.synchronize(stream).unwrap();
        ptr
    }

    pub(super) fn alloc(&self, stream: RawStream, bytes: usize) -> DriverResult<DevicePtr> {
        // SAFETY: checked.
        unsafe { self.driver.device_alloc(stream, bytes) }
    }

    pub(super) fn free(&self, stream: RawStream, ptr: DevicePtr) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.device_free(stream, ptr) }
    }

    pub(super) fn stream(&self, device: Ordinal) -> RawStream {
        let flags = StreamFlags { blocking: false, priority: 0 };
        self.driver.stream_create(device, flags).unwrap()
    }

    pub(super) fn destroy_stream(&self, stream: RawStream) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.stream_destroy(stream) }
    }

    pub(super) fn synchronize(&self, stream: RawStream) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.stream_synchronize(stream) }
    }

    pub(super) fn query(&self, stream: RawStream) -> DriverResult<Poll> {
        // SAFETY: checked.
        unsafe { self.driver.stream_query(stream) }
    }

    pub(super) fn capture(&self, stream: RawStream) -> DriverResult<Capture> {
        // SAFETY: checked.
        unsafe { self.driver.stream_capture(stream) }
    }

    /// Records a fresh event.
    pub(super) fn mark(&self, stream: RawStream) -> RawEvent {
        let event = self.driver.event_create(stream.device, false).unwrap();
        self.record(event, stream).unwrap();
        event
    }

    pub(super) fn record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.event_record(event, stream) }
    }

    pub(super) fn wait(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.stream_wait_event(stream, event) }
    }

    pub(super) fn query_event(&self, event: RawEvent) -> DriverResult<Poll> {
        // SAFETY: checked.
        unsafe { self.driver.event_query(event) }
    }

    pub(super) fn elapsed(&self, start: RawEvent, end: RawEvent) -> DriverResult<f32> {
        // SAFETY: checked.
        unsafe { self.driver.event_elapsed(start, end) }
    }

    pub(super) fn destroy_event(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.event_destroy(event) }
    }

    pub(super) fn fill(&self, stream: RawStream, dst: DevicePtr, value: u8) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.fill(stream, dst, BYTES, &[value]) }
    }

    pub(super) fn fill_part(&self, stream: RawStream, dst: DevicePtr, bytes: usize) {
        // SAFETY: checked.
        unsafe { self.driver.fill(stream, dst, bytes, &[1]) }.unwrap();
    }

    pub(super) fn copy_part(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    ) {
        // SAFETY: checked.
        unsafe { self.driver.copy_d2d(stream, dst, src, bytes) }.unwrap();
    }

    pub(super) fn synchronize_event(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.event_synchronize(event) }
    }

    pub(super) fn busy(&self, stream: RawStream, nanoseconds: u64) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.busy(stream, nanoseconds) }
    }

    pub(super) fn download(
        &self,
        stream: RawStream,
        dst: NonNull<u8>,
        src: DevicePtr,
    ) -> DriverResult<()> {
        // SAFETY: checked; host memory is owned.
        unsafe { self.driver.copy_d2h(stream, dst.as_ptr(), src, BYTES) }
    }

    pub(super) fn upload(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: NonNull<u8>,
    ) -> DriverResult<()> {
        // SAFETY: checked; host memory is owned.
        unsafe { self.driver.copy_h2d(stream, dst, src.as_ptr(), BYTES) }
    }

    unsafe fn copy_as_pointers_say(
        &self,
        stream: RawStream,
        dst: *mut u8,
        src: *const u8,
    ) -> DriverResult<()> {
        let line = Plane::line(dst.cast(), src.cast(), BYTES);
        // SAFETY: checked; host memory is owned.
        unsafe { self.emulator.copy(stream, line, Kind::Default, false) }
    }

    pub(super) fn download_pageable(
        &self,
        stream: RawStream,
        dst: NonNull<u8>,
        src: DevicePtr,
    ) -> DriverResult<()> {
        // SAFETY: checked; host memory is owned.
        unsafe { self.copy_as_pointers_say(stream, dst.as_ptr(), src as *const u8) }
    }

    pub(super) fn upload_pageable(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: NonNull<u8>,
    ) -> DriverResult<()> {
        // SAFETY: checked; host memory is owned.
        unsafe { self.copy_as_pointers_say(stream, dst as *mut u8, src.as_ptr()) }
    }

    /// Each address with its device.
    pub(super) fn copy_peer(
        &self,
        stream: RawStream,
        dst: (DevicePtr, Ordinal),
        src: (DevicePtr, Ordinal),
    ) -> DriverResult<()> {
        // SAFETY: checked.
        unsafe { self.driver.copy_peer(stream, dst.0, dst.1, src.0, src.1, BYTES) }
    }

    pub(super) fn batch(
        &self,
        stream: RawStream,
        kind: CopyKind,
        copies: &[Item],
    ) -> DriverResult<()> {
        // SAFETY: checked; host memory is owned.
        unsafe { self.driver.copy_batch(stream, kind, copies) }
    }

    /// Moves by the one item that lies at `item`.
    pub(super) fn move_item(
        &self,
        stream: RawStream,
        kind: CopyKind,
        item: u64,
    ) -> DriverResult<()> {
        // SAFETY: checked; host memory is owned.
        unsafe { self.driver.move_items(stream, kind, item, 1, BYTES) }
    }

    pub(super) fn launch<F>(&self, stream: RawStream, function: F) -> DriverResult<()>
    where
        F: FnOnce() + Send + 'static,
    {
        unsafe extern "C" fn call<F: FnOnce()>(data: *mut c_void) {
            // SAFETY: `launch` leaked the box, for the one call of this function.
            let function = unsafe { Box::from_raw(data.cast::<F>()) };
            function();
        }
        let data = Box::into_raw(Box::new(function)).cast();
        // SAFETY: checked; `call` may be called once, on any thread, with the box that it takes.
        unsafe { self.driver.launch_host(stream, call::<F>, data) }
    }
}

/// The address that is so many bytes further on.
pub(super) fn at(ptr: NonNull<u8>, offset: usize) -> NonNull<u8> {
    ptr.map_addr(|address| address.checked_add(offset).unwrap())
}

pub(super) fn bytes(ptr: NonNull<u8>) -> [u8; BYTES] {
    // SAFETY: owned, and as long as a block of the rig.
    unsafe { ptr.cast::<[u8; BYTES]>().read() }
}

pub(super) fn write(ptr: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: owned, and at least as long.
    unsafe { ptr.as_ptr().copy_from(bytes.as_ptr(), bytes.len()) }
}
