//! Ordinary memory is freed while the upload from it may be pending.
//!
//! Velox's `toCudfTable` freed the Arrow buffers of a table after it had enqueued their uploads.
//! With CUDA 13 the uploads read later than before, and the process crashed in the driver.
//! Report: https://github.com/facebookincubator/velox/issues/17163
//! Wrong: nothing waits for the copy before its source goes to another owner.
//! Finds: Race: host write on host after CopyH2D on stream A
//! Needs: host accesses

use pinlane_driver::DriverResult;

use crate::gpu::{BYTES, Gpu};

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (column, host, stream) = (gpu.malloc()?, gpu.pinned()?, gpu.stream()?);
    // What the allocator gives to one owner after the other.
    let mut buffer = vec![0u8; BYTES];

    gpu.write(buffer.as_mut_ptr(), 1);
    gpu.copy(stream, column, buffer.as_ptr())?;
    if fixed {
        gpu.synchronize(stream)?;
    }
    gpu.write(buffer.as_mut_ptr(), 2); // the next owner
    gpu.copy(stream, host, column)?;
    gpu.synchronize(stream)?;
    Ok(gpu.holds(host, 1))
}
