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
//!   another thread, cancelled or unwound. Each buffer knows who still uses it. No promise depends
//!   on the `Drop` of a guard.
//! * **Streams that share a buffer are ordered for you**, on the device, without blocking the host.
//! * **Every asynchronous call returns a [`Ticket`]**: wait for it, query it, `.await` it, or drop
//!   it.
//! * **The emulated device behaves like a GPU** ([`driver::emulated`]). Everything above it is the
//!   same code, so a test that passes without a GPU says something about a GPU.
//!
//! # Where to look
//!
//! | to do this | use |
//! |---|---|
//! | open a GPU, or the emulated device | [`Device`] |
//! | get page-locked host memory | [`PinnedPool`], which gives [`PinnedBuf`]s |
//! | get device memory | [`Device::alloc`], which gives [`DeviceBuf`]s |
//! | copy pinned or device memory | [`Stream::upload`], [`Stream::download`], [`Stream::copy`] |
//! | copy pageable memory (a `&[T]`) | [`Stream::upload_slice`], [`Stream::download_slice`] |
//! | make thousands of copies by one call | [`Stream::upload_batch`], [`Stream::download_batch`] |
//! | load a file | [`FileReader`], [`Stream::upload_file`] |
//! | copy an iterator's batches ahead of their use | [`Prefetch`] |
//! | page-lock memory that you already have | [`Device::register`], [`Device::with_registered`] |
//! | launch your own kernels, or call a CUDA library | [`Stream::foreign`] |
//! | test without a GPU | [`driver::emulated::Emulator`] |
//!
//! Sizes are in elements unless a name says bytes. GB/s means 10⁹ bytes a second.
//!
//! # Overlap copies with kernels
//!
//! A GPU copies and computes at the same time if the copies and the kernels are on different
//! streams. So split the data into chunks, and give each kind of work a stream of its own:
//!
//! ```text
//!   copies    | upload 0 | upload 1 | upload 2 | upload 3 | ...
//!   kernels              | kernel 0 | kernel 1 | kernel 2 | ...
//! ```
//!
//! Two device buffers are enough: while a kernel reads one, the next chunk is uploaded to the
//! other.
//!
//! ```
//! use pinlane::{Device, PinnedPool, checksum};
//!
//! const CHUNK: usize = 1 << 16; // elements
//! const CHUNKS: usize = 8;
//!
//! let device = Device::open_or_emulated()?;
//! let pool = PinnedPool::builder(&device).max_bytes(64 << 20).build()?;
//! let copies = device.stream()?;
//! let kernels = device.stream()?;
//!
//! let mut source = pool.alloc::<u8>(CHUNKS * CHUNK)?;
//! for (index, chunk) in source.write()?.chunks_mut(CHUNK).enumerate() {
//!     chunk.fill(index as u8);
//! }
//! let mut ring = [device.alloc::<u8>(CHUNK)?, device.alloc::<u8>(CHUNK)?];
//! let mut sums = device.alloc::<u64>(CHUNKS)?;
//!
//! for index in 0..CHUNKS {
//!     let chunk = &mut ring[index % 2];
//!     // Waits, on the device, for the kernel that still reads this buffer (chunk `index - 2`).
//!     copies.upload(source.slice(index * CHUNK..(index + 1) * CHUNK)?, &mut *chunk)?;
//!     // Waits, on the device, for that upload and for nothing else.
//!     kernels.checksum(&*chunk, sums.slice_mut(index..=index)?)?;
//! } // All calls return at once: the loop ends long before the work does.
//!
//! let mut results = pool.alloc::<u64>(CHUNKS)?;
//! kernels.download(&sums, &mut results)?;
//! for (index, &sum) in results.read()?.iter().enumerate() { // the only wait of the host
//!     assert_eq!(sum, checksum(&[index as u8; CHUNK]));
//! }
//! # Ok::<(), pinlane::Error>(())
//! ```
//!
//! [`Stream::checksum`] and [`Stream::fill`] are kernels of this crate. A kernel of your own, or a
//! call of cuBLAS or NCCL, takes the same place. Name the buffers that it reads and writes, and
//! enqueue it on the `cudaStream_t` that the closure gets:
//!
//! ```
//! # use pinlane::Device;
//! # unsafe fn launch_scale(_: *mut std::ffi::c_void, _from: u64, _to: u64, _len: usize) {}
//! # let device = Device::open_or_emulated()?;
//! # let kernels = device.stream()?;
//! # let (chunk, mut out) = (device.alloc::<f32>(1000)?, device.alloc::<f32>(1000)?);
//! let (from, to, len) = (chunk.as_device_ptr(), out.as_device_ptr(), chunk.len());
//! // SAFETY: the kernel runs on the given stream, reads `chunk`, writes `out`, and stays inside.
//! unsafe {
//!     kernels.foreign(&[&chunk], &mut [&mut out], |stream| launch_scale(stream, from, to, len))?;
//! }
//! # Ok::<(), pinlane::Error>(())
//! ```
//!
//! `examples/overlap.rs` adds a third stream for the downloads, and compares the time with that of
//! one stream: `cargo run --release --example overlap`.
//!
//! ## What orders what
//!
//! * **One stream** runs its work in the order in which you enqueued it.
//! * **Two streams** are independent, with one exception: if two operations name the same bytes of
//!   a buffer and at least one of them writes, the later one waits for the earlier one, on the
//!   device. Two reads do not wait for each other, nor do uses of disjoint parts of a buffer.
//! * **The host** waits where it touches memory. [`PinnedBuf::read`] waits for the device's pending
//!   writes to the buffer, [`PinnedBuf::write`] for all its pending uses. A view
//!   ([`PinnedBuf::slice`], [`slice_mut`](PinnedBuf::slice_mut)) waits for its own bytes only.
//! * **Many pending uses** of one buffer (more than 16) may be merged into one range for each
//!   stream. The parts between them may then wait too. If that matters, use one buffer a chunk.
//! * **Pageable slices** are borrowed for the call alone. [`Stream::upload_slice`] returns when you
//!   may reuse the slice, [`Stream::download_slice`] when the data has arrived.
//! * **Tickets** only observe. Dropping one cancels nothing. To order two streams that share no
//!   buffer, give the ticket of one to [`Stream::wait_for`] of the other.
//! * **Dropping a buffer** does not wait, even in the middle of a copy. The exception is a
//!   [`Registered`], whose memory must first be unregistered.
//!
//! ## If nothing overlaps
//!
//! * Copies and kernels share a stream, or all chunks share one device buffer.
//! * The loop calls [`PinnedBuf::read`], [`PinnedBuf::write`], [`Ticket::wait`] or
//!   [`Stream::synchronize`]. The host enqueues nothing while it waits. To refill a source while
//!   copies run, use one buffer, or one view, for each chunk.
//! * The source is pageable. An [`upload_slice`](Stream::upload_slice) of more than 64 KiB keeps
//!   the calling thread until nearly all has been copied. Fill page-locked memory instead, or let
//!   [`Prefetch`] upload on threads of its own.
//! * Some work is on the legacy default stream ([`Device::legacy_stream`]). It waits for all
//!   blocking streams, and they for it.
//!
//! # Test without a GPU
//!
//! [`Device::open_or_emulated`] opens GPU 0 if there is one, and the emulated device otherwise. A
//! test that needs more control builds a machine of its own: one that runs work as late as CUDA
//! allows, in an order that a seed decides, and that reports misuse.
//!
//! ```
//! # #[cfg(feature = "emulated")] {
//! use pinlane::driver::emulated::{Emulator, Execution};
//! use pinlane::{Device, PinnedPool};
//!
//! let machine = Emulator::builder().execution(Execution::Lazy).seed(7).build();
//! let device = Device::of_emulator(&machine, 0)?;
//! let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build()?;
//! let stream = device.stream()?;
//!
//! let mut host = pool.alloc::<u32>(1000)?;
//! let mut gpu = device.alloc::<u32>(1000)?;
//! stream.fill(&mut gpu, 7)?;
//! stream.download(&gpu, &mut host)?; // nothing has run so far
//! assert_eq!(host.read()?, [7; 1000]); // runs both
//! assert_eq!(machine.findings(), []);
//! # }
//! # Ok::<(), pinlane::Error>(())
//! ```

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
