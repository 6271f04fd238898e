//! Passes copies to the driver. No other code dispatches on the route.

use super::entry::Direction;
use super::route::Route;
use crate::driver::{
    BatchCopy, BatchKind, DevicePtr, Driver, DriverResult, Item, Mover, RawStream,
};

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
/// * Each copy lies in the memory that `mover` names: on each side in one registration of
///   page-locked memory, or in one device allocation. Both sides are valid until retired.
/// * No destination overlaps another one, a source, or the items.
/// * For [`Route::Kernel`] the items are complete, aligned to 8, and in page-locked memory that is
///   valid until retired; and the device can use the addresses of all that page-locked memory.
pub(crate) unsafe fn issue(
    driver: &dyn Driver,
    raw: RawStream,
    mover: Mover,
    route: Route,
    mut copies: impl Iterator<Item = BatchCopy>,
    items: Items,
) -> DriverResult<()> {
    match route {
        Route::Copies => copies.try_for_each(|BatchCopy { dst, src, bytes }| {
            let host = |address| std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
            // SAFETY: the preconditions; the host's addresses were exposed (`batch_copy`).
            unsafe {
                match mover {
                    Mover::Up => driver.copy_h2d(raw, dst, host(src), bytes),
                    Mover::Down => driver.copy_d2h(raw, host(dst), src, bytes),
                    Mover::OnDevice => driver.copy_d2d(raw, dst, src, bytes),
                }
            }
        }),
        Route::BatchCall => {
            let copies: Vec<_> = copies.collect();
            let kind = match mover {
                Mover::Up => BatchKind::H2D,
                Mover::Down => BatchKind::D2H,
                Mover::OnDevice => BatchKind::D2D,
            };
            // SAFETY: as above for each, and no two of them overlap: the preconditions.
            unsafe { driver.copy_batch(raw, kind, &copies) }
        }
        Route::Kernel => {
            let Items { at, count, bytes } = items;
            // SAFETY: the preconditions, including those for the kernel.
            unsafe { driver.move_items(raw, mover, at, count, bytes) }
        }
    }
}

impl Direction {
    pub(crate) fn mover(self) -> Mover {
        match self {
            Direction::Up => Mover::Up,
            Direction::Down => Mover::Down,
        }
    }

    /// A copy between page-locked memory and the device.
    #[inline]
    pub(crate) fn batch_copy(self, host: *const u8, device: DevicePtr, bytes: usize) -> BatchCopy {
        let (src, dst) = self.pair(host.expose_provenance() as u64, device);
        BatchCopy { dst, src, bytes }
    }

    /// The same, as an item for the kernel.
    #[inline]
    pub(crate) fn item(self, host: *const u8, device: DevicePtr, bytes: usize) -> Item {
        let BatchCopy { dst, src, bytes } = self.batch_copy(host, device, bytes);
        Item { src, dst, bytes: bytes as u64 }
    }
}
