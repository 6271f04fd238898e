//! Pools of page-locked memory.

use std::ffi::c_void;
use std::time::Duration;

use super::{
    Out, Result, boundary, check_flags, freeing, growing, handle, handle_type, invalid, layout,
    pinlane_device, pinlane_status, pinlane_stream, set_or_0, set_unless_0, unknown,
};
use crate::device::Device;
use crate::pool::{Builder, PageLocking, Patience, PinnedPool};

/// A pool of page-locked host memory. Any thread may use it. Its buffers stay valid after the
/// handle is freed.
pub enum pinlane_pool {}

handle_type!(pinlane_pool: PinnedPool, "pool", table 4, shared: true);

/// Memory comes from the system, in huge pages on the device's NUMA node. Several threads touch it,
/// then it is registered with CUDA. If that is not possible, the CUDA runtime allocates it. Pools
/// of an emulated machine with `PINLANE_EMULATOR_WATCH_HOST` allocate too, because it sees no other
/// memory.
pub const PINLANE_PAGE_LOCKING_REGISTER: i32 = 0;
/// The CUDA runtime allocates memory.
pub const PINLANE_PAGE_LOCKING_ALLOCATE: i32 = 1;

/// Memory is mapped into the address space of the devices. With unified addressing it always is.
pub const PINLANE_POOL_MAPPED: u32 = 1;
/// Memory is write-combined, and the CUDA runtime allocates it. The CPU reads such memory many
/// times slower, so use it for buffers that the host only writes, front to back.
pub const PINLANE_POOL_WRITE_COMBINED: u32 = 2;
/// Threads cache no blocks: every allocation takes the pool's lock.
pub const PINLANE_POOL_NO_THREAD_CACHES: u32 = 4;

/// Options of a pool. Initialise with `PINLANE_POOL_OPTIONS_INIT`. 0 in a member means its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_pool_options {
    /// `sizeof(pinlane_pool_options)`.
    pub size: usize,
    /// The budget: the most that the pool may page-lock at a time, in bytes; at least a page of
    /// 4096. By default half of the machine's memory, or of what the process's control groups allow
    /// if that is less; and while the system refuses to page-lock that much, what it allows.
    pub max_bytes: usize,
    /// The most that one thread caches, in bytes of free blocks; never more than a 32nd of the
    /// budget. By default 16 MiB.
    pub thread_cache_bytes: usize,
    /// How many free bytes stay when memory is given back because of `high_watermark_bytes`; at
    /// most that.
    pub low_watermark_bytes: usize,
    /// When more than this many bytes are free, not counting the caches of threads, the pool gives
    /// memory back to the system. By default it does not.
    pub high_watermark_bytes: usize,
    /// Memory that has been free for this many microseconds goes back to the system. By default it
    /// does not.
    pub idle_age_us: u64,
    /// `PINLANE_PAGE_LOCKING_REGISTER` or `PINLANE_PAGE_LOCKING_ALLOCATE`.
    pub page_locking: i32,
    /// The most threads that touch new memory. By default one for each core, at most 16.
    pub growth_threads: u32,
    /// 0, or some of `PINLANE_POOL_*`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

layout!(pinlane_pool_options: 64; size 0, idle_age_us 40, flags 56);
growing!(pinlane_pool_options_init: pinlane_pool_options, sizes [64], default {
    page_locking: PINLANE_PAGE_LOCKING_REGISTER
});

impl pinlane_pool_options {
    fn builder(&self, device: &Device) -> Result<Builder> {
        const FLAGS: u32 =
            PINLANE_POOL_MAPPED | PINLANE_POOL_WRITE_COMBINED | PINLANE_POOL_NO_THREAD_CACHES;
        check_flags(self.flags, FLAGS)?;
        check_flags(self.reserved, 0)?;
        let page_locking = match self.page_locking {
            PINLANE_PAGE_LOCKING_REGISTER => PageLocking::Register,
            PINLANE_PAGE_LOCKING_ALLOCATE => PageLocking::Allocate,
            other => {
                return Err(unknown("page_locking", other, "use one of PINLANE_PAGE_LOCKING_*"));
            }
        };
        let has = |flag| self.flags & flag != 0;
        let mut builder = PinnedPool::builder(device)
            .page_locking(page_locking)
            .mapped(has(PINLANE_POOL_MAPPED))
            .write_combined(has(PINLANE_POOL_WRITE_COMBINED));
        builder = set_unless_0(builder, self.max_bytes, Builder::max_bytes);
        let (bytes, none) = (self.thread_cache_bytes, has(PINLANE_POOL_NO_THREAD_CACHES));
        builder = set_or_0(builder, bytes, none, Builder::thread_cache_bytes);
        if self.low_watermark_bytes != 0 || self.high_watermark_bytes != 0 {
            builder = builder.watermarks(self.low_watermark_bytes, self.high_watermark_bytes);
        }
        let age = Duration::from_micros(self.idle_age_us);
        builder = set_unless_0(builder, age, Builder::idle_age);
        Ok(set_unless_0(builder, self.growth_threads as usize, Builder::growth_threads))
    }
}

/// Makes a pool for `device` and writes it to `pool`. The caller frees it with `pinlane_pool_free`.
/// `options` may be NULL: the defaults. Does not page-lock memory yet.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `pool` is NULL, the budget is
/// less than a page, the low watermark is above the high one, or for options of an unknown size,
/// page-locking or flag.
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
    // SAFETY: the caller's precondition on `pool`.
    unsafe { Out::new("pool", pool) }.create("pinlane_pool_create", || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `options`.
        unsafe { growing::options(options) }?.builder(&device)?.build()
    })
}

/// Writes another handle of the same pool to `clone`. The caller frees it with `pinlane_pool_free`.
/// For a part of a program that keeps the pool alive on its own. Does not block.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `clone` is NULL.
///
/// # Safety
///
/// - `clone` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_clone(
    pool: *const pinlane_pool,
    clone: *mut *mut pinlane_pool,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `clone`.
    unsafe { Out::new("clone", clone) }
        .create("pinlane_pool_clone", || Ok(PinnedPool::clone(&*handle::get(pool)?)))
}

/// Writes 1 to `same` if both handles are of one pool, else 0.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `same` is NULL.
///
/// # Safety
///
/// - `same` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_is_same(
    pool: *const pinlane_pool,
    other: *const pinlane_pool,
    same: *mut i32,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `same`.
    unsafe { Out::new("same", same) }.give("pinlane_pool_is_same", || {
        let pool = handle::get(pool)?;
        Ok(pool.is_same(&*handle::get(other)?).into())
    })
}

/// Writes to `block_bytes` the size of the block that a request of `bytes` gets. At most an eighth
/// of the block is waste; requests of less than 2 KiB are rounded up to multiples of 256.
///
/// Statuses: `INVALID_VALUE` if no block can hold that many bytes, or `block_bytes` is NULL.
///
/// # Safety
///
/// - `block_bytes` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_block_bytes(
    bytes: usize,
    block_bytes: *mut usize,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `block_bytes`.
    unsafe { Out::new("block_bytes", block_bytes) }.give("pinlane_pool_block_bytes", || {
        PinnedPool::block_bytes(bytes).ok_or_else(|| {
            let context = format!("no block holds {bytes} bytes");
            invalid(context, "ask for fewer bytes")
        })
    })
}

/// Gives free memory back to the system until `keep_bytes` of it are left, and writes the number of
/// bytes given back to `released_bytes`, which may be NULL. Keeps the most recently used memory.
/// Takes from the caches of all threads. Memory goes back only if all blocks of a slab are free.
/// Blocks while the CUDA runtime releases it; the runtime may wait for devices.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `UNSUPPORTED` inside a host function;
/// `INVALID_VALUE` if `released_bytes` is misaligned.
///
/// # Safety
///
/// - `released_bytes` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_trim(
    pool: *const pinlane_pool,
    keep_bytes: usize,
    released_bytes: *mut usize,
) -> pinlane_status {
    boundary("pinlane_pool_trim", || {
        let pool = handle::get(pool)?;
        // SAFETY: the caller's precondition on `released_bytes`.
        let out = unsafe { Out::new("released_bytes", released_bytes) }.optional()?;
        out.set(pool.trim_to(keep_bytes)?);
        Ok(())
    })
}

/// Allocates `bytes` of page-locked memory, at least 1, and writes the address to `memory`: a
/// multiple of `alignment`, which is a power of two, at most 2 MiB. The caller gives it back with
/// `pinlane_pool_deallocate`, before the pool's last handle is freed: after that it stays allocated
/// forever. The contents are unspecified. Blocks as `pinlane_buffer_alloc`.
///
/// This is for allocators, such as `std::pmr`, and for libraries that want an address. The memory
/// is plain: unlike a `pinlane_buffer`, it does not wait for a device that still uses it.
/// `pinlane_upload_slice` and `pinlane_download_slice` copy it at the full speed of the link,
/// `pinlane_upload_pinned` and `pinlane_download_pinned` without waiting. A forked child does not
/// have the memory, and must not touch it.
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
    unsafe { Out::new("memory", memory) }.give("pinlane_pool_allocate", || {
        let pool = handle::get(pool)?;
        Ok(pool.allocate_raw("pinlane_pool_allocate", bytes, alignment)?.cast().as_ptr())
    })
}

/// As `pinlane_pool_allocate`, but when the budget is spent it waits, for at most `microseconds`,
/// until there is room, as `pinlane_buffer_alloc_timeout` does. Status `TIMED_OUT`;
/// `BUDGET_EXHAUSTED` only if the request is larger than the budget, or than what is left of it
/// beside quarantined memory.
///
/// # Safety
///
/// - `memory` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_allocate_timeout(
    pool: *const pinlane_pool,
    bytes: usize,
    alignment: usize,
    microseconds: u64,
    memory: *mut *mut c_void,
) -> pinlane_status {
    const FUNCTION: &str = "pinlane_pool_allocate_timeout";
    // SAFETY: the caller's precondition on `memory`.
    unsafe { Out::new("memory", memory) }.give(FUNCTION, || {
        let pool = handle::get(pool)?;
        let patience = Patience::for_at_most(Duration::from_micros(microseconds));
        Ok(pool.allocate_by(FUNCTION, bytes, alignment, patience)?.cast().as_ptr())
    })
}

/// Gives back memory of `pinlane_pool_allocate`, by any handle of the same pool; NULL is a no-op.
/// Does not block. Copies of the memory by pinlane may be under way: the pool reuses it only when
/// they are complete. The caller's own device work on it must be complete, or recorded with
/// `pinlane_pool_record_use` (which may still run on another thread), because the pool may reuse
/// the memory at once. In a forked child it does nothing.
///
/// Statuses: `INVALID_HANDLE`, also for memory that is not of this pool or was given back already;
/// `INVALID_VALUE` for an address inside an allocation. In both cases nothing is freed.
///
/// # Safety
///
/// - The memory is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_pool_deallocate(
    pool: *const pinlane_pool,
    memory: *mut c_void,
) -> pinlane_status {
    freeing("pinlane_pool_deallocate", || {
        if memory.is_null() {
            return Ok(());
        }
        match handle::get(pool) {
            Ok(pool) => pool.deallocate_raw("pinlane_pool_deallocate", memory.cast_const().cast()),
            Err(_) if handle::check_process().is_err() => Ok(()),
            Err(error) => Err(error),
        }
    })
}

/// Records that the caller's own CUDA calls on `stream` use memory of `pinlane_pool_allocate`.
/// After the memory is given back, the pool reuses it only when everything on the stream now is
/// complete. `memory` is any address in the allocation; the use counts for all of it. Call it after
/// that work is enqueued. For a `cudaStream_t`, borrow it once with `pinlane_stream_borrow`. Does
/// not block.
///
/// This does not stop accesses of the host: the caller must know when they are safe.
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

/// Frees the handle; NULL is a no-op. When the last handle of the pool and its last buffer are
/// freed, the memory goes back to the system; the call that frees last waits until the devices are
/// done with it. Memory from `pinlane_pool_allocate` that was not given back stays allocated
/// forever, because it may still be in use.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a pool.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_pool_free(pool: *mut pinlane_pool) -> pinlane_status {
    freeing("pinlane_pool_free", || handle::free(pool))
}
