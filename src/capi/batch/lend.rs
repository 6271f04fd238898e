//! From the places that C names to the memory that Rust takes, for the time of a call.

use super::copies::{pinlane_copy, pinlane_device_copy};
use super::places::{Place, Places};
use crate::batch::{DeviceCopy, Download, Downloads, HostSlice, HostSliceMut, Upload, Uploads};
use crate::capi::transfer::same_buffer;
use crate::capi::{pinlane_buffer, pinlane_device_buffer};
use crate::error::Result;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;

/// The two sides of copies between host and device.
pub(super) struct Sides {
    pub(super) hosts: Places<pinlane_buffer>,
    pub(super) devices: Places<pinlane_device_buffer>,
}

/// A source with its destination, for each copy.
type Pairs<'p, S, D> = dyn Iterator<Item = Result<(S, D)>> + 'p;

impl Sides {
    /// Messages call a pair of places `what`.
    pub(super) fn new(
        what: &'static str,
        hosts: impl Iterator<Item = Place<pinlane_buffer>>,
        devices: impl Iterator<Item = Place<pinlane_device_buffer>>,
    ) -> Result<Self> {
        Ok(Sides { hosts: Places::new(what, hosts)?, devices: Places::new(what, devices)? })
    }

    /// Calls `then` with the host's places as sources.
    ///
    /// # Safety
    ///
    /// * Host memory named by its address is readable, and nobody writes to it, until this returns.
    /// * Memory of a pool that is named as such is not given back until this returns, and the host
    ///   does not write to it until what `then` enqueues is complete.
    /// * Device memory named by its address is memory of the stream's device, and valid until what
    ///   `then` enqueues is complete.
    pub(super) unsafe fn up<R>(
        &self,
        stream: &Stream,
        then: impl FnOnce(&mut Pairs<'_, HostSlice<'_, u8>, DeviceSliceMut<'_, u8>>) -> Result<R>,
    ) -> Result<R> {
        let (hosts, devices) = (&self.hosts, &self.devices);
        let pinned = hosts.shared()?;
        let mut tracked = devices.exclusive()?;
        // SAFETY: the third precondition.
        let mut lent = unsafe { devices.lent(stream) }?;
        let destinations = devices.written(&mut tracked, &mut lent)?;
        // SAFETY: the first two preconditions.
        let sources = unsafe { hosts.sources(&pinned, stream.timeline.context()) };
        then(&mut sources.zip(destinations).map(|(src, dst)| Ok((src?, dst))))
    }

    /// Calls `then` with the host's places as destinations.
    ///
    /// # Safety
    ///
    /// * Host memory named by its address is writable, and nobody else accesses it, until this
    ///   returns.
    /// * Memory of a pool that is named as such is not given back until this returns, and the host
    ///   does not access it until what `then` enqueues is complete.
    /// * Device memory named by its address is memory of the stream's device, and valid until what
    ///   `then` enqueues is complete.
    pub(super) unsafe fn down<R>(
        &self,
        stream: &Stream,
        then: impl FnOnce(&mut Pairs<'_, DeviceSlice<'_, u8>, HostSliceMut<'_, u8>>) -> Result<R>,
    ) -> Result<R> {
        let (hosts, devices) = (&self.hosts, &self.devices);
        let mut pinned = hosts.exclusive()?;
        let tracked = devices.shared()?;
        // SAFETY: the third precondition.
        let lent = unsafe { devices.lent(stream) }?;
        let sources = devices.read(&tracked, &lent);
        // SAFETY: the first two preconditions; `exclusive` found that no places overlap.
        let destinations = unsafe { hosts.destinations(&mut pinned, stream.timeline.context()) }?;
        then(&mut sources.zip(destinations).map(|(src, dst)| Ok((src?, dst?))))
    }
}

/// Calls `then` with `copies` as a list.
///
/// # Safety
///
/// * As for [`Sides::up`].
pub(super) unsafe fn uploads<R>(
    stream: &Stream,
    copies: &[pinlane_copy],
    then: impl FnOnce(Uploads<'_>) -> Result<R>,
) -> Result<R> {
    let hosts = copies.iter().map(|copy| copy.host(copy.src));
    let sides = Sides::new("copy", hosts, copies.iter().map(|copy| copy.device(copy.dst)))?;
    // SAFETY: the same preconditions.
    unsafe {
        sides.up(stream, |pairs| {
            then(
                pairs
                    .map(|pair| pair.map(|(src, dst)| Upload::new(src, dst)))
                    .collect::<Result<_>>()?,
            )
        })
    }
}

/// Calls `then` with `copies` as a list.
///
/// # Safety
///
/// * As for [`Sides::down`].
pub(super) unsafe fn downloads<R>(
    stream: &Stream,
    copies: &[pinlane_copy],
    then: impl FnOnce(Downloads<'_>) -> Result<R>,
) -> Result<R> {
    let hosts = copies.iter().map(|copy| copy.host(copy.dst));
    let sides = Sides::new("copy", hosts, copies.iter().map(|copy| copy.device(copy.src)))?;
    // SAFETY: the same preconditions.
    unsafe {
        sides.down(stream, |pairs| {
            then(
                pairs
                    .map(|pair| pair.map(|(src, dst)| Download::new(src, dst)))
                    .collect::<Result<_>>()?,
            )
        })
    }
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
    let sources = Places::new("copy", copies.iter().map(pinlane_device_copy::source))?;
    let destinations = Places::new("copy", copies.iter().map(pinlane_device_copy::destination))?;
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
