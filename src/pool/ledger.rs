//! The pool's books: which block is where. Pure data, changed under the pool's lock; no driver calls.

use std::collections::{BTreeMap, VecDeque};

use super::stats::PoolStats;
use crate::memory::Block;
use crate::memory::hazard::Use;

pub(super) struct Ledger {
    stats: PoolStats,
    /// Free blocks by size.
    cached: BTreeMap<usize, Vec<Block>>,
    /// Blocks in flight, the longest dropped first.
    parked: VecDeque<Parked>,
    /// Blocks taken out of the cache that are being freed at the moment.
    leaving: usize,
    next_id: u64,
}

struct Parked {
    id: u64,
    block: Block,
    pending: Vec<Use>,
}

/// How room for a new block can be had.
pub(super) enum Room {
    /// The budget allows it; the bytes are committed already.
    Reserved,
    /// These cached blocks of other sizes must be freed first.
    Trim(Vec<Block>),
    /// This block in flight must retire first.
    Wait(u64, Vec<Use>),
    /// Another thread is giving blocks back to the system at the moment.
    Leaving,
    /// Not at all: the budget is spent on live buffers.
    None,
}

impl Ledger {
    pub(super) fn new(max_bytes: usize) -> Self {
        // No block is larger than `isize::MAX`, and so no sum overflows.
        let max_bytes = max_bytes.min(isize::MAX as usize);
        let stats = PoolStats { max_bytes, ..PoolStats::default() };
        Ledger { stats, cached: BTreeMap::new(), parked: VecDeque::new(), leaving: 0, next_id: 0 }
    }

    pub(super) fn stats(&self) -> PoolStats {
        self.stats
    }

    pub(super) fn take_cached(&mut self, size: usize) -> Option<Block> {
        let block = self.cached.get_mut(&size)?.pop()?;
        self.stats.hits += 1;
        self.stats.cached_bytes -= size;
        self.stats.live_bytes += size;
        Some(block)
    }

    /// Finds room for one more block of `size`.
    pub(super) fn make_room(&mut self, size: usize) -> Room {
        let max = self.stats.max_bytes;
        if size > max {
            return Room::None;
        }
        let excess = (self.stats.committed_bytes + size).saturating_sub(max);
        if excess == 0 {
            self.stats.committed_bytes += size;
            self.stats.peak_bytes = self.stats.peak_bytes.max(self.stats.committed_bytes);
            return Room::Reserved;
        }
        let trimmed = self.take_cached_bytes(excess);
        if !trimmed.is_empty() {
            return Room::Trim(trimmed);
        }
        match self.parked.front() {
            Some(parked) => {
                self.stats.waits += 1;
                Room::Wait(parked.id, parked.pending.clone())
            }
            None if self.leaving > 0 => Room::Leaving,
            None => Room::None,
        }
    }

    /// Whether blocks are on their way to the system, so that room may appear.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// Takes cached blocks of at least `bytes` in all out of the cache, the largest first, or as many
    /// as there are. Each must be freed, and then counted by [`left`](Self::left).
    fn take_cached_bytes(&mut self, bytes: usize) -> Vec<Block> {
        let mut taken = Vec::new();
        let mut sum = 0;
        for (&size, blocks) in self.cached.iter_mut().rev() {
            while sum < bytes {
                let Some(block) = blocks.pop() else { break };
                sum += size;
                taken.push(block);
            }
        }
        self.stats.cached_bytes -= sum;
        self.stats.trims += taken.len() as u64;
        self.leaving += taken.len();
        taken
    }

    pub(super) fn take_all_cached(&mut self) -> Vec<Block> {
        self.take_cached_bytes(usize::MAX)
    }

    /// A reserved block has been page-locked and is live.
    pub(super) fn grown(&mut self, size: usize) {
        self.stats.growths += 1;
        self.stats.live_bytes += size;
    }

    /// Reserved bytes were never page-locked.
    pub(super) fn release(&mut self, size: usize) {
        self.stats.committed_bytes -= size;
    }

    /// A block taken out of the cache has gone back to the system, or is lost because it would not.
    pub(super) fn left(&mut self, size: usize, freed: bool) {
        self.leaving -= 1;
        if freed {
            self.release(size);
        } else {
            self.quarantine(size);
        }
    }

    fn quarantine(&mut self, size: usize) {
        self.stats.quarantined_bytes += size;
    }

    /// A live block comes back.
    pub(super) fn reclaim(&mut self, block: Block, pending: Vec<Use>) {
        self.stats.live_bytes -= block.bytes;
        if pending.is_empty() {
            self.cache(block);
        } else {
            self.stats.in_flight_bytes += block.bytes;
            self.parked.push_back(Parked { id: self.next_id, block, pending });
            self.next_id += 1;
        }
    }

    fn cache(&mut self, block: Block) {
        self.stats.cached_bytes += block.bytes;
        self.cached.entry(block.bytes).or_default().push(block);
    }

    /// The blocks in flight, to be asked about without the lock.
    pub(super) fn parked(&self) -> Vec<(u64, Vec<Use>)> {
        self.parked.iter().map(|parked| (parked.id, parked.pending.clone())).collect()
    }

    fn remove_parked(&mut self, id: u64) -> Option<Block> {
        let index = self.parked.iter().position(|parked| parked.id == id)?;
        let block = self.parked.remove(index)?.block;
        self.stats.in_flight_bytes -= block.bytes;
        Some(block)
    }

    /// A block in flight is retired; somebody else may have found that out first.
    pub(super) fn unpark(&mut self, id: u64) {
        if let Some(block) = self.remove_parked(id) {
            self.cache(block);
        }
    }

    pub(super) fn quarantine_parked(&mut self, id: u64) {
        if let Some(block) = self.remove_parked(id) {
            self.quarantine(block.bytes);
        }
    }

    /// Everything that the pool still has to free, and what must be waited for first.
    pub(super) fn into_blocks(self) -> impl Iterator<Item = (Block, Vec<Use>)> {
        let cached = self.cached.into_values().flatten().map(|block| (block, Vec::new()));
        cached.chain(self.parked.into_iter().map(|parked| (parked.block, parked.pending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_neither_exceed_the_budget_nor_overflow() {
        const HUGE: usize = isize::MAX as usize;
        let mut ledger = Ledger::new(usize::MAX);
        assert!(matches!(ledger.make_room(HUGE), Room::Reserved));
        assert!(matches!(ledger.make_room(HUGE), Room::None));
        ledger.release(HUGE);
        assert!(matches!(ledger.make_room(HUGE), Room::Reserved));
    }

    /// Room that another thread is making is no reason to say that there is none.
    #[test]
    fn blocks_that_are_leaving_are_waited_for() {
        let mut ledger = Ledger::new(4096);
        assert!(matches!(ledger.make_room(4096), Room::Reserved));
        ledger.grown(4096);
        ledger.reclaim(Block { ptr: std::ptr::NonNull::dangling(), bytes: 4096 }, Vec::new());
        let Room::Trim(leaving) = ledger.make_room(512) else { panic!("it is to be trimmed") };
        assert_eq!(leaving.len(), 1);
        assert!(matches!(ledger.make_room(512), Room::Leaving));
        ledger.left(4096, true);
        assert!(!ledger.is_leaving());
        assert!(matches!(ledger.make_room(512), Room::Reserved));
    }
}
