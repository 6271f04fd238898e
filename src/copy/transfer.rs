//! A copy of many entries: its checks, its waits, and the record of its uses.
//!
//! A copy of thousands of entries is enqueued in a few portions, and each entry names a buffer that
//! must record the use. Recording one use takes some tens of nanoseconds; for thousands of entries
//! that is longer than the copy. So only the fence of the last portion, which covers all, is
//! recorded: by the team, in all buffers, while the device copies.
//!
//! # Invariants
//!
//! * The entries are borrowed from before the first portion until all is recorded, so that in
//!   between no other work on them is enqueued, and the host does not access them.
//! * All uses are always recorded: [`Transfer`] does it when it drops.
//! * Portions are enqueued one after another, by one thread at a time. So each portion's fence
//!   covers the portions before it.
//! * A transfer whose device uses memory that is borrowed for the call only ([`for_the_call`])
//!   waits too: when it has dropped, the device is done. If that cannot be known, an upload's
//!   memory stays in use forever, so that its pool never reuses it. A download aborts the process,
//!   because the device could still write to memory that the caller gets back (soundness rule 2).
//!
//! [`for_the_call`]: Transfer::for_the_call

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use super::entry::{Direction, Entry};
use super::order::Door;
use super::staged::share::share;
use super::survey::{DEVICE, HOST, Region, Regions, Survey};
use crate::error::{Error, Result};
use crate::memory::hazard::{Access, Rows};
use crate::memory::{DeviceBytes, Operand};
use crate::process::borrow_cannot_end;
use crate::sync::Mutex;
use crate::ticket::Ticket;
use crate::timeline::Fence;

/// From this many regions on, several threads record: each region takes a lock of its own.
const SEVERAL: usize = 512;

/// For the host and the device: the range of one buffer, and the rows of it that all entries are
/// together, if there are gaps between them.
pub(crate) type RowsOfSides = [Option<(Range<usize>, Rows)>; 2];

/// A copy of many entries.
pub(crate) struct Transfer<'e, 'a> {
    pub(crate) door: Door<'e>,
    pub(crate) direction: Direction,
    pub(crate) entries: &'e [Entry<'a>],
    pub(crate) survey: Arc<Survey<'a>>,
    /// The buffers that other streams may use.
    used_elsewhere: Vec<Region<'a>>,
    rows: RowsOfSides,
    /// The device accesses host memory that is borrowed only for the call.
    for_the_call: bool,
    /// The fence of the last portion.
    fence: Mutex<Option<Fence>>,
}

impl<'e, 'a> Transfer<'e, 'a> {
    /// The host memory of all entries is of one kind: page-locked, or not.
    ///
    /// # Errors
    ///
    /// An entry belongs to another device or driver than the stream.
    pub(crate) fn new(
        door: Door<'e>,
        direction: Direction,
        entries: &'e [Entry<'a>],
    ) -> Result<Self> {
        Self::prepared(door, direction, entries, &mut None)
    }

    /// As [`new`](Self::new). Takes the survey of the entries from `survey`, or stores it there.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub(crate) fn prepared(
        door: Door<'e>,
        direction: Direction,
        entries: &'e [Entry<'a>],
        survey: &mut Option<Arc<Survey<'a>>>,
    ) -> Result<Self> {
        let (survey, used_elsewhere) = match survey {
            Some(known) => (Arc::clone(known), known.again(door, entries)?),
            None => {
                let (found, used_elsewhere) = Survey::of(door, entries)?;
                (Arc::clone(survey.insert(Arc::new(found))), used_elsewhere)
            }
        };
        let (rows, for_the_call, fence) = (RowsOfSides::default(), false, Mutex::default());
        Ok(Transfer { door, direction, entries, survey, used_elsewhere, rows, for_the_call, fence })
    }

    /// Sets that the entries are rows, on a side where they lie in one buffer.
    pub(crate) fn of_rows(mut self, rows: RowsOfSides) -> Self {
        self.rows = rows;
        self
    }

    /// What the entries are together in a buffer, if they are rows with gaps between them.
    #[inline]
    fn rows_of(&self, region: &Region<'_>) -> Option<&(Range<usize>, Rows)> {
        self.rows[region.side as usize].as_ref()
    }

    /// What the transfer does with a buffer.
    fn operand<'o>(&'o self, region: &'o Region<'a>) -> Operand<'o> {
        let (range, rows) = match self.rows_of(region) {
            Some((range, rows)) => (range, Some(rows)),
            None => (&region.range, None),
        };
        Operand {
            context: self.door.stream.context(),
            hazards: region.hazards,
            range: range.clone(),
            rows,
            access: self.direction.access(region.side),
        }
    }

    /// Sets whether the device will access host memory that is borrowed for the call only.
    pub(crate) fn for_the_call(mut self, is: bool) -> Self {
        self.for_the_call = is;
        self
    }

    /// Drops the transfer if that does not block. Otherwise returns it, to be dropped later.
    pub(crate) fn unless_it_waits(self) -> Option<Self> {
        Some(self).filter(|transfer| transfer.for_the_call)
    }

    /// Orders later work of the stream after conflicting uses. For memory that is borrowed for the
    /// call, blocks until the stream has reached the transfer: if other work loses the device, the
    /// transfer then fails before the device gets the memory.
    pub(super) fn begin(&self) -> Result<()> {
        if self.for_the_call { self.reach().map(drop) } else { self.wait_for_conflicts() }
    }

    /// Makes the stream wait, on the device, for conflicting uses.
    fn wait_for_conflicts(&self) -> Result<()> {
        let conflicting: Vec<_> =
            self.used_elsewhere.iter().map(|region| self.operand(region)).collect();
        self.door.wait_for_conflicts(&conflicting).map(drop)
    }

    /// Blocks until the stream has reached the copy: all earlier and all conflicting work is
    /// complete, or is a copy that is running. Returns how many positions the stream has.
    pub(super) fn reach(&self) -> Result<u64> {
        let Door { stream, operation, .. } = self.door;
        stream.open(operation)?;
        // The host waits, so that a stream that is busy with copies need not be drained.
        self.used_elsewhere.iter().try_for_each(|region| {
            let Operand { hazards, ref range, rows, access, .. } = self.operand(region);
            hazards.wait_elsewhere(range, rows, access, stream, operation)
        })?;
        // Read before the query: work that another thread enqueues later must not count as a copy.
        let before = stream.recorded();
        if stream.is_moving() {
            return Ok(before);
        }
        let reached = stream.submit(operation, |_, _| ())?;
        reached.fenced?;
        stream.wait(reached.fence.position, operation)?;
        Ok(reached.fence.position + 1)
    }

    /// Notes that a portion has been enqueued.
    pub(super) fn add(&self, fence: Fence) {
        let before = self.fence.lock().replace(fence);
        assert!(before.is_none_or(|before| before.covering(fence) == Some(fence)), "one at a time");
    }

    /// The ticket of the last portion.
    pub(super) fn ticket(&self) -> Ticket {
        let fence = *self.fence.lock();
        fence.map_or_else(Ticket::done, |fence| {
            Ticket::new(self.door.stream.clone(), fence.position)
        })
    }

    /// Blocks until the device is done with all portions. Returns whether it is.
    fn finish(&self, fence: Fence) -> bool {
        let Door { stream, operation, .. } = self.door;
        let Err(error) = stream.finish(fence.position, operation) else { return true };
        if self.direction == Direction::Down {
            let host = self.entries.iter().find(|entry| entry.bytes() > 0);
            let (ptr, bytes) = host.map_or((ptr::null_mut(), 0), |it| (it.host(), it.bytes()));
            let remedy = "Copy to buffers (PinnedBuf, pinlane_buffer), which survive the loss of \
                          a device";
            borrow_cannot_end(ptr, bytes, &error, remedy);
        }
        false
    }

    /// Records the fence in the buffers of some entries, on one side.
    fn note_side<const SIDE: bool>(&self, fence: Fence, part: Range<usize>) {
        Regions::<SIDE>::of(self.entries, part).for_each(|region| self.note(fence, &region));
    }

    /// Records the fence in a buffer.
    #[inline(always)]
    fn note(&self, fence: Fence, region: &Region<'_>) {
        let stream = self.door.stream;
        let access = self.direction.access(region.side);
        // As the operand would record it, without making one.
        match self.rows_of(region) {
            None => region.hazards.note(stream, fence, region.range.clone(), access),
            Some((range, rows)) => region.hazards.note_rows(stream, fence, range, rows, access),
        }
        if access == Access::Write && region.is_whole() {
            region.hazards.supersede(stream, &region.range);
        }
    }
}

impl Drop for Transfer<'_, '_> {
    fn drop(&mut self) {
        let Some(fence) = *self.fence.get_mut() else { return };
        if self.for_the_call && self.finish(fence) {
            return; // no use is left to be recorded
        }
        let regions = self.survey.regions.as_deref();
        let note = |(): &mut (), part: Range<usize>| match regions {
            Some(regions) => regions[part].iter().for_each(|region| self.note(fence, region)),
            None => {
                self.note_side::<DEVICE>(fence, part.clone());
                self.note_side::<HOST>(fence, part);
            }
        };
        let count = regions.map_or(self.entries.len(), <[_]>::len);
        share(self.door.stream.context().ordinal(), count, SEVERAL, &note, &|()| {});
    }
}

/// Refuses destinations that overlap: each is its first address and its length in bytes.
pub(crate) fn check_disjoint(
    operation: &'static str,
    written: impl Iterator<Item = (u64, usize)>,
) -> Result<()> {
    check_apart(operation, written.map(|(start, bytes)| (start, bytes, Access::Write)))
}

/// Refuses a source and a destination that overlap. Only two buffers of borrowed memory can: two
/// views of one buffer are disjoint if one of them is exclusive.
pub(crate) fn check_no_overlap(
    operation: &'static str,
    src: &DeviceBytes<'_>,
    dst: &DeviceBytes<'_>,
) -> Result<()> {
    if !src.is_borrowed() && !dst.is_borrowed() {
        return Ok(());
    }
    let ranges = [(src, Access::Read), (dst, Access::Write)];
    check_apart(operation, ranges.into_iter().map(|(it, access)| (it.ptr(), it.len(), access)))
}

/// Refuses destinations that overlap one another or a source. Sources may overlap. A range is its
/// first address, its length in bytes, and its access.
pub(crate) fn check_apart(
    operation: &'static str,
    ranges: impl Iterator<Item = (u64, usize, Access)>,
) -> Result<()> {
    let mut sorted: Vec<_> = ranges.filter(|&(_, bytes, _)| bytes > 0).collect();
    sorted.sort_unstable_by_key(|&(start, ..)| start);
    // The range so far that ends last, and the written range that ends last.
    let (mut last, mut written) = ((0, 0), (0, 0));
    let end = |(start, bytes): (u64, usize)| start + bytes as u64;
    for (start, bytes, access) in sorted {
        let range = (start, bytes);
        let before = if access == Access::Write { last } else { written };
        if end(before) > start {
            let what = format!(
                "a destination overlaps another one, or a source: {} bytes at {:#x} and \
                 {bytes} bytes at {start:#x}",
                before.1, before.0
            );
            let remedy = "the copies of a batch are unordered: give each its own bytes";
            return Err(Error::invalid(operation, what, remedy));
        }
        last = if end(last) < end(range) { range } else { last };
        if access == Access::Write && end(written) < end(range) {
            written = range;
        }
    }
    Ok(())
}
