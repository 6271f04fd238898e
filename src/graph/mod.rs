//! CUDA graphs: work that is captured once, and launched many times at the price of one call.
//!
//! ```
//! use pinlane::{Device, PinnedPool};
//!
//! let device = Device::open_or_emulated()?;
//! let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build()?;
//! let stream = device.stream()?;
//!
//! let mut capture = device.capture()?;
//! let input = capture.own(pool.alloc::<f32>(1000)?); // the graph owns its buffers
//! let gpu = capture.own(device.alloc::<f32>(1000)?);
//! let output = capture.own(pool.alloc::<f32>(1000)?);
//! capture.upload(input, gpu)?;
//! capture.download(gpu, output)?;
//! let mut step = capture.finish()?;
//!
//! for round in 0..3 {
//!     step.slice_mut(input)?.into_write()?.fill(round as f32); // waits for the last launch
//!     step.launch(&stream)?; // returns at once
//!     assert_eq!(step.get(output)?.read()?[999], round as f32); // waits for this launch
//! }
//! # Ok::<(), pinlane::Error>(())
//! ```
//!
//! A graph launches work on the addresses that were captured. Elsewhere that is where programs
//! break: the memory went back to an allocator, and every launch reads or overwrites somebody
//! else's data; or the host writes the input while a launch still reads it. Here a [`Graph`] owns
//! the buffers that its work names. A program reaches them through the graph, by a [`Key`]:
//!
//! | to do | call |
//! |---|---|
//! | read a buffer, or copy from it | [`Graph::get`] |
//! | write a buffer, or copy to it | [`Graph::slice_mut`] |
//! | exchange a buffer for another | [`Graph::rebind`] |
//! | get all of them back | [`Graph::into_buffers`] |
//!
//! So the borrow checker knows of launches: no slice of a buffer is alive when one is made. A
//! launch is one operation, with the order of any other ([`Stream`](crate::Stream)): it waits, on
//! the device, for what still uses its buffers, and what comes later waits for it. Buffers that are
//! only read may be shared by several graphs, as an [`Arc`](std::sync::Arc).
//!
//! Work of other libraries joins by [`Capture::foreign`]. If another library captures a graph of
//! its own, work of this crate joins that one, by
//! [`Stream::join_capture`](crate::Stream::join_capture).
//!
//! A [recording](crate::trace#graphs) shows what each launch consists of.
//!
//! The captured operations run one after another, except those on other branches
//! ([`Capture::branch`]). The emulated device looks for races between the branches of a launch, of
//! a launch with all other work, and of the host with both.

mod branches;
mod buffer;
mod capture;
mod launch;
mod outline;
mod work;

pub use buffer::{Buffers, GraphBuffer, Key, Named, OnDevice, OnHost, Part, Writable};
#[cfg(feature = "capi")]
pub(crate) use buffer::{Held, OfDevice, Pinned};
pub use capture::Capture;
pub use launch::Graph;
