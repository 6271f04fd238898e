//! What a pool holds and what it has done.

use std::fmt;
use std::time::Duration;

use super::cache::{Cache, Counter, Shelf};
use super::core::{Core, State};
use super::grow::Fallbacks;
use super::limits::in_units;
use super::wait::Request;

/// How often something happened, and how long it took.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// How often.
    pub count: u64,
    /// All of them together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Timing {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }
}

/// What was not to be had as asked for when memory was page-locked; in growths.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrowthFallbacks {
    /// `cudaHostRegister` failed, and `cudaHostAlloc` was used.
    pub not_registered: u64,
    /// One call of `cudaHostRegister` for all of it was refused, and several were made. Blocks
    /// larger than 8 MiB may then consist of several registrations; see
    /// [`registration_bytes`](crate::PinnedPoolBuilder::registration_bytes).
    pub in_parts: u64,
    /// The system refused huge pages.
    pub small_pages: u64,
    /// The memory could not be bound to the device's NUMA node.
    pub other_node: u64,
}

/// What a pool holds of one size of block.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// The size of a block.
    pub block_bytes: usize,
    /// How many there are: live + cached + in flight + quarantined.
    pub blocks: usize,
    /// In buffers that exist.
    pub live: usize,
    /// Free.
    pub cached: usize,
    /// Dropped, but perhaps still used by a device.
    pub in_flight: usize,
    /// Lost: it could not be proven that the device is done with them.
    pub quarantined: usize,
    /// How often memory was page-locked for this size.
    pub growths: u64,
}

/// A snapshot of a pool, from [`PinnedPool::stats`](crate::PinnedPool::stats). Sizes are in bytes
/// of blocks: what was asked for, rounded up.
///
/// Taking it costs threads that allocate nothing: it reads what they write for themselves. So while
/// they are at it the parts need not add up; when nobody allocates or drops, the snapshot is exact.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// The budget.
    pub max_bytes: usize,
    /// Page-locked by the pool now: live, cached, in flight and quarantined blocks, what is left
    /// over at the end of slabs, and memory that is being page-locked or given back at the moment.
    pub committed_bytes: usize,
    /// The most that `committed_bytes` has been.
    pub peak_bytes: usize,
    /// In buffers that exist.
    pub live_bytes: usize,
    /// Free, and ready to be used again.
    pub cached_bytes: usize,
    /// The part of `cached_bytes` that threads keep for themselves.
    pub thread_bytes: usize,
    /// Dropped, but perhaps still used by a device.
    pub in_flight_bytes: usize,
    /// Lost: it could not be proven that the device is done with them, or the system did not take
    /// them back. Never freed, never reused.
    pub quarantined_bytes: usize,
    /// Allocations served from free blocks.
    pub hits: u64,
    /// The part of `hits` that needed nothing but the thread's own blocks.
    pub thread_hits: u64,
    /// Allocations for which no block was free.
    pub misses: u64,
    /// New memory page-locked.
    pub growths: Timing,
    /// Allocations that waited, because the budget did not allow new memory.
    pub waits: Timing,
    /// Times that memory was given back to the system.
    pub trims: u64,
    /// What growths did without.
    pub fallbacks: GrowthFallbacks,
    /// Threads that keep blocks.
    pub threads: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// By size of block, the smallest first; sizes that there are no blocks of now are left out.
    pub classes: Vec<ClassStats>,
}

/// What the pool counts itself, under its lock.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) shared_hits: u64,
    pub(super) misses: u64,
    pub(super) trims: u64,
    growths: Timing,
    waits: Timing,
    fallbacks: GrowthFallbacks,
    /// Hits of threads that have ended.
    past_hits: u64,
}

impl Counts {
    pub(super) fn grew(&mut self, took: Duration, fallbacks: Fallbacks) {
        self.growths.add(took);
        self.fallbacks.not_registered += u64::from(fallbacks.not_registered);
        self.fallbacks.in_parts += u64::from(fallbacks.in_parts);
        self.fallbacks.small_pages += u64::from(fallbacks.small_pages);
        self.fallbacks.other_node += u64::from(fallbacks.other_node);
    }

    /// A request leaves the queue with a block.
    pub(super) fn served(&mut self, request: &Request) {
        if request.waited {
            self.waits.add(request.since.elapsed());
        }
    }

    /// A thread's cache is about to go.
    pub(super) fn forget(&mut self, cache: &Cache) {
        self.past_hits += cache.hits();
    }
}

impl Core {
    /// A snapshot, by whoever holds the lock.
    pub(super) fn stats_of(&self, state: &State) -> PoolStats {
        let (store, counts) = (&state.store, &state.counts);
        let in_threads = |class: Option<usize>, of: fn(&Shelf) -> &Counter| -> usize {
            let Some(class) = class else { return 0 };
            state.caches.iter().map(|cache| of(&cache.shelves()[class]).get() as usize).sum()
        };
        let classes: Vec<ClassStats> = store
            .shelves()
            .filter(|shelf| shelf.blocks > 0)
            .map(|shelf| {
                let size = shelf.size;
                let cached = shelf.free + in_threads(size.class(), |shelf| &shelf.len);
                let in_flight = shelf.parked + in_threads(size.class(), |shelf| &shelf.posted);
                let elsewhere = cached + in_flight + shelf.quarantined;
                ClassStats {
                    block_bytes: size.bytes,
                    blocks: shelf.blocks,
                    live: shelf.blocks.saturating_sub(elsewhere),
                    cached,
                    in_flight,
                    quarantined: shelf.quarantined,
                    growths: shelf.growths,
                }
            })
            .collect();
        let sum = |of: fn(&ClassStats) -> usize| -> usize {
            classes.iter().map(|class| of(class) * class.block_bytes).sum()
        };
        let thread_hits =
            state.caches.iter().map(|cache| cache.hits()).sum::<u64>() + counts.past_hits;
        PoolStats {
            max_bytes: store.max_bytes,
            committed_bytes: store.committed,
            peak_bytes: store.peak,
            live_bytes: sum(|class| class.live),
            cached_bytes: sum(|class| class.cached),
            thread_bytes: state.caches.iter().map(|cache| cache.bytes.get() as usize).sum(),
            in_flight_bytes: sum(|class| class.in_flight),
            quarantined_bytes: sum(|class| class.quarantined) + store.unreleased,
            hits: thread_hits + counts.shared_hits,
            thread_hits,
            misses: counts.misses,
            growths: counts.growths,
            waits: counts.waits,
            trims: counts.trims,
            fallbacks: counts.fallbacks,
            threads: state.caches.len(),
            waiting: state.queue.len(),
            classes,
        }
    }
}

impl fmt::Display for PoolStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} page-locked (peak {}): {} live, {} cached, {} in flight, {} quarantined; \
             {} hits, {} misses, {} growths, {} waits, {} trims",
            in_units(self.committed_bytes),
            in_units(self.max_bytes),
            in_units(self.peak_bytes),
            in_units(self.live_bytes),
            in_units(self.cached_bytes),
            in_units(self.in_flight_bytes),
            in_units(self.quarantined_bytes),
            self.hits,
            self.misses,
            self.growths.count,
            self.waits.count,
            self.trims,
        )?;
        if self.waiting > 0 {
            write!(f, "; {} requests wait", self.waiting)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_reads_well() {
        let stats = PoolStats {
            max_bytes: 64 << 20,
            committed_bytes: (4 << 20) + (64 << 10),
            peak_bytes: 5 << 20,
            live_bytes: 4 << 20,
            cached_bytes: 60 << 10,
            hits: 3,
            waiting: 2,
            ..PoolStats::default()
        };
        assert_eq!(
            stats.to_string(),
            "4.1 MiB of 64 MiB page-locked (peak 5 MiB): 4 MiB live, 60 KiB cached, 0 bytes in flight, \
             0 bytes quarantined; 3 hits, 0 misses, 0 growths, 0 waits, 0 trims; 2 requests wait"
        );
    }
}
