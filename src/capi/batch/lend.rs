//! Converts the places that C names to the memory that Rust takes, for the time of a call.

use super::places::{Place, Places};
use crate::batch::{HostSlice, HostSliceMut};
use crate::capi::{Result, pinlane_buffer, pinlane_device_buffer};
use crate::copy::entry::Direction;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;

/// The two sides of copies between host and device.
pub(super) struct Sides {
    pub(super) hosts: Places<pinlane_buffer>,
    pub(super) devices: Places<pinlane_device_buffer>,
}

/// A source with its destination, for each copy.
type Pairs<'p, S, D> = dyn Iterator<Item = Result<(S, D)>> + 'p;

/// A C struct that names the two sides of a copy.
pub(super) trait Named {
    /// Its name in messages.
    const WHAT: &'static str;
    fn sides(&self, direction: Direction) -> TwoSides;
}

/// The host side and the device side of a copy.
pub(super) type TwoSides = (Place<pinlane_buffer>, Place<pinlane_device_buffer>);

impl Sides {
    pub(super) fn new<N: Named>(named: &[N], direction: Direction) -> Result<Self> {
        let hosts = named.iter().map(|named| named.sides(direction).0);
        let devices = named.iter().map(|named| named.sides(direction).1);
        Ok(Sides { hosts: Places::new(N::WHAT, hosts)?, devices: Places::new(N::WHAT, devices)? })
    }

    /// Calls `then` with the host places as sources.
    ///
    /// # Safety
    ///
    /// * Host memory named by its address is readable, and not written, until this returns.
    /// * Memory of a pool that is named as such is not given back until this returns, and the host
    ///   does not write to it until what `then` enqueues is complete.
    /// * Device memory named by its address is memory of the stream's device, and valid until what
    ///   `then` enqueues is complete.
    pub(super) unsafe fn up<R>(
        &self,
        stream: &Stream,
        then: impl for<'a> FnOnce(
            &mut Pairs<'_, HostSlice<'a, u8>, DeviceSliceMut<'a, u8>>,
        ) -> Result<R>,
    ) -> Result<R> {
        let (hosts, devices) = (&self.hosts, &self.devices);
        let pinned = hosts.shared()?;
        let mut tracked = devices.exclusive()?;
        devices.check_apart()?;
        // SAFETY: the third precondition.
        let mut lent = unsafe { devices.lent(stream) }?;
        let destinations = devices.written(&mut tracked, &mut lent)?;
        // SAFETY: the first two preconditions.
        let sources = unsafe { hosts.sources(&pinned, stream.timeline.context()) };
        then(&mut sources.zip(destinations).map(|(src, dst)| Ok((src?, dst))))
    }

    /// Calls `then` with the host places as destinations.
    ///
    /// # Safety
    ///
    /// * Host memory named by its address is writable, and no other code accesses it, until this
    ///   returns.
    /// * Memory of a pool that is named as such is not given back until this returns, and the host
    ///   does not access it until what `then` enqueues is complete.
    /// * Device memory named by its address is memory of the stream's device, and valid until what
    ///   `then` enqueues is complete.
    pub(super) unsafe fn down<R>(
        &self,
        stream: &Stream,
        then: impl for<'a> FnOnce(
            &mut Pairs<'_, DeviceSlice<'a, u8>, HostSliceMut<'a, u8>>,
        ) -> Result<R>,
    ) -> Result<R> {
        let (hosts, devices) = (&self.hosts, &self.devices);
        let mut pinned = hosts.exclusive()?;
        hosts.check_apart()?;
        let tracked = devices.shared()?;
        // SAFETY: the third precondition.
        let lent = unsafe { devices.lent(stream) }?;
        let sources = devices.read(&tracked, &lent);
        // SAFETY: the first two preconditions; `check_apart` found that no places overlap.
        let destinations = unsafe { hosts.destinations(&mut pinned, stream.timeline.context()) }?;
        then(&mut sources.zip(destinations).map(|(src, dst)| Ok((src?, dst?))))
    }
}
