//! Events of the caller: how streams of pinlane and other libraries wait for each other.

use std::ffi::c_void;

use super::{Wanted, boundary, handle, null, pinlane_status, pinlane_stream};
use crate::error::Result;

fn check_event(event: *mut c_void) -> Result<()> {
    if event.is_null() { Err(null("cuda_event", Wanted::Object)) } else { Ok(()) }
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
        let stream = handle::get(stream)?;
        check_event(cuda_event)?;
        // SAFETY: the caller's precondition on `cuda_event`, which is not NULL.
        unsafe { stream.wait_event(cuda_event) }
    })
}

/// Captures everything that was enqueued on `stream` so far in `cuda_event`, a `cudaEvent_t` of
/// the caller: who waits for the event waits for that work. Does not block.
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
        let stream = handle::get(stream)?;
        check_event(cuda_event)?;
        // SAFETY: the caller's precondition on `cuda_event`, which is not NULL.
        unsafe { stream.record_event(cuda_event) }
    })
}
