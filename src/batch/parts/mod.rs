//! Parts of one range of host memory and of one range of device memory, by arrays of their offsets:
//! what an allocator of the caller manages, or the values of a ragged array.
//!
//! A list of copies names a buffer for each copy. Here all copies have the same two, so one pass
//! over the arrays checks everything, the kernel's list is written straight from them, and each
//! buffer records one use.
//!
//! ```text
//!   arrays   where the parts lie, as the caller says
//!   places   their checks, in bytes
//!   direct   page-locked memory
//! ```
//!
//! Parts of other memory are copied as a batch.

mod arrays;
mod direct;
mod places;

use bytemuck::Pod;

pub use self::arrays::Parts;
use self::direct::Direct;
use self::places::Places;
use super::chosen_route;
use super::entries::Entries;
use super::items::{HostSide, HostSlice, HostSliceMut};
use super::list::{List, Prepared};
use crate::copy::entry::Direction;
use crate::copy::order::Door;
use crate::copy::route::Between;
use crate::error::Result;
use crate::memory::{DeviceBytes, DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;
use crate::ticket::Ticket;

impl Stream {
    /// Copies parts of `src`, in host memory, to parts of `dst`, on this stream's device. The parts
    /// are unordered among themselves.
    ///
    /// A call costs less than a batch of as many copies, because it needs no list of them. It costs
    /// least if the parts of the destination ascend: others are sorted first, to find overlaps.
    /// Give a batch to copies of many buffers, or a list that is used more than once.
    ///
    /// Ordered as [`upload`](Self::upload), as a use of all bytes from the first part to the end of
    /// the last one, those between the parts included. Does not block if `src` is a page-locked
    /// buffer or a view of one; a slice may be reused when the call returns. The arrays are read
    /// during the call only.
    ///
    /// ```
    /// use pinlane::batch::Parts;
    /// use pinlane::{Device, PinnedPool};
    ///
    /// let device = Device::open_or_emulated()?;
    /// let (pool, stream) = (PinnedPool::builder(&device).build()?, device.stream()?);
    /// let host = pool.alloc_zeroed::<u32>(1000)?;
    /// let mut gpu = device.alloc::<u32>(1000)?;
    /// // 30 numbers from 0 to 700, 20 from 500 to 100, and 50 from 900 to 300.
    /// let (from, to, lengths) = ([0, 500, 900], [700, 100, 300], [30, 20, 50]);
    /// stream.upload_parts(&host, &mut gpu, Parts::new(&from, &to, &lengths))?;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if a part does not lie in its side;
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) if two parts of the destination overlap:
    /// both name the part by its number. [`LengthMismatch`](crate::ErrorKind::LengthMismatch) if
    /// the arrays do not have as many elements each; otherwise as for
    /// [`upload_list`](Self::upload_list).
    pub fn upload_parts<'s, 'd, T: Pod>(
        &self,
        src: impl Into<HostSlice<'s, T>>,
        dst: impl Into<DeviceSliceMut<'d, T>>,
        parts: Parts<'_>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::upload_parts");
        let dst = dst.into();
        let host = HostSide::read(src.into(), dst.context());
        self.copy_parts::<T>(door, Direction::Up, host, dst.into(), &parts)
    }

    /// Copies parts of `src`, on this stream's device, to parts of `dst`, in host memory, as
    /// [`upload_parts`](Self::upload_parts) does the other way. The elements of `dst` between the
    /// parts are left alone.
    ///
    /// Does not block if `dst` is a page-locked buffer or a view of one; in a slice the parts have
    /// arrived when the call returns.
    ///
    /// # Errors
    ///
    /// As for [`upload_parts`](Self::upload_parts).
    pub fn download_parts<'s, 'd, T: Pod>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        dst: impl Into<HostSliceMut<'d, T>>,
        parts: Parts<'_>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::download_parts");
        let src = src.into();
        let host = HostSide::write(dst.into(), src.context());
        self.copy_parts::<T>(door, Direction::Down, host, src.into(), &parts)
    }

    fn copy_parts<T: Pod>(
        &self,
        door: Door<'_>,
        direction: Direction,
        host: HostSide<'_>,
        device: DeviceBytes<'_>,
        parts: &Parts<'_>,
    ) -> Result<Ticket> {
        door.stream.context().check_process(door.operation)?;
        door.check_device(&[device.context()])?;
        if let Some(pinned) = host.pinned {
            door.check_driver(pinned.context())?;
        }
        let bytes = (host.bytes, device.len());
        let Some(places) = Places::new::<T>(door.operation, direction, parts, bytes)? else {
            return door.nothing();
        };
        let span = places.host_span();
        let touched = host.part(span.start, span.len());
        match host.pinned {
            Some(pinned) if !host.is_slice && !pinned.crosses_seam(touched.host, touched.bytes) => {
                let engine = self.device.engine()?;
                let abilities = engine.abilities(door)?;
                let (between, group) = (Between::PageLocked, places.group());
                let route = chosen_route(door, abilities, between, group, parts.route)?;
                Direct { door, direction, host, pinned, device, places }
                    .enqueue(route, &engine.lists)
            }
            _ => {
                let entry = |n| {
                    let (at, device_at, bytes) = places.get(n);
                    host.part(at, bytes).with(device.part(device_at, bytes)).entry
                };
                let ordinal = device.context().ordinal();
                let entries = Entries::made(ordinal, places.count(), &entry);
                let mut list = List::of(entries, &host);
                list.route = parts.route;
                self.copy_entries(door, direction, &list, &mut Prepared::default(), None)
            }
        }
    }
}
