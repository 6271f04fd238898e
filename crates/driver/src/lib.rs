//! The seam of [pinlane](https://docs.rs/pinlane): what it needs from a CUDA runtime, one method a
//! CUDA call, its [`Graphs`], and its own [`Kernels`].
//!
//! pinlane is written against [`Driver`]; nothing in it can tell which driver it has. Two exist: a
//! thin layer over the CUDA runtime, in pinlane itself, and the emulated device, a CUDA runtime in
//! pure Rust for machines without a GPU and for finding bugs.
//!
//! # Invariants that every driver keeps
//!
//! * **The caller's state is left alone.** The current device of the calling thread and its
//!   last-error slot (`cudaPeekAtLastError`) are after every call what they were before it.
//! * **Captures are left alone.** No method invalidates a graph capture of another thread, unless
//!   it names a capturing stream.
//! * **A stream is FIFO.** Only events and the rules of the default streams order one stream after
//!   another (CUDA Runtime API, "Stream synchronization behavior").
//! * **Threads.** Every method may be called from any thread at any time, unless its own
//!   preconditions say otherwise.
//! * **Failure.** `Err` carries the runtime's code, unknown numbers included. As in CUDA, a call
//!   may return the error of earlier asynchronous work: an `Err` does not prove that nothing was
//!   enqueued.
//!
//! This crate is public so that conformance tests can drive both implementations. It is not covered
//! by semantic versioning: programs use it through `pinlane::driver`.

#![deny(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;

mod call;
mod codes;
#[allow(unsafe_code)]
mod graphs;
#[allow(unsafe_code)]
mod kernels;
pub mod reference;
#[allow(unsafe_code)]
mod types;

pub use call::Call;
pub use codes::CudaCode;
pub use graphs::{Graphs, RawGraph, RawNode};
pub use kernels::Kernels;
pub use types::{
    Attribute, Capture, CopyKind, DevicePtr, DriverResult, HostFlags, HostFunction, Item, Layer,
    MAX_PATTERN, Ordinal, Pitched, Poll, RawEvent, RawStream, RowIndex, RowMove, StreamFlags,
    StridedCopy,
};

/// The path of this file as the compiler was given it, and the folder of this crate.
#[doc(hidden)]
pub const SOURCES: [&str; 2] = [file!(), env!("CARGO_MANIFEST_DIR")];

/// A CUDA runtime.
///
/// # Safety
///
/// An implementation promises that
///
/// * a call that returns success has the effect that the CUDA Runtime API documents for the
///   function that the method names, in stream order, and touches no host memory outside the ranges
///   that its arguments name;
/// * [`Poll::Done`] and a successful `*_synchronize` are given only when the work asked about is
///   complete and its writes are visible to the calling thread;
/// * memory that [`host_alloc`](Driver::host_alloc) gives is initialised, aligned to at least 4096
///   bytes, and stays valid until [`host_free`](Driver::host_free);
/// * the invariants of the [module](self) hold.
///
/// Terms of the preconditions below:
///
/// * **live stream / event**: created by this driver (or a default stream, or a foreign handle of
///   the same CUDA runtime) and not destroyed;
/// * **valid until retired**: the memory stays allocated, and is not accessed by the host in a
///   conflicting way, until the operation is complete on the device.
#[allow(unsafe_code)]
pub unsafe trait Driver: Kernels + Graphs + Any + Send + Sync {
    /// How many devices there are. `cudaGetDeviceCount`
    fn device_count(&self) -> DriverResult<i32>;

    /// The device's name as the vendor prints it. `cudaGetDeviceProperties`
    fn device_name(&self, device: Ordinal) -> DriverResult<String>;

    /// An attribute of a device. `cudaDeviceGetAttribute`
    fn attribute(&self, device: Ordinal, attribute: Attribute) -> DriverResult<i32>;

    /// Free and total device memory in bytes. `cudaMemGetInfo`
    fn memory_info(&self, device: Ordinal) -> DriverResult<(usize, usize)>;

    /// Versions of the driver and of the runtime, as 1000 * major + 10 * minor; the driver's is 0
    /// where none is installed. `cudaDriverGetVersion`, `cudaRuntimeGetVersion`
    fn versions(&self) -> DriverResult<(i32, i32)>;

    /// Allocates page-locked host memory. May block for long, and may synchronize the device.
    /// `cudaHostAlloc`; `bytes` must not be 0
    /// ([`CudaCode::INVALID_VALUE`](crate::CudaCode::INVALID_VALUE)).
    fn host_alloc(
        &self,
        device: Ordinal,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<NonNull<u8>>;

    /// Frees page-locked memory. May synchronize the device. `cudaFreeHost`
    ///
    /// # Safety
    ///
    /// * `ptr` came from `host_alloc` of this driver and has not been freed.
    /// * No operation that names the block is pending on any stream.
    /// * No reference into the block is used afterwards.
    /// * The calling thread is not inside a host function.
    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()>;

    /// Page-locks existing memory. `cudaHostRegister`; memory that is not writable is refused
    /// ([`CudaCode::INVALID_VALUE`](crate::CudaCode::INVALID_VALUE)), unless it is for reading
    /// only.
    ///
    /// # Safety
    ///
    /// * `ptr .. ptr + bytes` is mapped and readable, and stays so until unregistered. Unless
    ///   `flags.read_only`, it also stays writable.
    /// * If `flags.read_only`, no operation writes to it.
    unsafe fn host_register(
        &self,
        device: Ordinal,
        ptr: NonNull<u8>,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<()>;

    /// Undoes [`host_register`](Driver::host_register). `cudaHostUnregister`
    ///
    /// # Safety
    ///
    /// * No operation that names the range is pending on any stream.
    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()>;

    /// Allocates device memory, in stream order or at once. `cudaMallocAsync`, or `cudaMalloc`
    /// until something is freed; `bytes` must not be 0. The address is aligned to at least 256
    /// bytes. If memory is short, the call may wait until frees are reached.
    ///
    /// # Safety
    ///
    /// * `stream` is live and not capturing.
    /// * The address is used only by work that is ordered after this call on `stream`.
    unsafe fn device_alloc(&self, stream: RawStream, bytes: usize) -> DriverResult<DevicePtr>;

    /// Frees device memory, in stream order. `cudaFreeAsync`
    ///
    /// # Safety
    ///
    /// * `stream` is live and not capturing.
    /// * `ptr` came from `device_alloc` of this driver and has not been freed.
    /// * Every operation that names the memory is ordered before this call on `stream`.
    unsafe fn device_free(&self, stream: RawStream, ptr: DevicePtr) -> DriverResult<()>;

    /// Copies from page-locked host memory to the device. `cudaMemcpyAsync`
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * `src .. src + bytes` lies in one page-locked block, by one call of `host_alloc` or
    ///   `host_register`, and is valid until retired.
    /// * `dst .. dst + bytes` lies in one device allocation and is valid until retired.
    unsafe fn copy_h2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
    ) -> DriverResult<()>;

    /// Copies from the device to page-locked host memory. `cudaMemcpyAsync`
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * `dst .. dst + bytes` lies in one page-locked block, by one call of `host_alloc` or
    ///   `host_register`, and is valid until retired; the host neither reads nor writes it until
    ///   then.
    /// * `src .. src + bytes` lies in one device allocation and is valid until retired.
    unsafe fn copy_d2h(
        &self,
        stream: RawStream,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()>;

    /// Whether it matters which thread makes a call. If so, no thread makes calls for others.
    fn tells_callers_apart(&self) -> bool {
        false
    }

    /// Whether [`copy_batch`](Driver::copy_batch) works; it came with CUDA 12.8.
    fn supports_batches(&self, device: Ordinal) -> DriverResult<bool>;

    /// Makes many copies, in any order among themselves. The batch as a whole has its place in the
    /// stream. `cuMemcpyBatchAsync`
    ///
    /// The legacy stream is refused with
    /// [`CudaCode::INVALID_VALUE`](crate::CudaCode::INVALID_VALUE); a capturing stream with
    /// [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`](crate::CudaCode::STREAM_CAPTURE_UNSUPPORTED), and
    /// its capture goes on; a driver that is too old with
    /// [`CudaCode::NOT_SUPPORTED`](crate::CudaCode::NOT_SUPPORTED). A batch of no bytes does
    /// nothing, on any stream.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * Every copy keeps the preconditions of the method that copies one such range:
    ///   [`copy_h2d`](Driver::copy_h2d), [`copy_d2h`](Driver::copy_d2h) or
    ///   [`copy_d2d`](Driver::copy_d2d).
    /// * No destination overlaps another destination, or any source, of the batch.
    unsafe fn copy_batch(
        &self,
        stream: RawStream,
        kind: CopyKind,
        copies: &[Item],
    ) -> DriverResult<()>;

    /// Copies rows that lie a pitch apart. The copy of all rows has one place in the stream.
    /// `cuMemcpy2DAsync` for one plane, `cuMemcpy3DAsync` for several
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * There are rows. On each side the pitch is at least as long as a row, and the height at
    ///   least as many rows as a plane has. Neither pitch is longer than
    ///   [`Attribute::MaxPitch`].
    /// * On each side all bytes from the first row to the end of the last one, those of the gaps
    ///   included, lie in the memory that `kind` says: in one device allocation, or in one
    ///   page-locked block, by one call of `host_alloc` or `host_register`. The rows are valid
    ///   until retired, and the host neither reads nor writes those of a destination until then.
    /// * No row that is written overlaps one that is read.
    unsafe fn copy_strided(
        &self,
        stream: RawStream,
        kind: CopyKind,
        copy: &StridedCopy,
    ) -> DriverResult<()>;

    /// Copies within one device. `cudaMemcpyAsync`
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * Both ranges lie in one device allocation each, do not overlap, and are valid until
    ///   retired.
    unsafe fn copy_d2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()>;

    /// Copies between two devices; works with and without peer access. `cudaMemcpyPeerAsync`
    ///
    /// # Safety
    ///
    /// * As for [`copy_d2d`](Driver::copy_d2d); each range lies on the device named beside it.
    unsafe fn copy_peer(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        dst_device: Ordinal,
        src: DevicePtr,
        src_device: Ordinal,
        bytes: usize,
    ) -> DriverResult<()>;

    /// Copies rows that lie a pitch apart between two devices; works with and without peer access.
    /// `cudaMemcpy3DPeerAsync`
    ///
    /// # Safety
    ///
    /// * As for [`copy_strided`](Driver::copy_strided) of device memory; each side lies on the
    ///   device named for it.
    unsafe fn copy_strided_peer(
        &self,
        stream: RawStream,
        copy: &StridedCopy,
        dst_device: Ordinal,
        src_device: Ordinal,
    ) -> DriverResult<()>;

    /// Creates a stream. `cudaStreamCreateWithPriority`
    fn stream_create(&self, device: Ordinal, flags: StreamFlags) -> DriverResult<RawStream>;

    /// Destroys a stream; returns at once, and work already enqueued drains. `cudaStreamDestroy`
    ///
    /// # Safety
    ///
    /// * `stream` came from `stream_create` of this driver, and is not used afterwards.
    unsafe fn stream_destroy(&self, stream: RawStream) -> DriverResult<()>;

    /// Whether all work enqueued so far is complete. `cudaStreamQuery`
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    unsafe fn stream_query(&self, stream: RawStream) -> DriverResult<Poll>;

    /// Blocks until all work enqueued so far is complete. `cudaStreamSynchronize`
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    unsafe fn stream_synchronize(&self, stream: RawStream) -> DriverResult<()>;

    /// Makes later work of `stream` wait, on the device, for what `event` captured when it was last
    /// recorded before this call. `cudaStreamWaitEvent`
    ///
    /// # Safety
    ///
    /// * `stream` and `event` are live; they may belong to different devices.
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()>;

    /// Whether the stream is being captured. `cudaStreamIsCapturing`
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    unsafe fn stream_capture(&self, stream: RawStream) -> DriverResult<Capture>;

    /// Creates an event, with or without timing. `cudaEventCreateWithFlags`
    fn event_create(&self, device: Ordinal, timing: bool) -> DriverResult<RawEvent>;

    /// Destroys an event; returns at once, and waits already bound to it stay valid.
    /// `cudaEventDestroy`
    ///
    /// # Safety
    ///
    /// * `event` came from `event_create` of this driver, and is not used afterwards.
    unsafe fn event_destroy(&self, event: RawEvent) -> DriverResult<()>;

    /// Captures in `event` the work enqueued on `stream` so far, overwriting what it held.
    /// `cudaEventRecord`
    ///
    /// # Safety
    ///
    /// * `event` and `stream` are live and of the same device.
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()>;

    /// Whether the captured work is complete; an event never recorded is [`Poll::Done`].
    /// `cudaEventQuery`
    ///
    /// # Safety
    ///
    /// * `event` is live.
    unsafe fn event_query(&self, event: RawEvent) -> DriverResult<Poll>;

    /// Blocks until the captured work is complete. `cudaEventSynchronize`
    ///
    /// # Safety
    ///
    /// * `event` is live.
    unsafe fn event_synchronize(&self, event: RawEvent) -> DriverResult<()>;

    /// Milliseconds between two completed events with timing. `cudaEventElapsedTime`
    ///
    /// # Safety
    ///
    /// * Both events are live and of the same device.
    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> DriverResult<f32>;

    /// Enqueues a call of `function(data)` on a thread of the runtime; later work of the stream
    /// waits for it. Not called after a device error. `cudaLaunchHostFunc`
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * `function` may be called once with `data` on any thread, does not unwind, calls no method
    ///   of a driver, and does not wait for work that is not ordered before it.
    unsafe fn launch_host(
        &self,
        stream: RawStream,
        function: HostFunction,
        data: *mut c_void,
    ) -> DriverResult<()>;

    /// Whether `device` can access the memory of `peer` directly. `cudaDeviceCanAccessPeer`
    fn can_access_peer(&self, device: Ordinal, peer: Ordinal) -> DriverResult<bool>;

    /// Lets `device` access the memory of `peer`; one direction only. Enabled already is success
    /// here (`cudaErrorPeerAccessAlreadyEnabled` is swallowed). `cudaDeviceEnablePeerAccess`
    ///
    /// Memory of [`device_alloc`](Driver::device_alloc) may need
    /// [`pool_access`](Driver::pool_access) too.
    fn enable_peer_access(&self, device: Ordinal, peer: Ordinal) -> DriverResult<()>;

    /// Lets kernels and copies of `peer`, for which peer access is enabled, read and write the
    /// memory that [`device_alloc`](Driver::device_alloc) takes on `owner`, now and later. Copies
    /// between the two work without it, too, by way of the host. `cudaMemPoolSetAccess`
    fn pool_access(&self, owner: Ordinal, peer: Ordinal) -> DriverResult<()>;

    /// Whether [`host_access`](Driver::host_access) does anything.
    fn sees_host_accesses(&self) -> bool {
        false
    }

    /// Whether the driver sees by itself what the host does to memory of
    /// [`host_alloc`](Driver::host_alloc), and to no other.
    fn watches_allocated_memory(&self) -> bool {
        false
    }

    /// The calling thread reads, or also writes, page-locked memory now, because it takes all
    /// conflicting work on these bytes to be complete. This is no CUDA call. A driver that looks
    /// for races checks that.
    fn host_access(&self, _ptr: *const u8, _bytes: usize, _writes: bool) {}
}
