//! What a pool is to be.

use std::sync::Arc;
use std::time::Duration;

use super::PinnedPool;
use super::classes::PAGE;
use super::core::Core;
use super::grow::{self, PageLocking};
use super::limits;
use super::pages::SLICE;

use crate::context::Context;
use crate::driver::HostFlags;
use crate::error::{Error, ErrorKind, Result};

/// What a pool keeps to.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) max_bytes: usize,
    pub(super) thread_cache_bytes: usize,
    pub(super) growth: grow::Options,
    /// Above the first, free memory is given back until the second is left.
    pub(super) watermarks: Option<(usize, usize)>,
    pub(super) idle_age: Option<Duration>,
}

impl Options {
    /// How much of `free_bytes` is to be given back.
    pub(super) fn excess(&self, free_bytes: usize) -> Option<usize> {
        self.watermarks.filter(|&(high, _)| free_bytes > high).map(|(_, low)| free_bytes - low)
    }
}

/// Options of a [`PinnedPool`]; from [`PinnedPool::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct PinnedPoolBuilder {
    context: Arc<Context>,
    max_bytes: Option<usize>,
    thread_cache_bytes: usize,
    growth: grow::Options,
    watermarks: Option<(usize, usize)>,
    idle_age: Option<Duration>,
}

impl PinnedPoolBuilder {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        PinnedPoolBuilder {
            context: context.clone(),
            max_bytes: None,
            thread_cache_bytes: 16 << 20,
            growth: grow::Options {
                how: PageLocking::default(),
                flags: HostFlags { portable: true, ..HostFlags::default() },
                threads: threads.min(16),
                part: isize::MAX as usize,
            },
            watermarks: None,
            idle_age: None,
        }
    }

    /// The budget in bytes: the pool never page-locks more than this at a time. Not set, it is half
    /// of the memory that the machine or the process's control groups allow, whichever is less.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// The most that one thread keeps for itself, in bytes of free blocks; 16 MiB if not set, and
    /// never more than a 32nd of the budget. 0 for no caches: then every allocation takes the
    /// pool's lock.
    pub fn thread_cache_bytes(mut self, bytes: usize) -> Self {
        self.thread_cache_bytes = bytes;
        self
    }

    /// How memory is page-locked; [`PageLocking::Register`] if not set.
    pub fn page_locking(mut self, how: PageLocking) -> Self {
        self.growth.how = how;
        self
    }

    /// How many threads touch new memory, at most; one a core, 16 at most, if not set. 0 counts as
    /// 1.
    pub fn growth_threads(mut self, threads: usize) -> Self {
        self.growth.threads = threads;
        self
    }

    /// The most that one call of `cudaHostRegister` page-locks, in bytes; not limited if not set. A
    /// call keeps the CUDA calls of all other threads waiting, about a millisecond for 64 MiB; in
    /// parts, with pauses between, they get their turns, and large memory is there sooner, because
    /// touching and registering overlap. Rounded to 4 MiB, 8 MiB at least.
    ///
    /// The price: buffers larger than this consist of several registrations, and the runtime
    /// refuses a copy that spans two of them (`cudaErrorInvalidValue`). The copies of this crate
    /// are split; copies of your own on such a buffer ([`Stream::foreign`](crate::Stream::foreign))
    /// must be, at multiples of this size from the start of the buffer.
    ///
    /// Where the system refuses to page-lock so much in one call, the pool makes the parts smaller
    /// by itself, and [`GrowthFallbacks::in_parts`](crate::GrowthFallbacks::in_parts) counts it.
    /// Their size is then a power of two, 8 MiB at least.
    pub fn registration_bytes(mut self, bytes: usize) -> Self {
        let part = bytes.clamp(grow::LEAST_PART, isize::MAX as usize - SLICE);
        self.growth.part = part.next_multiple_of(SLICE);
        self
    }

    /// Maps the memory into the address space of the devices, so that kernels can access it
    /// (`cudaHostAllocMapped`, `cudaHostRegisterMapped`). Off if not set; with unified addressing,
    /// which every 64-bit platform has, the runtime maps it anyhow.
    pub fn mapped(mut self, mapped: bool) -> Self {
        self.growth.flags.mapped = mapped;
        self
    }

    /// Makes the memory write-combined (`cudaHostAllocWriteCombined`): not kept in the processor's
    /// caches, which may help the device to read it. **The CPU reads it many times slower**, so it
    /// is for buffers that the host only writes, front to back. Implies [`PageLocking::Allocate`];
    /// blocks aligned to more than a page are ordinary memory all the same. Off if not set.
    pub fn write_combined(mut self, write_combined: bool) -> Self {
        self.growth.flags.write_combined = write_combined;
        self
    }

    /// Gives memory back by itself: when more than `high` bytes are free and shared by all threads,
    /// until `low` bytes are left. Only slabs whose blocks are all free can be given back.
    pub fn watermarks(mut self, low: usize, high: usize) -> Self {
        self.watermarks = Some((high, low));
        self
    }

    /// Gives memory back by itself once it has been free for that long. Costs one thread, which
    /// sleeps.
    pub fn idle_age(mut self, age: Duration) -> Self {
        self.idle_age = Some(age);
        self
    }

    /// Makes the pool. Page-locks nothing yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidValue`] for a budget of less than a page (4096 bytes), or watermarks
    /// whose low one is the higher; [`ErrorKind::ForkedProcess`].
    pub fn build(self) -> Result<PinnedPool> {
        const OPERATION: &str = "PinnedPoolBuilder::build";
        let context = self.context.clone();
        context.check_process(OPERATION)?;
        let max_bytes = self.max_bytes.unwrap_or_else(limits::default_budget);
        if max_bytes < PAGE {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                OPERATION,
                format!("a pool with a budget of {max_bytes} bytes can give nothing"),
                "set max_bytes to what may be page-locked at a time, a page of 4096 bytes at least",
            ));
        }
        if let Some((high, low)) = self.watermarks.filter(|(high, low)| low > high) {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                OPERATION,
                format!("a low watermark of {low} bytes above a high one of {high}"),
                "pass the lower one first: watermarks(low, high)",
            ));
        }
        let options = Options {
            max_bytes,
            thread_cache_bytes: self.thread_cache_bytes.min(max_bytes / 32),
            growth: self.growth,
            watermarks: self.watermarks,
            idle_age: self.idle_age,
        };
        Ok(PinnedPool::of(Core::new(context, options)))
    }
}
