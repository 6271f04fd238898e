//! A tensor is freed on one stream, and copied on another.
//!
//! In cutile, `tensor.to_host_vec().sync_on(&stream)` drops the tensor, which is freed on another
//! stream than that. compute-sanitizer reported a possible use after free.
//! Report: https://github.com/NVlabs/cutile-rs/issues/252
//! Wrong: nothing orders the free after the copy.
//! Finds: Race: DeviceFree on stream A after CopyD2H on stream B

use pinlane_driver::DriverResult;

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (home, given) = (gpu.stream()?, gpu.stream()?);
    let (tensor, host) = (gpu.malloc_async(home)?, gpu.pinned()?);

    gpu.fill(home, tensor, 4)?;
    gpu.wait_stream(given, home)?;
    gpu.copy(given, host, tensor)?;
    if fixed {
        gpu.wait_stream(home, given)?;
    }
    gpu.free_async(tensor, home)?; // the tensor is dropped
    gpu.synchronize(home)?;
    gpu.synchronize(given)?;
    Ok(gpu.holds(host, 4))
}
