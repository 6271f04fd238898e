//! The options of a pool. [`Builder`](super::Builder) sets them.

use std::time::Duration;

use crate::driver::HostFlags;

/// How a pool gets page-locked memory.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PageLocking {
    /// `mmap` with huge pages on the device's NUMA node, touched by several threads, then
    /// `cudaHostRegister`: in one call, or in several where the system refuses one large call.
    /// Where that is not possible the pool falls back to `Allocate`.
    /// [`Stats::fallbacks`](crate::pool::Stats::fallbacks) counts both.
    ///
    /// An emulated machine that [watches the host](crate::emulated::Builder::watch_host) sees only
    /// memory that it has allocated. Its pools therefore allocate, except for blocks aligned to
    /// more than a page.
    #[default]
    Register,
    /// `cudaHostAlloc`, in one call.
    Allocate,
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) max_bytes: usize,
    /// The budget is the default: the system may allow less.
    pub(super) follows_system: bool,
    pub(super) thread_cache_bytes: usize,
    pub(super) page_locking: PageLocking,
    pub(super) flags: HostFlags,
    pub(super) growth_threads: usize,
    /// If more than the first is free, memory is given back until the second is left.
    pub(super) watermarks: Option<(usize, usize)>,
    pub(super) idle_age: Option<Duration>,
}
