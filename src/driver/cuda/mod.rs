//! CUDA, by one of two ways. The build chooses one, and there the code differs:
//!
//! * `runtime`: the CUDA runtime of a toolkit, linked statically, and kernels that nvcc compiles.
//! * `libcuda`: the driver's library, opened at run time, and kernels that are compiled already.
//!
//! What both have lies beside them: how kernels are launched ([`launch`]), when device memory comes
//! from a pool ([`early`]) and what to do without one ([`unpooled`]), batches of copies
//! ([`batch`]), and the driver's functions ([`functions`]).

mod batch;
#[rustfmt::skip]
#[allow(dead_code, missing_docs, non_camel_case_types, non_snake_case, clippy::all)]
mod driver_api;
mod early;
mod functions;
mod handles;
mod launch;
#[cfg(not(pinlane_toolkit))]
mod libcuda;
#[cfg(pinlane_toolkit)]
mod runtime;
mod unpooled;

use std::sync::{Arc, OnceLock};

#[cfg(not(pinlane_toolkit))]
use self::libcuda as way;
#[cfg(pinlane_toolkit)]
use self::runtime as way;
use super::{Driver, DriverResult, Poll};
use crate::error::CudaCode;
use crate::process::PerProcess;

/// What [`Driver::host_alloc`] promises. CUDA promises no alignment of pinned memory.
const PAGE: usize = 4096;

/// CUDA. The driver and the runtime keep the state; this has none.
struct CudaDriver(());

/// The one driver of the process. Calls nothing: the first method called initialises CUDA.
pub(super) fn instance() -> Arc<dyn Driver> {
    static INSTANCE: PerProcess<OnceLock<Arc<dyn Driver>>> = PerProcess::new();
    INSTANCE.get().get_or_init(|| Arc::new(CudaDriver(()))).clone()
}

/// Turns the error "not ready" into a result.
fn poll(answer: DriverResult<()>) -> DriverResult<Poll> {
    match answer {
        Ok(()) => Ok(Poll::Done),
        Err(CudaCode::NOT_READY) => Ok(Poll::NotReady),
        Err(code) => Err(code),
    }
}

/// The bytes to allocate for a request of page-locked memory: whole pages, so that blocks do not
/// share pages. CUDA returns NULL and success for 0 bytes.
fn whole_pages(bytes: usize) -> DriverResult<usize> {
    match bytes.checked_next_multiple_of(PAGE) {
        Some(0) => Err(CudaCode::INVALID_VALUE),
        Some(bytes) => Ok(bytes),
        None => Err(CudaCode::MEMORY_ALLOCATION),
    }
}
