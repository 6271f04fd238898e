//! The driver of GPUs, in builds that have it.

use std::sync::Arc;

use pinlane_driver::Driver;

/// The driver of CUDA, if this build has it. Makes no CUDA call.
#[must_use]
pub fn cuda() -> Option<Arc<dyn Driver>> {
    #[cfg(pinlane_cuda)]
    return Some(super::cuda::instance());
    #[cfg(not(pinlane_cuda))]
    None
}
