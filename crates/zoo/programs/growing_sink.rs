//! A buffer grows while an asynchronous copy into it is pending.
//!
//! cuDF's sink for host buffers appends by resizing a vector and downloading into its new end. That
//! moves the vector, away from what the copy before it has been given.
//! Report: https://github.com/NVIDIA/cudf/issues/21680
//! Wrong: the buffer is moved before the copies into its old place are done.
//! Finds: Race: host read on host after CopyD2H on stream A
//! Needs: host accesses

use pinlane_driver::DriverResult;

use crate::gpu::{BYTES, Gpu};

pub fn run(gpu: &Gpu, fixed: bool) -> DriverResult<bool> {
    let (part, stream) = (gpu.malloc()?, gpu.stream()?);
    let mut small = vec![0u8; BYTES];
    let mut large = vec![0u8; 2 * BYTES];

    gpu.fill(stream, part, 1)?;
    gpu.copy(stream, small.as_mut_ptr(), part)?;
    if fixed {
        gpu.synchronize(stream)?;
    }
    gpu.move_to(large.as_mut_ptr(), small.as_ptr()); // the resize
    gpu.fill(stream, part, 2)?;
    gpu.copy(stream, large[BYTES..].as_mut_ptr(), part)?;
    gpu.synchronize(stream)?;
    Ok(gpu.holds(large.as_ptr(), 1) && gpu.holds(large[BYTES..].as_ptr(), 2))
}
