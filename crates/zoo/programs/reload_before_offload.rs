//! An activation is reloaded before it has been offloaded.
//!
//! Where the backward pass came to a group before its prefetch, Megatron copied the staging buffer
//! back to the device at once. The copy that fills it could still be on its way.
//! Report: https://github.com/NVIDIA/Megatron-LM/issues/7398
//! Wrong: the reload does not wait for the event of the offload.
//! Finds: Race: CopyH2D on stream A after CopyD2H on stream B

use pinlane_driver::DriverResult;

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (activation, reloaded) = (gpu.malloc()?, gpu.malloc()?);
    let (staging, host) = (gpu.pinned()?, gpu.pinned()?);
    let (compute, offload) = (gpu.stream()?, gpu.stream()?);

    gpu.fill(compute, activation, 7)?;
    gpu.wait_stream(offload, compute)?;
    gpu.copy(offload, staging, activation)?;
    let offloaded = gpu.event()?;
    gpu.record(offloaded, offload)?;
    if fixed {
        gpu.wait(compute, offloaded)?;
    }
    gpu.copy(compute, reloaded, staging)?;
    gpu.copy(compute, host, reloaded)?;
    gpu.synchronize(compute)?;
    gpu.synchronize(offload)?;
    Ok(gpu.holds(host, 7))
}
