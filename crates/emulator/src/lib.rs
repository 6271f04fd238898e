//! The emulated device: a CUDA runtime in pure Rust, for machines without a GPU and for finding
//! bugs.
//!
//! It is a [`Driver`](pinlane_driver::Driver) like any other: code above the seam cannot tell the
//! difference. [`Emulator`] gives access to what it adds:
//!
//! * a seed decides when operations run, within what CUDA's documents allow;
//! * it makes calls fail on request;
//! * it reports misuse as [`Finding`]s: what a correct program never does, and a real GPU answers
//!   with torn data or a crash. [Races](FindingKind::Race) are found from one run.
//!
//! ```text
//!  driver::Driver --> emulator::Emulator, calls --> Shared: one lock --> machine::Machine
//!                                                               streams, events, backlog
//!
//!  What a machine has:                         What is done to it:
//!    memory      of devices and of the host      enqueue   what a call does
//!    operation   what streams are given          execute   what operations do
//!    races       what orders them                kernels, launches, declared   what some do
//!    schedule    when they run, and when host    capture   what captures forbid
//!                functions are called            loss      devices that are lost
//!    watch       what the host does to memory    liberties what CUDA leaves open
//!                in use, and stand-ins to theirs
//!    words       numbers, names, texts         explore runs a program under many schedules.
//! ```
//!
//! # Invariants
//!
//! * All state is under one lock. Host functions run on a thread of their own with nothing locked.
//!   Stand-ins for kernels, the user's only other code, run under the lock and make no call.
//! * Every access to memory is checked first. A bad device address loses the device, a bad host
//!   range fails the call, and host memory freed in flight is never given back. So a program that
//!   breaks CUDA's rules gets a finding, and its behaviour stays defined as long as it keeps the
//!   safety contract of [`Driver`](pinlane_driver::Driver).
//! * A run whose calls come from one thread depends on the seed alone, if that thread does not rest
//!   while a host function is pending.
//!
//! # Choices
//!
//! Where CUDA's documents leave a choice, the emulated device promises the least: a synchronize of
//! the legacy stream waits for that stream only, and allocation and free synchronize nothing.
//! Device addresses are never given out twice. A busy kernel takes no real time, but counts in
//! [`event_elapsed`][elapsed]. Host memory that is still allocated when the last handle goes is
//! leaked, because the program may hold a pointer into it. Programs that call CUDA themselves have
//! more calls ([`Builder::build_for_program`]): a last-error slot, synchronous copies, and a free
//! that synchronizes. A driver has none of these.
//!
//! [elapsed]: pinlane_driver::Driver::event_elapsed

mod branches;
mod calls;
mod capture;
mod declared;
mod driver;
mod emulator;
mod enqueue;
mod execute;
mod explore;
mod fault;
mod finding;
mod forks;
mod graphs;
mod kernels;
mod launches;
mod liberties;
mod loss;
mod machine;
mod memory;
mod operation;
mod per_thread;
mod races;
mod sanitized;
mod schedule;
mod shared;
mod watch;
mod words;

pub use calls::{
    BatchEntry, CaptureInfo, Held, Kind, Plane, PoolFigure, Side, SourceOrder, Target,
};
pub use emulator::{Builder, Emulator, HandOver};
#[doc(hidden)]
pub use explore::asked_for;
pub use explore::{
    Exploration, Explored, FailedRun, Outcome, explore, explore_orders, explore_steps,
};
pub use fault::{Fault, Repeat};
pub use finding::{Finding, FindingKind};
pub use machine::{CaptureMode, Usage};
pub use memory::foreign::SharedMemory;
pub use memory::mapped::{CreatedMemory, MappedAccess};
pub use memory::pools::PoolId;
pub use operation::declared::DeclaredUse;
#[doc(hidden)]
pub use races::leave_out;
pub use races::{Callers, Frame, Lines, Note};
pub use races::{MemoryKind, Race, RacingAccess, RacingMemory, RacingUse, Site};
pub use schedule::{Execution, Replay};
#[doc(hidden)]
pub use words::unreadable::Unreadable;

#[cfg(test)]
mod tests;
