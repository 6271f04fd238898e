//! Streams: created, borrowed and default ones.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use super::request::User;
use super::table::Inside;
use super::{
    Out, Result, boundary, check_flags, freeing, growing, handle, handle_type, layout,
    pinlane_device, pinlane_status, pinlane_ticket, pointer,
};
use crate::stream::{Stream, StreamOptions};
use crate::sync::sanitizer::theirs;
use crate::ticket::Ticket;

/// A queue of device work, which is executed in order. Any thread may use it.
pub enum pinlane_stream {}

handle_type!(pinlane_stream: Stream, "stream", table 3, shared: true);

impl Out<*mut pinlane_ticket> {
    /// # Safety
    ///
    /// * As for [`Out::new`].
    #[inline(always)]
    pub(super) const unsafe fn ticket(pointer: *mut *mut pinlane_ticket) -> Self {
        // SAFETY: the same precondition.
        unsafe { Out::new("ticket", pointer) }
    }

    /// Runs the body of the exported function `function`, which enqueues an operation on `stream`.
    /// Writes its ticket if the caller wants it.
    #[inline(always)]
    pub(super) fn enqueue(
        self,
        function: &'static str,
        stream: *const pinlane_stream,
        body: impl FnOnce(&Stream) -> Result<Ticket>,
    ) -> pinlane_status {
        boundary(function, || {
            let out = self.optional()?;
            let ticket = body(&*handle::get(stream)?)?;
            out.set_with(|| handle::create(ticket));
            Ok(())
        })
    }
}

/// The stream waits for the legacy default stream, and that stream waits for it.
pub const PINLANE_STREAM_BLOCKING: u32 = 1;

/// Options of a stream. Initialise with `PINLANE_STREAM_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_stream_options {
    /// `sizeof(pinlane_stream_options)`.
    pub size: usize,
    /// Of kernels that wait for room on the device, those with lower numbers run first; 0 is the
    /// default. Copies by the copy engine have no priority. Clamped to the device's range.
    pub priority: i32,
    /// 0 or `PINLANE_STREAM_BLOCKING`.
    pub flags: u32,
}

layout!(pinlane_stream_options: 16; size 0, priority 8, flags 12);
growing!(pinlane_stream_options_init: pinlane_stream_options, sizes [16], default {});

/// Creates a stream on `device` and writes it to `stream`. The caller frees it with
/// `pinlane_stream_free`. `options` may be NULL: a non-blocking stream of default priority.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `CUDA`; `INVALID_VALUE` if `stream` is NULL, or
/// for options of an unknown size or flag.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `stream` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_create(
    device: *const pinlane_device,
    options: *const pinlane_stream_options,
    stream: *mut *mut pinlane_stream,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `stream`.
    unsafe { Out::new("stream", stream) }.create("pinlane_stream_create", || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { growing::options(options) }?;
        check_flags(options.flags, PINLANE_STREAM_BLOCKING)?;
        let blocking = options.flags & PINLANE_STREAM_BLOCKING != 0;
        device.stream_with(StreamOptions::new().priority(options.priority).blocking(blocking))
    })
}

/// Borrows a `cudaStream_t` of the caller, of `device`, and writes it to `stream`. The caller frees
/// it with `pinlane_stream_free`, which does not destroy the CUDA stream. The values 0 and 1 are
/// the legacy default stream. 2 is the per-thread default stream of the calling thread; another
/// thread that uses it gets `WRONG_THREAD`.
///
/// The CUDA stream must outlive the handle and the work that is enqueued through it.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `stream` is NULL.
///
/// # Safety
///
/// - `cuda_stream` is a stream of this device and of the CUDA runtime that pinlane is linked with.
/// - No capture of it begins while a call with the handle is enqueuing work.
/// - `stream` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_borrow(
    device: *const pinlane_device,
    cuda_stream: *mut c_void,
    stream: *mut *mut pinlane_stream,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `stream`.
    unsafe { Out::new("stream", stream) }.create("pinlane_stream_borrow", || {
        // SAFETY: the caller's precondition on `cuda_stream`, and the documented rule that it
        // outlives the handle.
        Ok(unsafe { handle::get(device)?.borrow_stream(cuda_stream) })
    })
}

/// Writes the `cudaStream_t` to `cuda_stream`. It is valid until the handle is freed. Begin a
/// capture of it only while no call with the handle is enqueuing work: only a call that begins
/// later can return `STREAM_CAPTURING`.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `cuda_stream` is NULL.
///
/// # Safety
///
/// - `cuda_stream` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_native(
    stream: *const pinlane_stream,
    cuda_stream: *mut *mut c_void,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `cuda_stream`.
    unsafe { Out::new("cuda_stream", cuda_stream) }
        .give("pinlane_stream_native", || Ok(handle::get(stream)?.as_raw()))
}

/// Writes to `ordinal` the number of the device that the stream belongs to.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `ordinal` is NULL.
///
/// # Safety
///
/// - `ordinal` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_device_ordinal(
    stream: *const pinlane_stream,
    ordinal: *mut i32,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ordinal`.
    unsafe { Out::new("ordinal", ordinal) }
        .give("pinlane_stream_device_ordinal", || Ok(handle::get(stream)?.device_ordinal()))
}

/// Writes to `device` the device that the stream belongs to. The caller frees it with
/// `pinlane_device_free`.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `device` is NULL.
///
/// # Safety
///
/// - `device` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_device(
    stream: *const pinlane_stream,
    device: *mut *mut pinlane_device,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `device`.
    unsafe { Out::new("device", device) }
        .create("pinlane_stream_device", || Ok(handle::get(stream)?.device()))
}

/// Blocks until everything that was enqueued on the stream before the call is complete.
///
/// Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, or the error
/// of the work or the device.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_stream_synchronize(stream: *const pinlane_stream) -> pinlane_status {
    boundary("pinlane_stream_synchronize", || handle::get(stream)?.synchronize())
}

/// Writes a ticket for everything enqueued on the stream so far to `ticket`. The caller frees it
/// with `pinlane_ticket_free`. Does not block. If `ticket` is NULL, nothing is written.
///
/// Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, `CUDA`.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_record(
    stream: *const pinlane_stream,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::new("ticket", ticket) }
        .enqueue("pinlane_stream_record", stream, |stream| stream.record())
}

/// Makes later work of `stream` wait, on the device, for the operation of `ticket`. Does not block.
/// Uses of buffers are ordered without it.
///
/// Statuses: `INVALID_HANDLE`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_stream_wait(
    stream: *const pinlane_stream,
    ticket: *const pinlane_ticket,
) -> pinlane_status {
    boundary("pinlane_stream_wait", || {
        let stream = handle::get(stream)?;
        stream.wait_for(&*handle::get(ticket)?)
    })
}

/// Keeps the stream busy for about `nanoseconds` of device time, at most 10 s, for tests and
/// benchmarks of overlap. Does not block. `ticket` may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `INVALID_VALUE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_busy(
    stream: *const pinlane_stream,
    nanoseconds: u64,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_stream_busy", stream, |stream| {
        stream.busy(Duration::from_nanos(nanoseconds))
    })
}

/// A function that a stream calls, with `user`. It must not unwind (by a C++ exception or
/// otherwise).
pub type pinlane_host_function = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Calls `function` with `user` on a thread of the CUDA runtime, after all earlier work of the
/// stream is complete. Later work of the stream waits for it. Does not block. `ticket` may be NULL.
///
/// If this call succeeds, the function is called once, or never after an error of the device. If
/// this call fails, it is not called.
///
/// The function must not wait for device work. CUDA calls are forbidden in it, and pinlane's get
/// `UNSUPPORTED`. It may free handles, but not buffers of the caller's own memory. Buffers that it
/// accesses must not be in use elsewhere, because the stream's order does not protect accesses of
/// the host.
///
/// Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, `CUDA`,
/// `UNSUPPORTED` inside a host function; `INVALID_VALUE` if `function` is NULL.
///
/// # Safety
///
/// - `function` may be called with `user`, on any thread, and does not unwind.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_launch_host(
    stream: *const pinlane_stream,
    function: pinlane_host_function,
    user: *mut c_void,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_stream_launch_host", stream, |stream| {
        let function = pointer::function("function", function)?;
        let user = User(user);
        // SAFETY: the caller's precondition on `function`; `launch_host` calls this at most once.
        stream.launch_host(move || theirs(|| unsafe { function(user.get()) }))
    })
}

/// The stream, for a call with an event of the caller.
fn for_event(stream: *const pinlane_stream, event: *mut c_void) -> Result<Inside<pinlane_stream>> {
    let stream = handle::get(stream)?;
    pointer::object("cuda_event", event, "pass what the other library has made")?;
    Ok(stream)
}

/// Makes later work of `stream` wait, on the device, for the work that `cuda_event`, a
/// `cudaEvent_t` of the caller, captured when it was last recorded. The event may belong to any
/// device, and may be destroyed or recorded again when the call has returned. Does not block.
///
/// Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `FORKED_PROCESS`, `WRONG_THREAD`, `CUDA`;
/// `INVALID_VALUE` if `cuda_event` is NULL.
///
/// # Safety
///
/// - `cuda_event` is NULL or an event of the CUDA driver that pinlane uses, and not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_wait_event(
    stream: *const pinlane_stream,
    cuda_event: *mut c_void,
) -> pinlane_status {
    boundary("pinlane_stream_wait_event", || {
        let stream = for_event(stream, cuda_event)?;
        // SAFETY: the caller's precondition on `cuda_event`, which is not NULL.
        unsafe { stream.wait_event(cuda_event) }
    })
}

/// Captures everything that was enqueued on `stream` so far in `cuda_event`, a `cudaEvent_t` of the
/// caller: a wait for the event waits for that work. Does not block.
///
/// Statuses: as for `pinlane_stream_wait_event`; `CUDA` also for an event of another device.
///
/// # Safety
///
/// - `cuda_event` is NULL or an event of the CUDA driver that pinlane uses, and not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_record_event(
    stream: *const pinlane_stream,
    cuda_event: *mut c_void,
) -> pinlane_status {
    boundary("pinlane_stream_record_event", || {
        let stream = for_event(stream, cuda_event)?;
        // SAFETY: the caller's precondition on `cuda_event`, which is not NULL.
        unsafe { stream.record_event(cuda_event) }
    })
}

/// Frees the handle; NULL is a no-op. Returns at once: enqueued work is still executed, and the
/// buffers that it uses stay alive until then.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a stream.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_stream_free(stream: *mut pinlane_stream) -> pinlane_status {
    freeing("pinlane_stream_free", || {
        let timeline = handle::get(stream).ok().map(|stream| Arc::clone(&stream.timeline));
        handle::free(stream)?;
        if let Some(timeline) = timeline.filter(|timeline| timeline.is_owned())
            && let Some(emulator) = timeline.context().emulator()
        {
            // Without a handle, the test could no longer release it.
            emulator.abandon(timeline.raw());
        }
        Ok(())
    })
}
