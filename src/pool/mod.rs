//! A pool of page-locked host memory.
//!
//! # The idea
//!
//! The CUDA runtime takes half a millisecond to page-lock memory, however little, and freeing it
//! may wait for devices. So the pool page-locks memory in *slabs*, cuts each slab into *blocks* of
//! one size, and reuses the blocks. Each thread keeps some free blocks: the usual allocation takes
//! one of those, without a lock or an atomic read-modify-write. A buffer may be dropped while a
//! device still uses it: its block is then *in flight*, and is free when the device is done.
//!
//! # The picture
//!
//! ```text
//!                    alloc               drop, all uses complete
//!   free: a thread's, ------------> live -----------------------------> free
//!   or shared by all                 | drop, a device still uses it       ^
//!     ^  |  all blocks               v                     uses complete  |
//!     |  |  of the slab            in flight -----------------------------+
//!     |  v                           | unknown whether the device is done
//!   the system                       v
//!                                  quarantined: counted, never freed, never reused
//! ```
//!
//! # Invariants
//!
//! * A block is reused only when every recorded use of it is complete, by stream position.
//! * Page-locked memory never exceeds `max_bytes`.
//! * No driver call and no user code runs under the pool's lock.
//! * Dropping a buffer waits for no device and makes no driver call, with two exceptions: the last
//!   buffer of a pool without handles frees the pool, and the last owner of a stream destroys it.
//! * A hit writes to nothing that another thread writes to, or reads on its own hits.
//!
//! Any thread may allocate and drop at any time.
//!
//! # The files
//!
//! Read `thread/hit` first: the fast path of an allocation and a drop. Then read `core`, which
//! shows the other paths.
//!
//! ```text
//!   mod                  the handle, and the forms of `alloc`
//!   builder, options     options of a pool
//!   allocator            memory for collections
//!   core                 what the handles of a pool share
//!   thread/              what a thread keeps
//!     hit                  a thread's own block, taken and given back
//!     cache, local, gate   what a thread keeps; how it finds it; how others reach it
//!   books/               what is under the pool's lock: store and queue, with their counts
//!     store, parked        slabs and their blocks; blocks in flight
//!     queue                requests that wait, and whose turn it is
//!     stats                counts for users
//!   keeper/              the thread that works for requests that wait
//!     take                 what an allocation does when it is no hit
//!     reclaim              how else blocks come back, and the end of a pool
//!     retire               which blocks in flight are done
//!     grow, pages, limits  page-locking; memory from the system; how much there is
//!   by_address/          blocks by the addresses of their memory
//!     known, index         which block an address lies in, of whichever pool
//!     raw, table, addresses  memory by address; which block of a pool begins at an address
//!     loan                 a loan of a block, for C
//!   classes              which size of block a request gets
//!   errors, trace, export  messages; events; a pool's counts as text
//! ```
//!
#![doc = include_str!("events.md")]

#[cfg(feature = "allocator-api2")]
mod allocator;
mod books;
mod builder;
mod by_address;
mod classes;
mod core;
mod errors;
mod export;
mod keeper;
mod options;
mod thread;
mod trace;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytemuck::Pod;

use crate::context::Context;
use crate::error::Result;
use crate::memory::block::BlockRef;
use crate::memory::{PinnedBuf, PinnedRegion, byte_count};
use crate::process::on_ordinary_thread;
#[cfg(feature = "allocator-api2")]
pub use allocator::PinnedAllocator;
use books::queue::Waiter;
pub use books::stats::{ClassStats, Durations, GrowthFallbacks, Stats};
pub use builder::Builder;
pub(crate) use by_address::known::block_at;
use by_address::table::AddressTable;
use classes::{MAX_ALIGN, Size, class_of};
use core::Core;
pub(crate) use keeper::take::Patience;
pub use options::PageLocking;

/// A pool of page-locked host memory. Cheap to clone; all clones are the same pool.
///
/// A pool belongs to the device that it was built for, but its memory is page-locked for all
/// devices of the process (`cudaHostAllocPortable`, `cudaHostRegisterPortable`). It lives until its
/// last clone and its last buffer are gone; it then waits for the device to be done with blocks in
/// flight.
///
/// # When memory is short
///
/// An allocation takes the first of these that it finds: a free block that its thread keeps; a free
/// block that all threads share; a block that a device is done with; new memory; memory held by
/// free blocks of other sizes or other threads; a block that a device will be done with. Requests
/// that wait are served in the order in which they came. If one needs more room than there is, it
/// takes turns with the smaller ones after it, so that neither starves. The methods differ in when
/// they give up:
///
/// | | grows | waits for devices | waits for buffers to be dropped |
/// |---|---|---|---|
/// | [`try_alloc`](Self::try_alloc) | no | no | no |
/// | [`alloc`](Self::alloc) | yes | yes | no: [`BudgetExhausted`] |
/// | [`alloc_timeout`](Self::alloc_timeout) | yes | until then | until then: [`TimedOut`] |
/// | [`alloc_async`](Self::alloc_async) | yes | yes | yes |
///
/// [`BudgetExhausted`]: crate::ErrorKind::BudgetExhausted
/// [`TimedOut`]: crate::ErrorKind::TimedOut
#[derive(Clone)]
pub struct PinnedPool {
    handle: Arc<PoolHandle>,
}

/// The state that the clones share; the pool closes with the last one.
struct PoolHandle {
    core: Arc<Core>,
    /// The memory that they have given out by address.
    table: AddressTable,
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        if self.core.context.is_current() {
            // If no thread can be started, the core leaks, because live buffers rely on it.
            let lost = |core: &mut Arc<Core>| trace::released(0, core.lock().store.committed);
            on_ordinary_thread(self.core.clone(), Core::close, lost);
        } else {
            // A forked child, where the locks may be held forever: everything leaks.
            std::mem::forget(self.core.clone());
            std::mem::forget(std::mem::take(&mut self.table));
        }
    }
}

impl<T: Pod> PinnedBuf<T> {
    /// The pool that the buffer came from. `None` if no handle of it exists any more, and for
    /// memory that was registered or came from another library.
    #[must_use]
    pub fn pool(&self) -> Option<PinnedPool> {
        let handle = self.owner().held()?.downcast().ok()?;
        Some(PinnedPool { handle })
    }
}

impl PinnedPool {
    fn of(core: Arc<Core>) -> Self {
        let handle = Arc::new(PoolHandle { core, table: AddressTable::default() });
        let held: Weak<PoolHandle> = Arc::downgrade(&handle);
        handle.core.handle.set(held).expect("a core has one handle");
        PinnedPool { handle }
    }

    /// Allocates `len` elements, with unspecified contents. Blocks while it page-locks new memory
    /// and, when the budget is spent, until the device is done with a dropped buffer.
    ///
    /// # Errors
    ///
    /// [`BudgetExhausted`](crate::ErrorKind::BudgetExhausted) if the budget is spent on live
    /// buffers; [`OutOfHostMemory`](crate::ErrorKind::OutOfHostMemory);
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) for sizes that overflow and for `T` aligned
    /// to more than 2 MiB; [`ForkedProcess`](crate::ErrorKind::ForkedProcess).
    #[inline]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<PinnedBuf<T>> {
        self.alloc_as("PinnedPool::alloc", len, align_of::<T>(), Patience::Devices)
    }

    /// As [`alloc`](Self::alloc), with the first element at a multiple of `align` bytes: a power of
    /// two, at most 2 MiB. All other forms align to at least 256 bytes.
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

    /// As [`alloc`](Self::alloc), but only from memory that is already page-locked: neither grows
    /// nor waits.
    ///
    /// # Errors
    ///
    /// [`NotReady`](crate::ErrorKind::NotReady) if no block of that size is free; otherwise as
    /// for [`alloc`](Self::alloc).
    pub fn try_alloc<T: Pod>(&self, len: usize) -> Result<PinnedBuf<T>> {
        self.alloc_as("PinnedPool::try_alloc", len, align_of::<T>(), Patience::None)
    }

    /// As [`alloc`](Self::alloc), but waits up to `timeout` for anything that may make room, also
    /// for buffers that others drop. A thread of the pool page-locks the memory, so the call
    /// returns in time even if the runtime blocks. One exception: it calls `cudaEventQuery`, which
    /// may wait for another thread's call.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](crate::ErrorKind::TimedOut);
    /// [`BudgetExhausted`](crate::ErrorKind::BudgetExhausted) only if the request is larger than
    /// the budget, or than what is left of it beside quarantined memory; otherwise as for
    /// [`alloc`](Self::alloc).
    pub fn alloc_timeout<T: Pod>(&self, len: usize, timeout: Duration) -> Result<PinnedBuf<T>> {
        let patience = Patience::for_at_most(timeout);
        self.alloc_as("PinnedPool::alloc_timeout", len, align_of::<T>(), patience)
    }

    /// As [`alloc_timeout`](Self::alloc_timeout), without a limit, as a future. Polling blocks at
    /// most in `cudaEventQuery`. Dropping the future withdraws the request.
    ///
    /// Requests are served in the order in which they were first polled. A task that is woken to
    /// take its turn and does not poll is passed over until it does, so a forgotten future delays
    /// no other request. But it leaks the block that it gets, as a forgotten buffer does.
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
            let (core, align) = (&pool.handle.core, align_of::<T>());
            let class = len.checked_mul(size_of::<T>()).and_then(|bytes| class_of(bytes, align));
            let block = match class.and_then(|class| core.hit(class)) {
                Some(block) => block,
                None => {
                    let bytes = byte_count::<T>(OPERATION, len)?;
                    match pool.size_of_request(OPERATION, bytes, align)? {
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

    /// Gives back all memory that can be given back: slabs whose blocks are all free, including
    /// blocks that other threads keep. Blocks while the runtime releases them, which may wait for
    /// devices. Memory that is being page-locked for a request at this moment stays. Returns the
    /// number of bytes.
    ///
    /// # Errors
    ///
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess),
    /// [`Unsupported`](crate::ErrorKind::Unsupported) inside a host function.
    pub fn trim(&self) -> Result<usize> {
        self.trim_to(0)
    }

    /// As [`trim`](Self::trim), but leaves up to `cached_bytes` of free memory, the most recently
    /// used.
    ///
    /// # Errors
    ///
    /// As for [`trim`](Self::trim).
    pub fn trim_to(&self, cached_bytes: usize) -> Result<usize> {
        self.handle.core.trim("PinnedPool::trim", cached_bytes)
    }

    /// Makes later growths larger: each page-locks, in one piece, what is missing of `bytes` bytes
    /// of blocks of its size, as far as the budget allows.
    pub(crate) fn grow_by(&self, bytes: usize) {
        self.handle.core.lock().store.slab_bytes = bytes;
    }

    pub(crate) fn context(&self) -> &Context {
        &self.handle.core.context
    }

    /// The statistics of the pool. Takes a short lock. In a forked child all numbers are 0: a
    /// thread that exists only in the parent may hold the lock there.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = &self.handle.core;
        if core.context.is_current() { core.lock().stats() } else { Stats::default() }
    }

    /// Whether memory for a block of `bytes` bytes is being page-locked, or could be.
    pub(crate) fn may_grow(&self, bytes: usize) -> bool {
        let books = self.handle.core.lock();
        books.growing || books.store.room() >= bytes
    }

    /// Whether the two are clones of one pool.
    #[cfg(feature = "capi")]
    pub(crate) fn is_same(&self, other: &PinnedPool) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// The size in bytes of the block that a request of `bytes` gets; `None` if no block can hold
    /// it. At most an eighth of the block is waste; requests of less than 2 KiB are rounded up to
    /// multiples of 256 bytes.
    #[must_use]
    pub fn block_bytes(bytes: usize) -> Option<usize> {
        if bytes == 0 { Some(0) } else { Size::of(bytes, 1).map(|size| size.bytes) }
    }

    #[inline(always)]
    fn alloc_as<T: Pod>(
        &self,
        operation: &'static str,
        len: usize,
        align: usize,
        patience: Patience,
    ) -> Result<PinnedBuf<T>> {
        let class = len.checked_mul(size_of::<T>()).and_then(|bytes| class_of(bytes, align));
        let block = match class.and_then(|class| self.handle.core.hit(class)) {
            Some(block) => block,
            None => {
                self.alloc_slow(operation, byte_count::<T>(operation, len)?, align, patience)?
            }
        };
        Ok(PinnedBuf::new(PinnedRegion::new(block), len))
    }

    #[cold]
    fn alloc_slow(
        &self,
        operation: &'static str,
        bytes: usize,
        align: usize,
        patience: Patience,
    ) -> Result<BlockRef> {
        let core = &self.handle.core;
        match self.size_of_request(operation, bytes, align)? {
            Some(size) => core.take(operation, size, patience),
            None => Ok(core.take_empty_block()),
        }
    }

    /// The block that a request takes, if it has bytes. Fails in a forked child.
    fn size_of_request(
        &self,
        operation: &'static str,
        bytes: usize,
        align: usize,
    ) -> Result<Option<Size>> {
        self.handle.core.context.check_process(operation)?;
        if align > MAX_ALIGN {
            return Err(errors::bad_alignment(operation, align));
        }
        if bytes == 0 {
            return Ok(None);
        }
        Size::of(bytes, align).map(Some).ok_or_else(|| errors::too_large(operation, bytes))
    }
}

impl fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPool").field("stats", &self.stats()).finish()
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests;
