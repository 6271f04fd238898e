//! How to build a pool.

use std::sync::Arc;
use std::time::Duration;

use pinlane_base::setters;

use super::PinnedPool;
use super::classes::PAGE;
use super::core::Core;
use super::keeper::limits;
use super::options::{Options, PageLocking};
use crate::context::Context;
use crate::driver::HostFlags;
use crate::error::{Error, Result};

/// Options of a [`PinnedPool`]; from [`PinnedPool::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct Builder {
    context: Arc<Context>,
    max_bytes: Option<usize>,
    options: Options,
}

impl Builder {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        Builder {
            context: context.clone(),
            max_bytes: None,
            options: Options {
                max_bytes: 0,
                follows_system: false,
                thread_cache_bytes: 16 << 20,
                page_locking: PageLocking::default(),
                flags: HostFlags { portable: true, ..HostFlags::default() },
                growth_threads: threads.min(16),
                watermarks: None,
                idle_age: None,
            },
        }
    }

    /// The budget in bytes: the pool never page-locks more than this at a time. By default it is
    /// half of the memory of the machine, or of what the process's control groups allow if that is
    /// less. A pool with the default budget stays within what the system page-locks: where it
    /// refuses more, requests wait or fail as they do at the end of a budget. It tries again after
    /// a second.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// Gives memory back automatically: when more than `high` bytes are free and shared by all
    /// threads, until `low` bytes are left. Only slabs whose blocks are all free can be given back.
    pub fn watermarks(mut self, low: usize, high: usize) -> Self {
        self.options.watermarks = Some((high, low));
        self
    }

    /// Gives memory back automatically after it has been free for this long. Costs one thread,
    /// which sleeps.
    pub fn idle_age(mut self, age: Duration) -> Self {
        self.options.idle_age = Some(age);
        self
    }

    /// Makes the pool. Does not page-lock memory yet.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) for a budget of less than a page (4096
    /// bytes), or if the low watermark is above the high one;
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess).
    pub fn build(self) -> Result<PinnedPool> {
        const OPERATION: &str = "Builder::build";
        let context = self.context.clone();
        context.check_process(OPERATION)?;
        let max_bytes = self.max_bytes.unwrap_or_else(limits::default_budget);
        if max_bytes < PAGE {
            let what = format!("a budget of {max_bytes} bytes holds no block");
            let remedy =
                "set max_bytes to what may be page-locked at a time: at least a page of 4096 bytes";
            return Err(Error::invalid(OPERATION, what, remedy));
        }
        if let Some((high, low)) = self.options.watermarks.filter(|(high, low)| low > high) {
            let what = format!("a low watermark of {low} bytes above a high one of {high}");
            let remedy = "pass the lower one first: watermarks(low, high)";
            return Err(Error::invalid(OPERATION, what, remedy));
        }
        let thread_cache_bytes = self.options.thread_cache_bytes.min(max_bytes / 32);
        let follows_system = self.max_bytes.is_none();
        let options = Options { max_bytes, follows_system, thread_cache_bytes, ..self.options };
        Ok(PinnedPool::of(Core::new(context, options)))
    }
}

setters! {
    impl Builder {
        /// The most bytes of free blocks that one thread keeps. By default 16 MiB; never more than
        /// a 32nd of the budget. With 0 threads keep nothing, and every allocation takes the pool's
        /// lock.
        pub fn thread_cache_bytes(bytes: usize) => options.thread_cache_bytes;

        /// How memory is page-locked; by default [`PageLocking::Register`].
        pub fn page_locking(how: PageLocking) => options.page_locking;

        /// The most threads that touch new memory at once. By default one per core, at most 16. 0
        /// counts as 1.
        pub fn growth_threads(threads: usize) => options.growth_threads;

        /// Maps the memory into the address space of the devices, so that kernels can access it
        /// (`cudaHostAllocMapped`, `cudaHostRegisterMapped`). Off by default. With unified
        /// addressing, which every 64-bit platform has, the runtime always maps it.
        pub fn mapped(mapped: bool) => options.flags.mapped;

        /// Makes the memory write-combined (`cudaHostAllocWriteCombined`): it bypasses the
        /// processor's caches, which may help the device to read it. **The CPU reads it many times
        /// slower**, so use it for buffers that the host only writes, front to back. Implies
        /// [`PageLocking::Allocate`]. Blocks aligned to more than a page are never write-combined.
        /// Off by default.
        pub fn write_combined(write_combined: bool) => options.flags.write_combined;
    }
}
