//! System calls of the program's own, on page-locked memory that is watched
//! ([`Builder::watch_host`](crate::Builder::watch_host)).

use std::ffi::c_int;
use std::ops::Range;

use crate::emulator::Emulator;
use crate::watch::{exchange, must_be_said, used_by_call, watchpoints_are_lent};

impl Emulator {
    /// Whether a system call that uses the buffer is to be announced by
    /// [`call_begins`](Self::call_begins) and [`call_ends`](Self::call_ends). Takes no lock and
    /// allocates nothing.
    ///
    /// In a child that was forked no call is: pages that were closed are open then. Nor is a call
    /// of the machine's own, which may be locked.
    #[must_use]
    pub fn must_be_said(buffer: &Range<usize>) -> bool {
        must_be_said(buffer)
    }

    /// The program calls `sigaction` for a signal: `new` is to be its action, unless it only asks.
    ///
    /// If the machine handles the signal, its handler stays. The machine notes the action, and
    /// calls it as the system would for signals that are not the machine's. Then this returns the
    /// previous action. Otherwise it returns `None`, and the caller must make the real call.
    ///
    /// # Safety
    ///
    /// * The action is one that the system may take.
    #[must_use]
    pub unsafe fn exchange_action(
        signal: c_int,
        new: Option<&libc::sigaction>,
    ) -> Option<libc::sigaction> {
        exchange(signal, new)
    }

    /// A stand-in for a kernel is about to make a system call that uses the buffer: that is a use
    /// by the kernel, and the pages that the call needs are opened.
    pub fn stand_in_calls(buffer: &Range<usize>, writes: bool) {
        used_by_call(buffer, writes);
    }

    /// Whether the system lends this process watchpoints of the processor. Without them early loads
    /// of pageable memory are not seen.
    #[must_use]
    pub fn watchpoints_are_lent() -> bool {
        watchpoints_are_lent()
    }

    /// A system call is about to use the buffer: its pages are open until the call ends. Nothing
    /// stays locked, so that the call may block.
    pub fn call_begins(&self, buffer: Range<usize>) {
        self.with(|machine| machine.call_begins(buffer));
    }

    /// The system call is over. It has read, or written to, the first `used` bytes of the buffer:
    /// they may race with what uses them.
    pub fn call_ends(&self, buffer: Range<usize>, used: usize, writes: bool) {
        self.with(|machine| machine.call_ends(buffer, used, writes));
    }
}
