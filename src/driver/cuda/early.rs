//! Device memory: `cudaMalloc` until something is freed, then `cudaMallocAsync`.
//!
//! The first call that needs the pool, to allocate or to free, takes 7 to 13 ms, a call of
//! `cudaMalloc` less than 0.1 ms (docs/measured). A program that loads a model frees nothing before
//! it has loaded it. Memory of `cudaMalloc` can be used on every stream at once, and
//! `cudaFreeAsync` frees it too (CUDA Programming Guide, "Stream-Ordered Memory Allocator").
//!
//! Such memory is not part of the pool. So the pool cannot reuse it for a later allocation before
//! the stream reaches the free. If memory is short, the allocation waits for those frees.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::mem::take;

use super::unpooled;
use super::way::memory;
use crate::error::CudaCode;
use crate::sync::Mutex;
use pinlane_driver::{Attribute, DevicePtr, Driver, DriverResult, Ordinal, RawEvent, RawStream};

/// The allocations of a device.
#[derive(Default)]
struct Bank {
    /// Whether the device can have a pool, once that is known.
    can_pool: Option<bool>,
    /// Whether memory was freed, which creates the pool.
    has_pool: bool,
    /// The memory of `cudaMalloc` that is not freed.
    early: BTreeSet<DevicePtr>,
    /// An event after the last free of such memory, for each stream that has freed some.
    frees: BTreeMap<usize, RawEvent>,
}

static BANKS: Mutex<BTreeMap<Ordinal, Bank>> = Mutex::new(BTreeMap::new());

fn with_bank<R>(device: Ordinal, work: impl FnOnce(&mut Bank) -> R) -> R {
    work(BANKS.lock().entry(device).or_default())
}

/// Calls `work` once, with the bank of a device that has memory pools. `None` if it has none.
fn with_pools<R>(
    driver: &dyn Driver,
    device: Ordinal,
    mut work: impl FnMut(&mut Bank) -> R,
) -> DriverResult<Option<R>> {
    let known = |bank: &mut Bank| bank.can_pool.map(|can| can.then(|| work(bank)));
    if let Some(answer) = with_bank(device, known) {
        return Ok(answer);
    }
    let can = driver.attribute(device, Attribute::MemoryPoolsSupported)? != 0;
    Ok(with_bank(device, |bank| {
        bank.can_pool = Some(can);
        can.then(|| work(bank))
    }))
}

/// Whether the device has memory pools.
pub(super) fn can_pool(driver: &dyn Driver, device: Ordinal) -> DriverResult<bool> {
    Ok(with_pools(driver, device, |_| ())?.is_some())
}

/// Allocates.
///
/// # Safety
///
/// * `stream` is live and not capturing.
/// * The address is used only by work that is ordered after this call on `stream`.
pub(super) unsafe fn alloc(
    driver: &dyn Driver,
    stream: RawStream,
    bytes: usize,
) -> DriverResult<DevicePtr> {
    let Some(has_pool) = with_pools(driver, stream.device, |bank| bank.has_pool)? else {
        // SAFETY: promised by the caller.
        return unsafe { unpooled::alloc(driver, stream, bytes) };
    };
    if !has_pool {
        match at_once(stream.device, bytes) {
            // Tries the pool, which fails too unless memory has become free.
            Err(CudaCode::MEMORY_ALLOCATION) => {}
            answer => return answer,
        }
    }
    // SAFETY: promised by the caller.
    match unsafe { memory::malloc_async(stream, bytes) } {
        Err(CudaCode::MEMORY_ALLOCATION) if wait_for_frees(driver, stream.device) => {
            // SAFETY: as above.
            unsafe { memory::malloc_async(stream, bytes) }
        }
        answer => answer,
    }
}

fn at_once(device: Ordinal, bytes: usize) -> DriverResult<DevicePtr> {
    let ptr = memory::malloc(device, bytes)?;
    with_bank(device, |bank| bank.early.insert(ptr));
    Ok(ptr)
}

/// `cudaFreeAsync`.
///
/// # Safety
///
/// * `stream` is live and not capturing.
/// * `ptr` came from [`alloc`] and has not been freed.
/// * Every operation that names the memory is ordered before this call on `stream`.
pub(super) unsafe fn free(
    driver: &dyn Driver,
    stream: RawStream,
    ptr: DevicePtr,
) -> DriverResult<()> {
    // Before the free, because another thread may get the address again as soon as it is free.
    let is_early = with_pools(driver, stream.device, |bank| {
        bank.has_pool = true;
        bank.early.remove(&ptr)
    });
    let Some(is_early) = is_early? else {
        // SAFETY: promised by the caller.
        return unsafe { unpooled::free(driver, stream, ptr) };
    };
    // SAFETY: the preconditions of this function are those of `free_async`.
    unsafe { memory::free_async(stream, ptr) }?;
    if is_early {
        // Without an event no allocation waits for the free: one that needs the memory earlier
        // fails. SAFETY: the stream is live: promised by the caller.
        let _ = with_bank(stream.device, |bank| unsafe { bank.mark_free(driver, stream) });
    }
    Ok(())
}

impl Bank {
    /// Records an event after a free of memory of `cudaMalloc`.
    ///
    /// # Safety
    ///
    /// * `stream` is live, and of this bank's device.
    unsafe fn mark_free(&mut self, driver: &dyn Driver, stream: RawStream) -> DriverResult<()> {
        let event = match self.frees.entry(stream.handle) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => *place.insert(driver.event_create(stream.device, false)?),
        };
        // SAFETY: the stream is live: promised by the caller. The event is of its device, and live:
        // it is taken out of the bank before it is destroyed.
        unsafe { driver.event_record(event, stream) }
    }
}

/// Blocks until all freed memory of `cudaMalloc` is free. Returns whether there was any.
fn wait_for_frees(driver: &dyn Driver, device: Ordinal) -> bool {
    let frees = with_bank(device, |bank| take(&mut bank.frees));
    let some = !frees.is_empty();
    for event in frees.into_values() {
        // SAFETY: the event is live, and has no other user: it was taken out of the bank.
        unsafe {
            // A device that failed fails the next allocation too.
            let _ = driver.event_synchronize(event);
            let _ = driver.event_destroy(event);
        }
    }
    some
}
