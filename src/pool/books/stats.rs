//! The statistics of a pool: what it holds, and what it has done.

use std::fmt;
use std::time::Duration;

/// How often something happened, and how long it took.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How often.
    pub count: u64,
    /// The sum.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Durations {
    pub(crate) fn add(&mut self, took: Duration) {
        self.count += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }
}

/// Growths for which the system refused the preferred method, so that the pool used another.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrowthFallbacks {
    /// `cudaHostRegister` failed, so `cudaHostAlloc` was used.
    pub not_registered: u64,
    /// The system refused to page-lock the memory in one call of `cudaHostRegister`, so the pool
    /// made several calls. Blocks larger than 8 MiB may then consist of several registrations, and
    /// the runtime refuses a copy that spans two of them (`cudaErrorInvalidValue`). The copies of
    /// this crate are split. Copies of your own on such a buffer
    /// ([`Stream::foreign`](crate::Stream::foreign)) must be split too: at multiples of the largest
    /// power of two that the system registers in one call, counted from the start of the buffer.
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
    /// Lost: the pool could not prove that the device is done with them.
    pub quarantined: usize,
    /// How often memory was page-locked for this size.
    pub growths: u64,
}

/// A snapshot of a pool, from [`PinnedPool::stats`](crate::PinnedPool::stats). Sizes are those of
/// blocks, in bytes: requests, rounded up.
///
/// A snapshot does not slow down threads that allocate: it reads the counters that they write for
/// themselves. While threads allocate or drop, the numbers need not add up; otherwise the snapshot
/// is exact.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The budget. If it is the default one, and the system has just refused to page-lock more,
    /// what the system allows.
    pub max_bytes: usize,
    /// Page-locked by the pool now: live, cached, in flight and quarantined blocks, the remainders
    /// at the end of slabs, and memory that is being page-locked or given back at this moment.
    pub committed_bytes: usize,
    /// The most that `committed_bytes` has been.
    pub peak_bytes: usize,
    /// In buffers that exist.
    pub live_bytes: usize,
    /// Free, and ready to be used again.
    pub cached_bytes: usize,
    /// The part of `cached_bytes` in the threads' own caches.
    pub thread_bytes: usize,
    /// Dropped, but perhaps still used by a device.
    pub in_flight_bytes: usize,
    /// Lost: the pool could not prove that the device is done with them, or the system refused to
    /// take them back. Never freed, never reused.
    pub quarantined_bytes: usize,
    /// Allocations served from free blocks.
    pub hits: u64,
    /// The part of `hits` served from blocks that the thread kept.
    pub thread_hits: u64,
    /// Allocations for which no block was free.
    pub misses: u64,
    /// Growths: page-locking of new memory.
    pub growths: Durations,
    /// Allocations that waited because the budget did not allow new memory.
    pub waits: Durations,
    /// Times that memory was given back to the system.
    pub trims: u64,
    /// Growths that did not get the preferred method.
    pub fallbacks: GrowthFallbacks,
    /// Threads that keep blocks.
    pub threads: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// By size of block, the smallest first. Sizes without blocks are left out.
    pub classes: Vec<ClassStats>,
    /// `max_bytes` is what the system allows.
    pub(crate) by_system: bool,
}

/// Where one growth did not get the preferred method.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fallbacks {
    pub(crate) not_registered: bool,
    pub(crate) in_parts: bool,
    pub(crate) small_pages: bool,
    pub(crate) other_node: bool,
}

impl GrowthFallbacks {
    pub(crate) fn add(&mut self, growth: Fallbacks) {
        self.not_registered += u64::from(growth.not_registered);
        self.in_parts += u64::from(growth.in_parts);
        self.small_pages += u64::from(growth.small_pages);
        self.other_node += u64::from(growth.other_node);
    }
}

/// What an error says about the pool: the numbers that are known without counting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    pub(crate) max_bytes: usize,
    /// `max_bytes` is what the system allows.
    pub(crate) by_system: bool,
    pub(crate) committed_bytes: usize,
    /// Free for all threads.
    pub(crate) free_bytes: usize,
    /// Blocks that a device may still use.
    pub(crate) in_flight: usize,
    /// Requests in the queue.
    pub(crate) waiting: usize,
}

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {}{} page-locked, {} free, {} blocks in flight, {} requests waiting",
            in_units(self.committed_bytes),
            in_units(self.max_bytes),
            whose(self.by_system),
            in_units(self.free_bytes),
            self.in_flight,
            self.waiting,
        )
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {}{} page-locked (peak {}): {} live, {} cached, {} in flight, {} quarantined; \
             {} hits, {} misses, {} growths, {} waits, {} trims",
            in_units(self.committed_bytes),
            in_units(self.max_bytes),
            whose(self.by_system),
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

/// What a message adds to a budget that the system has lowered.
fn whose(by_system: bool) -> &'static str {
    if by_system { " that the system allows" } else { "" }
}

/// A size for people: "64 KiB", "125.8 GiB".
pub(crate) fn in_units(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|&(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) if bytes.trailing_zeros() >= shift => {
            format!("{} {unit}", bytes >> shift)
        }
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}
