//! CUDA, by one of two ways. The build chooses one, and there the code differs:
//!
//! * `runtime`: the CUDA runtime of a toolkit, linked statically, and kernels that nvcc compiles.
//! * `libcuda`: the driver's library, opened at run time, and kernels that are compiled already.
//!
//! What both have lies beside them: the driver of the process ([`instance`]), how kernels are
//! launched ([`launch`]), when device memory comes from a pool ([`early`]) and what to do without
//! one ([`unpooled`]), batches of copies ([`batch`]), [`strided`] ones,
//! [`graphs`], the driver's functions
//! ([`functions`]), and the seam's types as CUDA's ([`words`]).
//!
//! Each way has modules `memory`, `kernels` and `graphs` with the same functions, for those above.

mod batch;
#[rustfmt::skip]
#[allow(dead_code, missing_docs, non_camel_case_types, non_snake_case, clippy::all)]
mod driver_api;
mod early;
mod functions;
mod graph_table;
mod graphs;
mod instance;
mod kernel;
mod launch;
#[cfg(not(pinlane_toolkit))]
mod libcuda;
#[cfg(pinlane_toolkit)]
mod runtime;
mod strided;
mod unpooled;
mod words;

pub(super) use self::instance::instance;
#[cfg(not(pinlane_toolkit))]
use self::libcuda as way;
#[cfg(pinlane_toolkit)]
use self::runtime as way;
