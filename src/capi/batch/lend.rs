//! From the copies that C names to the items that Rust takes, for the time of a call.

use super::copies::{pinlane_copy, pinlane_device_copy};
use super::places::Places;
use crate::batch::{DeviceCopy, Download, Downloads, HostSlice, HostSliceMut, Upload, Uploads};
use crate::capi::memory::{destination, source};
use crate::capi::transfer::same_buffer;
use crate::error::Result;
use crate::stream::Stream;

/// Calls `then` with `copies` as a list.
///
/// # Safety
///
/// * Host memory named by its address is readable, and nobody writes to it, until this returns.
/// * Device memory named by its address is memory of the stream's device, and valid until what
///   `then` enqueues is complete.
pub(super) unsafe fn uploads<R>(
    stream: &Stream,
    copies: &[pinlane_copy],
    then: impl FnOnce(Uploads<'_>) -> Result<R>,
) -> Result<R> {
    let hosts = Places::new(copies.iter().map(|copy| copy.host(copy.src)))?;
    let devices = Places::new(copies.iter().map(|copy| copy.device(copy.dst)))?;
    let pinned = hosts.shared()?;
    let mut tracked = devices.exclusive()?;
    // SAFETY: the second precondition.
    let mut lent = unsafe { devices.lent(stream) }?;
    let destinations = devices.written(&mut tracked, &mut lent)?;
    let items = hosts.places.iter().zip(destinations).map(|(place, dst)| {
        let src: HostSlice<'_, u8> = match hosts.buffer(place) {
            Some(buffer) => pinned[buffer].buffer.slice(place.range())?.into(),
            // SAFETY: the first precondition.
            None => unsafe { source(place.address, place.bytes) }?.into(),
        };
        Ok(Upload::new(src, dst))
    });
    then(items.collect::<Result<_>>()?)
}

/// Calls `then` with `copies` as a list.
///
/// # Safety
///
/// * Host memory named by its address is writable, and nobody else accesses it, until this returns.
/// * Device memory named by its address is memory of the stream's device, and valid until what
///   `then` enqueues is complete.
pub(super) unsafe fn downloads<R>(
    stream: &Stream,
    copies: &[pinlane_copy],
    then: impl FnOnce(Downloads<'_>) -> Result<R>,
) -> Result<R> {
    let hosts = Places::new(copies.iter().map(|copy| copy.host(copy.dst)))?;
    let devices = Places::new(copies.iter().map(|copy| copy.device(copy.src)))?;
    let mut pinned = hosts.exclusive()?;
    let tracked = devices.shared()?;
    // SAFETY: the second precondition.
    let lent = unsafe { devices.lent(stream) }?;
    let sources = devices.read(&tracked, &lent);
    let parts = hosts.cut(&mut pinned, |host| host.buffer.as_slice_mut())?;
    let items = hosts.places.iter().zip(sources).zip(parts).map(|((host, src), part)| {
        let dst: HostSliceMut<'_, u8> = match part {
            Some(part) => part.into(),
            // SAFETY: the first precondition; `exclusive` found that it overlaps no other.
            None => unsafe { destination(host.address, host.bytes) }?.into(),
        };
        Ok(Download::new(src?, dst))
    });
    then(items.collect::<Result<_>>()?)
}

/// Calls `then` with `copies` as a list.
///
/// # Safety
///
/// * Memory named by its address is memory of the stream's device, and valid until what `then`
///   enqueues is complete.
pub(super) unsafe fn device_copies<R>(
    stream: &Stream,
    copies: &[pinlane_device_copy],
    then: impl FnOnce(Vec<DeviceCopy<'_>>) -> Result<R>,
) -> Result<R> {
    let sources = Places::new(copies.iter().map(pinlane_device_copy::source))?;
    let destinations = Places::new(copies.iter().map(pinlane_device_copy::destination))?;
    if sources.shares_buffers_with(&destinations) {
        return Err(same_buffer());
    }
    let read = sources.shared()?;
    let mut written = destinations.exclusive()?;
    // SAFETY: the precondition.
    let (from, mut to) = unsafe { (sources.lent(stream)?, destinations.lent(stream)?) };
    let written = destinations.written(&mut written, &mut to)?;
    let items =
        sources.read(&read, &from).zip(written).map(|(src, dst)| Ok(DeviceCopy::new(src?, dst)));
    then(items.collect::<Result<_>>()?)
}
