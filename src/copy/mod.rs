//! Copies: every kind takes the same steps.
//!
//! Every copy is a direction and entries. An entry has a host side, which is page-locked memory,
//! pageable memory or a range of a file, and a device side. A slice has one entry, a batch has
//! thousands; a buffer needs none.
//!
//! ```text
//!              check               wait            route      issue       record
//!   a buffer   order            -> order ---------------------> driver ---> order     direct
//!   entries    transfer, survey -> transfer -----> route -----> issue ----> transfer  direct
//!   pageable   transfer, survey -> transfer -----> route -----> staged ---> transfer  staged
//!                                                                 |  through slots
//!                                                                 `-> issue
//! ```
//!
//! A slice in memory of a pool takes the second way, and its transfer waits for the device.
//!
//! ```text
//!   entry     what is copied                 order   waits, enqueues and records
//!   survey    one pass over all entries      route   which way: a few rules
//!   transfer  checks, waits and records      issue   the calls of the driver, by the route
//!   direct    page-locked memory             staged  pageable memory and files
//!                                            foreign, kernels   other work in the same order
//! ```
//!
//! This file has the verbs of [`Stream`] for one entry. [`batch`](crate::batch),
//! [`file`](crate::file) and [`prefetch`](crate::prefetch) use the same steps.

pub(crate) mod direct;
pub(crate) mod entry;
mod foreign;
pub(crate) mod issue;
pub(crate) mod kernels;
pub(crate) mod order;
pub(crate) mod route;
pub(crate) mod staged;
pub(crate) mod survey;
pub(crate) mod transfer;

use std::slice;

use bytemuck::Pod;

use self::entry::{Direction, Entry};
use self::order::Door;
use self::route::Route;
use self::staged::team::Workload;
use self::transfer::{Transfer, check_no_overlap};
use crate::error::Result;
use crate::memory::hazard::Access;
use crate::memory::{DeviceBytes, DeviceSlice, DeviceSliceMut, PinnedSlice, PinnedSliceMut};
use crate::pool::block_at;
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::timeline::Fencing;

impl Stream {
    /// Copies `src`, in page-locked memory, to `dst` on this stream's device. Does not block;
    /// ordered on this stream, and after conflicting uses of the two buffers on any other.
    ///
    /// Both sides are buffers or views of equal length. `src` can be read during the copy;
    /// [`PinnedBuf::write`](crate::PinnedBuf::write) waits for it.
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](crate::ErrorKind::LengthMismatch),
    /// [`WrongDevice`](crate::ErrorKind::WrongDevice),
    /// [`StreamCapturing`](crate::ErrorKind::StreamCapturing),
    /// [`ForkedProcess`](crate::ErrorKind::ForkedProcess): nothing was enqueued. Errors of the
    /// runtime: the contents of `dst` are unspecified.
    pub fn upload<'s, 'd, T: Pod>(
        &self,
        src: impl Into<PinnedSlice<'s, T>>,
        dst: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::upload");
        let (src, dst) = (src.into(), dst.into());
        door.check_lengths::<T>(src.len(), dst.len())?;
        let host = (src.as_ptr().cast(), src.bytes());
        direct::enqueue_one(door, Direction::Up, host, dst.into())
    }

    /// Copies `src` on this stream's device to `dst` in page-locked memory. Does not block; ordered
    /// as [`upload`](Self::upload).
    ///
    /// [`PinnedBuf::read`](crate::PinnedBuf::read) waits for the copy, and perhaps for up to seven
    /// small ones right after it; see [`Ticket`].
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload).
    pub fn download<'s, 'd, T: Pod>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        dst: impl Into<PinnedSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::download");
        let (src, mut dst) = (src.into(), dst.into());
        door.check_lengths::<T>(src.len(), dst.len())?;
        let host = (dst.as_mut_ptr().cast_const().cast(), dst.into_bytes());
        direct::enqueue_one(door, Direction::Down, host, src.into())
    }

    /// Copies `src` to `dst`, both in device memory: of one device, or of two. The stream belongs
    /// to one of them. Does not block; ordered as [`upload`](Self::upload).
    ///
    /// Between two devices the copy is direct where they can reach each other's memory, which the
    /// first copy between them enables (`cudaDeviceEnablePeerAccess`, `cudaMemPoolSetAccess`);
    /// otherwise it goes through the host.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload).
    pub fn copy<'s, 'd, T: Pod>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        dst: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::copy");
        let (src, dst) = (src.into(), dst.into());
        door.check_lengths::<T>(src.len(), dst.len())?;
        self.copy_bytes(door, src.into(), dst.into())
    }

    /// Copies bytes between device buffers, as many as both have.
    pub(crate) fn copy_bytes(
        &self,
        door: Door<'_>,
        src: DeviceBytes<'_>,
        dst: DeviceBytes<'_>,
    ) -> Result<Ticket> {
        door.check_device(&[src.context(), dst.context()])?;
        let bytes = src.len();
        if bytes == 0 {
            return door.nothing();
        }
        check_no_overlap(door.operation, &src, &dst)?;
        issue::introduce(src.context(), dst.context(), src.context().driver(door.operation)?);
        door.moving(bytes).ordered(
            &[src.operand(Access::Read), dst.operand(Access::Write)],
            Fencing::of_copy(bytes),
            // SAFETY: the stream is live, and the lengths are equal. Each view lies in one
            // allocation. They do not overlap: one of them is exclusive, and borrowed memory was
            // checked. The uses that `ordered` records keep both valid until retired.
            |driver, raw| unsafe { issue::copy_on_devices(driver, raw, &src, &dst) },
            || {
                let (from, to) = (src.context().ordinal(), dst.context().ordinal());
                format!("copying {bytes} bytes from device {from} to device {to}")
            },
        )
    }

    /// Copies `src`, pageable memory, to `dst` on this stream's device. Returns when `src` may be
    /// reused or dropped; the ticket says when the data has arrived. Ordered as
    /// [`upload`](Self::upload).
    ///
    /// Up to 64 KiB go through page-locked memory at once, and the call does not wait for the
    /// stream. Longer slices go through a ring of page-locked slots, which the [copy
    /// team](crate::staging::CopyTeam) fills while the device copies. The call then waits until the
    /// stream has reached the copy, and returns when nearly all bytes are on the device.
    ///
    /// A slice of more than 64 KiB that lies in memory of a pool, of [`PinnedBuf::write`] for
    /// example, or of a collection in page-locked memory, does not go through slots: the device
    /// copies it directly, and the call returns when the copy is complete.
    ///
    /// [`PinnedBuf::write`]: crate::PinnedBuf::write
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload); [`OutOfHostMemory`](crate::ErrorKind::OutOfHostMemory) if
    /// no memory can be page-locked.
    pub fn upload_slice<'d, T: Pod>(
        &self,
        src: &[T],
        dst: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::upload_slice");
        let dst = dst.into();
        door.check_lengths::<T>(src.len(), dst.len())?;
        self.upload_bytes(door, bytemuck::cast_slice(src), dst.into())
    }

    /// Copies as many bytes as `dst` has, as [`upload_slice`](Self::upload_slice).
    pub(crate) fn upload_bytes(
        &self,
        door: Door<'_>,
        src: &[u8],
        dst: DeviceBytes<'_>,
    ) -> Result<Ticket> {
        door.check_device(&[dst.context()])?;
        if src.is_empty() {
            return door.nothing();
        }
        let engine = self.device.engine()?;
        if let Some(mut block) = engine.small_block(src.len())? {
            block.write()?.copy_from_slice(src);
            let host = (block.as_ptr(), block.as_slice().bytes());
            return direct::enqueue_one(door, Direction::Up, host, dst);
        }
        // SAFETY: the slice is borrowed for the call.
        unsafe { self.copy_borrowed(door, Direction::Up, src.as_ptr(), dst) }
    }

    /// Copies `src` on this stream's device to `dst`, pageable memory, and returns when the data
    /// has arrived. Ordered as [`upload`](Self::upload). Memory of a pool is written as
    /// [`upload_slice`](Self::upload_slice) reads it.
    ///
    /// # Aborts
    ///
    /// Aborts the process if the device is writing to such memory and every way to wait for it
    /// fails, because the device is lost at that moment: the device could still write to memory
    /// that the caller gets back. If the device was lost before the copy, that is an error.
    ///
    /// # Errors
    ///
    /// As for [`upload_slice`](Self::upload_slice); errors of the runtime leave the contents of
    /// `dst` unspecified.
    pub fn download_slice<'s, T: Pod>(
        &self,
        src: impl Into<DeviceSlice<'s, T>>,
        dst: &mut [T],
    ) -> Result<()> {
        let door = self.door("Stream::download_slice");
        let src = src.into();
        door.check_lengths::<T>(src.len(), dst.len())?;
        self.download_bytes(door, src.into(), bytemuck::cast_slice_mut(dst)).map(drop)
    }

    /// Copies as many bytes as `src` has, as [`download_slice`](Self::download_slice).
    pub(crate) fn download_bytes(
        &self,
        door: Door<'_>,
        src: DeviceBytes<'_>,
        dst: &mut [u8],
    ) -> Result<Ticket> {
        door.check_device(&[src.context()])?;
        if dst.is_empty() {
            return door.nothing();
        }
        let engine = self.device.engine()?;
        if let Some(mut block) = engine.small_block(dst.len())? {
            let to = block.as_slice_mut();
            let host = (to.as_slice().as_ptr(), to.into_bytes());
            let ticket = direct::enqueue_one(door, Direction::Down, host, src)?;
            dst.copy_from_slice(block.read()?);
            return Ok(ticket);
        }
        // SAFETY: the slice is borrowed exclusively for the call.
        unsafe { self.copy_borrowed(door, Direction::Down, dst.as_mut_ptr(), src) }
    }

    /// Copies as many bytes at `host` as `device` has: in memory of a pool as they are, others
    /// through slots. Returns when the host may use them again.
    ///
    /// # Safety
    ///
    /// * The bytes are borrowed for the call, exclusively if it is a download.
    unsafe fn copy_borrowed(
        &self,
        door: Door<'_>,
        direction: Direction,
        host: *const u8,
        device: DeviceBytes<'_>,
    ) -> Result<Ticket> {
        // SAFETY: the bytes are borrowed for the call.
        let pinned = unsafe { block_at(host, device.len(), device.context()) };
        let entry = Entry::of(host, pinned, device);
        let transfer = Transfer::new(door, direction, slice::from_ref(&entry))?;
        match pinned {
            Some(_) => direct::copy_one(transfer),
            None => self.device.engine()?.copy(transfer, Route::Copies, Workload::Copying),
        }
    }

    /// The door to this stream for the call that `operation` names.
    #[inline]
    pub(crate) fn door(&self, operation: &'static str) -> Door<'_> {
        Door::new(&self.timeline, operation)
    }
}
