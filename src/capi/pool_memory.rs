//! `malloc` and `free` of a pool: memory by its address, for allocators.

use std::ffi::c_void;

use super::handle;
use super::pointer::Out;
use super::pool::pinlane_pool;
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;

/// Allocates `bytes` of page-locked memory, at least 1, and writes the address to `memory`: a
/// multiple of `alignment`, which is a power of two, at most 2 MiB. The caller gives it back with
/// `pinlane_pool_deallocate`, before the pool's last handle is freed: after that it stays allocated
/// for ever. The contents are unspecified. Blocks as `pinlane_buffer_alloc`.
///
/// This is for allocators, such as `std::pmr`, and for libraries that want an address. The memory
/// is plain: nothing waits for a device that still uses it, as a `pinlane_buffer` does. A forked
/// child does not have the memory, and must not touch it.
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
    // SAFETY: the caller's precondition on `memory`.
    let memory = unsafe { Out::new("memory", memory) };
    memory.give("pinlane_pool_allocate", || {
        let pool = handle::get(pool)?;
        Ok(pool.allocate_raw("pinlane_pool_allocate", bytes, alignment)?.cast().as_ptr())
    })
}

/// Gives back memory of `pinlane_pool_allocate`, by any handle of the same pool; NULL is a no-op.
/// Does not block. The pool may reuse the memory at once: the caller's own device work on it must
/// be complete, or recorded with `pinlane_pool_record_use`, which another thread may be running at
/// this moment. In a forked child it does nothing.
///
/// Statuses: `INVALID_HANDLE`, also for memory that is not of this pool or was given back already;
/// `INVALID_VALUE` for an address inside an allocation. In both cases nothing is freed.
///
/// # Safety
///
/// - Nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_deallocate(
    pool: *const pinlane_pool,
    memory: *mut c_void,
) -> pinlane_status {
    boundary("pinlane_pool_deallocate", || {
        if memory.is_null() || handle::check_process().is_err() {
            return Ok(());
        }
        handle::get(pool)?.deallocate_raw("pinlane_pool_deallocate", memory.cast_const().cast())
    })
}

/// Tells the pool that the caller's own CUDA calls on `stream` use memory of
/// `pinlane_pool_allocate`. After the memory is given back, the pool reuses it only when everything
/// on the stream now is complete. `memory` is any address in the allocation, and stands for all of
/// it. Call it after that work is enqueued. For a `cudaStream_t`, borrow it once with
/// `pinlane_stream_borrow`. Does not block.
///
/// The host may access the memory meanwhile: the caller must know when that is safe.
///
/// Statuses: `INVALID_HANDLE`, also for memory that is not allocated from this pool; `BUSY` while
/// another thread makes the same call; `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_pool_record_use(
    pool: *const pinlane_pool,
    memory: *const c_void,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary("pinlane_pool_record_use", || {
        let pool = handle::get(pool)?;
        let stream = handle::get(stream)?;
        let record = |buffer: &mut _| stream.record_use(buffer);
        pool.lend_raw("pinlane_pool_record_use", memory.cast(), record)
    })
}
