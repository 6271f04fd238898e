//! The allocations of a machine, each with its shadow.
//!
//! Device memory, page-locked blocks and registered ranges are found by their addresses, which
//! never coincide. Pageable memory, whose allocations nobody sees, has one shadow for all of it.
//! Every allocation has its own *generation*: an address that is used again has a new one.

use std::collections::BTreeMap;

use super::report::{MemoryKind, RacingAccess};
use super::shadow::{Conflict, Shadow, Use, View};

/// The number of freed allocations at which the first look for those that everybody knows of is
/// taken.
const FEW: usize = 64;
/// The most freed allocations that are kept.
const MOST: usize = 4096;

/// What a report says of an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) kind: MemoryKind,
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) generation: u64,
    pub(super) site: u32,
}

/// All pageable memory.
const PAGEABLE: Origin =
    Origin { kind: MemoryKind::Pageable, start: 0, bytes: 0, generation: 0, site: 0 };

#[derive(Debug)]
struct Allocation {
    origin: Origin,
    shadow: Shadow,
    is_freed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    pageable: Shadow,
    generations: u64,
    freed: usize,
    limit: usize,
}

impl Memory {
    pub(super) fn add(&mut self, kind: MemoryKind, start: u64, bytes: u64, site: u32) {
        self.generations += 1;
        let origin = Origin { kind, start, bytes, generation: self.generations, site };
        let allocation = Allocation { origin, shadow: Shadow::default(), is_freed: false };
        self.allocations.insert(start, allocation);
    }

    /// Adds a use; gives the memory in which it found conflicts.
    #[inline]
    pub(super) fn touch(
        &mut self,
        mut new: Use,
        view: &impl View,
        found: &mut Vec<Conflict>,
    ) -> Option<Origin> {
        let Some(allocation) = containing(&mut self.allocations, new.start) else {
            if crate::memory::device::is_device_address(new.start) {
                return None;
            }
            new.bytes = new.bytes.min(u64::MAX - new.start);
            self.pageable.touch(new, view, found);
            return Some(PAGEABLE);
        };
        let origin = allocation.origin;
        match new.access {
            RacingAccess::Read | RacingAccess::Write => {
                new.bytes = new.bytes.min(origin.start + origin.bytes - new.start);
            }
            RacingAccess::Allocation | RacingAccess::Free => new.bytes = origin.bytes,
        }
        allocation.shadow.touch(new, view, found);
        if new.access == RacingAccess::Free {
            allocation.is_freed = true;
            self.freed += 1;
            if self.freed > self.limit.max(FEW) {
                self.forget(view);
            }
        }
        Some(origin)
    }

    /// An allocation of host memory is gone, with all of its uses.
    pub(super) fn remove(&mut self, start: u64) {
        let gone = self.allocations.remove(&start);
        self.freed -= usize::from(gone.is_some_and(|allocation| allocation.is_freed));
    }

    /// The memory that an address of the host lies in.
    pub(super) fn origin_of(&mut self, address: u64) -> Origin {
        containing(&mut self.allocations, address).map_or(PAGEABLE, |allocation| allocation.origin)
    }

    pub(super) fn bytes_at(&self, start: u64) -> Option<u64> {
        self.allocations.get(&start).map(|allocation| allocation.origin.bytes)
    }

    /// Drops what is freed, if everybody knows of that.
    #[cold]
    fn forget(&mut self, view: &impl View) {
        self.allocations.retain(|_, a| !a.is_freed || !a.shadow.is_settled(view));
        let freed = self.allocations.values().filter(|allocation| allocation.is_freed).count();
        let mut excess = freed.saturating_sub(MOST);
        self.allocations.retain(|_, allocation| {
            let goes = excess > 0 && allocation.is_freed;
            excess -= usize::from(goes);
            !goes
        });
        self.freed = freed.min(MOST);
        self.limit = 2 * self.freed;
    }
}

#[inline]
fn containing(map: &mut BTreeMap<u64, Allocation>, address: u64) -> Option<&mut Allocation> {
    let (&start, allocation) = map.range_mut(..=address).next_back()?;
    (address - start < allocation.origin.bytes).then_some(allocation)
}
