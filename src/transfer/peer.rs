//! Copies between two devices: direct where the machine lets them reach each other's memory.
//!
//! `cudaMemcpyPeerAsync` works between any two devices, by way of the host where it must. It goes
//! directly only where peer access is enabled, and memory of `cudaMallocAsync`, which
//! [`Device::alloc`](crate::Device::alloc) gives, has an access list of its own (CUDA Programming
//! Guide, "Device Accessibility for Multi-GPU Support"). Both are set up when a device first meets
//! another one in a copy. What cannot be enabled stays as it is: the copies then take the detour.

use crate::context::Context;
use crate::driver::Driver;

/// Lets the devices of both contexts, which have one driver, reach each other's memory, if they
/// can. Blocks for some milliseconds at their first meeting.
pub(super) fn introduce(one: &Context, other: &Context, driver: &dyn Driver) {
    let (a, b) = (one.ordinal(), other.ordinal());
    if a == b || !one.meets(b) {
        return;
    }
    for (device, peer) in [(a, b), (b, a)] {
        if driver.can_access_peer(device, peer) == Ok(true) {
            // An error means that the two do without.
            let enabled = driver.enable_peer_access(device, peer);
            let _ = enabled.and_then(|()| driver.pool_access(peer, device));
        }
    }
}
