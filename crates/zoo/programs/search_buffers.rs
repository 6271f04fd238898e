//! A result buffer is read and reset while the device still writes to it.
//!
//! A miner alternates between two streams, each with a result buffer in page-locked memory. A
//! blocking copy beside it had hidden the missing wait for the stream.
//! Report: https://github.com/Genoil/cpp-ethereum/pull/2
//! Wrong: the host reads the buffer of a stream without a synchronize with that stream.
//! Finds: Race: host read on host after CopyD2H on stream A
//! Needs: host accesses

use pinlane_driver::DriverResult;

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let streams = [gpu.stream()?, gpu.stream()?];
    let buffers = [gpu.pinned()?, gpu.pinned()?];
    let found = [gpu.malloc()?, gpu.malloc()?];
    let mut right = true;

    for search in 0..4u8 {
        let at = usize::from(search % 2);
        if search >= 2 {
            if fixed {
                gpu.synchronize(streams[at])?;
            }
            right &= gpu.holds(buffers[at], search - 1);
        }
        gpu.write(buffers[at], 0);
        gpu.fill(streams[at], found[at], search + 1)?; // the kernel
        gpu.copy(streams[at], buffers[at], found[at])?;
    }
    for (at, &stream) in streams.iter().enumerate() {
        gpu.synchronize(stream)?;
        right &= gpu.holds(buffers[at], 3 + at as u8);
    }
    Ok(right)
}
