//! What the host itself does to memory of `cudaHostAlloc`, seen without the program's help. For
//! other host memory there are [`hashed`] and [`destinations`].
//!
//! Each block is mapped twice (`Area`). The program has one of the mappings, and its pages are
//! closed while the host must not touch them, as far as it knows:
//!
//! | an operation that the host does not know to be complete | its pages |
//! |---|---|
//! | writes | closed |
//! | reads | read-only |
//!
//! So a load or store that comes too early faults ([`signal`]). The handler asks the race checker,
//! which knows of bytes:
//!
//! * It is a race: that is a finding, with the line of the access. The operation's pages are
//!   opened. The program continues, with one finding.
//! * No race: the host already knows that the operation is complete. The pages are opened.
//! * No race: a host function makes the access, and what uses the page is ordered after that
//!   function. The page is open until the function returns, or another thread makes a call.
//! * No race: other bytes of the page are in use. The access is let through, and the page is closed
//!   again after it.
//!
//! # Invariants
//!
//! * The machine itself never touches a program's view. Of the program's code, only stand-ins for
//!   kernels run under its lock. While one runs, all views are open, except those that [`stand_in`]
//!   watches: faults there do not need the lock.
//! * A closed page never changes what a program does: each fault ends with the access made good.
//!   Only system calls see closed pages: they fail with `EFAULT`, unless the caller announces them
//!   before and after ([`calls`]).

mod calls;
mod destinations;
mod hashed;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod operand;
mod owner;
mod places;
mod points;
mod sides;
mod signal;
mod stack;
mod stand_in;
mod view;
mod watched;
mod watchpoint;

use std::ops::Range;

pub(super) use self::calls::must_be_said;
pub(super) use self::destinations::{Destinations, are_new};
pub(super) use self::owner::{exchange, sees_faults};
pub(super) use self::points::{are_hit, note_by};
pub(super) use self::sides::Sides;
#[cfg(test)]
pub(super) use self::signal::STEPS;
use self::signal::{Faulted, Verdict};
pub(super) use self::stand_in::{Seen, Touched, used_by_call};
use self::view::{Access, PAGE};
pub(super) use self::watched::{Watched, Watcher};
pub(crate) use self::watchpoint::watchpoints_are_lent;
use crate::machine::Machine;
use crate::operation::Action;
use crate::races::{Agent, RacingAccess};
use crate::shared::Shared;
use pinlane_driver::Ordinal;

impl Faulted for Shared {
    fn touched(&self, touched: Range<usize>, writes: bool) -> Verdict {
        self.with(|machine| machine.host_touched(touched, writes))
    }

    fn has_touched(&self, address: usize) {
        self.with(|machine| machine.host_has_touched(address));
    }
}

impl Machine {
    /// The program has touched a range in a closed page of a block.
    fn host_touched(&mut self, touched: Range<usize>, writes: bool) -> Verdict {
        let address = touched.start;
        let races = self.races_with_host(&touched, writes);
        self.settle_host();
        let Some(watched) = self.host.watched_mut(address) else { return Verdict::Again };
        if races {
            watched.forgive(&touched);
        }
        let page = address / PAGE * PAGE;
        match watched.access_to(page) {
            Access::All => Verdict::Again,
            Access::Read if !writes => Verdict::Again,
            _ if watched.lend(page, |by| self.races.is_after_function(by)) => {
                self.host.is_lending();
                Verdict::Again
            }
            _ => {
                watched.open(touched);
                Verdict::Once
            }
        }
    }

    /// The program touches the range, now. Whether that is a race; if so, it is a finding.
    fn races_with_host(&mut self, touched: &Range<usize>, writes: bool) -> bool {
        let access = RacingAccess::of(writes);
        self.races.host_access(touched.start as u64, touched.len() as u64, access);
        let races = self.races.has_found();
        if races {
            self.races.place_found();
            self.report_races();
        }
        races
    }

    /// The access for which a page was opened is over.
    fn host_has_touched(&mut self, address: usize) {
        if let Some(watched) = self.host.watched_mut(address) {
            watched.apply(address..address + 1);
        }
    }

    /// An operation was given to a stream: the host must not touch what it uses.
    #[cold]
    pub(super) fn close_to_host(&mut self, stream: Agent, device: Ordinal, action: &Action) {
        let by = self.races.latest(stream);
        self.ask_for_faults();
        for host in action.host_uses() {
            if self.host.is_watched(host) {
                self.host.close(host, by);
            } else {
                self.destinations.begin(host, by, device);
            }
        }
        if let Some((_, declared)) = action.declared() {
            self.close_declared(by, &declared.uses);
        }
    }

    /// The program has announced that it touches the range, perhaps by a system call.
    pub(super) fn open_to_host(&mut self, start: usize, bytes: usize) {
        if let Some(watched) = self.host.watched_mut(start).filter(|watched| !watched.is_open()) {
            watched.open(start..start.saturating_add(bytes));
        }
    }

    /// Asks whether faults still come to this handler, before pages are closed and while some are.
    /// If not, all are open from now on, and the host's sides of copies are hashed.
    pub(super) fn ask_for_faults(&mut self) {
        let sees = sees_faults();
        self.host.set_watched(sees);
    }

    /// Opens the pages of operations that the host knows to be complete.
    pub(super) fn settle_host(&mut self) {
        let races = &self.races;
        if self.host.has_closed() {
            self.host.settle(|epoch| races.is_settled(epoch));
        }
        self.destinations.settle(|epoch| races.is_settled(epoch));
    }
}
