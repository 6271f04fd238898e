//! Page-locked memory and asynchronous copies between host and GPU: fast, sound by construction,
//! and testable without a GPU.
//!
//! ```
//! use pinlane::{Device, PinnedPool};
//!
//! let device = Device::open_or_emulated()?;
//! let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;
//! let stream = device.stream()?;
//!
//! let mut host = pool.alloc::<f32>(1 << 16)?; // page-locked, from the pool
//! host.write()?.fill(1.5); // waits first, if the device still uses the block
//! let mut gpu = device.alloc::<f32>(1 << 16)?;
//! stream.upload(&host, &mut gpu)?; // returns at once
//! stream.download(&gpu, &mut host)?; // returns at once
//! let sum: f32 = host.read()?.iter().sum(); // waits for that copy, not for the stream
//! assert_eq!(sum, 1.5 * 65536.0);
//! drop(host); // even mid-copy: the block is reused only once the device is done
//! # Ok::<(), pinlane::Error>(())
//! ```
//!
//! # What the crate promises
//!
//! * **No safe call can observe or cause a torn copy**, whatever is dropped, forgotten, moved to
//!   another thread, cancelled or unwound. Buffers know who still uses them; no guard's `Drop` is
//!   relied on.
//! * **Use on several streams is ordered for you**, on the device, without blocking the host.
//! * **Every asynchronous call gives a [`Ticket`]**: wait for it, ask it, `.await` it, or drop it.
//! * **The emulated device behaves like a GPU** ([`driver::emulated`]): everything above it is the
//!   same code, so tests that run without a GPU mean something with one.
//!
//! # Where to look
//!
//! [`Device`] opens a GPU or an emulated one. [`PinnedPool`] gives [`PinnedBuf`]s,
//! [`Device::alloc`] gives [`DeviceBuf`]s, and [`Stream`] moves data between them.
//! [`Stream::upload_slice`] takes ordinary memory, [`Stream::upload_batch`] thousands of pieces by
//! one call, [`FileReader`] files; [`Prefetch`] copies an iterator's batches ahead of their use.
//! Sizes are in elements unless a name says bytes; GB/s are 10⁹ bytes a second.

#![deny(unsafe_code)]
// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[allow(unsafe_code)]
pub mod batch;
#[cfg(feature = "capi")]
#[allow(unsafe_code)]
mod capi;
mod context;
#[allow(unsafe_code)]
mod copy;
mod device;
#[allow(unsafe_code)]
pub mod driver;
mod error;
#[allow(unsafe_code)]
pub mod file;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod pool;
pub mod prefetch;
#[allow(unsafe_code)]
mod process;
#[allow(unsafe_code)]
mod stream;
#[allow(unsafe_code)]
mod sync;
#[cfg(pinlane_cuda)]
#[allow(unsafe_code)]
mod sys;
mod ticket;
#[allow(unsafe_code)]
mod timeline;
mod wakers;

pub use device::{Device, DeviceInfo, MemoryInfo};
pub use driver::reference::checksum;
pub use error::{CudaCode, Error, ErrorKind, Result};
pub use memory::{
    DeviceBuf, DeviceSlice, DeviceSliceMut, HostMemory, PinnedBuf, PinnedSlice, PinnedSliceMut,
    Refused, Registered, Tracked, TrackedMut,
};
#[cfg(feature = "allocator-api2")]
pub use pool::PinnedAllocator;
pub use pool::{
    ClassStats, GrowthFallbacks, PageLocking, PinnedPool, PinnedPoolBuilder, PoolStats, Timing,
};
pub use stream::{Stream, StreamOptions};
pub use ticket::Ticket;
pub mod staging {
    //! How copies of pageable memory are staged: the ring of page-locked memory that they go
    //! through, and the threads that fill and empty it.

    pub use crate::copy::staged::Staging;
    pub use crate::copy::staged::team::CopyTeam;
}
