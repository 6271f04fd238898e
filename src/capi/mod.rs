//! The C interface: one file for each C type, each function a thin translation of the Rust one.
//!
//! ```text
//!   pinlane_upload(stream, buffer, ...)
//!     boundary          an error becomes a status and a message; so does a panic
//!       handle::get     a handle -> the Rust object, for the time of the call; or a status
//!       Stream::upload  the code that Rust programs run
//! ```
//!
//! # Invariants
//!
//! * No handle is dereferenced. Handles are looked up, which detects stale, foreign and freed ones.
//! * Outputs are written only on success, through [`pointer::Out`], which is checked before any
//!   work.
//! * A buffer is borrowed for the time of a call, shared or exclusively, as the Rust signature
//!   says. A conflicting call on another thread gets `PINLANE_STATUS_BUSY`.
//! * No lock is held while the driver is called, and no lock is taken to find an object.

#![allow(non_camel_case_types)]

mod batch;
mod buffer;
mod cuda_error;
mod device;
mod device_buffer;
mod diagnostics;
mod dlpack;
mod emulator;
mod file;
mod foreign;
mod graph;
mod growing;
mod handle;
mod memory;
mod pointer;
mod pool;
mod pool_stats;
mod prefetch;
mod recording;
mod remedy;
mod request;
mod slice;
mod staging;
mod status;
mod stream;
mod table;
mod ticket;
mod transfer;

// Names for all files here: the types of handles, and the parts of every call.
use self::batch::pinlane_pairs;
use self::buffer::pinlane_buffer;
use self::device::pinlane_device;
use self::device_buffer::pinlane_device_buffer;
use self::emulator::pinlane_emulator;
use self::file::pinlane_file;
use self::foreign::pinlane_foreign;
use self::graph::{pinlane_capture, pinlane_graph};
use self::growing::growing;
use self::handle::handle_type;
use self::pointer::{
    Out, check_flags, check_spare, layout, members, set_or_0, set_unless_0, unknown,
};
use self::pool::pinlane_pool;
use self::prefetch::pinlane_prefetch;
use self::recording::pinlane_recording;
use self::request::pinlane_request;
use self::status::{boundary, freeing, invalid, pinlane_status, refused};
use self::stream::pinlane_stream;
use self::ticket::pinlane_ticket;
use crate::error::{Error, ErrorKind, Result};
