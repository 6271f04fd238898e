//! What [pinlane](https://docs.rs/pinlane) and its emulated device both need of the process, and
//! nothing of CUDA.
//!
//! | module | what it has |
//! |---|---|
//! | [`process`] | marks that tell a process from its forked children; values of each process |
//! | [`thread`] | threads that a forked child can start, too |
//! | [`lock`] | locks without poisoning |
//! | [`sanitizer`] | what a thread sanitizer of the program is told |
//! | [`json`] | strings of JSON |
//! | [`sources`] | where the sources of a crate lie |
//!
//! It is not covered by semantic versioning.

#![allow(clippy::new_without_default, reason = "what is static is made by a const function")]

pub mod json;
pub mod lock;
pub mod process;
pub mod sanitizer;
pub mod sources;
pub mod thread;

/// This crate's own.
pub const SOURCES: sources::Sources = own_sources!("lib.rs");
