//! A page-locked source is overwritten for the next iteration while its copy is pending.
//!
//! TensorRT-LLM uploads its tables of KV blocks from one buffer that lives for ever. With the
//! overlap scheduler the CPU is an iteration ahead, and attention used another batch's blocks.
//! Report: https://github.com/NVIDIA/TensorRT-LLM/pull/15546
//! Wrong: the host writes to the source before the copy of the iteration before has read it.
//! Finds: Race: host write on host after CopyH2D on stream A
//! Needs: host accesses

use pinlane_driver::DriverResult;

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (table, offsets, fresh) = (gpu.malloc()?, gpu.pinned()?, gpu.pinned()?);
    let (seen, stream) = ([gpu.pinned()?, gpu.pinned()?], gpu.stream()?);

    for (iteration, &seen) in seen.iter().enumerate() {
        let source = if fixed && iteration == 1 { fresh } else { offsets };
        gpu.write(source, 1 + iteration as u8);
        gpu.copy(stream, table, source)?;
        gpu.copy(stream, seen, table)?; // what attention sees
    }
    gpu.synchronize(stream)?;
    Ok(gpu.holds(seen[0], 1) && gpu.holds(seen[1], 2))
}
