//! Pools of page-locked memory.

use super::device::{check_flags, pinlane_device, sized_input};
use super::handle::{self, Handle, Out, Table};
use super::status::{boundary, pinlane_status};
use crate::pool::PinnedPool;

/// A pool of page-locked host memory. Any thread may use it; freeing the handle does not end its
/// buffers.
pub struct pinlane_pool {
    _opaque: [u8; 0],
}

impl Handle for pinlane_pool {
    type Object = PinnedPool;
    const NAME: &'static str = "pool";
    fn table() -> &'static Table<PinnedPool> {
        static TABLE: Table<PinnedPool> = Table::new(4);
        &TABLE
    }
}

/// Options of a pool. Initialise with `PINLANE_POOL_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_pool_options {
    /// `sizeof(pinlane_pool_options)`.
    pub size: usize,
    /// The most that the pool may page-lock at a time, in bytes.
    pub max_bytes: usize,
    /// Must be 0.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// What a pool holds and has done; sizes are in bytes of blocks. Initialise with
/// `PINLANE_POOL_STATS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_pool_stats {
    /// `sizeof(pinlane_pool_stats)`.
    pub size: usize,
    /// The budget.
    pub max_bytes: usize,
    /// Page-locked now.
    pub committed_bytes: usize,
    /// The most that `committed_bytes` has been.
    pub peak_bytes: usize,
    /// In buffers that exist.
    pub live_bytes: usize,
    /// Free, and ready to be used again.
    pub cached_bytes: usize,
    /// Freed, but perhaps still used by the device.
    pub in_flight_bytes: usize,
    /// Lost: it could not be proven that the device is done with them.
    pub quarantined_bytes: usize,
    /// Allocations served from the cache.
    pub hits: u64,
    /// Allocations that page-locked new memory.
    pub growths: u64,
    /// Times an allocation waited for the device.
    pub waits: u64,
    /// Blocks given back to the system to make room for another size.
    pub trims: u64,
}

const _: () = {
    assert!(size_of::<pinlane_pool_options>() == 24);
    assert!(size_of::<pinlane_pool_stats>() == 96);
    assert!(std::mem::offset_of!(pinlane_pool_options, size) == 0);
    assert!(std::mem::offset_of!(pinlane_pool_stats, size) == 0);
    assert!(std::mem::offset_of!(pinlane_pool_stats, hits) == 64);
};

/// Makes a pool for `device` and writes it to `pool`, which the caller frees with `pinlane_pool_free`.
/// `options` may be NULL: a budget of 1 GiB. Page-locks nothing yet.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `pool` is NULL, for a budget of 0,
/// or for options of an unknown size or flag.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `pool` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_create(
    device: *const pinlane_device,
    options: *const pinlane_pool_options,
    pool: *mut *mut pinlane_pool,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_create";
        let device = handle::get(OPERATION, device)?;
        // SAFETY: the caller's precondition on `pool`.
        let out = unsafe { Out::new(OPERATION, "pool", pool) }?;
        let mut builder = PinnedPool::builder(&device);
        if !options.is_null() {
            // SAFETY: the caller's precondition on `options`.
            let given = unsafe { sized_input(OPERATION, options) }?;
            check_flags(OPERATION, given.flags | given.reserved, 0)?;
            builder = builder.max_bytes(given.max_bytes);
        }
        out.set(handle::create(builder.build()?));
        Ok(())
    })
}

/// Writes what the pool holds and has done to `stats`, whose `size` member must be set.
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
        let now = pool.stats();
        out.set(pinlane_pool_stats {
            size: size_of::<pinlane_pool_stats>(),
            max_bytes: now.max_bytes,
            committed_bytes: now.committed_bytes,
            peak_bytes: now.peak_bytes,
            live_bytes: now.live_bytes,
            cached_bytes: now.cached_bytes,
            in_flight_bytes: now.in_flight_bytes,
            quarantined_bytes: now.quarantined_bytes,
            hits: now.hits,
            growths: now.growths.count,
            waits: now.waits.count,
            trims: now.trims,
        });
        Ok(())
    })
}

/// Frees the handle; NULL is a no-op. The memory is given back once the last buffer is freed and the
/// device is done with all of it; whoever frees last waits for that.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a pool.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_pool_free(pool: *mut pinlane_pool) -> pinlane_status {
    boundary(|| handle::free("pinlane_pool_free", pool))
}
