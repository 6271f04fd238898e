//! The one driver of the process. Both ways implement its methods, and `launch` its kernels.

use std::sync::{Arc, OnceLock};

use crate::process::PerProcess;
use pinlane_driver::Driver;

/// CUDA. The driver and the runtime keep the state; this has none.
pub(super) struct CudaDriver(());

/// The one driver of the process. Calls nothing: the first method called initialises CUDA.
pub(in super::super) fn instance() -> Arc<dyn Driver> {
    static INSTANCE: PerProcess<OnceLock<Arc<dyn Driver>>> = PerProcess::new();
    INSTANCE.get().get_or_init(|| Arc::new(CudaDriver(()))).clone()
}
