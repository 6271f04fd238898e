//! The CUDA runtime and the launcher of `cuda/kernels.h`, as `build/bindings.rs` generates them
//! from the headers of the toolkit that the crate is built with.
//!
//! Only `driver/cuda/runtime` names this module. The code is generated, so this is the one file
//! that lints are allowed to skip.

#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(dead_code, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/cudart.rs"));
