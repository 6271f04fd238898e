//! The bug zoo: small programs, each made after a report of a real bug, and each with a twin that
//! differs only by the fix.
//!
//! `programs/` has them, in Rust, C and C++. The comment at the top of each says what happened, and
//! what the emulated device is to find in one eager run. `tests/zoo.rs` checks that; `scripts/zoo`
//! measures how many schedules it takes until a program goes wrong by itself, and writes
//! `docs/zoo.md`.
//!
//! ```text
//!   header    what the comment at the top of a program says
//!   outcome   how a run ended, and what was found
//!   gpu       what the programs in Rust call
//!   native    compiles and runs those in C and C++, on the drop-in CUDA runtime
//!   program   all programs
//!   measure   how many schedules it takes
//! ```

mod gpu;
pub mod header;
pub mod measure;
pub mod native;
pub mod outcome;
pub mod program;
#[path = "../programs/mod.rs"]
mod programs;

pub use program::{Language, Program};
