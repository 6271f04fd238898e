//! A pool of page-locked host memory.
//!
//! Page-locking costs the runtime half a millisecond a call, so memory is page-locked in *slabs*,
//! cut into *blocks*, and used again. A block's life:
//!
//! ```text
//!                    alloc               drop, all uses complete
//!   free: a thread's, ------------> live -----------------------------> free
//!   or everybody's                   | drop, a device still uses it       ^
//!     ^  |  all blocks               v                     uses complete  |
//!     |  |  of the slab            in flight -----------------------------+
//!     |  v                           | the device cannot say whether it is done
//!   the system                       v
//!                                  quarantined: counted, never freed, never reused
//! ```
//!
//! ```text
//!   mod       the handle                  core      what the handles share: the fast way and the slow
//!   builder   options                     cache     what a thread keeps       local  and how it finds it
//!   classes   which block a request gets  gate      how others get at that    chain  a stack of blocks
//!   store     the books, under one lock   reclaim   how blocks come back      wait   the queue
//!   grow      page-locking, pages, limits retire    blocks in flight          keeper who works for it
//!   raw       memory by address         addresses   which block it is   allocator  for collections
//! ```
//!
//! # Invariants
//!
//! * A block is reused only when every recorded use of it is complete, by stream position.
//! * What is page-locked never exceeds `max_bytes`.
//! * No driver call, and no user code, under the lock.
//! * Dropping a buffer waits for no device and makes no driver call, but for the last buffer of a
//!   pool whose handles are gone, which frees the pool, and for the last owner of a stream, which
//!   destroys it.
//! * A hit writes to nothing that another thread writes to or reads on its own hits.
//!
//! Any thread may allocate and drop at any time.

#[cfg_attr(not(any(feature = "capi", feature = "allocator-api2")), allow(dead_code))]
mod addresses;
#[cfg(feature = "allocator-api2")]
mod allocator;
mod builder;
mod cache;
mod chain;
mod classes;
mod core;
mod errors;
mod export;
mod gate;
mod grow;
mod keeper;
mod limits;
mod local;
mod pages;
#[cfg_attr(not(any(feature = "capi", feature = "allocator-api2")), allow(dead_code))]
mod raw;
mod reclaim;
mod retire;
mod stats;
mod store;
mod trace;
mod wait;

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;

use crate::device::Device;
use crate::error::Result;
use crate::memory::block::BlockRef;
use crate::memory::{PinnedBuf, PinnedRegion, byte_count};
use crate::process::on_ordinary_thread;
#[cfg(feature = "allocator-api2")]
pub use allocator::PinnedAllocator;
pub use builder::PinnedPoolBuilder;
use classes::{MAX_ALIGN, Size, kept_class};
use core::{Core, Patience};
pub use grow::PageLocking;
pub use stats::{ClassStats, GrowthFallbacks, PoolStats, Timing};
use wait::Waiter;

/// A pool of page-locked host memory. Cheap to clone; all clones are the same pool.
///
/// A pool belongs to the device that it was built for, but its memory is page-locked for all
/// devices of the process (`cudaHostAllocPortable`, `cudaHostRegisterPortable`). It lives until its
/// last clone and its last buffer are gone; it then waits for the device to be done with blocks in
/// flight.
///
/// # When memory is short
///
/// An allocation takes the first of these that it finds: a free block that its thread keeps, one
/// that all threads share, one that a device is done with, new memory, memory that free blocks of
/// other sizes or other threads held, a block that a device will be done with. Requests that wait
/// are served in the order in which they came; where one needs more room than there is, it and the
/// smaller ones behind it take turns, so that neither starves. What differs is when they end
/// without:
///
/// | | grows | waits for devices | waits for buffers to be dropped |
/// |---|---|---|---|
/// | [`try_alloc`](Self::try_alloc) | no | no | no |
/// | [`alloc`](Self::alloc) | yes | yes | no: [`BudgetExhausted`](crate::ErrorKind::BudgetExhausted) |
/// | [`alloc_timeout`](Self::alloc_timeout) | yes | until then | until then: [`TimedOut`](crate::ErrorKind::TimedOut) |
/// | [`alloc_async`](Self::alloc_async) | yes | yes | yes |
#[derive(Clone)]
pub struct PinnedPool {
    handle: Arc<Handle>,
}

/// What the clones share; the pool closes with the last. And what they have given out by address.
struct Handle(Arc<Core>, raw::Table);

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0.context.releaser().is_some() {
            // Where no thread can be had the core leaks, for buffers that are alive rely on it.
            let core = ManuallyDrop::new(self.0.clone());
            on_ordinary_thread(move || ManuallyDrop::into_inner(core).close());
        } else {
            // A forked child, where the lock may be held for ever: everything leaks.
            std::mem::forget(self.0.clone());
            std::mem::forget(std::mem::take(&mut self.1));
        }
    }
}

impl PinnedPool {
    /// Options for a pool of `device`.
    pub fn builder(device: &Device) -> PinnedPoolBuilder {
        PinnedPoolBuilder::new(device.context())
    }

    fn of(core: Arc<Core>) -> Self {
        PinnedPool { handle: Arc::new(Handle(core, raw::Table::default())) }
    }

    /// Allocates `len` elements; the contents are unspecified. Blocks while it page-locks new
    /// memory, and, when the budget is spent, until the device is done with a dropped buffer.
    ///
    /// # Errors
    ///
    /// [`BudgetExhausted`](crate::ErrorKind::BudgetExhausted) if the budget is spent on buffers
    /// that are alive; [`OutOfHostMemory`](crate::ErrorKind::OutOfHostMemory);
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) for sizes that overflow and for `T` aligned
    /// to more than 2 MiB; [`ForkedProcess`](crate::ErrorKind::ForkedProcess).
    #[inline]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<PinnedBuf<T>> {
        self.alloc_as("PinnedPool::alloc", len, align_of::<T>(), Patience::Devices)
    }

    /// As [`alloc`](Self::alloc), with the first element at a multiple of `align` bytes: a power of
    /// two, at most 2 MiB. Without it, blocks are aligned to 256 bytes at least.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc); [`InvalidValue`](crate::ErrorKind::InvalidValue) for another
    /// `align`.
    pub fn alloc_aligned<T: Pod>(&self, len: usize, align: usize) -> Result<PinnedBuf<T>> {
        const OPERATION: &str = "PinnedPool::alloc_aligned";
        if !align.is_power_of_two() {
            return Err(errors::bad_alignment(OPERATION, align));
        }
        self.alloc_as(OPERATION, len, align.max(align_of::<T>()), Patience::Devices)
    }

    /// As [`alloc`](Self::alloc), with all bytes zero.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<PinnedBuf<T>> {
        const OPERATION: &str = "PinnedPool::alloc_zeroed";
        let mut buffer = self.alloc_as::<T>(OPERATION, len, align_of::<T>(), Patience::Devices)?;
        bytemuck::fill_zeroes(buffer.write()?);
        Ok(buffer)
    }

    /// As [`alloc`](Self::alloc), but only from memory that is page-locked already: does not grow
    /// and does not wait.
    ///
    /// # Errors
    ///
    /// [`NotReady`](crate::ErrorKind::NotReady) if no free block of that size is there; otherwise
    /// as for [`alloc`](Self::alloc).
    pub fn try_alloc<T: Pod>(&self, len: usize) -> Result<PinnedBuf<T>> {
        self.alloc_as("PinnedPool::try_alloc", len, align_of::<T>(), Patience::None)
    }

    /// As [`alloc`](Self::alloc), but waits for whatever may make room, buffers that others drop
    /// included, for at most `timeout`. Memory is page-locked by a thread of the pool's own, so
    /// that the time holds even while the runtime is busy, but for a call of `cudaEventQuery`,
    /// which may wait for another thread's call.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](crate::ErrorKind::TimedOut);
    /// [`BudgetExhausted`](crate::ErrorKind::BudgetExhausted) only if the request is larger than
    /// the budget; otherwise as for [`alloc`](Self::alloc).
    pub fn alloc_timeout<T: Pod>(&self, len: usize, timeout: Duration) -> Result<PinnedBuf<T>> {
        let deadline = Instant::now().checked_add(timeout);
        let patience = Patience::Until(deadline);
        self.alloc_as("PinnedPool::alloc_timeout", len, align_of::<T>(), patience)
    }

    /// As [`alloc_timeout`](Self::alloc_timeout) without an end, as a future: it blocks only for
    /// the same call of `cudaEventQuery`. Dropping the future withdraws the request. Fair: requests
    /// are served in the order in which they were first polled, but for those of tasks that are
    /// woken to take their turn and do not poll: they are passed over until they do, so that a
    /// future that is forgotten holds nobody up.
    ///
    /// # Errors
    ///
    /// As for [`alloc_timeout`](Self::alloc_timeout), but never `TimedOut`.
    pub fn alloc_async<T: Pod>(
        &self,
        len: usize,
    ) -> impl Future<Output = Result<PinnedBuf<T>>> + Send + use<T> {
        const OPERATION: &str = "PinnedPool::alloc_async";
        let pool = self.clone();
        async move {
            let core = &pool.handle.0;
            let align = align_of::<T>();
            let block = match pool.kept::<T>(OPERATION, len, align)? {
                Some(block) => block,
                None => {
                    match size_of_request(OPERATION, byte_count::<T>(OPERATION, len)?, align)? {
                        None => core.take_empty_block(),
                        Some(size) => match core.take_now(size, false) {
                            Some(block) => block,
                            None => core.enqueue(OPERATION, size, false, Waiter::task())?.await?,
                        },
                    }
                }
            };
            Ok(PinnedBuf::new(PinnedRegion::new(block), len))
        }
    }

    /// Gives all memory back that can be: slabs whose blocks are all free, those that other threads
    /// keep included. Blocks while the runtime releases them, which may wait for devices. Gives the
    /// number of bytes.
    ///
    /// # Errors
    ///
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess),
    /// [`Unsupported`](crate::ErrorKind::Unsupported) inside a host function.
    pub fn trim(&self) -> Result<usize> {
        self.trim_to(0)
    }

    /// As [`trim`](Self::trim), but leaves up to `cached_bytes` of free memory, what was used last.
    ///
    /// # Errors
    ///
    /// As for [`trim`](Self::trim).
    pub fn trim_to(&self, cached_bytes: usize) -> Result<usize> {
        self.handle.0.trim("PinnedPool::trim", cached_bytes)
    }

    /// What the pool holds and has done. Takes a short lock. In a forked child everything is 0: the
    /// lock may be held there by a thread that exists in the parent only.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let core = &self.handle.0;
        match core.context.check_process("PinnedPool::stats") {
            Ok(()) => core.stats_of(&core.lock()),
            Err(_) => PoolStats::default(),
        }
    }

    /// Whether memory for a block of so many bytes is being page-locked, or could be.
    pub(crate) fn may_grow(&self, bytes: usize) -> bool {
        let state = self.handle.0.lock();
        state.growing || state.store.room() >= bytes
    }

    /// Whether the two are clones of one pool.
    #[cfg(feature = "capi")]
    pub(crate) fn is_same(&self, other: &PinnedPool) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// The size of the block that a request of `bytes` gets, in bytes; `None` for a request that no
    /// block can hold. At most an eighth of it is waste, but for requests of less than 2 KiB, which
    /// are rounded up to multiples of 256 bytes.
    #[must_use]
    pub fn block_bytes(bytes: usize) -> Option<usize> {
        if bytes == 0 { Some(0) } else { Size::of(bytes, 1).map(|size| size.bytes) }
    }

    #[inline]
    fn alloc_as<T: Pod>(
        &self,
        operation: &'static str,
        len: usize,
        align: usize,
        patience: Patience,
    ) -> Result<PinnedBuf<T>> {
        let block = match self.kept::<T>(operation, len, align)? {
            Some(block) => block,
            None => {
                self.alloc_slow(operation, byte_count::<T>(operation, len)?, align, patience)?
            }
        };
        Ok(PinnedBuf::new(PinnedRegion::new(block), len))
    }

    /// A block that this thread keeps.
    #[inline]
    fn kept<T: Pod>(
        &self,
        operation: &'static str,
        len: usize,
        align: usize,
    ) -> Result<Option<BlockRef>> {
        let core = &self.handle.0;
        if !core.process.is_current() {
            core.context.check_process(operation)?;
        }
        let class = kept_class(byte_count::<T>(operation, len)?, align);
        Ok(class.and_then(|class| core.take_own(class)))
    }

    #[cold]
    fn alloc_slow(
        &self,
        operation: &'static str,
        bytes: usize,
        align: usize,
        patience: Patience,
    ) -> Result<BlockRef> {
        let core = &self.handle.0;
        match size_of_request(operation, bytes, align)? {
            Some(size) => core.take(operation, size, patience),
            None => Ok(core.take_empty_block()),
        }
    }
}

/// What block a request takes, if any.
fn size_of_request(operation: &'static str, bytes: usize, align: usize) -> Result<Option<Size>> {
    if align > MAX_ALIGN {
        return Err(errors::bad_alignment(operation, align));
    }
    if bytes == 0 {
        return Ok(None);
    }
    Size::of(bytes, align).map(Some).ok_or_else(|| errors::too_large(operation, bytes))
}

impl fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPool").field("stats", &self.stats()).finish()
    }
}
