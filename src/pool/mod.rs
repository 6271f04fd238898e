//! A pool of page-locked host memory.
//!
//! Page-locking costs the runtime half a millisecond a call (`cudaHostAlloc`), so blocks are kept and
//! used again. A block's life:
//!
//! ```text
//!              alloc                    drop, all uses retired
//!   cached ------------> live ---------------------------------------> cached
//!     |  ^                 | drop, device still uses it                  ^
//!     |  | grow            v                        uses retired         |
//!     |  +--- (system)   in flight --------------------------------------+
//!     |         ^          | the device cannot say whether it is done
//!     +---------+          v
//!       trim            quarantined: counted, never freed, never reused
//! ```
//!
//! # Invariants
//!
//! * A block is reused only when every recorded use of it is retired, by stream position.
//! * `committed` counts every block between page-locking and freeing, and never exceeds `max_bytes`.
//! * No driver call, and no user code, under the lock.
//! * Dropping a buffer never blocks and makes no driver call, but for the last buffer of a pool whose
//!   handles are gone, which frees the pool.
//!
//! Any thread may allocate and drop at any time.

mod classes;
mod ledger;
mod stats;

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::context::Context;
use crate::device::Device;
use crate::driver::{HostFlags, Poll};
use crate::error::{CudaCode, Error, ErrorKind, Result};
use crate::memory::hazard::{self, Use};
use crate::memory::{Block, BlockOwner, PinnedBuf, PinnedRegion, byte_count};
use crate::process::on_ordinary_thread;
use crate::sync::{Condvar, Mutex, MutexGuard};
use ledger::{Ledger, Room};
pub use stats::PoolStats;

/// The largest alignment that blocks have: a page.
const BLOCK_ALIGNMENT: usize = 4096;

/// A pool of page-locked host memory. Cheap to clone; all clones are the same pool.
///
/// A pool belongs to the device that it was built for, but its memory is page-locked for all devices of
/// the process (`cudaHostAllocPortable`). It lives until its last clone and its last buffer are gone;
/// it then waits for the device to be done with blocks in flight.
#[derive(Clone)]
pub struct PinnedPool {
    inner: Arc<Inner>,
}

/// Options of a [`PinnedPool`]; from [`PinnedPool::builder`].
#[derive(Clone, Debug)]
pub struct PinnedPoolBuilder {
    device: Device,
    max_bytes: usize,
}

struct Inner {
    context: Arc<Context>,
    ledger: Mutex<Ledger>,
    /// Notified when a block has gone back to the system.
    left: Condvar,
}

impl PinnedPoolBuilder {
    /// The budget in bytes, 1 GiB if not set: the pool never page-locks more than this at a time.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Makes the pool. Page-locks nothing yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidValue`] for a budget of 0; [`ErrorKind::ForkedProcess`].
    pub fn build(self) -> Result<PinnedPool> {
        let context = self.device.context().clone();
        context.check_process("PinnedPoolBuilder::build")?;
        if self.max_bytes == 0 {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                "PinnedPoolBuilder::build",
                "a pool with a budget of 0 bytes can give nothing",
                "set max_bytes to what may be page-locked at a time",
            ));
        }
        let ledger = Mutex::new(Ledger::new(self.max_bytes));
        Ok(PinnedPool { inner: Arc::new(Inner { context, ledger, left: Condvar::new() }) })
    }
}

/// Whether an allocation may take its time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Grow, trim, and wait for blocks in flight.
    GrowAndWait,
    /// Take what is there.
    None,
}

impl PinnedPool {
    /// Options for a pool of `device`.
    #[must_use]
    pub fn builder(device: &Device) -> PinnedPoolBuilder {
        PinnedPoolBuilder { device: device.clone(), max_bytes: 1 << 30 }
    }

    /// Allocates `len` elements; the contents are unspecified. Blocks while it page-locks new memory,
    /// and, when the budget is spent, until the device is done with a dropped buffer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BudgetExhausted`] if the budget is spent on buffers that are alive;
    /// [`ErrorKind::OutOfHostMemory`]; [`ErrorKind::InvalidValue`] for sizes that overflow and for `T`
    /// aligned to more than 4096 bytes.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<PinnedBuf<T>> {
        self.alloc_as("PinnedPool::alloc", len, Patience::GrowAndWait)
    }

    /// As [`alloc`](Self::alloc), with all bytes zero.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<PinnedBuf<T>> {
        let mut buffer =
            self.alloc_as::<T>("PinnedPool::alloc_zeroed", len, Patience::GrowAndWait)?;
        bytemuck::fill_zeroes(buffer.write()?);
        Ok(buffer)
    }

    /// As [`alloc`](Self::alloc), but only from memory that is page-locked already: does not grow and
    /// does not wait.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotReady`] if no free block of that size is there; otherwise as for
    /// [`alloc`](Self::alloc).
    pub fn try_alloc<T: Pod>(&self, len: usize) -> Result<PinnedBuf<T>> {
        self.alloc_as("PinnedPool::try_alloc", len, Patience::None)
    }

    /// What the pool holds and has done. Takes a short lock. In a forked child everything is 0: the
    /// lock may be held there by a thread that exists in the parent only.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        match self.inner.context.check_process("PinnedPool::stats") {
            Ok(()) => self.inner.lock().stats(),
            Err(_) => PoolStats::default(),
        }
    }

    fn alloc_as<T: Pod>(
        &self,
        operation: &'static str,
        len: usize,
        patience: Patience,
    ) -> Result<PinnedBuf<T>> {
        self.inner.context.check_process(operation)?;
        let bytes = byte_count::<T>(operation, len)?;
        if align_of::<T>() > BLOCK_ALIGNMENT {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                operation,
                format!("elements aligned to {} bytes", align_of::<T>()),
                "use elements aligned to at most 4096 bytes, a page",
            ));
        }
        let block =
            if bytes == 0 { None } else { Some(self.inner.take(operation, bytes, patience)?) };
        let owner: Arc<dyn BlockOwner> = self.inner.clone();
        Ok(PinnedBuf::new(PinnedRegion::new(block, bytes, owner), len))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// A block for `bytes`: from the cache, then what is retired, then new memory, then room made by
    /// trimming, then by waiting.
    fn take(&self, operation: &'static str, bytes: usize, patience: Patience) -> Result<Block> {
        let too_large = || {
            Error::new(
                ErrorKind::InvalidValue,
                operation,
                format!("{bytes} bytes do not fit in an address space"),
                "ask for less",
            )
        };
        let size = classes::block_size(bytes).ok_or_else(too_large)?;
        loop {
            if let Some(block) = self.lock().take_cached(size) {
                return Ok(block);
            }
            self.retire();
            if let Some(block) = self.lock().take_cached(size) {
                return Ok(block);
            }
            if patience == Patience::None {
                return Err(Error::new(
                    ErrorKind::NotReady,
                    operation,
                    format!("no block of {size} bytes is free"),
                    "try again when buffers have been dropped, or call alloc, which grows and waits",
                ));
            }
            // Inside a host function only what is cached can be had.
            self.context.driver(operation)?;
            // The guard must be gone before `grow`, `free` and the waits.
            let room = self.lock().make_room(size);
            match room {
                Room::Reserved => return self.grow(operation, size),
                Room::Trim(blocks) => blocks.into_iter().for_each(|block| self.free(block)),
                Room::Wait(id, pending) => self.wait_for(id, &pending),
                Room::Leaving => self.wait_for_leaving(),
                Room::None => return Err(self.exhausted(operation, size)),
            }
        }
    }

    /// Page-locks a block for which the ledger has reserved room.
    fn grow(&self, operation: &'static str, size: usize) -> Result<Block> {
        let flags = HostFlags { portable: true, ..HostFlags::default() };
        let allocate = || {
            self.context
                .driver(operation)
                .map(|driver| driver.host_alloc(self.context.ordinal(), size, flags))
        };
        let mut allocated = allocate();
        if matches!(allocated, Ok(Err(CudaCode::MEMORY_ALLOCATION))) {
            // Memory cached in other sizes may be just what the system lacks.
            let cached = self.lock().take_all_cached();
            cached.into_iter().for_each(|block| self.free(block));
            allocated = allocate();
        }
        match allocated {
            Ok(Ok(ptr)) => {
                self.lock().grown(size);
                Ok(Block { ptr, bytes: size })
            }
            Ok(Err(code)) => {
                self.lock().release(size);
                Err(if code == CudaCode::MEMORY_ALLOCATION {
                    out_of_host_memory(operation, size)
                } else {
                    self.context.error(
                        code,
                        "cudaHostAlloc",
                        format_args!("page-locking {size} bytes"),
                    )
                })
            }
            Err(error) => {
                self.lock().release(size);
                Err(error)
            }
        }
    }

    /// Gives a block back to the system.
    fn free(&self, block: Block) {
        let freed = self.context.releaser().is_some_and(|driver| {
            // SAFETY: the block came from `host_alloc` and left the cache for good; it was cached, so
            // no operation names it and no reference into it exists. The caller is an ordinary thread.
            unsafe { driver.host_free(block.ptr) }.is_ok()
        });
        self.lock().left(block.bytes, freed);
        self.left.notify_all();
    }

    /// Moves blocks in flight whose uses are all complete to the cache.
    fn retire(&self) {
        if self.context.driver("PinnedPool::alloc").is_err() {
            return;
        }
        let parked = self.lock().parked();
        for (id, pending) in parked {
            match hazard::poll_all(&pending) {
                Ok(Poll::Done) => self.lock().unpark(id),
                Ok(Poll::NotReady) => {}
                // The device cannot say whether it is done with the block: never use it again
                // (soundness rule 4).
                Err(_) => self.lock().quarantine_parked(id),
            }
        }
    }

    /// Blocks until one block in flight is retired, or is known to be lost.
    fn wait_for(&self, id: u64, pending: &[Use]) {
        match hazard::wait_for_all(pending) {
            Ok(()) => self.lock().unpark(id),
            Err(_) => self.lock().quarantine_parked(id),
        }
    }

    /// Blocks while other threads are freeing blocks, until one of those has gone.
    fn wait_for_leaving(&self) {
        let ledger = self.lock();
        if ledger.is_leaving() {
            drop(self.left.wait(ledger));
        }
    }

    #[cold]
    fn exhausted(&self, operation: &'static str, size: usize) -> Error {
        let stats = self.lock().stats();
        Error::new(
            ErrorKind::BudgetExhausted,
            operation,
            format!("a block of {size} bytes does not fit in the budget: {stats}"),
            "drop buffers, or build the pool with a larger max_bytes",
        )
    }
}

#[cold]
fn out_of_host_memory(operation: &'static str, size: usize) -> Error {
    Error::new(
        ErrorKind::OutOfHostMemory,
        operation,
        format!("the system has no {size} bytes to page-lock"),
        "lower the pool's max_bytes, raise the memory limit, or free memory elsewhere",
    )
}

impl BlockOwner for Inner {
    fn context(&self) -> &Context {
        &self.context
    }

    fn reclaim(&self, block: Block, pending: Vec<Use>) {
        self.lock().reclaim(block, pending);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ledger = std::mem::replace(self.ledger.get_mut(), Ledger::new(0));
        let context = self.context.clone();
        on_ordinary_thread(move || {
            let Some(driver) = context.releaser() else { return };
            for (block, pending) in ledger.into_blocks() {
                if hazard::wait_for_all(&pending).is_ok() {
                    // SAFETY: the block came from `host_alloc`; the pool and all buffers are gone, and
                    // every use is retired. This is an ordinary thread. A failure leaks the block.
                    let _ = unsafe { driver.host_free(block.ptr) };
                }
            }
        });
    }
}

impl fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPool").field("stats", &self.stats()).finish()
    }
}
