//! Managed memory: where programs want it, and what they ask of it.

use std::ffi::{c_int, c_void};

use pinlane_driver::CudaCode;

use crate::abi::Out;
use crate::environment;

/// `cudaMemLocationTypeDevice`
const ON_DEVICE: u64 = 1;
/// `cudaCpuDeviceId`, `cudaInvalidDeviceId`
const CPU: c_int = -1;
const NOWHERE: c_int = -2;
/// `cudaMemRangeAttributeLastPrefetchLocation`, and the last attribute.
const LAST_PREFETCH: c_int = 4;
const LAST_ATTRIBUTE: c_int = 8;

/// A `cudaMemLocation`, which comes as one number: its type, and its id above that.
fn device_of(location: u64) -> c_int {
    if location & 0xffff_ffff == ON_DEVICE { (location >> 32) as c_int } else { CPU }
}

cuda! {
    /// CUDA 12 names a device where CUDA 13 names a location.
    fn cudaMemPrefetchAsync / cudaMemPrefetchAsync_ptsz(
        ptr: *const c_void, bytes: usize, location: u64,
    ) |gpu, _per_thread| {
        let is_number = environment::major() == 12;
        let device = if is_number { location as c_int } else { device_of(location) };
        gpu.prefetch(ptr, bytes, device)
    }

    fn [
        cudaMemPrefetchAsync_v2 / cudaMemPrefetchAsync_v2_ptsz,
        cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz
    ](
        ptr: *const c_void, bytes: usize, location: u64,
    ) |gpu, _per_thread| {
        gpu.prefetch(ptr, bytes, device_of(location))
    }

    fn [cudaMemAdvise, cudaMemAdvise_v2, cuMemAdvise, cuMemAdvise_v2](
        ptr: *const c_void, bytes: usize, _advice: c_int,
    ) |gpu| {
        gpu.check_managed(ptr, bytes)
    }

    // Only the last prefetch is known.
    fn [cudaMemRangeGetAttribute, cuMemRangeGetAttribute](
        out: Out<c_int>, bytes_out: usize, attribute: c_int, ptr: *const c_void, bytes: usize,
    ) |gpu| {
        if bytes_out != size_of::<c_int>() || !(1..=LAST_ATTRIBUTE).contains(&attribute) {
            return Err(CudaCode::INVALID_VALUE);
        }
        let device = gpu.last_prefetch(ptr, bytes)?;
        out.put(match attribute {
            1 => 0,
            LAST_PREFETCH => device.unwrap_or(NOWHERE),
            _ => NOWHERE,
        })
    }
}
