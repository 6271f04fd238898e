//! Copies from files to devices, and to page-locked memory.

use bytemuck::Pod;

use super::{FileReader, mapped};
use crate::copy::direct;
use crate::copy::entry::{BLOCK, Direction, Entry, Far, Source};
use crate::copy::order::Door;
use crate::copy::route::Route;
use crate::copy::staged::simd::Stores;
use crate::copy::staged::team::{self, Helpers, Workload};
use crate::copy::transfer::{Transfer, check_disjoint};
use crate::error::Result;
use crate::memory::{DeviceBytes, DeviceSliceMut, PinnedBuf, PinnedSliceMut};
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::ticket::Ticket;

/// How much a thread reads at a time into page-locked memory: large enough for few system calls,
/// small enough that late threads still find work.
const UNIT: usize = 512 << 10;

impl Stream {
    /// Copies the bytes of `file` from `offset` on to `dst` on this stream's device, as many as it
    /// has. Blocks until they have been read, or not at all if the file [is
    /// mapped](FileReader::is_mapped); the ticket says when they have arrived. Ordered as
    /// [`upload`](Self::upload), and staged as [`upload_slice`](Self::upload_slice).
    ///
    /// # Errors
    ///
    /// As for [`upload_file_ranges`](Self::upload_file_ranges).
    pub fn upload_file<'d, T: Pod>(
        &self,
        file: &FileReader,
        offset: u64,
        dst: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        self.upload_ranges("Stream::upload_file", file, [(offset, dst)])
    }

    /// Copies many ranges of `file`, each from an offset in bytes to a view on this stream's
    /// device. They are one job, so the device does not wait between them. Fastest in the order of
    /// the file. Blocks as [`upload_file`](Self::upload_file); the ticket is for all of them.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) for a range that the file does not have, and
    /// the errors of [`upload_slice`](Self::upload_slice) except for lengths: nothing was enqueued.
    /// [`Io`](crate::ErrorKind::Io) if the file ends early or cannot be read, and errors of the
    /// runtime: the contents of the destinations are unspecified.
    pub fn upload_file_ranges<'d, T: Pod, D: Into<DeviceSliceMut<'d, T>>>(
        &self,
        file: &FileReader,
        ranges: impl IntoIterator<Item = (u64, D)>,
    ) -> Result<Ticket> {
        self.upload_ranges("Stream::upload_file_ranges", file, ranges)
    }

    fn upload_ranges<'d, T: Pod, D: Into<DeviceSliceMut<'d, T>>>(
        &self,
        operation: &'static str,
        file: &FileReader,
        ranges: impl IntoIterator<Item = (u64, D)>,
    ) -> Result<Ticket> {
        let door = self.door(operation);
        let ranges = ranges.into_iter().map(|(offset, dst)| (offset, dst.into().into()));
        let mut ranges: Vec<(u64, DeviceBytes<'d>)> = ranges.collect();
        let length = file.length(operation)?;
        let mut bytes = 0usize;
        for (offset, dst) in &ranges {
            door.check_device(&[dst.context()])?;
            file.check_range(operation, *offset, dst.len(), length)?;
            bytes += dst.len();
        }
        ranges.retain(|(_, dst)| dst.len() > 0);
        if ranges.is_empty() {
            return door.nothing();
        }
        if ranges.iter().any(|(_, dst)| dst.is_borrowed()) {
            check_disjoint(operation, ranges.iter().map(|(_, dst)| (dst.ptr(), dst.len())))?;
        }
        let end = |(offset, dst): &(u64, DeviceBytes<'_>)| offset + dst.len() as u64;
        if let Some(mapped) = &file.mapped
            && ranges.iter().all(|range| end(range) <= mapped.len() as u64)
        {
            return mapped::upload(door, self.device.engine()?, mapped, &ranges);
        }
        let engine = self.device.engine()?;
        if let Some(block) = engine.small_block(bytes)? {
            return upload_at_once(door, block, file, ranges);
        }
        let sources: Vec<_> = ranges.iter().map(|&(start, _)| Far::Source(file, start)).collect();
        let both = sources.iter().zip(&ranges);
        let entries: Vec<_> = both.map(|(source, &(_, dst))| Entry::far(source, dst)).collect();
        let transfer = Transfer::new(door, Direction::Up, &entries)?;
        engine.copy(transfer, Route::Copies, Workload::Waiting)
    }
}

/// Copies a small number of bytes, through one block of page-locked memory for all ranges. Reads
/// all ranges before it enqueues the first.
fn upload_at_once(
    door: Door<'_>,
    mut block: PinnedBuf<u8>,
    file: &FileReader,
    ranges: Vec<(u64, DeviceBytes<'_>)>,
) -> Result<Ticket> {
    let mut rest = block.write()?;
    for (offset, dst) in &ranges {
        let part = rest.split_off_mut(..dst.len()).expect("the sum of their lengths");
        file.fill(door.operation, *offset, part, Stores::Cached)?;
    }
    let (mut ticket, mut start) = (Ticket::done(), 0);
    for (_, dst) in ranges {
        let host = (block.as_ptr().wrapping_add(start), block.as_slice().bytes());
        ticket = direct::enqueue_one(door, Direction::Up, host, dst)?;
        start += dst.len();
    }
    Ok(ticket)
}

impl FileReader {
    /// Fills `dst`, page-locked memory, with the bytes of the file from `offset` on. Blocks until
    /// the device has no pending use of `dst`, and until all bytes are read, by the threads of the
    /// [copy team](crate::staging::CopyTeam).
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) for a range that the file does not have, and
    /// the errors of [`PinnedBuf::write`](crate::PinnedBuf::write): nothing was read.
    /// [`Io`](crate::ErrorKind::Io) if the file ends early or cannot be read: the contents of `dst`
    /// are unspecified.
    pub fn read_into<'d, T: Pod>(
        &self,
        offset: u64,
        dst: impl Into<PinnedSliceMut<'d, T>>,
    ) -> Result<()> {
        const OPERATION: &str = "FileReader::read_into";
        let dst = dst.into();
        let bytes = dst.len() * size_of::<T>();
        self.check_range(OPERATION, offset, bytes, self.length(OPERATION)?)?;
        let dst: &mut [u8] = bytemuck::cast_slice_mut(dst.into_write()?);

        // All units but the first begin at a block of the file.
        let head = (BLOCK - (offset % BLOCK as u64) as usize) % BLOCK;
        let (head, rest) = dst.split_at_mut(head.min(bytes));
        let mut at = offset;
        let units = std::iter::once(head).chain(rest.chunks_mut(UNIT)).map(|unit| {
            let start = at;
            at += unit.len() as u64;
            (start, unit)
        });
        let (units, failure) = (Mutex::new(units), Mutex::new(None));
        let work = || {
            while failure.lock().is_none() {
                let claim = units.lock().next();
                let Some((at, unit)) = claim else { return };
                if let Err(error) = self.fill(OPERATION, at, unit, Stores::Cached) {
                    failure.lock().get_or_insert(error);
                }
            }
        };
        let helpers = Helpers::of(0, Workload::Waiting).at_most(bytes / UNIT);
        team::run(helpers, &work, &mut || work());
        let failed = failure.lock().take();
        failed.map_or(Ok(()), Err)
    }
}
