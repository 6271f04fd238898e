//! The way by the CUDA runtime: each method of [`Driver`] is one call of it, or of the driver API
//! ([`batch`], [`single`]).
//!
//! This module decides, caches and retries nothing, except in these two. The wrappers of [`thread`]
//! keep the seam's invariants:
//!
//! * Every method leaves the caller's last error as it was.
//! * The current device is compared, and if it differs set and restored, for calls that CUDA binds
//!   to it: creating objects, launching kernels, the default streams, and work on memory of
//!   `cudaMallocAsync` (CUDA Programming Guide, "cudaMemcpyAsync Current Context/Device
//!   Sensitivity"). Recording, waiting and querying on an owned stream cost nothing extra.
//! * Calls that CUDA lists as potentially unsafe during a capture run in relaxed capture mode.
//! * Output parameters are read only after success; without a driver CUDA leaves them unwritten.
//!
//! A thread that has not chosen a device has device 0. CUDA may initialise device 0 when such a
//! thread calls, even if the call is about another device.

mod batch;
mod convert;
mod entry;
pub(super) mod graphs;
pub(super) mod kernels;
pub(super) mod memory;
mod pool;
mod single;
mod strided;
mod sys;
mod thread;

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use self::convert::{Address, attribute_of, event_of, stream_of};
use self::thread::{call, call_on, call_on_device, relaxed};
use super::early;
use super::instance::CudaDriver;
use super::words::{PAGE, alloc_flags, poll, register_flags, whole_pages};
use crate::error::CudaCode;
use pinlane_driver::{
    Attribute, Capture, CopyKind, DevicePtr, Driver, DriverResult, HostFlags, HostFunction, Item,
    Ordinal, Poll, RawEvent, RawStream, StreamFlags, StridedCopy,
};

// SAFETY: each method makes the CUDA call that the trait names for it, on ranges that its arguments
// name, and returns success only if CUDA does; "done" only if the query or synchronization
// succeeded. `host_alloc` checks its alignment, and the operating system initialises what CUDA
// maps. The module's invariants are kept as its documentation says.
unsafe impl Driver for CudaDriver {
    fn device_count(&self) -> DriverResult<i32> {
        let mut count = 0;
        // SAFETY: `count` is a live `int` for the call to write.
        call(|| unsafe { sys::cudaGetDeviceCount(&mut count) })?;
        Ok(count)
    }

    fn device_name(&self, device: Ordinal) -> DriverResult<String> {
        let mut properties = MaybeUninit::<sys::cudaDeviceProp>::uninit();
        call(|| {
            // SAFETY: `properties` is live, and of the type that the call fills.
            relaxed(|| unsafe { sys::cudaGetDeviceProperties(properties.as_mut_ptr(), device) })
        })?;
        // SAFETY: the call succeeded, so it has written all of the properties.
        let name = unsafe { properties.assume_init() }.name.map(|c| c as u8);
        let name = CStr::from_bytes_until_nul(&name).map_err(|_| CudaCode::UNKNOWN)?;
        Ok(name.to_string_lossy().into_owned())
    }

    fn attribute(&self, device: Ordinal, attribute: Attribute) -> DriverResult<i32> {
        let mut value = 0;
        let attribute = attribute_of(attribute);
        // SAFETY: `value` is a live `int` for the call to write.
        call(|| unsafe { sys::cudaDeviceGetAttribute(&mut value, attribute, device) })?;
        Ok(value)
    }

    fn memory_info(&self, device: Ordinal) -> DriverResult<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are live numbers for the call to write.
        call_on_device(device, || unsafe { sys::cudaMemGetInfo(&mut free, &mut total) })?;
        Ok((free, total))
    }

    fn versions(&self) -> DriverResult<(i32, i32)> {
        let (mut driver, mut runtime) = (0, 0);
        // SAFETY: `driver` is a live `int` for the call to write.
        call(|| unsafe { sys::cudaDriverGetVersion(&mut driver) })?;
        // SAFETY: `runtime` is a live `int` for the call to write.
        call(|| unsafe { sys::cudaRuntimeGetVersion(&mut runtime) })?;
        Ok((driver, runtime))
    }

    fn host_alloc(
        &self,
        device: Ordinal,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<NonNull<u8>> {
        let bytes = whole_pages(bytes)?;
        let flags = alloc_flags(flags)?;
        let mut block = Address::null();
        // SAFETY: the slot is a live pointer for the call to write.
        call_on_device(device, || unsafe { sys::cudaHostAlloc(block.slot(), bytes, flags) })?;
        let block = NonNull::new(block.get().cast::<u8>()).ok_or(CudaCode::MEMORY_ALLOCATION)?;
        if !block.addr().get().is_multiple_of(PAGE) {
            let block = Address::host(block.as_ptr());
            // SAFETY: just allocated by cudaHostAlloc, and not used anywhere else.
            let _ = call(move || relaxed(|| unsafe { sys::cudaFreeHost(block.get()) }));
            return Err(CudaCode::NOT_SUPPORTED);
        }
        Ok(block)
    }

    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        let block = Address::host(ptr.as_ptr());
        // SAFETY: allocated by cudaHostAlloc, not freed before, not in use: promised by the caller.
        call(move || relaxed(|| unsafe { sys::cudaFreeHost(block.get()) }))
    }

    unsafe fn host_register(
        &self,
        device: Ordinal,
        ptr: NonNull<u8>,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<()> {
        let flags = register_flags(flags)?;
        let range = Address::host(ptr.as_ptr());
        // SAFETY: the range is mapped and stays so until unregistered: promised by the caller.
        call_on_device(device, move || unsafe { sys::cudaHostRegister(range.get(), bytes, flags) })
    }

    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        let range = Address::host(ptr.as_ptr());
        // SAFETY: no operation that names the range is pending: promised by the caller.
        call(move || relaxed(|| unsafe { sys::cudaHostUnregister(range.get()) }))
    }

    unsafe fn device_alloc(&self, stream: RawStream, bytes: usize) -> DriverResult<DevicePtr> {
        if bytes == 0 {
            return Err(CudaCode::INVALID_VALUE);
        }
        // SAFETY: the preconditions of this method are those of `alloc`.
        unsafe { early::alloc(self, stream, bytes) }
    }

    unsafe fn device_free(&self, stream: RawStream, ptr: DevicePtr) -> DriverResult<()> {
        // SAFETY: the preconditions of this method are those of `free`.
        unsafe { early::free(self, stream, ptr) }
    }

    unsafe fn copy_h2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: *const u8,
        bytes: usize,
    ) -> DriverResult<()> {
        // SAFETY: the preconditions of this method are those of `up`.
        unsafe { single::up(stream, Address::device(dst), Address::host(src), bytes) }
    }

    unsafe fn copy_d2h(
        &self,
        stream: RawStream,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        // SAFETY: the preconditions of this method are those of `down`.
        unsafe { single::down(stream, Address::host(dst), Address::device(src), bytes) }
    }

    fn supports_batches(&self, _device: Ordinal) -> DriverResult<bool> {
        batch::exist()
    }

    unsafe fn copy_batch(
        &self,
        stream: RawStream,
        _kind: CopyKind,
        copies: &[Item],
    ) -> DriverResult<()> {
        // CUDA finds the kinds of memory from the addresses. SAFETY: live stream, ranges valid
        // until retired, no destination overlapping another range: promised by the caller.
        unsafe { batch::copy(stream, copies) }
    }

    unsafe fn copy_strided(
        &self,
        stream: RawStream,
        kind: CopyKind,
        copy: &StridedCopy,
    ) -> DriverResult<()> {
        // SAFETY: the preconditions of this method are those of `copy`.
        unsafe { strided::copy(stream, kind, *copy) }
    }

    unsafe fn copy_d2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        let kind = sys::cudaMemcpyKind::cudaMemcpyDeviceToDevice;
        // SAFETY: live stream, valid ranges of that kind: promised by the caller.
        unsafe {
            single::by_runtime(stream, Address::device(dst), Address::device(src), bytes, kind)
        }
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
        let (dst, src) = (Address::device(dst), Address::device(src));
        call_on(stream, move || {
            // SAFETY: live stream, ranges valid until retired, each on its device: promised by the
            // caller.
            unsafe {
                sys::cudaMemcpyPeerAsync(
                    dst.get(),
                    dst_device,
                    src.get(),
                    src_device,
                    bytes,
                    stream_of(stream),
                )
            }
        })
    }

    unsafe fn copy_strided_peer(
        &self,
        stream: RawStream,
        copy: &StridedCopy,
        dst_device: Ordinal,
        src_device: Ordinal,
    ) -> DriverResult<()> {
        // SAFETY: the preconditions of this method are those of `copy_peer`.
        unsafe { strided::copy_peer(stream, *copy, dst_device, src_device) }
    }

    fn stream_create(&self, device: Ordinal, flags: StreamFlags) -> DriverResult<RawStream> {
        let bits = if flags.blocking { sys::cudaStreamDefault } else { sys::cudaStreamNonBlocking };
        let mut handle = 0;
        call_on_device(device, || {
            let mut stream = null_mut();
            // SAFETY: `stream` is a live handle for the call to write.
            let code =
                unsafe { sys::cudaStreamCreateWithPriority(&mut stream, bits, flags.priority) };
            handle = stream.expose_provenance();
            code
        })?;
        Ok(RawStream { device, handle })
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> DriverResult<()> {
        // SAFETY: created by stream_create and not used afterwards: promised by the caller.
        call(move || relaxed(|| unsafe { sys::cudaStreamDestroy(stream_of(stream)) }))
    }

    unsafe fn stream_query(&self, stream: RawStream) -> DriverResult<Poll> {
        poll(call_on(stream, move || {
            // SAFETY: live stream: promised by the caller.
            relaxed(|| unsafe { sys::cudaStreamQuery(stream_of(stream)) })
        }))
    }

    unsafe fn stream_synchronize(&self, stream: RawStream) -> DriverResult<()> {
        call_on(stream, move || {
            // SAFETY: live stream: promised by the caller.
            relaxed(|| unsafe { sys::cudaStreamSynchronize(stream_of(stream)) })
        })
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        call_on(stream, move || {
            // SAFETY: live stream and event: promised by the caller.
            unsafe {
                sys::cudaStreamWaitEvent(
                    stream_of(stream),
                    event_of(event),
                    sys::cudaEventWaitDefault,
                )
            }
        })
    }

    unsafe fn stream_capture(&self, stream: RawStream) -> DriverResult<Capture> {
        use sys::cudaStreamCaptureStatus as Status;
        let mut status = Status::cudaStreamCaptureStatusNone;
        // SAFETY: live stream: promised by the caller; `status` is live for the call to write.
        call_on(stream, || unsafe { sys::cudaStreamIsCapturing(stream_of(stream), &mut status) })?;
        match status {
            Status::cudaStreamCaptureStatusNone => Ok(Capture::None),
            Status::cudaStreamCaptureStatusActive => Ok(Capture::Active),
            Status::cudaStreamCaptureStatusInvalidated => Ok(Capture::Invalidated),
            _ => Err(CudaCode::UNKNOWN),
        }
    }

    fn event_create(&self, device: Ordinal, timing: bool) -> DriverResult<RawEvent> {
        let bits = if timing { sys::cudaEventDefault } else { sys::cudaEventDisableTiming };
        let mut handle = 0;
        call_on_device(device, || {
            let mut event = null_mut();
            // SAFETY: `event` is a live handle for the call to write.
            let code = unsafe { sys::cudaEventCreateWithFlags(&mut event, bits) };
            handle = event.expose_provenance();
            code
        })?;
        Ok(RawEvent { device, handle })
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: created by event_create and not used afterwards: promised by the caller.
        call(move || relaxed(|| unsafe { sys::cudaEventDestroy(event_of(event)) }))
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        // SAFETY: live stream and event of the same device: promised by the caller.
        call_on(stream, move || unsafe { sys::cudaEventRecord(event_of(event), stream_of(stream)) })
    }

    unsafe fn event_query(&self, event: RawEvent) -> DriverResult<Poll> {
        // SAFETY: live event: promised by the caller.
        poll(call(move || relaxed(|| unsafe { sys::cudaEventQuery(event_of(event)) })))
    }

    unsafe fn event_synchronize(&self, event: RawEvent) -> DriverResult<()> {
        // SAFETY: live event: promised by the caller.
        call(move || relaxed(|| unsafe { sys::cudaEventSynchronize(event_of(event)) }))
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> DriverResult<f32> {
        let mut milliseconds = 0.0;
        call(|| {
            relaxed(|| {
                // SAFETY: live events of one device: promised by the caller; the number is live for
                // the call to write.
                unsafe {
                    sys::cudaEventElapsedTime(&mut milliseconds, event_of(start), event_of(end))
                }
            })
        })?;
        Ok(milliseconds)
    }

    unsafe fn launch_host(
        &self,
        stream: RawStream,
        function: HostFunction,
        data: *mut c_void,
    ) -> DriverResult<()> {
        let data = Address::host(data.cast());
        call_on(stream, move || {
            // SAFETY: live stream, a function that may be called with that data on any thread:
            // promised by the caller.
            unsafe { sys::cudaLaunchHostFunc(stream_of(stream), Some(function), data.get()) }
        })
    }

    fn can_access_peer(&self, device: Ordinal, peer: Ordinal) -> DriverResult<bool> {
        let mut can = 0;
        // SAFETY: `can` is a live `int` for the call to write.
        call(|| unsafe { sys::cudaDeviceCanAccessPeer(&mut can, device, peer) })?;
        Ok(can != 0)
    }

    fn enable_peer_access(&self, device: Ordinal, peer: Ordinal) -> DriverResult<()> {
        // SAFETY: takes numbers and checks them; the flags must be 0.
        match call_on_device(device, || unsafe { sys::cudaDeviceEnablePeerAccess(peer, 0) }) {
            Err(CudaCode::PEER_ACCESS_ALREADY_ENABLED) => Ok(()),
            answer => answer,
        }
    }

    fn pool_access(&self, owner: Ordinal, peer: Ordinal) -> DriverResult<()> {
        // Memory that is of no pool needs no more than the access of its device.
        if early::can_pool(self, owner)? { pool::allow(owner, peer) } else { Ok(()) }
    }
}
