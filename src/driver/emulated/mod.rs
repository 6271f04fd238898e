//! The emulated device: a CUDA runtime in pure Rust, for machines without a GPU and for finding
//! bugs.
//!
//! It is a [`Driver`](super::Driver) like any other; nothing above the seam can tell. What it
//! adds is reached through [`Emulator`]: it runs operations when a seed says so, within what CUDA's
//! documents allow; it makes calls fail on request; and it reports, as [`Finding`]s, what a correct
//! program never does and what a real GPU answers with torn data.
//!
//! ```text
//!  Emulator --+
//!             +--> driver::Runtime --> runtime::Shared: one lock --> machine::Machine
//!  dyn Driver-+                          ^                             streams, events, backlog
//!                                        |                             device_memory, host_memory
//!                             host_thread: host functions              fault, finding, rng
//!
//!  machine: enqueue    schedule: when    execute: what    capture: what a graph capture forbids
//!  loss: what becomes of the work of a device that is lost
//!  copies: what the copies with choices (pageable, batches) come to
//! ```
//!
//! # Invariants
//!
//! * All state is under one lock. Host functions, the only code of the user's, run on a thread of
//!   their own with nothing locked.
//! * No operation touches memory unchecked: a bad device address costs the device, a bad host range
//!   the call, and host memory freed in flight is kept for ever. A program that breaks the rules of
//!   CUDA learns of it, and stays defined as long as it keeps the safety contract of [`Driver`](super::Driver).
//! * A run that uses one thread and no host function depends on the seed alone.
//!
//! # What it takes for granted
//!
//! Where CUDA's documents leave a choice, the least is promised: a synchronize of the legacy stream
//! waits for that stream only, allocation and free synchronize nothing, device addresses are never
//! given out twice. A busy kernel takes no real time: it has its place in the stream, and counts in
//! [`event_elapsed`](super::Driver::event_elapsed). Host memory that is still allocated when the last
//! handle goes is leaked, because somebody may hold a pointer into it. There is no last-error slot.

mod capture;
mod copies;
mod device_memory;
mod driver;
mod emulator;
mod enqueue;
mod execute;
mod fault;
mod finding;
mod host_memory;
mod host_thread;
mod kernels;
mod loss;
mod machine;
mod operation;
mod per_thread;
mod rng;
mod runtime;
mod schedule;
mod slots;
mod thread;

pub use emulator::{Builder, Emulator};
pub use fault::{Fault, Repeat};
pub use finding::{Finding, FindingKind};
pub use machine::{Execution, Usage};

#[cfg(test)]
mod tests;
