//! A tensor is cloned after the wait that should cover the clone.
//!
//! TRL's activation offloading let its transfer stream wait for the compute stream, and then cloned
//! tensors that were not contiguous.
//! Report: https://github.com/huggingface/trl/pull/7195
//! Wrong: the clone is enqueued after the snapshot that the transfer stream waits for.
//! Finds: Race: CopyD2H on stream B after CopyD2D on stream A

use pinlane_driver::DriverResult;

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (saved, clone, host) = (gpu.malloc()?, gpu.malloc()?, gpu.pinned()?);
    let (compute, transfer) = (gpu.stream()?, gpu.stream()?);

    gpu.fill(compute, saved, 3)?;
    if !fixed {
        gpu.wait_stream(transfer, compute)?;
    }
    gpu.copy(compute, clone, saved)?;
    if fixed {
        gpu.wait_stream(transfer, compute)?;
    }
    gpu.copy(transfer, host, clone)?;
    gpu.synchronize(transfer)?;
    Ok(gpu.holds(host, 3))
}
