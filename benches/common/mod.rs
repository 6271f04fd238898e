//! The harness that all benchmarks share.
//!
//! ```text
//!   options   the command line              timing    medians, taken in turns; the host's clock
//!   figures   a figure, the report          held      device time; a kernel holds streams back
//!   machine   what a run was measured on    bare      the runtime's own calls: the ceilings
//!   team      threads that start together   pageable  the runtime's own calls on pageable memory
//!   c         the C interface               product   a matrix product, and work beside it
//!   numbers   rows at random places         cublas    the library of that product
//!   folder    a place for large files       energy    what the GPU takes
//! ```

#![allow(dead_code)] // every benchmark uses a part

pub mod bare;
#[cfg(feature = "capi")]
pub mod c;
pub mod cublas;
pub mod cuda;
pub mod energy;
pub mod figures;
pub mod folder;
pub mod held;
mod machine;
pub mod numbers;
pub mod options;
pub mod pageable;
pub mod product;
pub mod team;
pub mod timing;
