//! Tickets: claims to know when one operation is complete.

use super::handle::{self, Handle};
use super::pointer::Out;
use super::status::{boundary, pinlane_status};
use super::table::Table;
use crate::error::Result;
use crate::ticket::Ticket;

/// Knows when one asynchronous operation is complete. Any thread may use it; freeing it changes
/// nothing about the operation.
pub struct pinlane_ticket {
    _opaque: [u8; 0],
}

impl Handle for pinlane_ticket {
    type Object = Ticket;
    const NAME: &'static str = "ticket";
    fn table() -> &'static Table<Ticket> {
        static TABLE: Table<Ticket> = Table::new(2, false);
        &TABLE
    }
}

/// Where a function writes its ticket; NULL if the caller wants none.
pub(super) struct TicketOut(Option<Out<*mut pinlane_ticket>>);

impl TicketOut {
    /// # Safety
    ///
    /// * `ticket` is NULL, misaligned (an error), or valid for writing until the call returns.
    pub(super) unsafe fn new(
        operation: &'static str,
        ticket: *mut *mut pinlane_ticket,
    ) -> Result<Self> {
        // SAFETY: the same precondition.
        Ok(TicketOut(unsafe { Out::optional(operation, "ticket", ticket) }?))
    }

    pub(super) fn set(self, ticket: Ticket) {
        if let Some(out) = self.0 {
            out.set(handle::create(ticket));
        }
    }
}

/// Blocks until the operation is complete; its effects are then visible to the calling thread.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, or the error of the operation or the device.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_ticket_wait(ticket: *const pinlane_ticket) -> pinlane_status {
    boundary(|| handle::get("pinlane_ticket_wait", ticket)?.wait())
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
    boundary(|| {
        const OPERATION: &str = "pinlane_ticket_is_done";
        let ticket = handle::get(OPERATION, ticket)?;
        // SAFETY: the caller's precondition on `done`.
        let out = unsafe { Out::new(OPERATION, "done", done) }?;
        out.set(i32::from(ticket.is_done()?));
        Ok(())
    })
}

/// Frees the handle; NULL is a no-op. The operation goes on.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a ticket.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_ticket_free(ticket: *mut pinlane_ticket) -> pinlane_status {
    boundary(|| handle::free("pinlane_ticket_free", ticket))
}
