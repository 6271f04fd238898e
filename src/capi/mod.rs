//! The C interface: one file a noun, each function a thin translation of the Rust one.
//!
//! ```text
//!   pinlane_upload(stream, buffer, ...)
//!     boundary          a panic becomes a status; an error becomes a status and a message
//!       handle::get     opaque, generation-tagged value -> the Rust object, for the call; or a status
//!       Stream::upload  the same code that Rust programs run
//! ```
//!
//! # Invariants
//!
//! * No handle is ever dereferenced: it is looked up, so that stale, foreign and freed ones are
//!   found.
//! * Outputs are written only on success, through [`pointer::Out`], which is checked before any
//!   work.
//! * A buffer is borrowed for the time of a call, shared or exclusively as the Rust signature says;
//!   a conflicting call on another thread gets `PINLANE_STATUS_BUSY`.
//! * No lock is held while the driver is called, and none is taken to find an object.

#![allow(non_camel_case_types)]

mod batch;
mod buffer;
mod device;
mod device_buffer;
mod file;
mod foreign;
mod handle;
mod plan;
mod pointer;
mod pool;
mod pool_memory;
mod pool_stats;
mod registered;
mod slice;
mod staging;
mod status;
mod stream;
mod table;
mod ticket;
mod transfer;
