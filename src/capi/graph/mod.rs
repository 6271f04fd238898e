//! Graphs in C: work that is captured once and launched as one operation.
//!
//! ```text
//!   pinlane_capture_upload(capture, input, ..., gpu, ...)
//!     names       a handle -> the key of the buffer; the first time, the capture takes it
//!       held      the buffer, by its handle: as a call is inside an object, for longer
//!     Capture::upload of Rust, by the keys
//! ```
//!
//! A handle of C stays its owner's, and names the buffer for the graph. The graph is inside the
//! object of the handle from its first capture on, as a call is, so no other call can use it in a
//! way that conflicts, and freeing the handle does not free the buffer.
//!
//! # Invariants
//!
//! * A graph shares the buffers that its work only reads, and has the others alone. In between, it
//!   may lend one: then it is not inside, and the buffer knows of the last launch.
//! * A launch first takes back what was lent, or enqueues nothing.

mod capture;
mod foreign;
mod held;
mod launch;
mod names;

pub use capture::pinlane_capture;
pub use launch::pinlane_graph;
