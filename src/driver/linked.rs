//! The CUDA runtime that the crate is linked with, if this build has one.

use std::sync::Arc;

use super::Driver;

/// The driver of the CUDA runtime, if this build has it. Makes no CUDA call.
#[must_use]
pub fn cuda_runtime() -> Option<Arc<dyn Driver>> {
    #[cfg(pinlane_cuda)]
    return Some(super::cuda::CudaDriver::instance());
    #[cfg(not(pinlane_cuda))]
    None
}
