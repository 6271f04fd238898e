//! The pool that `cudaMallocAsync` takes a device's memory from.

use std::mem::MaybeUninit;

use super::thread::{call, relaxed};
use crate::driver::{DriverResult, Ordinal};
use crate::sys;

const SUCCESS: sys::cudaError = sys::cudaError::cudaSuccess;

/// Runs `f` on the device's current pool.
fn with_pool(
    device: Ordinal,
    f: impl FnOnce(sys::cudaMemPool_t) -> sys::cudaError + Send,
) -> DriverResult<()> {
    call(|| {
        relaxed(|| {
            let mut pool = std::ptr::null_mut();
            // SAFETY: `pool` is a live handle for the call to write.
            match unsafe { sys::cudaDeviceGetMemPool(&mut pool, device) } {
                SUCCESS => f(pool),
                code => code,
            }
        })
    })
}

/// `cudaMemPoolSetAccess`, to read and to write.
pub(super) fn allow(owner: Ordinal, peer: Ordinal) -> DriverResult<()> {
    with_pool(owner, |pool| {
        let mut access = MaybeUninit::<sys::cudaMemAccessDesc>::zeroed();
        // SAFETY: the descriptor is plain numbers, for which zeros are values; both fields that the call
        // reads of a device's location are set here.
        let access = unsafe {
            let access = access.assume_init_mut();
            access.location.type_ = sys::cudaMemLocationType::cudaMemLocationTypeDevice;
            access.location.id = peer;
            access.flags = sys::cudaMemAccessFlags::cudaMemAccessFlagsProtReadWrite;
            access
        };
        // SAFETY: a live pool, and one live descriptor.
        unsafe { sys::cudaMemPoolSetAccess(pool, access, 1) }
    })
}

/// `cudaMemPoolSetAttribute` of the release threshold.
pub(super) fn keep(device: Ordinal, mut bytes: u64) -> DriverResult<()> {
    with_pool(device, move |pool| {
        let threshold = sys::cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold;
        // SAFETY: a live pool; this attribute's value is a `cuuint64_t`, and `bytes` is live.
        unsafe { sys::cudaMemPoolSetAttribute(pool, threshold, (&raw mut bytes).cast()) }
    })
}
