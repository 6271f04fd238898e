//! Pools of page-locked memory.

use std::time::Duration;

use super::device::{check_flags, pinlane_device, sized_input};
use super::handle::{self, Handle};
use super::pointer::Out;
use super::status::{boundary, pinlane_status};
use super::table::Table;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::{PageLocking, PinnedPool, PinnedPoolBuilder};

/// A pool of page-locked host memory. Any thread may use it; freeing the handle does not end its
/// buffers.
pub struct pinlane_pool {
    _opaque: [u8; 0],
}

impl Handle for pinlane_pool {
    type Object = PinnedPool;
    const NAME: &'static str = "pool";
    fn table() -> &'static Table<PinnedPool> {
        static TABLE: Table<PinnedPool> = Table::new(4, true);
        &TABLE
    }
}

/// Memory is taken from the system with huge pages, on the device's NUMA node, touched by several
/// threads, and registered with CUDA. Where that is not possible the runtime allocates it.
pub const PINLANE_PAGE_LOCKING_REGISTER: i32 = 0;
/// The CUDA runtime allocates memory.
pub const PINLANE_PAGE_LOCKING_ALLOCATE: i32 = 1;

/// Memory is mapped into the address space of the devices. With unified addressing it is anyhow.
pub const PINLANE_POOL_MAPPED: u32 = 1;
/// Memory is write-combined: the CPU reads it many times slower, so that it is for buffers that the
/// host only writes, front to back. The runtime allocates it then.
pub const PINLANE_POOL_WRITE_COMBINED: u32 = 2;
/// Threads keep no blocks for themselves: every allocation takes the pool's lock.
pub const PINLANE_POOL_NO_THREAD_CACHES: u32 = 4;

/// Options of a pool. Initialise with `PINLANE_POOL_OPTIONS_INIT`; a member that is 0 stands for
/// its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_pool_options {
    /// `sizeof(pinlane_pool_options)`.
    pub size: usize,
    /// The most that the pool may page-lock at a time, in bytes, a page of 4096 at least. By
    /// default half of the memory that the machine or the process's control groups allow, whichever
    /// is less.
    pub max_bytes: usize,
    /// The most that one thread keeps for itself, in bytes of free blocks; never more than a 32nd
    /// of the budget. By default 8 MiB.
    pub thread_cache_bytes: usize,
    /// What is left when memory is given back because of `high_watermark_bytes`; not above it.
    pub low_watermark_bytes: usize,
    /// Memory is given back by itself when more bytes than this are free and shared by all threads.
    /// By default it is not.
    pub high_watermark_bytes: usize,
    /// Memory is given back by itself once it has been free for that long, in microseconds. By
    /// default it is not.
    pub idle_age_us: u64,
    /// `PINLANE_PAGE_LOCKING_REGISTER` or `PINLANE_PAGE_LOCKING_ALLOCATE`.
    pub page_locking: i32,
    /// How many threads touch new memory, at most. By default one a core, 16 at most.
    pub growth_threads: u32,
    /// 0, or some of `PINLANE_POOL_*`.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<pinlane_pool_options>() == 64);
    assert!(std::mem::offset_of!(pinlane_pool_options, size) == 0);
    assert!(std::mem::offset_of!(pinlane_pool_options, idle_age_us) == 40);
    assert!(std::mem::offset_of!(pinlane_pool_options, flags) == 56);
};

impl pinlane_pool_options {
    fn builder(&self, operation: &'static str, device: &Device) -> Result<PinnedPoolBuilder> {
        const FLAGS: u32 =
            PINLANE_POOL_MAPPED | PINLANE_POOL_WRITE_COMBINED | PINLANE_POOL_NO_THREAD_CACHES;
        check_flags(operation, self.flags, FLAGS)?;
        check_flags(operation, self.reserved, 0)?;
        let has = |flag| self.flags & flag != 0;
        let mut builder = PinnedPool::builder(device)
            .page_locking(page_locking(operation, self.page_locking)?)
            .mapped(has(PINLANE_POOL_MAPPED))
            .write_combined(has(PINLANE_POOL_WRITE_COMBINED));
        if self.max_bytes != 0 {
            builder = builder.max_bytes(self.max_bytes);
        }
        if self.thread_cache_bytes != 0 || has(PINLANE_POOL_NO_THREAD_CACHES) {
            let some = !has(PINLANE_POOL_NO_THREAD_CACHES);
            builder = builder.thread_cache_bytes(if some { self.thread_cache_bytes } else { 0 });
        }
        if self.low_watermark_bytes != 0 || self.high_watermark_bytes != 0 {
            builder = builder.watermarks(self.low_watermark_bytes, self.high_watermark_bytes);
        }
        if self.idle_age_us != 0 {
            builder = builder.idle_age(Duration::from_micros(self.idle_age_us));
        }
        if self.growth_threads != 0 {
            builder = builder.growth_threads(self.growth_threads as usize);
        }
        Ok(builder)
    }
}

fn page_locking(operation: &'static str, value: i32) -> Result<PageLocking> {
    match value {
        PINLANE_PAGE_LOCKING_REGISTER => Ok(PageLocking::Register),
        PINLANE_PAGE_LOCKING_ALLOCATE => Ok(PageLocking::Allocate),
        _ => Err(Error::new(
            ErrorKind::InvalidValue,
            operation,
            format!("{value} is no way of page-locking"),
            "use PINLANE_PAGE_LOCKING_REGISTER or PINLANE_PAGE_LOCKING_ALLOCATE",
        )),
    }
}

/// Makes a pool for `device` and writes it to `pool`, which the caller frees with
/// `pinlane_pool_free`. `options` may be NULL: the defaults. Page-locks nothing yet.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `pool` is NULL, for a budget of
/// less than a page, for watermarks of which the low one is the higher, or for options of an
/// unknown size, page-locking or flag.
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
        let builder = if options.is_null() {
            PinnedPool::builder(&device)
        } else {
            // SAFETY: the caller's precondition on `options`.
            unsafe { sized_input(OPERATION, options) }?.builder(OPERATION, &device)?
        };
        out.set(handle::create(builder.build()?));
        Ok(())
    })
}

/// Writes another handle of the same pool to `clone`, which the caller frees with
/// `pinlane_pool_free`: for a part of a program that keeps the pool for itself. Does not block.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_clone";
        let pool = handle::get(OPERATION, pool)?;
        // SAFETY: the caller's precondition on `clone`.
        let out = unsafe { Out::new(OPERATION, "clone", clone) }?;
        out.set(handle::create(PinnedPool::clone(&pool)));
        Ok(())
    })
}

/// Writes to `same` whether two handles are of one pool: 1 or 0.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_is_same";
        let pool = handle::get(OPERATION, pool)?;
        let other = handle::get(OPERATION, other)?;
        // SAFETY: the caller's precondition on `same`.
        let out = unsafe { Out::new(OPERATION, "same", same) }?;
        out.set(pool.is_same(&other).into());
        Ok(())
    })
}

/// Gives free memory back to the system until `keep_bytes` of it are left, and writes how many
/// bytes it was to `released_bytes`, which may be NULL. What was used last is kept; what other
/// threads keep goes too. Only memory all of whose blocks are free can be given back. Blocks while
/// the runtime releases it, which may wait for devices.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_pool_trim";
        let pool = handle::get(OPERATION, pool)?;
        // SAFETY: the caller's precondition on `released_bytes`.
        let out = unsafe { Out::optional(OPERATION, "released_bytes", released_bytes) }?;
        let released = pool.trim_to(keep_bytes)?;
        if let Some(out) = out {
            out.set(released);
        }
        Ok(())
    })
}

/// Frees the handle; NULL is a no-op. The memory is given back once the last handle of the pool and
/// the last buffer are freed and the device is done with all of it; whoever frees last waits for
/// that. What `pinlane_pool_allocate` gave and nobody gave back stays allocated for ever: its user
/// may still be there.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a pool.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_pool_free(pool: *mut pinlane_pool) -> pinlane_status {
    boundary(|| handle::free("pinlane_pool_free", pool))
}
