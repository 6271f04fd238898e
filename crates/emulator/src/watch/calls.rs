//! System calls of the program's on memory that is watched, and on pending
//! [`destinations`].
//!
//! The kernel raises no signal for a page that is closed: the call fails. So the caller announces
//! the call before and after. The pages of its buffers stay open during the call, even if
//! operations on them are enqueued. No lock is held, because the call may block. Afterwards the
//! race checker learns which bytes the call has really used.

use std::ops::Range;

use super::places::BLOCKS;
use super::points::Hit;
use super::{Watched, destinations, view};
use crate::machine::Machine;
use crate::races::RacingAccess;
use pinlane_driver::Ordinal;

/// Whether a call that uses the buffer must be announced. It takes no lock. Blocks of a parent
/// process need no announcement: their pages are opened here.
pub(crate) fn must_be_said(buffer: &Range<usize>) -> bool {
    let Some(found) = BLOCKS.find(buffer) else { return destinations::is_pending(buffer) };
    if !found.is_own {
        view::open_all(found.range.start, found.range.len());
    }
    found.is_own
}

impl Watched {
    fn call_begins(&mut self, buffer: Range<usize>) {
        self.in_calls.push(buffer.clone());
        if !self.is_open() {
            self.apply(buffer);
        }
    }

    fn call_ends(&mut self, buffer: &Range<usize>) {
        if let Some(at) = self.in_calls.iter().position(|other| other == buffer) {
            self.in_calls.swap_remove(at);
        }
        if !self.is_open() {
            self.apply(buffer.clone());
        }
    }
}

impl Machine {
    /// The program makes a system call that uses the buffer.
    pub(crate) fn call_begins(&mut self, buffer: Range<usize>) {
        if let Some(watched) = self.host.watched_mut(buffer.start) {
            watched.call_begins(buffer);
        }
    }

    /// The call is over. It has used the first `used` bytes of the buffer.
    pub(crate) fn call_ends(&mut self, buffer: Range<usize>, used: usize, writes: bool) {
        self.settle_host();
        let touched = buffer.start..buffer.start + used.min(buffer.len());
        let is_open = match self.host.watched_mut(buffer.start) {
            Some(watched) => watched.is_open(),
            None => {
                let is_lost = |device: Ordinal| self.devices[device as usize].lost.is_some();
                !self.destinations.have(&touched, is_lost)
            }
        };
        let races = !is_open && self.races_with_host(&touched, writes);
        if let Some(watched) = self.host.watched_mut(buffer.start) {
            if races {
                watched.forgive(&touched);
            }
            watched.call_ends(&buffer);
        }
    }

    /// A call of CUDA uses host memory by itself. If it is watched, its page faults.
    pub(crate) fn used_by_call(&mut self, start: usize, bytes: usize, access: RacingAccess) {
        if self.host.watched_mut(start).is_none_or(|watched| watched.is_open()) {
            self.races.host_access(start as u64, bytes as u64, access);
        }
    }

    /// The program's call returns.
    pub(crate) fn call_returns(&mut self) {
        let site = self.races.called().site;
        self.destinations.watch(site);
    }

    /// Reports the reads of destinations that threads have made since the machine was last locked.
    #[cold]
    pub(crate) fn report_reads(&mut self) {
        for Hit { read, callers, note } in self.destinations.take_hits() {
            let is_lost = |device: Ordinal| self.devices[device as usize].lost.is_some();
            if !self.destinations.have(&read, is_lost) {
                continue;
            }
            let current = self.races.noted(callers, &note).exchange();
            self.races.begin_turn();
            self.races.host_access(read.start as u64, read.len() as u64, RacingAccess::Read);
            self.report_races();
            current.exchange();
            self.races.begin_turn();
        }
    }
}
