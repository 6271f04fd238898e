//! The blocks whose pages are closed while the host must not touch them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Weak};

use super::signal::Faulted;
use super::view::{Access, PAGE, protect};
use super::{owner, signal};
use crate::memory::area::{Area, OPEN};
use crate::races::Epoch;

/// The most uses of one block that are kept apart. Older ones count as known to the host.
const MOST: usize = 256;

/// Sees what the host does to the memory of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Watcher(Weak<dyn Faulted>);

/// A use of a block by an operation that the host does not know to be complete.
#[derive(Clone, Debug)]
struct Closed {
    by: Epoch,
    range: Range<usize>,
    writes: bool,
}

/// A block that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    area: Area,
    closed: Vec<Closed>,
    /// The buffers of system calls that are being made: their pages are open.
    pub(super) in_calls: Vec<Range<usize>>,
    /// Pages that are open for the host function which runs.
    lent: BTreeSet<usize>,
}

impl Watcher {
    /// Begins to watch. `None`, with a message, if this process cannot handle faults.
    pub(crate) fn new(machine: &Arc<impl Faulted + 'static>) -> Option<Self> {
        if !owner::install() {
            owner::say_unwatched();
            return None;
        }
        Some(Watcher(Arc::downgrade(machine) as Weak<dyn Faulted>))
    }

    /// Makes a block; `None` if the system refuses the mappings.
    pub(crate) fn watch(&self, bytes: usize) -> Option<Watched> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        let (area, file) = Area::new(c"pinlane-host", bytes, OPEN, true).ok()?;
        // SAFETY: just opened here. The mappings keep the memory.
        unsafe { libc::close(file) };
        signal::register(area.start(), area.bytes, self.0.clone());
        Some(Watched { area, closed: Vec::new(), in_calls: Vec::new(), lent: BTreeSet::new() })
    }
}

impl Watched {
    /// The block: both of its mappings.
    pub(crate) fn area(&self) -> Area {
        self.area
    }

    pub(crate) fn is_open(&self) -> bool {
        self.closed.is_empty()
    }

    /// An operation uses the range from now on.
    pub(crate) fn close(&mut self, by: Epoch, range: Range<usize>, writes: bool) {
        // An agent that knows of a later operation of a stream knows of the earlier ones.
        self.closed.retain(|c| {
            let covered = range.start <= c.range.start && c.range.end <= range.end;
            c.by.agent != by.agent || !covered || c.writes && !writes
        });
        if self.closed.len() == MOST {
            let oldest = self.closed.remove(0);
            self.apply(oldest.range);
        }
        self.closed.push(Closed { by, range: range.clone(), writes });
        // The operation may not be ordered after the host function. So the function's next access
        // faults again.
        self.lent.retain(|page| range.end <= *page || page + PAGE <= range.start);
        self.apply(range);
    }

    /// Opens a page for the host function that runs, if all that uses it is ordered after that.
    pub(super) fn lend(&mut self, page: usize, is_after: impl Fn(Epoch) -> bool) -> bool {
        let in_use = |closed: &&Closed| closed.range.start < page + PAGE && page < closed.range.end;
        let lends = self.closed.iter().filter(in_use).all(|closed| is_after(closed.by));
        if lends {
            self.lent.insert(page);
            self.apply(page..page + 1);
        }
        lends
    }

    /// The host function has returned.
    pub(crate) fn take_back(&mut self) {
        let lent = std::mem::take(&mut self.lent);
        lent.into_iter().for_each(|page| self.apply(page..page + 1));
    }

    /// Opens what the host knows to be complete.
    pub(crate) fn settle(&mut self, is_settled: impl Fn(Epoch) -> bool) {
        self.open_if(|closed| is_settled(closed.by));
    }

    /// Opens what uses some of the range: the program has its finding.
    pub(super) fn forgive(&mut self, range: &Range<usize>) {
        self.open_if(|closed| closed.range.start < range.end && range.start < closed.range.end);
    }

    fn open_if(&mut self, opens: impl Fn(&Closed) -> bool) {
        let (gone, stay) = std::mem::take(&mut self.closed).into_iter().partition(opens);
        self.closed = stay;
        let gone: Vec<Closed> = gone;
        gone.into_iter().for_each(|closed| self.apply(closed.range));
    }

    /// What the program may do to a page.
    pub(super) fn access_to(&self, page: usize) -> Access {
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

    /// Opens or closes each page of a range, as the pending uses demand.
    pub(super) fn apply(&self, range: Range<usize>) {
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
            protect(&self.area, part[0]..part[1], self.access_to(part[0]));
        }
    }

    /// Opens the pages of a range, for one access or because the program announced one.
    pub(super) fn open(&self, range: Range<usize>) {
        protect(&self.area, range, Access::All);
    }

    fn all(&self) -> Range<usize> {
        self.area.start()..self.area.end()
    }

    /// Opens all pages, or closes again those that pending uses demand.
    pub(crate) fn set_open(&self, open: bool) {
        if open {
            protect(&self.area, self.all(), Access::All);
        } else {
            self.closed.iter().for_each(|closed| self.apply(closed.range.clone()));
        }
    }

    /// Whether a stand-in can run on it: no thread is in a system call that uses it.
    pub(crate) fn can_be_shut(&self) -> bool {
        self.in_calls.is_empty()
    }

    /// Closes all pages for a stand-in, or opens them.
    pub(crate) fn set_shut(&self, shut: bool) {
        protect(&self.area, self.all(), if shut { Access::None } else { Access::All });
    }

    /// Unmaps the block.
    ///
    /// # Safety
    ///
    /// * No pointer into it is used any more.
    pub(crate) unsafe fn free(self) {
        signal::unregister(self.area.start());
        // SAFETY: promised by the caller.
        unsafe { self.area.unmap() }
    }
}
