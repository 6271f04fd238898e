//! A local variable is read while an asynchronous copy into it may be pending.
//!
//! cuDF's string categories copied an integer to a local of the host with cudaMemcpyAsync, and
//! returned it.
//! Report: https://github.com/NVIDIA/cudf/pull/2794
//! Wrong: that such a copy blocks when the memory is not page-locked, CUDA does not promise.
//! Finds: Race: host read on host after CopyD2H on legacy stream
//! Needs: host accesses

use pinlane_driver::DriverResult;

use crate::gpu::{BYTES, Gpu};

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let map = gpu.malloc()?;
    let mut value = vec![0u8; BYTES];

    gpu.fill(gpu.legacy(), map, 9)?;
    gpu.copy(gpu.legacy(), value.as_mut_ptr(), map)?;
    if fixed {
        gpu.synchronize(gpu.legacy())?;
    }
    let right = gpu.holds(value.as_ptr(), 9);
    gpu.synchronize(gpu.legacy())?;
    Ok(right)
}
