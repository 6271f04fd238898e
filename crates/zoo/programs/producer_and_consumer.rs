//! A kernel of one library reads what another library still writes on its own stream.
//!
//! A key-value store filled tensors on a private stream. FBGEMM's kernels read them on the current
//! stream, and now and then saw sizes that made no sense.
//! Report: https://github.com/pytorch/FBGEMM/pull/6195
//! Wrong: nothing makes the consumer's stream wait for the producer's.
//! Finds: Race: CopyD2D on stream B after CopyH2D on stream A

use pinlane_driver::DriverResult;

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (tensor, permuted) = (gpu.malloc()?, gpu.malloc()?);
    let (values, host) = (gpu.pinned()?, gpu.pinned()?);
    let (producer, consumer) = (gpu.stream()?, gpu.stream()?);

    gpu.write(values, 6);
    gpu.copy(producer, tensor, values)?;
    if fixed {
        gpu.wait_stream(consumer, producer)?;
    }
    gpu.copy(consumer, permuted, tensor)?;
    gpu.copy(consumer, host, permuted)?;
    gpu.synchronize(consumer)?;
    gpu.synchronize(producer)?;
    Ok(gpu.holds(host, 6))
}
