//! Tickets: they tell when an operation is complete.

use super::handle::{self, handle_type};
use super::pointer::Out;
use super::status::{boundary, pinlane_status};
use crate::error::Result;
use crate::ticket::Ticket;

/// Tells when one asynchronous operation is complete. Any thread may use it. Freeing it does not
/// change the operation.
pub struct pinlane_ticket {
    _opaque: [u8; 0],
}

handle_type!(pinlane_ticket: Ticket, "ticket", table 2, shared: false);

impl Out<*mut pinlane_ticket> {
    /// Runs the exported function of that name, which enqueues an operation. Its ticket is written
    /// if the caller wants it.
    #[inline(always)]
    pub(super) fn enqueue(
        self,
        function: &'static str,
        body: impl FnOnce() -> Result<Ticket>,
    ) -> pinlane_status {
        boundary(function, || {
            let out = self.optional()?;
            let ticket = body()?;
            if let Some(out) = out {
                out.set(handle::create(ticket));
            }
            Ok(())
        })
    }
}

/// Blocks until the operation is complete. Its effects are then visible to the calling thread.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, or the error of the operation or the device.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_ticket_wait(ticket: *const pinlane_ticket) -> pinlane_status {
    boundary("pinlane_ticket_wait", || handle::get(ticket)?.wait())
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

/// Frees the handle; NULL is a no-op. The operation continues.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a ticket.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_ticket_free(ticket: *mut pinlane_ticket) -> pinlane_status {
    boundary("pinlane_ticket_free", || handle::free(ticket))
}
