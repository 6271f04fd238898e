//! One copy by its kind.

use super::{CopyKind, Driver, DriverResult, Item, RawStream};

/// Enqueues a copy between page-locked memory and the device, or within the device.
///
/// # Safety
///
/// * The copy keeps the preconditions of [`Driver::copy_h2d`], [`Driver::copy_d2h`] or
///   [`Driver::copy_d2d`], by its kind, on that stream.
/// * The provenance of the host's address was exposed.
pub(crate) unsafe fn copy_item(
    driver: &dyn Driver,
    stream: RawStream,
    kind: CopyKind,
    item: Item,
) -> DriverResult<()> {
    let Item { src, dst, bytes } = item;
    let host = |address| std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    let bytes = bytes as usize;
    // SAFETY: the preconditions.
    unsafe {
        match kind {
            CopyKind::H2D => driver.copy_h2d(stream, dst, host(src), bytes),
            CopyKind::D2H => driver.copy_d2h(stream, host(dst), src, bytes),
            CopyKind::D2D => driver.copy_d2d(stream, dst, src, bytes),
        }
    }
}
