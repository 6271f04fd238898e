//! From the copies that C names to the items that Rust takes, for the time of a call.

use super::copies::{Way, pinlane_copy, pinlane_device_copy};
use super::side::Side;
use crate::capi::slice::{destination, source};
use crate::capi::transfer::same_buffer;
use crate::error::Result;
use crate::memory::DeviceBuf;
use crate::stream::Stream;
use crate::transfer::{
    CopyItem, DownloadItem, HostSlice, HostSliceMut, UploadItem, check_disjoint,
};

/// Calls `then` with the items that `copies` are.
///
/// # Safety
///
/// * Host memory that is named by its address is readable for as many bytes, and nobody writes to
///   it until this returns.
/// * Device memory that is named by its address is of the stream's device, and valid until retired.
pub(in crate::capi) unsafe fn uploads<R>(
    operation: &'static str,
    stream: &Stream,
    copies: &[pinlane_copy],
    then: impl FnOnce(&mut [UploadItem<'_>]) -> Result<R>,
) -> Result<R> {
    let hosts = Side::new(operation, copies.iter().map(|copy| copy.host(Way::Up)))?;
    let devices = Side::new(operation, copies.iter().map(|copy| copy.device(Way::Up)))?;
    let pinned = hosts.shared()?;
    let mut tracked = devices.exclusive()?;
    check_disjoint(operation, devices.addresses(&tracked))?;
    // SAFETY: the second precondition.
    let mut lent = unsafe { devices.lent(stream) };
    let mut lent = lent.iter_mut();
    let parts = devices.cut(&mut tracked, DeviceBuf::as_slice_mut)?;
    let items = hosts.places.iter().zip(parts).map(|(place, part)| {
        let dst = part.or_else(|| lent.next().map(DeviceBuf::as_slice_mut));
        let dst = dst.expect("a place is lent, or a part of a buffer");
        let src: HostSlice<'_, u8> = match hosts.buffer(place) {
            Some(buffer) => pinned[buffer].slice(place.range())?.into(),
            // SAFETY: the first precondition.
            None => unsafe { source(operation, place.address, place.bytes) }?.into(),
        };
        UploadItem::new(src, dst)
    });
    then(&mut items.collect::<Result<Vec<_>>>()?)
}

/// Calls `then` with the items that `copies` are.
///
/// # Safety
///
/// * Host memory that is named by its address is writable for as many bytes, and nobody else
///   accesses it until this returns.
/// * Device memory that is named by its address is of the stream's device, and valid until retired.
pub(in crate::capi) unsafe fn downloads<R>(
    operation: &'static str,
    stream: &Stream,
    copies: &[pinlane_copy],
    then: impl FnOnce(&mut [DownloadItem<'_>]) -> Result<R>,
) -> Result<R> {
    let hosts = Side::new(operation, copies.iter().map(|copy| copy.host(Way::Down)))?;
    let devices = Side::new(operation, copies.iter().map(|copy| copy.device(Way::Down)))?;
    let mut pinned = hosts.exclusive()?;
    let tracked = devices.shared()?;
    check_disjoint(operation, hosts.addresses(&pinned))?;
    // SAFETY: the second precondition.
    let lent = unsafe { devices.lent(stream) };
    let mut lent = lent.iter();
    let parts = hosts.cut(&mut pinned, |buffer| buffer.as_slice_mut())?;
    let places = hosts.places.iter().zip(&devices.places).zip(parts);
    let items = places.map(|((host, device), part)| {
        let src = match devices.buffer(device) {
            Some(buffer) => tracked[buffer].slice(device.range())?,
            None => lent.next().expect("all without a buffer are lent").as_slice(),
        };
        let dst: HostSliceMut<'_, u8> = match part {
            Some(part) => part.into(),
            // SAFETY: the first precondition; it overlaps no other, as was checked.
            None => unsafe { destination(operation, host.address, host.bytes) }?.into(),
        };
        DownloadItem::new(src, dst)
    });
    then(&mut items.collect::<Result<Vec<_>>>()?)
}

/// Calls `then` with the items that `copies` are.
///
/// # Safety
///
/// * Memory that is named by its address is of the stream's device, and valid until retired.
pub(in crate::capi) unsafe fn device_copies<R>(
    operation: &'static str,
    stream: &Stream,
    copies: &[pinlane_device_copy],
    then: impl FnOnce(&mut [CopyItem<'_>]) -> Result<R>,
) -> Result<R> {
    let sources = Side::new(operation, copies.iter().map(pinlane_device_copy::src))?;
    let destinations = Side::new(operation, copies.iter().map(pinlane_device_copy::dst))?;
    if sources.shares_buffers_with(&destinations) {
        return Err(same_buffer(operation));
    }
    let read = sources.shared()?;
    let mut written = destinations.exclusive()?;
    check_disjoint(operation, destinations.addresses(&written))?;
    // SAFETY: the precondition.
    let (from, mut to) = unsafe { (sources.lent(stream), destinations.lent(stream)) };
    let (mut from, mut to) = (from.iter(), to.iter_mut());
    let parts = destinations.cut(&mut written, DeviceBuf::as_slice_mut)?;
    let items = sources.places.iter().zip(parts).map(|(place, part)| {
        let src = match sources.buffer(place) {
            Some(buffer) => read[buffer].slice(place.range())?,
            None => from.next().expect("all without a buffer are lent").as_slice(),
        };
        let dst = part.or_else(|| to.next().map(DeviceBuf::as_slice_mut));
        CopyItem::new(src, dst.expect("a place is lent, or a part of a buffer"))
    });
    then(&mut items.collect::<Result<Vec<_>>>()?)
}
