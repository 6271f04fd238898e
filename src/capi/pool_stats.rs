//! Statistics of pools.

use std::collections::BTreeSet;
use std::ffi::c_char;
use std::time::Duration;

use super::{
    Out, Result, boundary, growing, handle, invalid, layout, members, pinlane_pool, pinlane_status,
    pointer, unknown,
};
use crate::pool::{ClassStats, Stats};

/// Statistics of a pool. Sizes are in bytes of blocks, times in nanoseconds. Initialise with
/// `PINLANE_POOL_STATS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_pool_stats {
    /// `sizeof(pinlane_pool_stats)`.
    pub size: usize,
    /// The budget. If it is the default one, and the system has just refused to page-lock more,
    /// what the system allows.
    pub max_bytes: usize,
    /// Page-locked now: live, cached, in-flight and quarantined blocks, the unused ends of slabs,
    /// and memory that is being page-locked or given back at this moment.
    pub committed_bytes: usize,
    /// The most that `committed_bytes` has been.
    pub peak_bytes: usize,
    /// In buffers that exist, and allocated by address.
    pub live_bytes: usize,
    /// Free, and ready to be reused.
    pub cached_bytes: usize,
    /// The part of `cached_bytes` in the caches of threads.
    pub thread_bytes: usize,
    /// Freed, but a device may still use them.
    pub in_flight_bytes: usize,
    /// Lost: nothing proved that the device is done with them, or the system did not take them
    /// back.
    pub quarantined_bytes: usize,
    /// Allocations that reused a free block.
    pub hits: u64,
    /// The part of `hits` that the thread's own cache served.
    pub thread_hits: u64,
    /// Allocations for which no block was free.
    pub misses: u64,
    /// How often new memory was page-locked.
    pub growths: u64,
    /// How long that took in total.
    pub growths_total_ns: u64,
    /// The longest time.
    pub growths_longest_ns: u64,
    /// Allocations that waited because the budget allowed no new memory.
    pub waits: u64,
    /// Their waiting time in total.
    pub waits_total_ns: u64,
    /// The longest waiting time.
    pub waits_longest_ns: u64,
    /// Times that memory was given back to the system.
    pub trims: u64,
    /// Growths in which registering failed and the CUDA runtime allocated the memory.
    pub growths_not_registered: u64,
    /// Growths in which the system refused huge pages.
    pub growths_small_pages: u64,
    /// Growths whose memory could not be bound to the device's NUMA node.
    pub growths_other_node: u64,
    /// Threads that have a cache.
    pub threads: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// Growths that the system refused in one call and that were registered in parts.
    pub growths_in_parts: u64,
}

/// Statistics of one block size of a pool. Counts are in blocks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_class_stats {
    /// The size of a block.
    pub block_bytes: usize,
    /// All blocks: live, cached, in flight and quarantined.
    pub blocks: usize,
    /// In buffers that exist, and allocated by address.
    pub live: usize,
    /// Free, and ready to be reused.
    pub cached: usize,
    /// Freed, but a device may still use them.
    pub in_flight: usize,
    /// Lost: nothing proved that the device is done with them.
    pub quarantined: usize,
    /// How often memory was page-locked for this size.
    pub growths: u64,
    /// 0.
    pub reserved: u64,
}

layout!(pinlane_pool_stats: 200; size 0, hits 72, waiting 184, growths_in_parts 192);
growing!(pinlane_pool_stats_init: pinlane_pool_stats, sizes [200], default {});
layout!(pinlane_class_stats: 64; growths 48, reserved 56);

members! {
    pinlane_pool_stats of now: Stats,
    same [max_bytes, committed_bytes, peak_bytes, live_bytes, cached_bytes, thread_bytes,
        in_flight_bytes, quarantined_bytes, hits, thread_hits, misses, trims, threads, waiting],
    size: size_of::<Self>(),
    growths: now.growths.count,
    growths_total_ns: nanoseconds(now.growths.total),
    growths_longest_ns: nanoseconds(now.growths.longest),
    growths_not_registered: now.fallbacks.not_registered,
    growths_small_pages: now.fallbacks.small_pages,
    growths_other_node: now.fallbacks.other_node,
    growths_in_parts: now.fallbacks.in_parts,
    waits: now.waits.count,
    waits_total_ns: nanoseconds(now.waits.total),
    waits_longest_ns: nanoseconds(now.waits.longest),
}

members! {
    pinlane_class_stats of class: ClassStats,
    same [block_bytes, blocks, live, cached, in_flight, quarantined, growths],
    reserved: 0,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes the pool's statistics to `stats`, whose `size` member must be set. Takes a short lock.
/// While other threads allocate or free, the parts need not add up.
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
    let count = || Ok(handle::get(pool)?.stats().into());
    // SAFETY: the caller's precondition on `stats`.
    unsafe { growing::give_sized("pinlane_pool_get_stats", "stats", stats, count) }
}

/// Writes the statistics of each block size, the smallest first, to `classes[0 .. capacity]`, and
/// the number of block sizes to `count`. If that is more than `capacity`, the rest is omitted. To
/// get the number, call it with `classes` NULL and a `capacity` of 0. Takes a short lock.
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
    boundary("pinlane_pool_get_class_stats", || {
        let pool = handle::get(pool)?;
        // SAFETY: the caller's precondition on `count`.
        let out = unsafe { Out::new("count", count) }.check()?;
        if capacity > 0 {
            // SAFETY: the caller's precondition on `classes`, which has at least one element.
            unsafe { Out::new("classes", classes) }.check()?;
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

/// Text for people, in one line.
pub const PINLANE_STATS_TEXT: i32 = 0;
/// One JSON object with everything, also by block size. Times are in nanoseconds.
pub const PINLANE_STATS_JSON: i32 = 1;
/// Prometheus' text format, version 0.0.4. Times are in seconds.
pub const PINLANE_STATS_PROMETHEUS: i32 = 2;

/// Writes the pool's statistics to `buffer`, as a text in `format`, one of `PINLANE_STATS_*`. At
/// most `capacity` bytes are written, with the terminating NUL; a longer text is truncated.
/// `needed`, which may be NULL, gets the number of bytes that the whole text needs. `buffer` may be
/// NULL if `capacity` is 0. The next text may need more bytes. Takes a short lock.
///
/// Metrics for Prometheus have the label `pool` with the value `name`; NULL means an empty name.
/// The other formats ignore it. One response may describe a metric only once: for several pools use
/// `pinlane_pools_prometheus`. The metrics are gauges and counters: `pinlane_pool_live_bytes`,
/// `pinlane_pool_wait_seconds_total` and others, and `pinlane_pool_class_blocks` and others with a
/// second label, `block_bytes`.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` for an unknown format, or if `buffer` is NULL while
/// `capacity` is not 0.
///
/// # Safety
///
/// - `name` is NULL or points to a string.
/// - `buffer` is NULL or points to `capacity` bytes.
/// - `needed` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_stats_text(
    pool: *const pinlane_pool,
    format: i32,
    name: *const c_char,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pinlane_status {
    let write = || {
        let pool = handle::get(pool)?;
        let name = if name.is_null() { c"".as_ptr() } else { name };
        match format {
            PINLANE_STATS_TEXT => Ok(pool.stats().to_string()),
            PINLANE_STATS_JSON => Ok(pool.stats().to_json()),
            PINLANE_STATS_PROMETHEUS => {
                // SAFETY: a string, by the caller's precondition on `name`.
                let name = unsafe { pointer::string("name", name) }?;
                Ok(pool.stats().to_prometheus(&name))
            }
            other => Err(unknown("format", other, "use one of PINLANE_STATS_*")),
        }
    };
    // SAFETY: the caller's preconditions on `buffer` and `needed`.
    unsafe { pointer::give_text("pinlane_pool_stats_text", buffer, capacity, needed, write) }
}

/// Writes the statistics of the `count` pools of `pools` to `buffer`, as one response in
/// Prometheus' text format: the metrics of `PINLANE_STATS_PROMETHEUS`, each described once. Those
/// of `pools[i]` have the label `pool` with the value `names[i]`; no two names are equal. `buffer`,
/// `capacity` and `needed` are as for `pinlane_pool_stats_text`. The arrays may be NULL if `count`
/// is 0.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if a name or an array is NULL, two names are equal,
/// or `buffer` is NULL while `capacity` is not 0.
///
/// # Safety
///
/// - `pools` is NULL or points to an array of `count` elements.
/// - `names` is NULL or points to an array of `count` elements, each NULL or a string.
/// - `buffer` is NULL or points to `capacity` bytes.
/// - `needed` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pools_prometheus(
    pools: *const *const pinlane_pool,
    names: *const *const c_char,
    count: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pinlane_status {
    const FUNCTION: &str = "pinlane_pools_prometheus";
    let write = || {
        // SAFETY: the caller's precondition on `pools`.
        let pools = unsafe { pointer::inputs("pools", pools, count) }?;
        // SAFETY: the caller's precondition on `names`.
        let names = unsafe { pointer::inputs("names", names, count) }?;
        // SAFETY: NULL or strings, by the caller's precondition on `names`.
        let names = names.iter().map(|&name| unsafe { pointer::string("names", name) });
        let names = names.collect::<Result<Vec<_>>>()?;
        let mut seen = BTreeSet::new();
        if let Some(number) = names.iter().position(|name| !seen.insert(name)) {
            let what =
                format!("pool {number} has the name \"{}\" of an earlier one", names[number]);
            return Err(invalid(what, "give each pool a name of its own"));
        }
        let stats = pools.iter().map(|&pool| Ok(handle::get(pool)?.stats()));
        let stats = stats.collect::<Result<Vec<_>>>()?;
        let all: Vec<_> = names.iter().zip(&stats).map(|(name, stats)| (&**name, stats)).collect();
        Ok(Stats::all_to_prometheus(&all))
    };
    // SAFETY: the caller's preconditions on `buffer` and `needed`.
    unsafe { pointer::give_text(FUNCTION, buffer, capacity, needed, write) }
}
