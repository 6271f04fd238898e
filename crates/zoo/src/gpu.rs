//! What the programs in Rust call: CUDA as a thin binding gives it to Rust, on an emulated machine.
//!
//! One thing is added to CUDA. The machine cannot see what Rust code does to host memory, so
//! [`Gpu::write`] and [`Gpu::holds`] announce the access and make it.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use pinlane_driver::CudaCode;
use pinlane_driver::{CopyKind, DriverResult, Item, Ordinal};
use pinlane_driver::{RawEvent, RawStream, StreamFlags};
use pinlane_emulator::{Emulator, Execution, Kind, Plane};

/// The size of every buffer.
pub const BYTES: usize = 65536;

/// An emulated machine. Memory is named by plain addresses, as in CUDA; those of devices cannot be
/// dereferenced.
pub struct Gpu {
    machine: Emulator,
    pinned: Mutex<Vec<*mut c_void>>,
}

// SAFETY (of all blocks of this file): the machine checks handles and device addresses. Host memory
// is page-locked and lives as long as the machine, or is a program's own that outlives its copies.
// The programs race on purpose, but only in the order of their calls: the machine runs every
// operation inside of some call, under its lock, and a program has one thread.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Gpu {
    /// A machine with so many devices.
    ///
    /// # Panics
    ///
    /// If the process has no room for the addresses of its devices.
    #[must_use]
    pub fn new(devices: usize, execution: Execution, seed: u64) -> Self {
        let builder = Emulator::builder().devices(devices).execution(execution).seed(seed);
        let machine = builder.memory_bytes(1 << 30).build_for_program();
        Gpu { machine: machine.expect("room for addresses"), pinned: Mutex::default() }
    }

    /// The machine itself.
    pub fn emulator(&self) -> &Emulator {
        &self.machine
    }

    /// Makes a device current. `cudaSetDevice`
    pub fn set_device(&self, device: Ordinal) -> DriverResult<()> {
        self.machine.set_device(device)
    }

    /// A stream that does not synchronize with the legacy one. `cudaStreamCreateWithFlags`
    pub fn stream(&self) -> DriverResult<RawStream> {
        self.machine.stream_create(self.machine.current_device(), StreamFlags::default())
    }

    /// The legacy default stream of the current device.
    pub fn legacy(&self) -> RawStream {
        self.machine.default_stream(false)
    }

    /// `cudaStreamSynchronize`
    pub fn synchronize(&self, stream: RawStream) -> DriverResult<()> {
        self.machine.stream_synchronize(stream)
    }

    /// `cudaEventCreateWithFlags`
    pub fn event(&self) -> DriverResult<RawEvent> {
        self.machine.event_create(self.machine.current_device(), false)
    }

    /// `cudaEventRecord`
    pub fn record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        unsafe { self.machine.event_record(event, stream) }
    }

    /// `cudaStreamWaitEvent`
    pub fn wait(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        unsafe { self.machine.stream_wait_event(stream, event) }
    }

    /// Makes one stream wait for all that another has been given: a fresh event, recorded there.
    pub fn wait_stream(&self, stream: RawStream, other: RawStream) -> DriverResult<()> {
        let event = self.machine.event_create(other.device, false)?;
        self.record(event, other)?;
        self.wait(stream, event)
    }

    /// Memory of the current device. `cudaMalloc`
    pub fn malloc(&self) -> DriverResult<*mut u8> {
        Ok(self.machine.malloc(BYTES)?.cast())
    }

    /// `cudaMallocAsync`
    pub fn malloc_async(&self, stream: RawStream) -> DriverResult<*mut u8> {
        let pool = self.machine.device_pool(stream.device)?;
        Ok(self.machine.malloc_async(stream, pool, BYTES)?.cast())
    }

    /// `cudaFreeAsync`
    pub fn free_async(&self, memory: *mut u8, stream: RawStream) -> DriverResult<()> {
        self.machine.free_async(stream, memory.cast())
    }

    /// Page-locked memory, freed with the machine. `cudaMallocHost`
    pub fn pinned(&self) -> DriverResult<*mut u8> {
        let memory = self.machine.host_alloc(BYTES, 0, false)?;
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        Ok(memory.cast())
    }

    /// `cudaMemsetAsync`; stands for a kernel that writes.
    pub fn fill(&self, stream: RawStream, memory: *mut u8, value: u8) -> DriverResult<()> {
        unsafe { self.machine.fill(stream, memory.cast(), BYTES, &[value], (BYTES, 1), false) }
    }

    /// Copies a buffer, in the direction that the addresses show. `cudaMemcpyAsync`
    pub fn copy(&self, stream: RawStream, to: *mut u8, from: *const u8) -> DriverResult<()> {
        self.copy_bytes(stream, to, from, BYTES)
    }

    /// The same for so many bytes.
    pub fn copy_bytes(
        &self,
        stream: RawStream,
        to: *mut u8,
        from: *const u8,
        bytes: usize,
    ) -> DriverResult<()> {
        let line = Plane::line(to.cast(), from.cast(), bytes);
        unsafe { self.machine.copy(stream, line, Kind::Default, false) }
    }

    /// Copies a buffer as a batch of four blocks. `cudaMemcpyBatchAsync`
    pub fn copy_blocks(
        &self,
        stream: RawStream,
        kind: CopyKind,
        to: *mut u8,
        from: *mut u8,
    ) -> DriverResult<()> {
        let bytes = BYTES / 4;
        let block = |at: usize| {
            let (dst, src) = (to.addr() + at * bytes, from.addr() + at * bytes);
            Item { dst: dst as u64, src: src as u64, bytes: bytes as u64 }
        };
        let blocks = [0, 1, 2, 3].map(block);
        unsafe { self.machine.driver().copy_batch(stream, kind, &blocks) }
    }

    /// The host writes to all of a buffer.
    pub fn write(&self, memory: *mut u8, value: u8) {
        self.machine.host_writes(memory, BYTES);
        unsafe { memory.write_bytes(value, BYTES) };
    }

    /// The host moves a buffer to another place.
    pub fn move_to(&self, to: *mut u8, from: *const u8) {
        self.machine.host_reads(from, BYTES);
        self.machine.host_writes(to, BYTES);
        unsafe { to.copy_from(from, BYTES) };
    }

    /// The host reads a buffer: whether all of it has this value.
    pub fn holds(&self, memory: *const u8, value: u8) -> bool {
        self.machine.host_reads(memory, BYTES);
        let bytes = unsafe { std::slice::from_raw_parts(memory, BYTES) };
        bytes.iter().all(|&byte| byte == value)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // What a lost device says does not matter any more.
        let _: Result<(), CudaCode> =
            self.machine.device_synchronize(0).and(self.machine.device_synchronize(1));
        for memory in self.pinned.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = self.machine.free_host(memory, false);
        }
    }
}
