//! Copies of strided views: of columns of a matrix, or a box of a volume.
//!
//! ```text
//!   grid     the rows of both sides, in as few dimensions as they have
//!   direct   page-locked memory and devices: by one call, or by one kernel
//!   staged   pageable memory, by way of page-locked memory
//! ```
//!
//! Rows that have no gaps on either side are one copy, as of a slice. Rows of memory that the
//! device cannot reach as one piece are copied as a batch.

mod direct;
mod grid;
mod staged;

use bytemuck::Pod;

use self::direct::{Direct, Way};
use self::grid::Grid;
use super::items::{HostSide, HostSlice, HostSliceMut};
use super::list::{List, Prepared};
use crate::copy::direct::enqueue_one;
use crate::copy::entry::{Direction, Side};
use crate::copy::issue::{copy_on_devices, introduce};
use crate::copy::order::Door;
use crate::copy::transfer::{RowsOfSides, check_no_overlap};
use crate::driver::{CopyKind, Driver};
use crate::error::Result;
use crate::memory::Cut;
use crate::memory::hazard::{self, Access};
use crate::memory::{
    DeviceBytes, DeviceSlice, DeviceSliceMut, PinnedSlice, PinnedSliceMut, Strided, View,
};
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::timeline::Fencing;

impl<T: Pod> Cut for HostSlice<'_, T> {
    const SIZE: usize = size_of::<T>();

    fn elements(&self) -> usize {
        match self {
            HostSlice::Pageable(slice) => slice.len(),
            HostSlice::Pinned(view) => view.len(),
        }
    }

    fn first(self, len: usize) -> Self {
        match self {
            HostSlice::Pageable(slice) => HostSlice::Pageable(&slice[..len]),
            HostSlice::Pinned(view) => HostSlice::Pinned(view.first(len)),
        }
    }
}

impl<T: Pod> View for HostSlice<'_, T> {}

impl<T: Pod> Cut for HostSliceMut<'_, T> {
    const SIZE: usize = size_of::<T>();

    fn elements(&self) -> usize {
        match self {
            HostSliceMut::Pageable(slice) => slice.len(),
            HostSliceMut::Pinned(view) => view.len(),
        }
    }

    fn first(self, len: usize) -> Self {
        match self {
            HostSliceMut::Pageable(slice) => HostSliceMut::Pageable(&mut slice[..len]),
            HostSliceMut::Pinned(view) => HostSliceMut::Pinned(view.first(len)),
        }
    }
}

impl<T: Pod> View for HostSliceMut<'_, T> {}

impl<'a, T: Pod> From<Strided<&'a [T]>> for Strided<HostSlice<'a, T>> {
    fn from(rows: Strided<&'a [T]>) -> Self {
        rows.map(HostSlice::Pageable)
    }
}

impl<'a, T: Pod> From<Strided<PinnedSlice<'a, T>>> for Strided<HostSlice<'a, T>> {
    fn from(rows: Strided<PinnedSlice<'a, T>>) -> Self {
        rows.map(HostSlice::Pinned)
    }
}

impl<'a, T: Pod> From<Strided<&'a mut [T]>> for Strided<HostSliceMut<'a, T>> {
    fn from(rows: Strided<&'a mut [T]>) -> Self {
        rows.map(HostSliceMut::Pageable)
    }
}

impl<'a, T: Pod> From<Strided<PinnedSliceMut<'a, T>>> for Strided<HostSliceMut<'a, T>> {
    fn from(rows: Strided<PinnedSliceMut<'a, T>>) -> Self {
        rows.map(HostSliceMut::Pinned)
    }
}

/// The host side and the device side of rows that are copied between them. Both begin at the first
/// row, and end behind the last one.
struct Rows<'a> {
    direction: Direction,
    host: HostSide<'a>,
    device: DeviceBytes<'a>,
    grid: Grid,
}

impl Rows<'_> {
    /// Which bytes of its range the host side has, and which the device side, if there are gaps.
    fn uses(&self) -> (Option<hazard::Rows>, Option<hazard::Rows>) {
        let (src, dst) = self.grid.uses();
        self.direction.pair(src, dst)
    }

    /// The same with the ranges, for a copy of many entries.
    fn uses_of_entries(&self) -> RowsOfSides {
        let (on_host, on_device) = self.uses();
        let HostSide { host, bytes, pinned, .. } = self.host;
        let on_host = pinned.zip(on_host).map(|(pinned, rows)| (pinned.range(host, bytes), rows));
        [on_host, on_device.map(|rows| (self.device.range(), rows))]
    }
}

impl Stream {
    /// Copies rows that lie a pitch apart in host memory, pageable or page-locked, to rows on this
    /// stream's device: row by row, and plane by plane. A buffer, or a view of one, takes the place
    /// of rows without gaps, of any shape.
    ///
    /// Ordered as [`upload`](Self::upload). Does not block if `src` is page-locked; a slice may be
    /// reused when the call returns, as for [`upload_slice`](Self::upload_slice).
    ///
    /// ```
    /// use pinlane::{Device, PinnedPool, Strided, Strides};
    ///
    /// let device = Device::open_or_emulated()?;
    /// let (pool, stream) = (PinnedPool::builder(&device).build()?, device.stream()?);
    /// let image = pool.alloc_zeroed::<u8>(480 * 640)?; // 480 lines of 640 bytes
    /// let mut tile = device.alloc::<u8>(64 * 64)?;
    /// // The tile at line 100 and column 200.
    /// let lines = Strided::new(image.slice(100 * 640 + 200..)?, Strides::new(64, 64, 640))?;
    /// stream.upload_strided(lines, &mut tile)?;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](crate::ErrorKind::LengthMismatch) unless the sides have rows of the same
    /// shape, or one has no gaps and as many elements; otherwise as for
    /// [`upload_slice`](Self::upload_slice).
    pub fn upload_strided<'s, 'd, T: Pod>(
        &self,
        src: impl Into<Strided<HostSlice<'s, T>>>,
        dst: impl Into<Strided<DeviceSliceMut<'d, T>>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::upload_strided");
        let (src, dst) = (src.into(), dst.into());
        door.check_device(&[dst.view.context()])?;
        let grid = Grid::new::<T>(door, src.strides, dst.strides)?;
        let host = HostSide::read(src.view, dst.view.context());
        self.copy_across(door, Direction::Up, host, dst.view.into(), grid)
    }

    /// Copies rows that lie a pitch apart on this stream's device to rows in host memory, pageable
    /// or page-locked, as [`upload_strided`](Self::upload_strided) does the other way. The bytes
    /// between the rows of `dst` are left alone.
    ///
    /// Does not block if `dst` is page-locked; in a slice the rows have arrived when the call
    /// returns.
    ///
    /// # Errors
    ///
    /// As for [`upload_strided`](Self::upload_strided).
    pub fn download_strided<'s, 'd, T: Pod>(
        &self,
        src: impl Into<Strided<DeviceSlice<'s, T>>>,
        dst: impl Into<Strided<HostSliceMut<'d, T>>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::download_strided");
        let (src, dst) = (src.into(), dst.into());
        door.check_device(&[src.view.context()])?;
        let grid = Grid::new::<T>(door, src.strides, dst.strides)?;
        let host = HostSide::write(dst.view, src.view.context());
        self.copy_across(door, Direction::Down, host, src.view.into(), grid)
    }

    /// Copies rows that lie a pitch apart to others, both in device memory: of one device, or of
    /// two. The stream belongs to one of them. Does not block; ordered as [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As for [`upload_strided`](Self::upload_strided) and [`copy`](Self::copy).
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) if the two views overlap in borrowed
    /// memory, be it only in the gaps between their rows.
    pub fn copy_strided<'s, 'd, T: Pod>(
        &self,
        src: impl Into<Strided<DeviceSlice<'s, T>>>,
        dst: impl Into<Strided<DeviceSliceMut<'d, T>>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::copy_strided");
        let (src, dst) = (src.into(), dst.into());
        let grid = Grid::new::<T>(door, src.strides, dst.strides)?;
        let (src, dst) = (DeviceBytes::from(src.view), DeviceBytes::from(dst.view));
        match grid {
            Some(grid) if grid.count() > 1 => {
                door.check_device(&[src.context(), dst.context()])?;
                check_no_overlap(door.operation, &src, &dst)?;
                introduce(src.context(), dst.context(), src.context().driver(door.operation)?);
                self.copy_on_devices(door, src, dst, grid)
            }
            _ => self.copy_bytes(door, src, dst),
        }
    }

    /// Copies rows between the host and the device.
    fn copy_across<'a>(
        &self,
        door: Door<'_>,
        direction: Direction,
        host: HostSide<'a>,
        device: DeviceBytes<'a>,
        grid: Option<Grid>,
    ) -> Result<Ticket> {
        if let Some(pinned) = host.pinned {
            door.check_driver(pinned.context())?;
        }
        let Some(grid) = grid else { return door.nothing() };
        let rows = Rows { direction, host, device, grid };
        match host.is_slice {
            false => self.copy_page_locked(door, &rows),
            true if grid.count() == 1 => self.copy_one_slice(door, &rows),
            true => staged::copy(self, door, &rows),
        }
    }

    /// Copies rows of a page-locked buffer.
    fn copy_page_locked(&self, door: Door<'_>, rows: &Rows<'_>) -> Result<Ticket> {
        let Rows { direction, host, device, grid } = *rows;
        let pinned = host.pinned.expect("a view of a buffer");
        if grid.count() == 1 {
            return enqueue_one(door, direction, (host.host, pinned), device);
        }
        if pinned.crosses_seam(host.host, host.bytes) {
            return self.copy_as_batch(door, rows);
        }
        let ours = host.host.expose_provenance() as u64;
        let (on_host, on_device) = rows.uses();
        let host = pinned.operand_at(host.host, host.bytes, direction.access(Side::Host));
        let operands = [
            host.of_rows(on_host.as_ref()),
            device.operand(direction.access(Side::Device)).of_rows(on_device.as_ref()),
        ];
        let at = direction.pair(ours, device.ptr());
        let direct = Direct { kind: direction.kind(), at, grid, operands };
        let engine = self.device.engine()?;
        match direct.way(door, engine.abilities(door)?) {
            Way::Call(copy) => direct.by_call(door, &copy),
            Way::Kernel => direct.by_kernel(door, &engine.lists),
            Way::Rows => self.copy_as_batch(door, rows),
        }
    }

    /// Copies rows between two places of one device, or of two.
    fn copy_on_devices(
        &self,
        door: Door<'_>,
        src: DeviceBytes<'_>,
        dst: DeviceBytes<'_>,
        grid: Grid,
    ) -> Result<Ticket> {
        let (read, written) = grid.uses();
        let operands = [
            src.operand(Access::Read).of_rows(read.as_ref()),
            dst.operand(Access::Write).of_rows(written.as_ref()),
        ];
        let direct = Direct { kind: CopyKind::D2D, at: (src.ptr(), dst.ptr()), grid, operands };
        let engine = self.device.engine()?;
        let abilities = engine.abilities(door)?;
        let (from, to) = (src.context().ordinal(), dst.context().ordinal());
        if from != to {
            let copied = direct.by_peer_call(door, abilities, (to, from));
            return copied.unwrap_or_else(|| self.copy_each(door, src, dst, grid));
        }
        match direct.way(door, abilities) {
            Way::Call(copy) => direct.by_call(door, &copy),
            Way::Kernel => direct.by_kernel(door, &engine.lists),
            Way::Rows => self.copy_each(door, src, dst, grid),
        }
    }

    /// Copies each row between devices by a call of its own.
    fn copy_each(
        &self,
        door: Door<'_>,
        src: DeviceBytes<'_>,
        dst: DeviceBytes<'_>,
        grid: Grid,
    ) -> Result<Ticket> {
        let (read, written) = grid.uses();
        let operands = [
            src.operand(Access::Read).of_rows(read.as_ref()),
            dst.operand(Access::Write).of_rows(written.as_ref()),
        ];
        let copies = |driver: &dyn Driver, raw| {
            grid.starts().try_for_each(|(from, to)| {
                let (src, dst) = (src.part(from, grid.row), dst.part(to, grid.row));
                // SAFETY: the stream is live. The two rows are of one length, and lie in one
                // allocation each. They do not overlap: the views are disjoint, because one is
                // exclusive, and borrowed memory was checked. The uses that `ordered` records keep
                // both valid until retired.
                unsafe { copy_on_devices(driver, raw, &src, &dst) }
            })
        };
        let bytes = grid.bytes();
        door.moving(bytes).ordered(&operands, Fencing::Own, copies, || grid.describe())
    }

    /// Copies rows that have no gaps, of a slice.
    fn copy_one_slice(&self, door: Door<'_>, rows: &Rows<'_>) -> Result<Ticket> {
        let HostSide { host, bytes, .. } = rows.host;
        match rows.direction {
            Direction::Up => {
                // SAFETY: the bytes of a slice that is borrowed for the call.
                let src = unsafe { std::slice::from_raw_parts(host.cast_const(), bytes) };
                self.upload_bytes(door, src, rows.device)
            }
            Direction::Down => {
                // SAFETY: the bytes of a slice that is borrowed exclusively for the call.
                let dst = unsafe { std::slice::from_raw_parts_mut(host, bytes) };
                self.download_bytes(door, rows.device, dst)
            }
        }
    }

    /// Copies each row as a copy of a batch.
    fn copy_as_batch(&self, door: Door<'_>, rows: &Rows<'_>) -> Result<Ticket> {
        let entry = |(src, dst)| {
            let (host, device) = rows.direction.pair(src, dst);
            let device = rows.device.part(device, rows.grid.row);
            rows.host.part(host, rows.grid.row).with(device).entry
        };
        let mut list = List::of(rows.grid.starts().map(entry).collect(), &rows.host);
        list.rows = rows.uses_of_entries();
        self.copy_entries(door, rows.direction, &list, &mut Prepared::default(), None)
    }
}
