//! Page-locked memory and asynchronous copies between host and GPU: fast, sound by construction,
//! and testable without a GPU.
//!
//! ```
//! use pinlane::{Device, PinnedPool};
//!
//! let device = Device::open_or_emulated()?; // GPU 0, or the emulated device
//! let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;
//! let stream = device.stream()?;
//!
//! let mut host = pool.alloc::<f32>(1 << 16)?; // page-locked, from the pool
//! host.write()?.fill(1.5); // waits while the device uses the block
//! let mut gpu = device.alloc::<f32>(1 << 16)?;
//! stream.upload(&host, &mut gpu)?; // returns at once
//! stream.download(&gpu, &mut host)?; // returns at once
//! let sum: f32 = host.read()?.iter().sum(); // waits for that copy, not for the stream
//! assert_eq!(sum, 1.5 * 65536.0);
//! drop(host); // fine even mid-copy: the block is reused only when the device is done
//! # Ok::<(), pinlane::Error>(())
//! ```
//!
//! # What the crate promises
//!
//! * **No safe call can observe or cause a torn copy**, whatever is dropped, forgotten, moved to
//!   another thread, cancelled or unwound. Each buffer tracks the operations that still use it. No
//!   promise depends on the `Drop` of a guard.
//! * **Streams that share a buffer are ordered for you**, on the device, without blocking the host.
//! * **Every asynchronous call returns a [`Ticket`]**: wait for it, query it, `.await` it, or drop
//!   it.
//! * **The emulated device behaves like a GPU** ([`emulated`]). Everything above it is the same
//!   code, so a test without a GPU tests the code that runs on a GPU.
//!
#![doc = include_str!("guide.md")]
#![deny(unsafe_code)]
// On docs.rs each item shows the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[allow(unsafe_code)]
pub mod batch;
#[cfg(feature = "capi")]
#[allow(unsafe_code)]
mod capi;
mod context;
#[allow(unsafe_code)]
mod copy;
#[allow(unsafe_code)]
mod device;
#[allow(unsafe_code)]
pub mod dlpack;
#[allow(unsafe_code)]
pub mod driver;
#[cfg(all(feature = "emulated", not(pinlane_emulated)))]
mod elsewhere;
mod error;
#[allow(unsafe_code)]
pub mod file;
#[allow(unsafe_code)]
pub mod graph;
#[allow(unsafe_code)]
pub mod memory;
mod notice;
#[allow(unsafe_code)]
pub mod pool;
pub mod prefetch;
#[allow(unsafe_code)]
mod process;
pub mod staging;
#[allow(unsafe_code)]
mod stream;
#[allow(unsafe_code)]
mod sync;
mod ticket;
#[allow(unsafe_code)]
mod timeline;
#[allow(unsafe_code)]
pub mod trace;
mod wakers;

pub use device::{Device, DeviceInfo, MemoryInfo};
#[cfg(pinlane_emulated)]
pub use driver::emulated;
pub use driver::reference::checksum;
pub use error::{CudaCode, Error, ErrorKind, Refused, Result};
pub use graph::{Capture, Graph};
pub use memory::{
    DeviceBuf, DeviceSlice, DeviceSliceMut, FrozenBuf, PinnedBuf, PinnedSlice, PinnedSliceMut,
    Registered, Strided, Strides,
};
pub use pool::PinnedPool;
pub use stream::{Stream, StreamOptions};
pub use ticket::Ticket;
