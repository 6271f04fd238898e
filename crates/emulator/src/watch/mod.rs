//! What the host itself does to memory of `cudaHostAlloc`, seen without help of the program. For
//! other host memory there are [`hashed`] and [`destinations`].
//!
//! Each block is mapped twice ([`view`]). The program has one of the mappings, and its pages are
//! closed while the host must not touch them, as far as it knows:
//!
//! | an operation, of which the host does not know that it is complete | its pages |
//! |---|---|
//! | writes | closed |
//! | reads | read-only |
//!
//! So a load or store that comes too early faults ([`signal`]). The handler asks the race checker,
//! which knows of bytes:
//!
//! * It is a race: that is a finding, with the line of the access. The operation's pages are
//!   opened, so that the program goes on and is told once.
//! * It is none, because the host has learned of it meanwhile: the pages are opened.
//! * It is none, because a host function makes it, and what uses the page is ordered after that
//!   function: the page is open until the function returns, or another thread makes a call.
//! * It is none, because other bytes of the page are in use: the access is let through, and the
//!   page is closed again behind it.
//!
//! # Invariants
//!
//! * The machine itself never touches a program's view. The code of the program's that runs under
//!   its lock is stand-ins for kernels. Meanwhile all views are open, but for those that
//!   [`stand_in`] watches: of what faults there, the lock is not needed.
//! * A closed page never changes what a program does: each fault ends with the access made good.
//!   Only system calls see closed pages: they fail with `EFAULT`, unless somebody says so before
//!   and behind them ([`calls`]).

mod calls;
mod destinations;
mod hashed;
mod owner;
mod places;
mod signal;
mod stack;
mod stand_in;
mod view;

use std::collections::BTreeSet;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

pub(super) use self::calls::must_be_said;
pub(super) use self::destinations::Destinations;
pub(super) use self::hashed::Sides;
pub(super) use self::owner::exchange;
#[cfg(test)]
pub(super) use self::signal::STEPS;
pub(super) use self::stand_in::{Area, Seen, Touched, sees_faults, used_by_call};
use self::view::{Access, View};
use super::machine::Machine;
use super::operation::Action;
use super::order::{Agent, Epoch, RacingAccess, Site};
use super::runtime::Shared;
use pinlane_driver::Ordinal;

const PAGE: usize = 4096;

/// The most uses of one block that are told apart. Older ones count as known to the host.
const MOST: usize = 256;

/// Sees what the host does to the memory of one machine.
#[derive(Clone, Debug)]
pub(super) struct Watcher(Weak<Shared>);

/// A use of a block by an operation of which the host does not know that it is complete.
#[derive(Clone, Debug)]
struct Closed {
    by: Epoch,
    range: Range<usize>,
    writes: bool,
}

/// A block that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    view: View,
    closed: Vec<Closed>,
    /// The buffers of system calls that are being made: their pages are open.
    in_calls: Vec<Range<usize>>,
    /// Pages that are open for the host function which runs.
    lent: BTreeSet<usize>,
}

impl Watcher {
    /// Begins to watch; `None`, which is said, if faults cannot be had.
    pub(super) fn new(machine: &Arc<Shared>) -> Option<Self> {
        if !owner::install() {
            owner::say_unwatched();
            return None;
        }
        Some(Watcher(Arc::downgrade(machine)))
    }

    /// Makes a block; `None` if the system maps no more.
    pub(super) fn watch(&self, bytes: usize) -> Option<Watched> {
        let view = View::new(bytes).ok()?;
        signal::register(view.start(), view.bytes(), self.0.clone());
        Some(Watched { view, closed: Vec::new(), in_calls: Vec::new(), lent: BTreeSet::new() })
    }
}

impl Watched {
    pub(super) fn program(&self) -> NonNull<u8> {
        self.view.program()
    }

    pub(super) fn storage_of(&self, address: usize) -> *mut u8 {
        self.view.storage_of(address)
    }

    pub(super) fn is_open(&self) -> bool {
        self.closed.is_empty()
    }

    /// An operation uses the range from now on.
    pub(super) fn close(&mut self, by: Epoch, range: Range<usize>, writes: bool) {
        // Who knows of a later operation of a stream knows of the earlier ones.
        self.closed.retain(|c| {
            let covered = range.start <= c.range.start && c.range.end <= range.end;
            c.by.agent != by.agent || !covered || c.writes && !writes
        });
        if self.closed.len() == MOST {
            let oldest = self.closed.remove(0);
            self.apply(oldest.range);
        }
        self.closed.push(Closed { by, range: range.clone(), writes });
        // It need not be ordered after the function: that faults again.
        self.lent.retain(|page| range.end <= *page || page + PAGE <= range.start);
        self.apply(range);
    }

    /// Opens a page for the host function that runs, if all that uses it is ordered after that.
    fn lend(&mut self, page: usize, is_after: impl Fn(Epoch) -> bool) -> bool {
        let in_use = |closed: &&Closed| closed.range.start < page + PAGE && page < closed.range.end;
        let lends = self.closed.iter().filter(in_use).all(|closed| is_after(closed.by));
        if lends {
            self.lent.insert(page);
            self.apply(page..page + 1);
        }
        lends
    }

    /// The host function has returned.
    pub(super) fn take_back(&mut self) {
        let lent = std::mem::take(&mut self.lent);
        lent.into_iter().for_each(|page| self.apply(page..page + 1));
    }

    /// Opens what the host knows to be complete.
    pub(super) fn settle(&mut self, is_settled: impl Fn(Epoch) -> bool) {
        self.open(|closed| is_settled(closed.by));
    }

    /// Opens what uses some of the range: the program was told.
    fn forgive(&mut self, range: &Range<usize>) {
        self.open(|closed| closed.range.start < range.end && range.start < closed.range.end);
    }

    fn open(&mut self, opens: impl Fn(&Closed) -> bool) {
        let (gone, stay) = std::mem::take(&mut self.closed).into_iter().partition(opens);
        self.closed = stay;
        let gone: Vec<Closed> = gone;
        gone.into_iter().for_each(|closed| self.apply(closed.range));
    }

    /// What the program may do to a page.
    fn access_to(&self, page: usize) -> Access {
        let is_on = |range: &Range<usize>| range.start < page + PAGE && page < range.end;
        if self.in_calls.iter().any(is_on) || self.lent.contains(&page) {
            return Access::All;
        }
        let in_use = self.closed.iter().filter(|closed| is_on(&closed.range));
        in_use.fold(Access::All, |access, closed| match (access, closed.writes) {
            (_, true) | (Access::None, _) => Access::None,
            _ => Access::Read,
        })
    }

    /// Opens and closes the pages of a range as is due.
    fn apply(&self, range: Range<usize>) {
        let pages =
            |range: &Range<usize>| range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE);
        let all = pages(&range);
        let mut edges = vec![all.start, all.end];
        for other in self.closed.iter().map(|closed| &closed.range).chain(&self.in_calls) {
            let other = pages(other);
            edges.extend([other.start, other.end].into_iter().filter(|edge| all.contains(edge)));
        }
        edges.sort_unstable();
        edges.dedup();
        for part in edges.windows(2) {
            self.view.protect(part[0]..part[1], self.access_to(part[0]));
        }
    }

    /// Opens a page for one access.
    fn open_page(&self, address: usize) {
        self.view.protect(address..address + 1, Access::All);
    }

    fn all(&self) -> Range<usize> {
        self.view.start()..self.view.start() + self.view.bytes()
    }

    /// Opens all pages for a while, or ends that.
    pub(super) fn set_open(&self, open: bool) {
        if open {
            self.view.protect(self.all(), Access::All);
        } else {
            self.closed.iter().for_each(|closed| self.apply(closed.range.clone()));
        }
    }

    /// Whether a stand-in can run on it: no system call of another thread uses it meanwhile.
    pub(super) fn can_be_shut(&self) -> bool {
        self.in_calls.is_empty()
    }

    /// Closes all pages for a stand-in, or opens them.
    pub(super) fn set_shut(&self, shut: bool) {
        self.view.protect(self.all(), if shut { Access::None } else { Access::All });
    }

    /// The block, for a stand-in to run on.
    pub(super) fn area(&self) -> Area {
        let (start, bytes) = (self.view.start(), self.view.bytes());
        Area { start, bytes, storage: self.view.storage_of(start), of_host: true }
    }

    /// Unmaps the block.
    ///
    /// # Safety
    ///
    /// * Nobody uses a pointer into it any more.
    pub(super) unsafe fn free(self) {
        signal::unregister(self.view.start());
        // SAFETY: promised by the caller.
        unsafe { self.view.unmap() }
    }
}

/// What the handler of a fault does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The page is open: the access is made again.
    Again,
    /// The page is open for this access, and is closed behind it.
    Once,
}

impl Machine {
    /// The program has touched an address of a block, of which the page was closed.
    fn host_touched(&mut self, address: usize, writes: bool) -> Verdict {
        let touched = address..address + 1;
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
            _ if watched.lend(page, |by| self.order.is_after_function(by)) => {
                self.host.is_lending();
                Verdict::Again
            }
            _ => {
                watched.open_page(address);
                Verdict::Once
            }
        }
    }

    /// The program touches the range, now. Whether that is a race; if so, it is a finding.
    fn races_with_host(&mut self, touched: &Range<usize>, writes: bool) -> bool {
        let access = if writes { RacingAccess::Write } else { RacingAccess::Read };
        self.order.host_access(touched.start as u64, touched.len() as u64, access);
        let races = self.order.has_found();
        if races {
            self.order.place_found(Site::capture());
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
        let by = self.order.latest(stream);
        self.ask_for_faults();
        for host in action.host_uses() {
            if self.host.is_watched(host) {
                self.host.close(host, by);
            } else {
                self.destinations.begin(host, by, device);
            }
        }
    }

    /// The program has said that it touches the range, perhaps by a system call.
    pub(super) fn open_to_host(&mut self, start: usize, bytes: usize) {
        if let Some(watched) = self.host.watched_mut(start).filter(|watched| !watched.is_open()) {
            watched.view.protect(start..start.saturating_add(bytes), Access::All);
        }
    }

    /// Asks whether faults still come to us, before pages are closed and while some are. If not,
    /// all are open from now on, and the host's sides of copies are hashed.
    pub(super) fn ask_for_faults(&mut self) {
        let sees = sees_faults();
        self.host.set_watched(sees);
    }

    /// Opens the pages of operations that the host knows to be complete.
    pub(super) fn settle_host(&mut self) {
        let order = &self.order;
        if self.host.has_closed() {
            self.host.settle(|epoch| order.is_settled(epoch));
        }
        self.destinations.settle(|epoch| order.is_settled(epoch));
    }
}
