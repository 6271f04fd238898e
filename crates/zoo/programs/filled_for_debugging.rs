//! Page-locked memory is filled asynchronously, and then used by the host.
//!
//! The caching allocator of CMS can fill what it gives out, to find reads of memory that nobody has
//! set. It did that on a stream, and page-locked buffers were written by the host meanwhile.
//! Report: https://github.com/cms-sw/cmssw/pull/45368
//! Wrong: the allocator does not wait for the fill before it gives the buffer to the host.
//! Finds: Race: host write on host after Fill(0xa5) on stream A
//! Needs: host accesses

use pinlane_driver::DriverResult;

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (buffer, stream) = (gpu.pinned()?, gpu.stream()?);

    gpu.fill(stream, buffer, 0xa5)?;
    if fixed {
        gpu.synchronize(stream)?;
    }
    gpu.write(buffer, 1);
    gpu.synchronize(stream)?;
    Ok(gpu.holds(buffer, 1))
}
