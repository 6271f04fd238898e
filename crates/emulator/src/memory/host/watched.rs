//! The blocks that a machine watches: which of their pages are closed to the host.

use super::{Access, HostMemory, HostPtr, HostUse, PAGE};
use crate::memory::area::Area;
use crate::races::Epoch;
use crate::watch::Watched;

impl HostMemory {
    /// An operation that the host does not know to be complete uses the range.
    pub(crate) fn close(&mut self, host: &HostUse, by: Epoch) {
        if !self.sees_faults {
            return;
        }
        let (start, writes) = (host.ptr.address(), host.access == Access::Write);
        let Some(block) = self.containing_mut(host.ptr, host.bytes) else { return };
        let block_start = block.ptr.address();
        let Some(watched) = &mut block.watched else { return };
        let was_open = watched.is_open();
        watched.close(by, start..start + host.bytes, writes);
        if was_open {
            self.closed.push(block_start);
        }
    }

    /// Whether faults come to the watcher. If not, all pages are opened, and stay open.
    pub(crate) fn set_watched(&mut self, sees_faults: bool) {
        self.sees_faults = sees_faults;
        if !sees_faults {
            self.settle(|_| true);
        }
    }

    /// Whether the pages of a range can be closed: it is in a block that is mapped twice.
    pub(crate) fn is_watched(&self, host: &HostUse) -> bool {
        self.sees_faults
            && self.containing(host.ptr, host.bytes).is_some_and(|block| block.watched.is_some())
    }

    /// Whether some pages are closed to the host.
    #[inline]
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Opens the pages of operations that the host knows to be complete.
    #[cold]
    pub(crate) fn settle(&mut self, is_settled: impl Fn(Epoch) -> bool) {
        let blocks = &mut self.blocks;
        self.closed.retain(|start| {
            let watched = blocks.get_mut(*start as u64).and_then(|block| block.watched.as_mut());
            watched.is_some_and(|watched| {
                watched.settle(&is_settled);
                !watched.is_open()
            })
        });
    }

    /// The host function that was called has returned, or another thread makes a call.
    pub(crate) fn take_back_lent(&mut self) {
        if !std::mem::take(&mut self.lends) {
            return;
        }
        for start in &self.closed {
            let watched =
                self.blocks.get_mut(*start as u64).and_then(|block| block.watched.as_mut());
            watched.into_iter().for_each(Watched::take_back);
        }
    }

    /// Some page was lent to a host function.
    pub(crate) fn is_lending(&mut self) {
        self.lends = true;
    }

    /// The watched block that an address of the program's lies in.
    pub(crate) fn watched_mut(&mut self, address: usize) -> Option<&mut Watched> {
        let ptr = HostPtr(std::ptr::without_provenance_mut(address / PAGE * PAGE));
        self.containing_mut(ptr, 0)?.watched.as_mut()
    }

    fn watched<'a>(&'a self, named: &'a [HostUse]) -> impl Iterator<Item = &'a Watched> {
        let blocks = named.iter().filter_map(|host| self.blocks.get(host.ptr.address() as u64));
        let watched = blocks.filter_map(|block| block.watched.as_ref());
        watched.filter(|watched| watched.can_be_shut())
    }

    /// Those of the blocks that are watched, for a stand-in to run on.
    pub(crate) fn areas<'a>(&'a self, named: &'a [HostUse]) -> impl Iterator<Item = Area> + 'a {
        self.watched(named).map(Watched::area)
    }

    /// Runs `work` while all pages of these blocks are shut, and those of all others are open.
    pub(crate) fn shut<R>(&self, named: &[HostUse], work: impl FnOnce() -> R) -> R {
        let mut result = None;
        self.opened(|| {
            self.watched(named).for_each(|watched| watched.set_shut(true));
            result = Some(work());
            self.watched(named).for_each(|watched| watched.set_shut(false));
        });
        result.expect("has run")
    }

    /// Runs `work` while all pages are open.
    pub(crate) fn opened(&self, work: impl FnOnce()) {
        let closed =
            || self.closed.iter().filter_map(|start| self.blocks[*start as u64].watched.as_ref());
        closed().for_each(|watched| watched.set_open(true));
        work();
        closed().for_each(|watched| watched.set_open(false));
    }
}
