//! Streams: own ones, the caller's, and the default ones by name.

use std::ffi::c_void;
use std::time::Duration;

use super::device::{check_flags, pinlane_device, sized_input};
use super::handle::{self, Handle};
use super::pointer::Out;
use super::status::{boundary, pinlane_status};
use super::table::Table;
use super::ticket::{TicketOut, pinlane_ticket};
use crate::stream::{Stream, StreamOptions};

/// A queue of device work, executed in order. Any thread may use it.
pub struct pinlane_stream {
    _opaque: [u8; 0],
}

impl Handle for pinlane_stream {
    type Object = Stream;
    const NAME: &'static str = "stream";
    fn table() -> &'static Table<Stream> {
        static TABLE: Table<Stream> = Table::new(3, true);
        &TABLE
    }
}

/// The stream waits for the legacy default stream, and that stream for it.
pub const PINLANE_STREAM_BLOCKING: u32 = 1;

/// Options of a stream. Initialise with `PINLANE_STREAM_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_stream_options {
    /// `sizeof(pinlane_stream_options)`.
    pub size: usize,
    /// Lower numbers run first; 0 is the default. Clamped to the device's range.
    pub priority: i32,
    /// 0 or `PINLANE_STREAM_BLOCKING`.
    pub flags: u32,
}

const _: () = {
    assert!(size_of::<pinlane_stream_options>() == 16);
    assert!(std::mem::offset_of!(pinlane_stream_options, size) == 0);
    assert!(std::mem::offset_of!(pinlane_stream_options, flags) == 12);
};

/// Creates a stream on `device` and writes it to `stream`, which the caller frees with
/// `pinlane_stream_free`. `options` may be NULL: non-blocking, of default priority.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_stream_create";
        let device = handle::get(OPERATION, device)?;
        // SAFETY: the caller's precondition on `stream`.
        let out = unsafe { Out::new(OPERATION, "stream", stream) }?;
        let mut chosen = StreamOptions::default();
        if !options.is_null() {
            // SAFETY: the caller's precondition on `options`.
            let given = unsafe { sized_input(OPERATION, options) }?;
            check_flags(OPERATION, given.flags, PINLANE_STREAM_BLOCKING)?;
            chosen.priority = given.priority;
            chosen.blocking = given.flags & PINLANE_STREAM_BLOCKING != 0;
        }
        out.set(handle::create(device.stream_with(chosen)?));
        Ok(())
    })
}

/// Borrows a `cudaStream_t` of the caller, of `device`, and writes it to `stream`, which the caller
/// frees with `pinlane_stream_free`; that does not destroy the CUDA stream. The values 0 and 1 are
/// the legacy default stream, 2 is the per-thread default stream of the calling thread, which no
/// other thread may then use (`WRONG_THREAD`).
///
/// The CUDA stream must outlive the handle and the work enqueued through it.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `stream` is NULL.
///
/// # Safety
///
/// - `cuda_stream` is a stream of this device and of the CUDA runtime that pinlane is linked with.
/// - `stream` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_stream_borrow(
    device: *const pinlane_device,
    cuda_stream: *mut c_void,
    stream: *mut *mut pinlane_stream,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_stream_borrow";
        let device = handle::get(OPERATION, device)?;
        // SAFETY: the caller's precondition on `stream`.
        let out = unsafe { Out::new(OPERATION, "stream", stream) }?;
        // SAFETY: the caller's precondition on `cuda_stream`, and the rule that it outlives the
        // handle.
        out.set(handle::create(unsafe { device.borrow_stream(cuda_stream) }));
        Ok(())
    })
}

/// Writes the `cudaStream_t` to `cuda_stream`. It is valid until the handle is freed.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_stream_native";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `cuda_stream`.
        unsafe { Out::new(OPERATION, "cuda_stream", cuda_stream) }?.set(stream.as_raw());
        Ok(())
    })
}

/// Blocks until everything enqueued on the stream before the call is complete.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `WRONG_THREAD`, or the error of the work or the
/// device.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_stream_synchronize(stream: *const pinlane_stream) -> pinlane_status {
    boundary(|| handle::get("pinlane_stream_synchronize", stream)?.synchronize())
}

/// Writes a ticket for everything enqueued on the stream so far to `ticket`, which the caller frees
/// with `pinlane_ticket_free`. Does not block.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_stream_record";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        out.set(stream.record()?);
        Ok(())
    })
}

/// Makes later work of `stream` wait, on the device, for the operation of `ticket`. Does not block.
/// Buffers need no such call: their uses are ordered without it.
///
/// Statuses: `INVALID_HANDLE`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_stream_wait(
    stream: *const pinlane_stream,
    ticket: *const pinlane_ticket,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_stream_wait";
        let stream = handle::get(OPERATION, stream)?;
        stream.wait_for(&*handle::get(OPERATION, ticket)?)
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
    boundary(|| {
        const OPERATION: &str = "pinlane_stream_busy";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        out.set(stream.busy(Duration::from_nanos(nanoseconds))?);
        Ok(())
    })
}

/// Frees the handle; NULL is a no-op. Returns at once: work already enqueued is executed, and
/// buffers that it uses stay safe.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a stream.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_stream_free(stream: *mut pinlane_stream) -> pinlane_status {
    boundary(|| handle::free("pinlane_stream_free", stream))
}
