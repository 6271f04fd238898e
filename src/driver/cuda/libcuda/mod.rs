//! The way by the driver's library alone: each method of [`Driver`] is one call of the driver API.
//!
//! Nothing of CUDA is needed to build it. At run time it needs NVIDIA's driver, of 12.0 or newer,
//! and no runtime: what the runtime would do is here.
//!
//! * Each call has the primary context of its device current, which is the runtime's context too:
//!   streams, events and memory of the two are the same.
//! * Every method leaves the thread's current context and capture mode as they were ([`context`]).
//! * Calls that CUDA lists as potentially unsafe during a capture run in relaxed capture mode.
//! * Output parameters are read only after success.

mod context;
pub(super) mod graphs;
pub(super) mod kernels;
mod library;
pub(super) mod memory;
mod strided;
mod table;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use self::context::relaxed;
use self::library::{Library, MINIMUM, driver_version};
use self::strided::between_devices;
use self::table::result;
use super::batch::Batch;
use super::driver_api::*;
use super::early;
use super::instance::CudaDriver;
use super::words::{
    PAGE, alloc_flags, attribute_of, event_of, poll, register_flags, stream_of, whole_pages,
};
use crate::error::CudaCode;
use pinlane_driver::{
    Attribute, Capture, CopyKind, DevicePtr, Driver, DriverResult, HostFlags, HostFunction, Item,
    Ordinal, Poll, RawEvent, RawStream, StreamFlags, StridedCopy,
};

// SAFETY: each method makes the CUDA call that does what the trait names for it, on ranges that its
// arguments name, and returns success only if CUDA does; "done" only if the query or
// synchronization succeeded. `host_alloc` checks its alignment, and the operating system
// initialises what CUDA maps. The module's invariants are kept as its documentation says.
unsafe impl Driver for CudaDriver {
    fn device_count(&self) -> DriverResult<i32> {
        Ok(Library::get()?.devices().len() as i32)
    }

    fn device_name(&self, device: Ordinal) -> DriverResult<String> {
        const LENGTH: usize = 256;
        let library = Library::get()?;
        let mut name = [0 as c_char; LENGTH];
        let handle = library.device(device)?.handle;
        // SAFETY: a live place of that length for the call to write.
        result(unsafe {
            (library.functions.device_name)(name.as_mut_ptr(), LENGTH as c_int, handle)
        })?;
        let name = name.map(|c| c as u8);
        let name = CStr::from_bytes_until_nul(&name).map_err(|_| CudaCode::UNKNOWN)?;
        Ok(name.to_string_lossy().into_owned())
    }

    fn attribute(&self, device: Ordinal, attribute: Attribute) -> DriverResult<i32> {
        let library = Library::get()?;
        let handle = library.device(device)?.handle;
        let mut value = 0;
        // SAFETY: `value` is a live `int` for the call to write.
        result(unsafe {
            (library.functions.device_attribute)(&mut value, attribute_of(attribute), handle)
        })?;
        Ok(value)
    }

    fn memory_info(&self, device: Ordinal) -> DriverResult<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        Library::get()?.on(device, |functions| {
            // SAFETY: both are live numbers for the call to write.
            relaxed(functions, || unsafe { (functions.memory_info)(&mut free, &mut total) })
        })?;
        Ok((free, total))
    }

    fn versions(&self) -> DriverResult<(i32, i32)> {
        Ok((driver_version(), MINIMUM))
    }

    fn host_alloc(
        &self,
        device: Ordinal,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<NonNull<u8>> {
        let bytes = whole_pages(bytes)?;
        let flags = alloc_flags(flags)?;
        let mut block = null_mut();
        let library = Library::get()?;
        library.on(device, |functions| {
            // SAFETY: `block` is a live pointer for the call to write.
            relaxed(functions, || unsafe { (functions.host_alloc)(&mut block, bytes, flags) })
        })?;
        let block = NonNull::new(block.cast::<u8>()).ok_or(CudaCode::MEMORY_ALLOCATION)?;
        if !block.addr().get().is_multiple_of(PAGE) {
            // SAFETY: just allocated, and not used anywhere else.
            let _ = unsafe { self.host_free(block) };
            return Err(CudaCode::NOT_SUPPORTED);
        }
        Ok(block)
    }

    unsafe fn host_free(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        Library::get()?.anywhere(|functions| {
            // SAFETY: allocated by host_alloc, not freed before, not in use: promised by the
            // caller.
            relaxed(functions, || unsafe { (functions.host_free)(ptr.as_ptr().cast()) })
        })
    }

    unsafe fn host_register(
        &self,
        device: Ordinal,
        ptr: NonNull<u8>,
        bytes: usize,
        flags: HostFlags,
    ) -> DriverResult<()> {
        let flags = register_flags(flags)?;
        Library::get()?.on(device, |functions| {
            relaxed(functions, || {
                // SAFETY: the range is mapped and stays so until unregistered: promised by the
                // caller.
                unsafe { (functions.host_register)(ptr.as_ptr().cast(), bytes, flags) }
            })
        })
    }

    unsafe fn host_unregister(&self, ptr: NonNull<u8>) -> DriverResult<()> {
        Library::get()?.anywhere(|functions| {
            // SAFETY: no operation that names the range is pending: promised by the caller.
            relaxed(functions, || unsafe { (functions.host_unregister)(ptr.as_ptr().cast()) })
        })
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
        Library::get()?.on(stream.device, |functions| {
            // SAFETY: live stream, valid ranges: promised by the caller.
            unsafe { (functions.copy_up)(dst, src.cast(), bytes, stream_of(stream)) }
        })
    }

    unsafe fn copy_d2h(
        &self,
        stream: RawStream,
        dst: *mut u8,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        Library::get()?.on(stream.device, |functions| {
            // SAFETY: live stream, valid ranges: promised by the caller.
            unsafe { (functions.copy_down)(dst.cast(), src, bytes, stream_of(stream)) }
        })
    }

    fn supports_batches(&self, _device: Ordinal) -> DriverResult<bool> {
        Ok(Library::get()?.copy_batch.is_some())
    }

    unsafe fn copy_batch(
        &self,
        stream: RawStream,
        _kind: CopyKind,
        copies: &[Item],
    ) -> DriverResult<()> {
        let Some(mut batch) = Batch::of(copies) else { return Ok(()) };
        let library = Library::get()?;
        let function = library.copy_batch.ok_or(CudaCode::NOT_SUPPORTED)?;
        // CUDA finds the kinds of memory from the addresses. SAFETY: live stream, ranges valid
        // until retired, no destination overlapping another range: promised by the caller.
        library.on(stream.device, |_| unsafe { batch.enqueue(function, stream) })
    }

    unsafe fn copy_strided(
        &self,
        stream: RawStream,
        kind: CopyKind,
        copy: &StridedCopy,
    ) -> DriverResult<()> {
        let library = Library::get()?;
        // SAFETY: live stream, valid rows: promised by the caller; the device's context is current.
        library.on(stream.device, |_| unsafe { library.strided.enqueue(stream, kind, copy) })
    }

    unsafe fn copy_d2d(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    ) -> DriverResult<()> {
        Library::get()?.on(stream.device, |functions| {
            // SAFETY: live stream, valid ranges: promised by the caller.
            unsafe { (functions.copy_within)(dst, src, bytes, stream_of(stream)) }
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
        let library = Library::get()?;
        let context = |device| library.device(device)?.context(&library.functions);
        let (there, here) = (context(dst_device)?, context(src_device)?);
        library.on(stream.device, |functions| {
            // SAFETY: live stream and contexts, ranges valid until retired, each on its device:
            // promised by the caller.
            unsafe {
                (functions.copy_peer)(dst, there.get(), src, here.get(), bytes, stream_of(stream))
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
        let library = Library::get()?;
        let context = |device| library.device(device)?.context(&library.functions);
        let (there, here) = (context(dst_device)?, context(src_device)?);
        library.on(stream.device, |functions| {
            let copy = between_devices(copy, there.get(), here.get());
            // SAFETY: live stream and contexts, valid rows, each side on its device: promised by
            // the caller.
            unsafe { (functions.copy_volume_peer)(&copy, stream_of(stream)) }
        })
    }

    fn stream_create(&self, device: Ordinal, flags: StreamFlags) -> DriverResult<RawStream> {
        let bits = if flags.blocking { STREAM_DEFAULT } else { STREAM_NON_BLOCKING };
        let mut stream = null_mut();
        Library::get()?.on(device, |functions| {
            relaxed(functions, || {
                // SAFETY: `stream` is a live handle for the call to write.
                unsafe { (functions.stream_create)(&mut stream, bits, flags.priority) }
            })
        })?;
        Ok(RawStream { device, handle: stream.expose_provenance() })
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> DriverResult<()> {
        Library::get()?.on(stream.device, |functions| {
            // SAFETY: created by stream_create and not used afterwards: promised by the caller.
            relaxed(functions, || unsafe { (functions.stream_destroy)(stream_of(stream)) })
        })
    }

    unsafe fn stream_query(&self, stream: RawStream) -> DriverResult<Poll> {
        poll(Library::get()?.on(stream.device, |functions| {
            // SAFETY: live stream: promised by the caller.
            relaxed(functions, || unsafe { (functions.stream_query)(stream_of(stream)) })
        }))
    }

    unsafe fn stream_synchronize(&self, stream: RawStream) -> DriverResult<()> {
        Library::get()?.on(stream.device, |functions| {
            // SAFETY: live stream: promised by the caller.
            relaxed(functions, || unsafe { (functions.stream_synchronize)(stream_of(stream)) })
        })
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        Library::get()?.on(stream.device, |functions| {
            let (stream, event) = (stream_of(stream), event_of(event));
            // SAFETY: live stream and event: promised by the caller.
            unsafe { (functions.stream_wait)(stream, event, EVENT_WAIT_DEFAULT) }
        })
    }

    unsafe fn stream_capture(&self, stream: RawStream) -> DriverResult<Capture> {
        let mut status = CAPTURE_NONE;
        Library::get()?.on(stream.device, |functions| {
            // SAFETY: live stream: promised by the caller; `status` is live for the call to write.
            unsafe { (functions.stream_capture)(stream_of(stream), &mut status) }
        })?;
        match status {
            CAPTURE_NONE => Ok(Capture::None),
            CAPTURE_ACTIVE => Ok(Capture::Active),
            CAPTURE_INVALIDATED => Ok(Capture::Invalidated),
            _ => Err(CudaCode::UNKNOWN),
        }
    }

    fn event_create(&self, device: Ordinal, timing: bool) -> DriverResult<RawEvent> {
        let bits = if timing { EVENT_DEFAULT } else { EVENT_DISABLE_TIMING };
        let mut event = null_mut();
        Library::get()?.on(device, |functions| {
            // SAFETY: `event` is a live handle for the call to write.
            relaxed(functions, || unsafe { (functions.event_create)(&mut event, bits) })
        })?;
        Ok(RawEvent { device, handle: event.expose_provenance() })
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> DriverResult<()> {
        Library::get()?.on(event.device, |functions| {
            // SAFETY: created by event_create and not used afterwards: promised by the caller.
            relaxed(functions, || unsafe { (functions.event_destroy)(event_of(event)) })
        })
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        Library::get()?.on(stream.device, |functions| {
            // SAFETY: live stream and event of the same device: promised by the caller.
            unsafe { (functions.event_record)(event_of(event), stream_of(stream)) }
        })
    }

    unsafe fn event_query(&self, event: RawEvent) -> DriverResult<Poll> {
        poll(Library::get()?.on(event.device, |functions| {
            // SAFETY: live event: promised by the caller.
            relaxed(functions, || unsafe { (functions.event_query)(event_of(event)) })
        }))
    }

    unsafe fn event_synchronize(&self, event: RawEvent) -> DriverResult<()> {
        Library::get()?.on(event.device, |functions| {
            // SAFETY: live event: promised by the caller.
            relaxed(functions, || unsafe { (functions.event_synchronize)(event_of(event)) })
        })
    }

    unsafe fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> DriverResult<f32> {
        let mut milliseconds = 0.0;
        Library::get()?.on(start.device, |functions| {
            relaxed(functions, || {
                let (start, end) = (event_of(start), event_of(end));
                // SAFETY: live events of one device: promised by the caller; the number is live for
                // the call to write.
                unsafe { (functions.event_elapsed)(&mut milliseconds, start, end) }
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
        Library::get()?.on(stream.device, |functions| {
            // SAFETY: live stream, a function that may be called with that data on any thread:
            // promised by the caller.
            unsafe { (functions.launch_host)(stream_of(stream), Some(function), data) }
        })
    }

    fn can_access_peer(&self, device: Ordinal, peer: Ordinal) -> DriverResult<bool> {
        let library = Library::get()?;
        let (device, peer) = (library.device(device)?.handle, library.device(peer)?.handle);
        let mut can = 0;
        // SAFETY: `can` is a live `int` for the call to write.
        result(unsafe { (library.functions.can_access_peer)(&mut can, device, peer) })?;
        Ok(can != 0)
    }

    fn enable_peer_access(&self, device: Ordinal, peer: Ordinal) -> DriverResult<()> {
        let library = Library::get()?;
        let theirs = library.device(peer)?.context(&library.functions)?;
        // SAFETY: a live context; the flags must be 0.
        match library.on(device, |functions| unsafe { (functions.enable_peer)(theirs.get(), 0) }) {
            Err(CudaCode::PEER_ACCESS_ALREADY_ENABLED) => Ok(()),
            answer => answer,
        }
    }

    fn pool_access(&self, owner: Ordinal, peer: Ordinal) -> DriverResult<()> {
        // Memory that is of no pool needs no more than the access of its device.
        if !early::can_pool(self, owner)? {
            return Ok(());
        }
        let library = Library::get()?;
        let functions = &library.functions;
        let (owner, id) = (library.device(owner)?.handle, library.device(peer)?.handle);
        let mut pool = null_mut();
        // SAFETY: `pool` is a live handle for the call to write.
        result(unsafe { (functions.memory_pool)(&mut pool, owner) })?;
        let location = CUmemLocation { type_: LOCATION_DEVICE, id };
        let access = CUmemAccessDesc_v1 { location, flags: ACCESS_READ_WRITE };
        // SAFETY: a live pool, and one live descriptor.
        result(unsafe { (functions.pool_access)(pool, &access, 1) })
    }
}
