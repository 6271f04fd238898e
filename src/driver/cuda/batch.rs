//! Batches of copies: `cuMemcpyBatchAsync`, which came with CUDA 12.8.
//!
//! The runtime's `cudaMemcpyBatchAsync` changed its signature with 13.0. A program linked to it
//! works with one of the two, and does not start with an older runtime. The driver's function keeps
//! all its versions.

use std::ffi::{CStr, c_int, c_uint};

use super::driver_api::{
    CUmemLocation, CUmemcpyAttributes_v1, LOCATION_INVALID, PFN_cuMemcpyBatchAsync_v12080,
    SOURCE_IN_STREAM_ORDER,
};
use super::functions::Function;
use super::words::stream_of;
use pinlane_driver::{Item, RawStream};

pub(super) type CopyBatch = Function<PFN_cuMemcpyBatchAsync_v12080>;

pub(super) const NAME: &CStr = c"cuMemcpyBatchAsync";

/// The version of CUDA whose signature [`CopyBatch`] is.
pub(super) const VERSION: c_int = 12_080;

/// The copies of a batch, as the function takes them.
pub(super) struct Batch {
    destinations: Vec<u64>,
    sources: Vec<u64>,
    sizes: Vec<usize>,
}

impl Batch {
    /// Of all copies that are not empty. `None` if all are.
    pub(super) fn of(copies: &[Item]) -> Option<Batch> {
        let copies = || copies.iter().filter(|copy| copy.bytes != 0);
        let batch = Batch {
            destinations: copies().map(|copy| copy.dst).collect(),
            sources: copies().map(|copy| copy.src).collect(),
            sizes: copies().map(|copy| copy.bytes as usize).collect(),
        };
        Some(batch).filter(|batch| !batch.sizes.is_empty())
    }

    /// Calls the function.
    ///
    /// # Safety
    ///
    /// * `stream` is live.
    /// * All ranges are valid until retired; destinations overlap no other range.
    pub(super) unsafe fn enqueue(&mut self, function: CopyBatch, stream: RawStream) -> c_uint {
        // Hints, for managed memory only.
        let nowhere = || CUmemLocation { type_: LOCATION_INVALID, id: 0 };
        let mut attributes = CUmemcpyAttributes_v1 {
            srcAccessOrder: SOURCE_IN_STREAM_ORDER,
            srcLocHint: nowhere(),
            dstLocHint: nowhere(),
            flags: 0,
        };
        let (mut first, mut failed) = (0, 0);
        // SAFETY: three live arrays of `sizes.len()` elements, one live set of attributes that
        // begins with copy 0, a live place for an index; ranges and stream as promised by the
        // caller.
        unsafe {
            function(
                self.destinations.as_mut_ptr(),
                self.sources.as_mut_ptr(),
                self.sizes.as_mut_ptr(),
                self.sizes.len(),
                &mut attributes,
                &mut first,
                1,
                &mut failed,
                stream_of(stream),
            )
        }
    }
}
