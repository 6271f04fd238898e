//! What pools hold and have done.

use std::time::Duration;

use super::device::sized_input;
use super::handle;
use super::pointer::Out;
use super::pool::pinlane_pool;
use super::status::{boundary, pinlane_status};
use crate::pool::{ClassStats, PoolStats};

/// What a pool holds and has done; sizes are in bytes of blocks, times in nanoseconds. Initialise
/// with `PINLANE_POOL_STATS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_pool_stats {
    /// `sizeof(pinlane_pool_stats)`.
    pub size: usize,
    /// The budget.
    pub max_bytes: usize,
    /// Page-locked now: live, cached, in flight and quarantined blocks, what is left over at the
    /// end of slabs, and memory that is being page-locked or given back at the moment.
    pub committed_bytes: usize,
    /// The most that `committed_bytes` has been.
    pub peak_bytes: usize,
    /// In buffers that exist, and allocated by address.
    pub live_bytes: usize,
    /// Free, and ready to be used again.
    pub cached_bytes: usize,
    /// The part of `cached_bytes` that threads keep for themselves.
    pub thread_bytes: usize,
    /// Freed, but perhaps still used by a device.
    pub in_flight_bytes: usize,
    /// Lost: it could not be proven that the device is done with them, or the system did not take
    /// them back.
    pub quarantined_bytes: usize,
    /// Allocations served from free blocks.
    pub hits: u64,
    /// The part of `hits` that needed nothing but the thread's own blocks.
    pub thread_hits: u64,
    /// Allocations for which no block was free.
    pub misses: u64,
    /// How often new memory was page-locked.
    pub growths: u64,
    /// How long that took, all together.
    pub growths_total_ns: u64,
    /// How long the longest took.
    pub growths_longest_ns: u64,
    /// Allocations that waited, because the budget did not allow new memory.
    pub waits: u64,
    /// How long they waited, all together.
    pub waits_total_ns: u64,
    /// How long the longest waited.
    pub waits_longest_ns: u64,
    /// Times that memory was given back to the system.
    pub trims: u64,
    /// Growths for which registering failed, so that the runtime allocated the memory.
    pub growths_not_registered: u64,
    /// Growths for which the system refused huge pages.
    pub growths_small_pages: u64,
    /// Growths whose memory could not be bound to the device's NUMA node.
    pub growths_other_node: u64,
    /// Threads that keep blocks.
    pub threads: usize,
    /// Requests in the queue.
    pub waiting: usize,
}

/// What a pool holds of one size of block; counts are in blocks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_class_stats {
    /// The size of a block.
    pub block_bytes: usize,
    /// How many there are: live, cached, in flight and quarantined.
    pub blocks: usize,
    /// In buffers that exist, and allocated by address.
    pub live: usize,
    /// Free, and ready to be used again.
    pub cached: usize,
    /// Freed, but perhaps still used by a device.
    pub in_flight: usize,
    /// Lost: it could not be proven that the device is done with them.
    pub quarantined: usize,
    /// How often memory was page-locked for this size.
    pub growths: u64,
}

const _: () = {
    assert!(size_of::<pinlane_pool_stats>() == 192);
    assert!(std::mem::offset_of!(pinlane_pool_stats, size) == 0);
    assert!(std::mem::offset_of!(pinlane_pool_stats, hits) == 72);
    assert!(std::mem::offset_of!(pinlane_pool_stats, waiting) == 184);
    assert!(size_of::<pinlane_class_stats>() == 56);
};

impl From<PoolStats> for pinlane_pool_stats {
    fn from(now: PoolStats) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        pinlane_pool_stats {
            size: size_of::<pinlane_pool_stats>(),
            max_bytes: now.max_bytes,
            committed_bytes: now.committed_bytes,
            peak_bytes: now.peak_bytes,
            live_bytes: now.live_bytes,
            cached_bytes: now.cached_bytes,
            thread_bytes: now.thread_bytes,
            in_flight_bytes: now.in_flight_bytes,
            quarantined_bytes: now.quarantined_bytes,
            hits: now.hits,
            thread_hits: now.thread_hits,
            misses: now.misses,
            growths: now.growths.count,
            growths_total_ns: nanoseconds(now.growths.total),
            growths_longest_ns: nanoseconds(now.growths.longest),
            waits: now.waits.count,
            waits_total_ns: nanoseconds(now.waits.total),
            waits_longest_ns: nanoseconds(now.waits.longest),
            trims: now.trims,
            growths_not_registered: now.fallbacks.not_registered,
            growths_small_pages: now.fallbacks.small_pages,
            growths_other_node: now.fallbacks.other_node,
            threads: now.threads,
            waiting: now.waiting,
        }
    }
}

impl From<ClassStats> for pinlane_class_stats {
    fn from(class: ClassStats) -> Self {
        pinlane_class_stats {
            block_bytes: class.block_bytes,
            blocks: class.blocks,
            live: class.live,
            cached: class.cached,
            in_flight: class.in_flight,
            quarantined: class.quarantined,
            growths: class.growths,
        }
    }
}

/// Writes what the pool holds and has done to `stats`, whose `size` member must be set. Takes a
/// short lock. While other threads allocate or free, the parts need not add up.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `stats` is NULL or its size is unknown.
///
/// # Safety
///
/// - `stats` is NULL or points to a struct whose `size` member is set and right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_get_stats(
    pool: *const pinlane_pool,
    stats: *mut pinlane_pool_stats,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_get_stats";
        let pool = handle::get(OPERATION, pool)?;
        // SAFETY: the caller's precondition on `stats`.
        let out = unsafe { Out::new(OPERATION, "stats", stats) }?;
        // SAFETY: as above; all members are plain numbers, and only `size` is looked at.
        unsafe { sized_input(OPERATION, stats.cast_const()) }?;
        out.set(pool.stats().into());
        Ok(())
    })
}

/// Writes what the pool holds, by size of block and the smallest first, to `classes[0 ..
/// capacity]`, and how many sizes there are to `count`. If that is more than `capacity`, the rest
/// was left out: call it with `classes` NULL and a capacity of 0 for the number, and again with as
/// much room. Takes a short lock.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `count` is NULL, or `classes` is while `capacity`
/// is not 0.
///
/// # Safety
///
/// - `classes` is NULL or points to an array of `capacity` elements.
/// - `count` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_get_class_stats(
    pool: *const pinlane_pool,
    classes: *mut pinlane_class_stats,
    capacity: usize,
    count: *mut usize,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_get_class_stats";
        let pool = handle::get(OPERATION, pool)?;
        // SAFETY: the caller's precondition on `count`.
        let out = unsafe { Out::new(OPERATION, "count", count) }?;
        if capacity > 0 {
            // SAFETY: the caller's precondition on `classes`, which has at least one element.
            unsafe { Out::new(OPERATION, "classes", classes) }?;
        }
        let now = pool.stats().classes;
        out.set(now.len());
        for (index, class) in now.into_iter().take(capacity).enumerate() {
            // SAFETY: the array has `capacity` elements, and `index` is less; it was found aligned.
            unsafe { classes.add(index).write(class.into()) };
        }
        Ok(())
    })
}
