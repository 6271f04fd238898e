//! A copy between two devices does not wait for its source.
//!
//! cudarc's copies between devices could not record, on the stream of the destination, the event
//! that says when the source is ready: it belongs to the other device.
//! Report: https://github.com/chelsea0x3b/cudarc/pull/561
//! Wrong: the event has to be recorded where the source is written, and is not.
//! Devices: 2
//! Finds: Race: CopyPeer on stream B of device 1 after Fill(0x05) on stream A of device 0

use pinlane_driver::DriverResult;

use crate::gpu::Gpu;

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (source, writes) = (gpu.malloc()?, gpu.stream()?);
    gpu.set_device(1)?;
    let (target, reads, host) = (gpu.malloc()?, gpu.stream()?, gpu.pinned()?);

    gpu.fill(writes, source, 5)?;
    gpu.wait_stream(reads, if fixed { writes } else { reads })?;
    gpu.copy(reads, target, source)?;
    gpu.copy(reads, host, target)?;
    gpu.synchronize(reads)?;
    let right = gpu.holds(host, 5);
    gpu.set_device(0)?;
    Ok(right)
}
