//! Tickets, which show when an operation is complete.

use std::ffi::c_void;
use std::time::Duration;

use super::request::User;
use super::{
    Out, boundary, freeing, handle, handle_type, pinlane_request, pinlane_status, pointer,
};
use crate::sync::sanitizer::theirs;
use crate::ticket::Ticket;

/// Shows when one asynchronous operation is complete. Any thread may use it. Freeing it does not
/// change the operation.
pub enum pinlane_ticket {}

handle_type!(pinlane_ticket: Ticket, "ticket", table 2, shared: false);

/// Blocks until the operation is complete. Its effects are then visible to the calling thread.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, or the error of the operation or the device.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_ticket_wait(ticket: *const pinlane_ticket) -> pinlane_status {
    boundary("pinlane_ticket_wait", || handle::get(ticket)?.wait())
}

/// As `pinlane_ticket_wait`, but blocks for at most `microseconds`. Status `TIMED_OUT` if the
/// operation is still pending then.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_ticket_wait_timeout(
    ticket: *const pinlane_ticket,
    microseconds: u64,
) -> pinlane_status {
    boundary("pinlane_ticket_wait_timeout", || {
        handle::get(ticket)?.wait_timeout(Duration::from_micros(microseconds))
    })
}

/// Writes 1 to `done` if the operation is complete, 0 if it is pending. Does not block.
///
/// Statuses: as for `pinlane_ticket_wait`; `INVALID_VALUE` if `done` is NULL.
///
/// # Safety
///
/// - `done` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_ticket_is_done(
    ticket: *const pinlane_ticket,
    done: *mut i32,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `done`.
    unsafe { Out::new("done", done) }
        .give("pinlane_ticket_is_done", || Ok(handle::get(ticket)?.is_done()?.into()))
}

/// Called when an operation is complete, with `user`. `status` is `OK`, `CANCELLED`, or the error
/// of the operation or the device, whose message `pinlane_last_error()` returns.
///
/// It runs on a thread of pinlane. It may call pinlane, and may block: other callbacks run on other
/// threads. It must not unwind (by a C++ exception or otherwise).
pub type pinlane_completed =
    Option<unsafe extern "C" fn(user: *mut c_void, status: pinlane_status)>;

/// Calls `completed` with `user` when the operation of `ticket` is complete, or has failed. Does
/// not block. The ticket may be freed before. `request`, which can withdraw the call, may be NULL.
///
/// If this call succeeds, `completed` is called exactly once, perhaps before this call returns. If
/// it fails, `completed` is never called.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `completed` is NULL;
/// `UNSUPPORTED` inside a host function, or if no thread can be started.
///
/// # Safety
///
/// - `completed` may be called with `user`, on any thread, and does not unwind.
/// - `request` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_ticket_on_complete(
    ticket: *const pinlane_ticket,
    completed: pinlane_completed,
    user: *mut c_void,
    request: *mut *mut pinlane_request,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `request`.
    unsafe { Out::new("request", request) }.start("pinlane_ticket_on_complete", || {
        let ticket = Ticket::clone(&*handle::get(ticket)?);
        let completed = pointer::function("completed", completed)?;
        let user = User(user);
        let call = move |status, _| {
            // SAFETY: the caller's precondition on `completed`.
            theirs(|| unsafe { completed(user.get(), status) });
        };
        Ok((ticket, call))
    })
}

/// Frees the handle; NULL is a no-op. The operation continues.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a ticket.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_ticket_free(ticket: *mut pinlane_ticket) -> pinlane_status {
    freeing("pinlane_ticket_free", || handle::free(ticket))
}
