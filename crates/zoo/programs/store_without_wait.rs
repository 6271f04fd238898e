//! KV blocks are offloaded before they are computed.
//!
//! vLLM's offloading connector copied blocks to the host on a stream of its own, one step later.
//! It took that for order enough. Restored requests then gave garbled text.
//! Report: https://github.com/vllm-project/vllm/issues/45704
//! Wrong: the store stream does not wait for the compute stream.
//! Finds: Race: CopyBatch on stream B after Fill(0x01) on stream A

use pinlane_driver::{CopyKind, DriverResult};

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (blocks, pool) = (gpu.malloc()?, gpu.pinned()?);
    let (compute, store) = (gpu.stream()?, gpu.stream()?);

    gpu.fill(compute, blocks, 1)?; // this step's keys and values
    if fixed {
        gpu.wait_stream(store, compute)?;
    }
    gpu.copy_blocks(store, CopyKind::D2H, pool, blocks)?;
    gpu.synchronize(store)?;
    Ok(gpu.holds(pool, 1))
}
