//! The allocations of a machine, each with its shadow.
//!
//! Device memory, page-locked blocks and registered ranges are found by their addresses, which
//! never coincide. Pageable memory, whose allocations are not seen, has one shadow for all of it.
//! Every allocation has its own *generation*: an address that is used again has a new one.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{MemoryKind, RacingAccess};
use super::shadow::{Conflict, Shadow, Use, View};
use crate::operation::uses::Touch;
use crate::words::spans::Spans;

/// The number of freed allocations at which those that all threads know of are first dropped.
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

impl Origin {
    fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// All pageable memory.
const PAGEABLE: Origin =
    Origin { kind: MemoryKind::Pageable, start: 0, bytes: 0, generation: 0, site: 0 };

#[derive(Debug)]
struct Allocation {
    origin: Origin,
    shadow: Shadow,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    allocations: Spans<Allocation>,
    pageable: Shadow,
    generations: u64,
    /// Where allocations began that are freed, and that not all threads know of.
    freed: BTreeSet<u64>,
    limit: usize,
    /// Memory of devices that is freed, and where that was, for findings. Device addresses grow, so
    /// the first entry is mostly the oldest.
    gone: BTreeMap<u64, (Origin, u32)>,
}

impl Memory {
    pub(super) fn add(&mut self, kind: MemoryKind, start: u64, bytes: u64, site: u32) {
        self.generations += 1;
        let origin = Origin { kind, start, bytes, generation: self.generations, site };
        let allocation = Allocation { origin, shadow: Shadow::default() };
        self.allocations.insert(start, allocation);
        self.freed.remove(&start);
    }

    /// Adds the part of a use that lies in the memory where the use begins. Gives where the use
    /// goes on, if it ends later than that part and is to end there.
    #[inline(always)]
    pub(super) fn touch(
        &mut self,
        new: &Use,
        end: u64,
        view: &impl View,
        found: &mut Vec<Conflict>,
    ) -> Option<u64> {
        let Some(allocation) = containing(&mut self.allocations, new.start) else {
            self.touch_pageable(new, view, found);
            return None;
        };
        let border = allocation.origin.end();
        let until = new.start.saturating_add(new.bytes);
        let bytes = match new.access {
            RacingAccess::Read | RacingAccess::Write => new.bytes.min(border - new.start),
            RacingAccess::Allocation | RacingAccess::Free => allocation.origin.bytes,
        };
        let freed = (new.access == RacingAccess::Free).then_some(allocation.origin);
        let part;
        let is_part = bytes != new.bytes;
        let new = if is_part {
            part = Use { bytes, ..*new };
            &part
        } else {
            new
        };
        allocation.shadow.touch(new, view, found);
        if let Some(origin) = freed {
            self.note_freed(origin, new.called.site, view);
        }
        if until >= end && border >= end { None } else { self.next_of(new.start, until, end) }
    }

    fn touch_pageable(&mut self, new: &Use, view: &impl View, found: &mut Vec<Conflict>) {
        // What a kernel uses was page-locked or a device's.
        if new.kernel.is_none() && !crate::memory::device::is_device_address(new.start) {
            let bytes = new.bytes.min(u64::MAX - new.start);
            self.pageable.touch(&Use { bytes, ..*new }, view, found);
        }
    }

    fn note_freed(&mut self, origin: Origin, site: u32, view: &impl View) {
        // What is freed now stays: a report may be about it.
        self.freed.remove(&origin.start);
        if self.freed.len() >= self.limit.max(FEW) {
            self.forget(view);
        }
        if matches!(origin.kind, MemoryKind::OnDevice(_)) {
            self.gone.insert(origin.start, (origin, site));
            if self.gone.len() > MOST {
                self.gone.pop_first();
            }
        }
        self.freed.insert(origin.start);
    }

    /// The earlier uses that may race with a use of some of these bytes. Of pageable memory none.
    pub(super) fn parallel(&self, touch: &Touch, view: &impl View) -> Vec<Use> {
        let (start, end) = (touch.start, touch.start.saturating_add(touch.bytes));
        let writes = touch.access != RacingAccess::Read;
        let mut found = Vec::new();
        for (_, Allocation { origin, shadow }) in self.allocations.range_to(end).rev() {
            if origin.end() <= start {
                break;
            }
            shadow.parallel((start, end), writes, view, &mut found);
        }
        found
    }

    /// Where a use goes on that began at `start`, has reached `until` and ends later: in the same
    /// memory, or in the next mapping of the same reservation. Other allocations have gaps between
    /// them.
    #[cold]
    fn next_of(&mut self, start: u64, until: u64, end: u64) -> Option<u64> {
        let origin = self.origin_of(start);
        if !matches!(origin.kind, MemoryKind::OnDevice(_)) {
            return None;
        }
        let border = origin.end();
        if until < border {
            return Some(until);
        }
        (end > border && self.allocations.get(border).is_some()).then_some(border)
    }

    /// An allocation of host memory is gone, with all of its uses.
    pub(super) fn remove(&mut self, start: u64) {
        self.allocations.remove(start);
        self.freed.remove(&start);
    }

    /// The freed memory of a device that an address lies in, and where it was freed, unless that is
    /// forgotten.
    pub(super) fn freed(&mut self, address: u64) -> Option<(Origin, u32)> {
        let &(origin, site) = self.gone.range(..=address).next_back()?.1;
        let last = containing(&mut self.allocations, address).map(|it| it.origin.generation);
        let is_last = last.is_none_or(|generation| generation == origin.generation);
        (is_last && address - origin.start < origin.bytes).then_some((origin, site))
    }

    /// The memory that an address of the host lies in.
    pub(super) fn origin_of(&mut self, address: u64) -> Origin {
        containing(&mut self.allocations, address).map_or(PAGEABLE, |allocation| allocation.origin)
    }

    pub(super) fn bytes_at(&self, start: u64) -> Option<u64> {
        self.allocations.get(start).map(|allocation| allocation.origin.bytes)
    }

    /// Drops what is freed, if all threads know of that.
    #[cold]
    fn forget(&mut self, view: &impl View) {
        let Memory { allocations, freed, .. } = self;
        freed.retain(|start| {
            let stays = !allocations[*start].shadow.is_settled(view);
            if !stays {
                allocations.remove(*start);
            }
            stays
        });
        while freed.len() > MOST {
            freed.pop_first().map(|start| allocations.remove(start));
        }
        self.limit = 2 * freed.len();
    }
}

#[inline]
fn containing(all: &mut Spans<Allocation>, address: u64) -> Option<&mut Allocation> {
    let (start, allocation) = all.below_mut(address)?;
    (address - start < allocation.origin.bytes).then_some(allocation)
}

#[cfg(test)]
mod tests {
    use super::super::clock::{Called, Epoch};
    use super::*;

    struct Everybody {
        knows: bool,
    }

    impl View for Everybody {
        fn knows(&self, _: Epoch) -> bool {
            true
        }

        fn is_settled(&self, _: Epoch) -> bool {
            self.knows
        }
    }

    fn add(memory: &mut Memory, start: u64) {
        memory.add(MemoryKind::OnDevice(0), start, 10, 0);
    }

    fn free(memory: &mut Memory, start: u64, knows: bool) {
        let at = Epoch { agent: 0, position: 1 };
        let access = RacingAccess::Free;
        let free = Use { start, bytes: 10, access, ..Use::by(at, None, Called::default()) };
        memory.touch(&free, start + 10, &Everybody { knows }, &mut Vec::new());
        assert_eq!(memory.origin_of(start).start, start);
    }

    /// Allocates and frees at addresses of its own.
    fn churn(memory: &mut Memory, count: usize, knows: bool) {
        for start in (0..count as u64).map(|number| 1000 + 10 * number) {
            add(memory, start);
            free(memory, start, knows);
        }
    }

    #[test]
    fn freed_memory_is_forgotten_and_what_lies_there_now_is_not() {
        let mut memory = Memory::default();
        add(&mut memory, 100);
        add(&mut memory, 200);
        free(&mut memory, 100, false);
        add(&mut memory, 100);
        churn(&mut memory, 10 * FEW, true);
        assert!(memory.allocations.len() <= FEW + 2);
        assert_eq!((memory.bytes_at(100), memory.bytes_at(200)), (Some(10), Some(10)));
        assert_eq!(memory.generations, 3 + 10 * FEW as u64);
    }

    #[test]
    fn what_was_freed_last_at_an_address_is_told_and_what_lies_there_now_is_not() {
        let mut memory = Memory::default();
        add(&mut memory, 100);
        add(&mut memory, 200);
        let told = |memory: &mut Memory, at| memory.freed(at).map(|(origin, _)| origin.generation);
        assert_eq!(told(&mut memory, 100), None);
        free(&mut memory, 100, true);
        memory.remove(100);
        free(&mut memory, 200, true);
        let all = [99, 100, 109, 110, 200].map(|at| told(&mut memory, at));
        assert_eq!(all, [None, Some(1), Some(1), None, Some(2)]);
        add(&mut memory, 105);
        assert_eq!([104, 105].map(|at| told(&mut memory, at)), [Some(1), None]);
    }

    #[test]
    fn what_nobody_knows_to_be_freed_does_not_fill_the_memory() {
        let mut memory = Memory::default();
        churn(&mut memory, 5 * MOST, false);
        assert!(memory.gone.len() <= MOST);
        assert!(memory.freed.len() <= 2 * MOST + 1);
        assert_eq!(memory.allocations.len(), memory.freed.len());
    }
}
