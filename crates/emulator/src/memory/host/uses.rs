//! The uses of host memory that operations are still to make.
//!
//! A program may have very many of them pending. To begin, end or find one costs the logarithm of
//! their number, plus the number of parts that they cut its range into.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

/// A pointer that an operation carries until it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostPtr(pub(crate) *mut u8);

// SAFETY: the pointer is only dereferenced by `HostMemory`, under the lock of the machine, and the
// preconditions of the driver's copies give that thread the right to, whichever it is.
unsafe impl Send for HostPtr {}

impl HostPtr {
    pub(crate) fn address(self) -> usize {
        self.0.addr()
    }

    /// The same memory from another address on.
    pub(crate) fn with_address(self, address: u64) -> Self {
        HostPtr(self.0.with_addr(address as usize))
    }
}

/// How an operation that has not run yet uses a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A range of host memory that an operation names.
#[derive(Clone, Debug)]
pub(crate) struct HostUse {
    pub(crate) ptr: HostPtr,
    pub(crate) bytes: usize,
    pub(crate) access: Access,
    /// In no page-locked block: only the caller knows how long it stays valid.
    pub(crate) pageable: bool,
    /// The operation reads it when its stream wants, and not ahead of the stream's order (rule 8).
    pub(crate) in_order: bool,
    /// The call returns when the operation is done: the host cannot come too early.
    pub(crate) waited: bool,
    /// The operation only has an address in it, and perhaps does not use that.
    pub(crate) named: bool,
    /// For a read: a hash of the contents at the call, if they must not change.
    pub(crate) fingerprint: Cell<Option<u64>>,
}

impl HostUse {
    /// Of page-locked memory; `pageable` is set later if it is not.
    pub(crate) fn new(ptr: HostPtr, bytes: usize, access: Access) -> Self {
        let (pageable, in_order, waited, named) = (false, false, false, false);
        let fingerprint = Cell::new(None);
        HostUse { ptr, bytes, access, pageable, in_order, waited, named, fingerprint }
    }

    /// Whether it is read ahead of its stream's order: it must not change from the call on.
    pub(crate) fn is_read_ahead(&self) -> bool {
        self.access == Access::Read && self.pageable && !self.in_order
    }
}

/// One use, as the operation that makes it names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Use {
    operation: u64,
    start: usize,
    end: usize,
    /// `None` if it may be no use.
    access: Option<Access>,
}

impl Use {
    fn new(host: &HostUse, operation: u64) -> Self {
        let (start, access) = (host.ptr.address(), (!host.named).then_some(host.access));
        Use { operation, start, end: start + host.bytes, access }
    }
}

/// The pending uses of some memory.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// How often each use was begun.
    pending: HashMap<Use, usize>,
    reads: Depths,
    writes: Depths,
}

impl Uses {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// How many there are, without those that only have an address.
    pub(super) fn certain(&self) -> usize {
        self.pending.iter().filter(|(used, _)| used.access.is_some()).map(|(_, times)| times).sum()
    }

    pub(super) fn begin(&mut self, host: &HostUse, operation: u64) {
        let used = Use::new(host, operation);
        *self.pending.entry(used).or_default() += 1;
        self.change(used, |depth| depth + 1);
    }

    /// False if there is no such use.
    #[must_use]
    pub(super) fn end(&mut self, host: &HostUse, operation: u64) -> bool {
        let used = Use::new(host, operation);
        let Some(times) = self.pending.get_mut(&used) else { return false };
        *times -= 1;
        if *times == 0 {
            self.pending.remove(&used);
        }
        self.change(used, |depth| depth - 1);
        true
    }

    /// Whether some use touches the range that way.
    pub(super) fn touch(&self, start: usize, bytes: usize, access: Access) -> bool {
        match access {
            Access::Read => self.reads.touch(start, start + bytes),
            Access::Write => self.writes.touch(start, start + bytes),
        }
    }

    fn change(&mut self, used: Use, change: impl Fn(usize) -> usize) {
        match used.access {
            Some(Access::Read) => self.reads.change(used.start, used.end, change),
            Some(Access::Write) => self.writes.change(used.start, used.end, change),
            None => {}
        }
    }
}

/// How many ranges lie over each address: each entry holds from its address up to the next one's.
/// Neighbours differ, and before the first entry the depth is 0, as it is from the last one on.
#[derive(Debug, Default)]
struct Depths(BTreeMap<usize, usize>);

impl Depths {
    fn at(&self, address: usize) -> usize {
        self.0.range(..=address).next_back().map_or(0, |(_, &depth)| depth)
    }

    fn touch(&self, start: usize, end: usize) -> bool {
        // Neighbours differ: of two that are inside, one is not 0.
        start < end && (self.at(start) > 0 || self.0.range(start..end).any(|(_, &depth)| depth > 0))
    }

    fn change(&mut self, start: usize, end: usize, change: impl Fn(usize) -> usize) {
        if start == end {
            return;
        }
        for seam in [start, end] {
            let depth = self.at(seam);
            self.0.insert(seam, depth);
        }
        self.0.range_mut(start..end).for_each(|(_, depth)| *depth = change(*depth));
        for seam in [start, end] {
            let before = self.0.range(..seam).next_back().map_or(0, |(_, &depth)| depth);
            if self.0[&seam] == before {
                self.0.remove(&seam);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(start: usize, bytes: usize, access: Access) -> HostUse {
        HostUse::new(HostPtr(std::ptr::without_provenance_mut(start)), bytes, access)
    }

    /// Begins and ends chosen uses, and compares every answer with that of a plain list.
    #[test]
    fn uses_answer_as_a_list_of_them_would() {
        let mut state = 7u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % limit
        };
        let (mut uses, mut list) = (Uses::default(), Vec::new());
        for operation in 0..4000 {
            let access = [Access::Read, Access::Write][below(2)];
            if list.len() > below(24) {
                let (used, operation): (HostUse, u64) = list.swap_remove(below(list.len()));
                assert!(uses.end(&used, operation));
            } else {
                let mut used = host(100 + below(40), below(12), access);
                used.named = below(8) == 0;
                uses.begin(&used, operation / 2);
                list.push((used, operation / 2));
            }
            let certain = list.iter().filter(|(used, _)| !used.named);
            assert_eq!(uses.certain(), certain.clone().count());
            let (start, bytes) = (95 + below(50), below(16));
            let touches = certain.clone().any(|(used, _)| {
                let other = used.ptr.address();
                let (from, to) = (other.max(start), (other + used.bytes).min(start + bytes));
                used.access == access && from < to
            });
            assert_eq!(uses.touch(start, bytes, access), touches);
        }
        for (used, operation) in list {
            assert!(uses.end(&used, operation) && !uses.end(&used, u64::MAX));
        }
        assert!(uses.is_empty() && uses.reads.0.is_empty() && uses.writes.0.is_empty());
    }

    #[test]
    fn many_uses_of_one_range_are_one_part_and_few_steps() {
        let mut uses = Uses::default();
        let read = host(4096, 64, Access::Read);
        (0..10_000).for_each(|operation| uses.begin(&read, operation));
        assert_eq!((uses.reads.0.len(), uses.writes.0.len()), (2, 0));
        assert!((0..10_000).all(|operation| uses.end(&read, operation)));
        assert!(uses.reads.0.is_empty());
    }
}
