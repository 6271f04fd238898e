//! Passes copies to the driver: by a route, or between devices.

use super::entry::Direction;
use super::route::Route;
use crate::context::Context;
use crate::driver::{CopyKind, DevicePtr, Driver, DriverResult, Item, RawStream, copy_item};
use crate::memory::DeviceBytes;

/// A list for the moving kernel: `count` [`Item`]s at the address `at`, of `bytes` bytes together.
#[derive(Clone, Copy, Default)]
pub(crate) struct Items {
    pub(crate) at: u64,
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// Enqueues `copies` by `route`; the kernel reads the same copies from `items` instead.
///
/// # Safety
///
/// * `raw` is live.
/// * Each copy lies in the memory that `kind` names: on each side in one registration of
///   page-locked memory, or in one device allocation. Both sides are valid until retired.
/// * No destination overlaps another one, a source, or the items.
/// * For [`Route::Kernel`] the items are complete, aligned to 8, and in page-locked memory that is
///   valid until retired; and the device can use the addresses of all that page-locked memory.
pub(crate) unsafe fn issue(
    driver: &dyn Driver,
    raw: RawStream,
    kind: CopyKind,
    route: Route,
    mut copies: impl Iterator<Item = Item>,
    items: Items,
) -> DriverResult<()> {
    match route {
        // SAFETY: the preconditions; the host's addresses were exposed (`Direction::item`).
        Route::Copies => copies.try_for_each(|item| unsafe { copy_item(driver, raw, kind, item) }),
        Route::BatchCall => {
            let copies: Vec<_> = copies.collect();
            match copies[..] {
                // SAFETY: as above. A single copy does not need a batch.
                [only] => unsafe { copy_item(driver, raw, kind, only) },
                // SAFETY: as above for each, and no two of them overlap: the preconditions.
                _ => unsafe { driver.copy_batch(raw, kind, &copies) },
            }
        }
        Route::Kernel => {
            let Items { at, count, bytes } = items;
            // SAFETY: the preconditions, including those for the kernel.
            unsafe { driver.move_items(raw, kind, at, count, bytes) }
        }
    }
}

impl Direction {
    pub(crate) fn kind(self) -> CopyKind {
        match self {
            Direction::Up => CopyKind::H2D,
            Direction::Down => CopyKind::D2H,
        }
    }

    /// A copy between page-locked memory and the device.
    #[inline]
    pub(crate) fn item(self, host: *const u8, device: DevicePtr, bytes: usize) -> Item {
        let (src, dst) = self.pair(host.expose_provenance() as u64, device);
        Item { src, dst, bytes: bytes as u64 }
    }
}

/// Enables peer access between the devices of both contexts, if they support it. Both contexts have
/// one driver. The first call for a pair blocks for some milliseconds.
///
/// `cudaMemcpyPeerAsync` works between any two devices, by way of the host where it must. It goes
/// directly only where peer access is enabled, and memory of `cudaMallocAsync` has an access list
/// of its own (CUDA Programming Guide, "Device Accessibility for Multi-GPU Support").
/// [`Device::alloc`](crate::Device::alloc) gives that and memory of `cudaMalloc`, so both are set
/// up.
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
pub(crate) unsafe fn copy_on_devices(
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
