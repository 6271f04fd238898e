//! Functions of the caller that run in the order of a stream.

use std::ffi::c_void;

use super::request::User;
use super::{Out, Wanted, pinlane_status, pinlane_stream, pinlane_ticket, pointer};
use crate::sync::sanitizer::theirs;

/// A function that a stream calls, with `user` as it was given. It must not unwind (by a C++
/// exception or otherwise).
pub type pinlane_host_function = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Calls `function` with `user` on a thread of the CUDA runtime, once all earlier work of the
/// stream is complete. Later work of the stream waits for it. Does not block. `ticket` may be NULL.
///
/// If this call succeeds, the function is called once; after an error of the device, perhaps never.
/// If this call fails, it is not called.
///
/// The function must not wait for device work. CUDA calls are forbidden in it, and pinlane's get
/// `UNSUPPORTED`. It may free handles, but not buffers of the caller's own memory. Buffers that it
/// accesses must not be in use elsewhere; the stream's order protects nothing that the host does.
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
        let function = function.ok_or_else(|| pointer::null("function", Wanted::Function))?;
        let user = User(user);
        // SAFETY: the caller's precondition on `function`; `launch_host` calls this once at most.
        stream.launch_host(move || theirs(|| unsafe { function(user.get()) }))
    })
}
