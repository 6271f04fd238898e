//! Batches of copies.

use std::ffi::{c_int, c_uint, c_void};

use pinlane::CudaCode;
use pinlane::driver::DriverResult;
use pinlane::driver::emulated::{BatchEntry, Face, SourceOrder};

use crate::abi::{Handle, In, Out, stream};
use crate::machine;

/// `cudaMemcpyAttributes`
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    order: c_int,
    hints: [c_int; 4],
    flags: c_uint,
}

/// The arrays of a call.
struct Arrays {
    dsts: In<*mut c_void>,
    srcs: In<*const c_void>,
    sizes: In<usize>,
    count: usize,
    attributes: In<Attributes>,
    /// Which copy each of the attributes begins with.
    firsts: In<usize>,
    kinds: usize,
}

impl Arrays {
    /// # Errors
    ///
    /// `INVALID_VALUE` for NULL, for no attributes, and for orders that there are not.
    fn entries(&self) -> DriverResult<Vec<BatchEntry>> {
        let invalid = CudaCode::INVALID_VALUE;
        if self.kinds == 0 || self.kinds > self.count || self.firsts.get()? != 0 {
            return Err(invalid);
        }
        let mut kind = 0;
        let entry = |at: usize| {
            while kind + 1 < self.kinds && self.firsts.nth(kind + 1).get()? <= at {
                kind += 1;
            }
            let order = match self.attributes.nth(kind).get()?.order {
                1 => SourceOrder::InStreamOrder,
                2 => SourceOrder::DuringCall,
                3 => SourceOrder::Any,
                _ => return Err(invalid),
            };
            let (dst, src) = (self.dsts.nth(at).get()?, self.srcs.nth(at).get()?);
            Ok(BatchEntry { dst, src, bytes: self.sizes.nth(at).get()?, order })
        };
        (0..self.count).map(entry).collect()
    }
}

/// CUDA 12 has one argument more, ahead of the stream: which copy has failed.
fn copy_batch(
    face: &Face,
    arrays: &Arrays,
    (eighth, ninth): (Handle, Handle),
    per_thread: bool,
) -> DriverResult<()> {
    let is_old = machine::major() == 12;
    if is_old {
        // No copy in particular.
        Out::<usize>::of(eighth).put_if_any(usize::MAX);
    }
    let handle = if is_old { ninth } else { eighth };
    let stream = stream(face, handle, per_thread)?;
    if arrays.count == 0 {
        return Err(CudaCode::INVALID_VALUE);
    }
    // SAFETY: the CUDA runtime demands of its callers that host memory can be accessed.
    unsafe { face.copy_batch(stream, &arrays.entries()?) }
}

cuda! {
    fn cudaMemcpyBatchAsync / cudaMemcpyBatchAsync_ptsz(
        dsts: In<*mut c_void>, srcs: In<*const c_void>, sizes: In<usize>, count: usize,
        attributes: In<Attributes>, firsts: In<usize>, kinds: usize, eighth: Handle, ninth: Handle,
    ) |face, per_thread| {
        let arrays = Arrays { dsts, srcs, sizes, count, attributes, firsts, kinds };
        copy_batch(face, &arrays, (eighth, ninth), per_thread)
    }
}
