//! Page-locked memory that comes when there is room, without a thread that waits.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use super::buffer::HostBuffer;
use super::request::User;
use super::status::told;
use super::{
    Out, Wanted, handle, pinlane_buffer, pinlane_pool, pinlane_request, pinlane_status, pointer,
};
use crate::sync::sanitizer::theirs;

/// Gets the buffer of `pinlane_buffer_alloc_async`, with `user` as it was given. The buffer is the
/// function's, which frees it with `pinlane_buffer_free`. If `status` is not `OK` the buffer is
/// NULL, and `pinlane_last_error()` gives the message.
///
/// It runs on a thread of pinlane. It may call pinlane, and may block: others are called meanwhile.
/// It must not unwind (by a C++ exception or otherwise).
pub type pinlane_allocated = Option<
    unsafe extern "C" fn(user: *mut c_void, status: pinlane_status, buffer: *mut pinlane_buffer),
>;

/// Allocates as `pinlane_buffer_alloc_timeout` without a limit, and gives the buffer to
/// `allocated`, with `user`. Does not block. Requests are served in the order of the calls.
/// `request`, with which the call can be withdrawn, may be NULL.
///
/// If this call succeeds, `allocated` is called exactly once, perhaps before this call returns. If
/// it fails, `allocated` is never called.
///
/// Statuses that `allocated` gets: `BUDGET_EXHAUSTED` if the request is larger than the budget, or
/// than what is left of it beside quarantined memory, `OUT_OF_HOST_MEMORY`, `CANCELLED`,
/// `INVALID_VALUE` if the size overflows.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `allocated` is NULL;
/// `UNSUPPORTED` if the request has to wait and this is a host function, or no thread can be
/// started.
///
/// # Safety
///
/// - `allocated` may be called with `user`, on any thread, and does not unwind.
/// - `request` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_alloc_async(
    pool: *const pinlane_pool,
    bytes: usize,
    allocated: pinlane_allocated,
    user: *mut c_void,
    request: *mut *mut pinlane_request,
) -> pinlane_status {
    const FUNCTION: &str = "pinlane_buffer_alloc_async";
    // SAFETY: the caller's precondition on `request`.
    unsafe { Out::new("request", request) }.start(FUNCTION, || {
        let future = handle::get(pool)?.alloc_async::<u8>(bytes);
        let allocated = allocated.ok_or_else(|| pointer::null("allocated", Wanted::Function))?;
        let user = User(user);
        let tell = move |outcome| {
            let (status, buffer) = told(FUNCTION, outcome);
            let buffer = buffer.map_or(std::ptr::null_mut(), |buffer| {
                HostBuffer::into_handle(ManuallyDrop::new(buffer), None)
            });
            // SAFETY: the caller's precondition on `allocated`.
            theirs(|| unsafe { allocated(user.get(), status, buffer) });
        };
        Ok((future, Box::new(tell) as _))
    })
}
