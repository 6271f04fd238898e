//! Destinations of copies whose pages cannot be closed: in pageable and in registered memory.
//!
//! Calls that use memory are checked: do they read or write a pending destination? These are system
//! calls ([`calls`](super::calls)) and calls of CUDA that use host memory at once. Loads of its
//! first bytes are seen by watchpoints ([`points`]), if the system lends them.
//!
//! # Invariants
//!
//! * A destination is listed from the call that is given it until the host knows that its operation
//!   is complete. A correct program does not use a listed destination, so its calls take no lock
//!   here.
//! * The list only shows which machine to ask. The race checker decides whether a use is a race.
//! * Watchpoints cost system calls. So each line of a program gets them a limited number of times,
//!   and each call only for its first destination.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::places::Places;
use super::points::{self, Hit, Point};
use super::{owner, watchpoint};
use crate::memory::host::{Access, HostUse};
use crate::races::Epoch;
use crate::words::thread::{is_held, this_thread};
use pinlane_driver::Ordinal;

/// The most that a machine lists. The oldest goes first.
const MOST: usize = 1024;
/// How often a line of the program gets watchpoints.
const MOST_OF_A_LINE: u32 = 64;

/// Whether some call has listed destinations and has not returned yet.
static ARE_NEW: AtomicBool = AtomicBool::new(false);

/// Those of all machines of the process.
static LISTED: Places = Places::new();

/// Whether a call that uses the buffer uses a pending destination. It takes no lock. Calls of the
/// machine's own do not count: it may be locked.
pub(super) fn is_pending(buffer: &Range<usize>) -> bool {
    LISTED.find(buffer).is_some_and(|found| found.is_own) && !is_held()
}

/// Whether a call that returns may have to watch its destinations.
pub(crate) fn are_new() -> bool {
    ARE_NEW.load(Ordering::Relaxed)
}

#[derive(Debug)]
struct Destination {
    range: Range<usize>,
    by: Epoch,
    device: Ordinal,
    /// The thread that made the call.
    thread: u64,
    /// The call has not returned yet.
    is_new: bool,
    point: Option<Point>,
}

impl Destination {
    fn new(range: Range<usize>, by: Epoch, device: Ordinal) -> Self {
        LISTED.insert(range.clone());
        ARE_NEW.store(true, Ordering::Relaxed);
        Destination { range, by, device, thread: this_thread(), is_new: true, point: None }
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        LISTED.remove(&self.range);
    }
}

/// Whether there may be watchpoints, whose signals we handle.
fn can_watch() -> bool {
    watchpoint::may_be_lent() && owner::is_ours(libc::SIGTRAP)
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The pending ones of a machine.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    list: VecDeque<Destination>,
    /// How often a line has got watchpoints, by the number of its site.
    watched: HashMap<u32, u32>,
}

impl Destinations {
    /// An operation writes there, and the host does not know it to be complete.
    pub(super) fn begin(&mut self, host: &HostUse, by: Epoch, device: Ordinal) {
        if host.access != Access::Write || host.waited {
            return;
        }
        let start = host.ptr.address();
        let range = start..start + host.bytes;
        // Who knows of a later operation of a stream knows of the earlier ones.
        self.list.retain(|earlier| {
            let is_covered = range.start <= earlier.range.start && earlier.range.end <= range.end;
            earlier.by.agent != by.agent || !is_covered
        });
        if self.list.len() == MOST {
            self.list.pop_front();
        }
        self.list.push_back(Destination::new(range, by, device));
    }

    /// The host knows that some are complete.
    #[inline]
    pub(super) fn settle(&mut self, is_settled: impl Fn(Epoch) -> bool) {
        if !self.list.is_empty() {
            self.list.retain(|destination| !is_settled(destination.by));
        }
    }

    /// Whether an operation that is pending writes to some of the range. Not on a lost device: no
    /// call can wait for its operations.
    pub(super) fn have(&self, range: &Range<usize>, is_lost: impl Fn(Ordinal) -> bool) -> bool {
        let is_it = |one: &Destination| overlap(&one.range, range) && !is_lost(one.device);
        self.list.iter().any(is_it)
    }

    /// The device is reset.
    pub(crate) fn forget_device(&mut self, device: Ordinal) {
        self.list.retain(|destination| destination.device != device);
    }

    /// Host memory is unregistered: that call reports what is pending there.
    pub(crate) fn forget(&mut self, start: usize, bytes: usize) {
        let gone = start..start.saturating_add(bytes);
        self.list.retain(|destination| !overlap(&destination.range, &gone));
    }

    /// The calling thread's call, which was made at that site, returns. From now on the program may
    /// load its destinations too early. The newest destinations of a thread get the watchpoints.
    pub(crate) fn watch(&mut self, site: u32) {
        let thread = this_thread();
        let of_call = |one: &&mut Destination| one.is_new && one.thread == thread;
        let first = self.list.iter().position(|one| one.is_new && one.thread == thread);
        self.list.iter_mut().filter(of_call).for_each(|one| one.is_new = false);
        ARE_NEW.store(self.list.iter().any(|one| one.is_new), Ordering::Relaxed);
        let Some(first) = first.filter(|_| can_watch()) else { return };
        let times = self.watched.entry(site).or_default();
        if *times == MOST_OF_A_LINE {
            return;
        }
        *times += 1;
        let range = self.list[first].range.clone();
        let mut left = watchpoint::MOST - Point::cost(&range);
        for one in self.list.iter_mut().rev().filter(|one| one.thread == thread) {
            let cost = one.point.as_ref().map_or(0, |_| Point::cost(&one.range));
            if cost > left {
                one.point = None;
            }
            left = left.saturating_sub(cost);
        }
        self.list[first].point = Point::begin(&range);
    }

    /// What threads have read of destinations since the last call, and where.
    pub(crate) fn take_hits(&self) -> Vec<Hit> {
        if !points::are_hit() {
            return Vec::new();
        }
        let points = self.list.iter().filter_map(|one| one.point.as_ref());
        points.filter_map(Point::take_hit).collect()
    }
}
