//! Shared by [pinlane](https://docs.rs/pinlane) and its emulated device: helpers for the process,
//! without CUDA.
//!
//! | module | what it has |
//! |---|---|
//! | [`process`] | marks that tell a process from its forked children; values of each process |
//! | [`thread`] | threads that a forked child can also start |
//! | [`background`] | calls that the end of the process waits for |
//! | [`lock`] | locks without poisoning |
//! | [`sanitizer`] | annotations for the program's thread sanitizer |
//! | [`json`] | strings of JSON |
//! | [`sources`] | the place of a crate's sources |
//! | [`system`] | the calls of Linux, which fail on other systems |
//!
//! It is not covered by semantic versioning.

#![allow(clippy::new_without_default, reason = "what is static is made by a const function")]

pub mod background;
pub mod json;
pub mod lock;
pub mod process;
pub mod sanitizer;
pub mod sources;
pub mod system;
pub mod thread;

/// Methods of a builder that set one member each, and give the builder back. Each is written
/// `pub fn name(value: Type) => member;`.
#[macro_export]
macro_rules! setters {
    (impl $builder:ident $(<$generic:ident>)? {
        $($(#[$attribute:meta])* pub fn $name:ident($value:ident: $type:ty) => $($member:ident).+;)*
    }) => {
        impl $(<$generic>)? $builder $(<$generic>)? {
            $($(#[$attribute])* #[must_use] pub fn $name(mut self, $value: $type) -> Self {
                self.$($member).+ = $value;
                self
            })*
        }
    };
}

/// The sources of this crate.
pub const SOURCES: sources::Sources = own_sources!("lib.rs");
