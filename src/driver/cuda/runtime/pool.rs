//! The memory pool behind `cudaMallocAsync` of a device.

use std::mem::MaybeUninit;

use super::sys;
use super::thread::{call, relaxed};
use pinlane_driver::{DriverResult, Ordinal};

const SUCCESS: sys::cudaError = sys::cudaError::cudaSuccess;

/// `cudaMemPoolSetAccess`, for reading and writing, on the owner's current pool.
pub(super) fn allow(owner: Ordinal, peer: Ordinal) -> DriverResult<()> {
    let mut access = MaybeUninit::<sys::cudaMemAccessDesc>::zeroed();
    // SAFETY: the descriptor is plain numbers, for which zeros are values; both fields that the
    // call reads of a device's location are set here.
    let access = unsafe {
        let access = access.assume_init_mut();
        access.location.type_ = sys::cudaMemLocationType::cudaMemLocationTypeDevice;
        access.location.id = peer;
        access.flags = sys::cudaMemAccessFlags::cudaMemAccessFlagsProtReadWrite;
        access
    };
    call(|| {
        relaxed(|| {
            let mut pool = std::ptr::null_mut();
            // SAFETY: `pool` is a live handle for the call to write.
            match unsafe { sys::cudaDeviceGetMemPool(&mut pool, owner) } {
                // SAFETY: a live pool, and one live descriptor.
                SUCCESS => unsafe { sys::cudaMemPoolSetAccess(pool, access, 1) },
                code => code,
            }
        })
    })
}
