//! Memory by address, for allocators: `malloc` and `free` of a pool.

use std::ffi::c_void;

use super::handle;
use super::pointer::Out;
use super::pool::pinlane_pool;
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;

/// Allocates at least `bytes` of page-locked memory, at least 1, and writes its address to
/// `memory`: a multiple of `alignment`, which is a power of two, at most 2 MiB. The caller gives it
/// back with `pinlane_pool_deallocate`; it belongs to the pool, and stays allocated for ever once
/// the pool's last handle is freed. The contents are unspecified. Blocks as `pinlane_buffer_alloc`.
///
/// This is memory for allocators, such as `std::pmr`, and for libraries that want an address. It is
/// plain memory: nothing waits for a device that still uses it. A `pinlane_buffer` does that by
/// itself. A forked child does not have the memory, and must not touch it.
///
/// Statuses: `INVALID_HANDLE`, `BUDGET_EXHAUSTED`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`;
/// `INVALID_VALUE` if `memory` is NULL, the size overflows, or for another `alignment`.
///
/// # Safety
///
/// - `memory` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_allocate(
    pool: *const pinlane_pool,
    bytes: usize,
    alignment: usize,
    memory: *mut *mut c_void,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_allocate";
        let pool = handle::get(OPERATION, pool)?;
        // SAFETY: the caller's precondition on `memory`.
        let out = unsafe { Out::new(OPERATION, "memory", memory) }?;
        out.set(pool.allocate_raw(OPERATION, bytes, alignment)?.cast().as_ptr());
        Ok(())
    })
}

/// Gives back memory that `pinlane_pool_allocate` gave, by any handle of the same pool; NULL is a
/// no-op. Does not block. The memory may be used again at once: the caller's own work on devices
/// must be done with it, or have been told with `pinlane_pool_record_use`, which may still be at it
/// on another thread. In a forked child it does nothing.
///
/// Statuses: `INVALID_HANDLE` also for memory that this pool did not give, or that was given back
/// already; `INVALID_VALUE` for an address inside of what it gave. In both nothing is freed.
///
/// # Safety
///
/// - Nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_deallocate(
    pool: *const pinlane_pool,
    memory: *mut c_void,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_deallocate";
        if memory.is_null() || handle::check_process(OPERATION).is_err() {
            return Ok(());
        }
        handle::get(OPERATION, pool)?.deallocate_raw(OPERATION, memory.cast_const().cast())
    })
}

/// Tells the pool that the caller's own CUDA calls on `stream` use memory that
/// `pinlane_pool_allocate` gave: once it is given back, it is not used again before what is on the
/// stream now is done. `memory` is any address in it, and stands for all of it. Call it after
/// enqueuing that work. For a `cudaStream_t`, borrow it once with `pinlane_stream_borrow`. Does not
/// block.
///
/// The host may access the memory all the while: when that is sound is the caller's to know.
///
/// Statuses: `INVALID_HANDLE`, also for memory that is not allocated from this pool; `BUSY` while
/// another thread does the same; `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_pool_record_use(
    pool: *const pinlane_pool,
    memory: *const c_void,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_record_use";
        let pool = handle::get(OPERATION, pool)?;
        let stream = handle::get(OPERATION, stream)?;
        pool.lend_raw(OPERATION, memory.cast(), |buffer| stream.record_use(buffer))
    })
}
