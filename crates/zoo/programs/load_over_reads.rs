//! KV blocks are loaded into memory that a kernel still reads.
//!
//! After the store path of vLLM's offloading connector was mended, the load path had the same gap
//! the other way round: it overwrote blocks that the running step still needed.
//! Report: https://github.com/vllm-project/vllm/issues/47282
//! Wrong: the load stream does not wait for the reads of the compute stream.
//! Finds: Race: CopyBatch on stream B after CopyD2D on stream A

use pinlane_driver::{CopyKind, DriverResult};

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (blocks, output) = (gpu.malloc()?, gpu.malloc()?);
    let (pool, result) = (gpu.pinned()?, gpu.pinned()?);
    let (compute, load) = (gpu.stream()?, gpu.stream()?);

    gpu.write(pool, 2); // what another request left
    gpu.fill(compute, blocks, 1)?;
    gpu.synchronize(compute)?;
    gpu.copy(compute, output, blocks)?; // attention reads the blocks
    if fixed {
        gpu.wait_stream(load, compute)?;
    }
    gpu.copy_blocks(load, CopyKind::H2D, blocks, pool)?;
    gpu.copy(compute, result, output)?;
    gpu.synchronize(load)?;
    gpu.synchronize(compute)?;
    Ok(gpu.holds(result, 1))
}
