//! Copies between two devices: direct where the machine lets them reach each other's memory.
//!
//! `cudaMemcpyPeerAsync` works between any two devices, through the host if it must. It copies
//! directly only if peer access is enabled, and memory of `cudaMallocAsync` has an access list of
//! its own (CUDA Programming Guide, "Device Accessibility for Multi-GPU Support").
//! [`Device::alloc`](crate::Device::alloc) returns memory of both kinds, so both are set up at the
//! first copy between two devices. If they cannot be enabled, the copies go through the host.

use crate::context::Context;
use crate::driver::{Driver, DriverResult, RawStream};
use crate::memory::DeviceBytes;

/// Enables peer access between the devices of both contexts, if they support it. Both contexts have
/// one driver. The first call for a pair blocks for some milliseconds.
pub(crate) fn introduce(one: &Context, other: &Context, driver: &dyn Driver) {
    let (a, b) = (one.ordinal(), other.ordinal());
    if a == b || !one.note_peer(b) {
        return;
    }
    for (device, peer) in [(a, b), (b, a)] {
        if driver.can_access_peer(device, peer) == Ok(true) {
            // After an error the copies go through the host.
            let enabled = driver.enable_peer_access(device, peer);
            let _ = enabled.and_then(|()| driver.pool_access(peer, device));
        }
    }
}

/// Enqueues a copy of device memory, within one device or between two.
///
/// # Safety
///
/// * `raw` is live.
/// * The two have the same length, do not overlap, and are valid until retired.
pub(crate) unsafe fn copy(
    driver: &dyn Driver,
    raw: RawStream,
    src: &DeviceBytes<'_>,
    dst: &DeviceBytes<'_>,
) -> DriverResult<()> {
    let (from, to) = (src.context().ordinal(), dst.context().ordinal());
    let (src, dst, bytes) = (src.ptr(), dst.ptr(), dst.len());
    if from == to {
        // SAFETY: the preconditions; each lies in one allocation, as any part of a buffer does.
        unsafe { driver.copy_d2d(raw, dst, src, bytes) }
    } else {
        // SAFETY: as above; the devices are those of the buffers.
        unsafe { driver.copy_peer(raw, dst, to, src, from, bytes) }
    }
}
