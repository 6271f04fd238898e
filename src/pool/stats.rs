//! What a pool holds and what it has done.

use std::fmt;

/// A snapshot of a pool, from [`PinnedPool::stats`](crate::PinnedPool::stats). Sizes are in bytes of
/// blocks: what was asked for, rounded up to its size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The budget.
    pub max_bytes: usize,
    /// Page-locked by the pool now: live + cached + in flight + quarantined, and blocks that are being
    /// allocated or freed at the moment.
    pub committed_bytes: usize,
    /// The most that `committed_bytes` has been.
    pub peak_bytes: usize,
    /// In buffers that exist.
    pub live_bytes: usize,
    /// Free, and ready to be used again.
    pub cached_bytes: usize,
    /// Dropped, but perhaps still used by the device.
    pub in_flight_bytes: usize,
    /// Lost: it could not be proven that the device is done with them. Never freed, never reused.
    pub quarantined_bytes: usize,
    /// Allocations served from the cache.
    pub hits: u64,
    /// Allocations that had to page-lock new memory.
    pub growths: u64,
    /// Times an allocation waited for the device to be done with a dropped block.
    pub waits: u64,
    /// Blocks given back to the system to make room for another size.
    pub trims: u64,
}

impl fmt::Display for PoolStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        write!(
            f,
            "{:.1} of {:.1} MiB page-locked (peak {:.1}): {:.1} live, {:.1} cached, {:.1} in flight, \
             {:.1} quarantined; {} hits, {} growths, {} waits, {} trims",
            mib(self.committed_bytes),
            mib(self.max_bytes),
            mib(self.peak_bytes),
            mib(self.live_bytes),
            mib(self.cached_bytes),
            mib(self.in_flight_bytes),
            mib(self.quarantined_bytes),
            self.hits,
            self.growths,
            self.waits,
            self.trims,
        )
    }
}
