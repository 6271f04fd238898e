//! One pass over the entries of a copy.
//!
//! Ten thousand entries do not fit in a core's own cache, so every pass over them takes time. One
//! pass, by several threads if there are many entries, finds all that must be known before the
//! first byte moves: how much there is to copy, which buffers other streams use, and the sums that
//! lay out slots without another look at each entry.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::{Entry, Side};
use super::order::Door;
use super::route::Group;
use super::staged::share::{DEAL, share};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::PinnedBytes;
use crate::memory::hazard::Hazards;
use crate::sync::Mutex;

/// From this many entries on, several threads make the pass. For fewer, helpers would arrive too
/// late.
const SEVERAL: usize = 2048;
/// From this many entries on, there are sums and a list of regions.
const MANY: usize = 512;
/// A thread that finds more regions than this drops them: they are then found again when needed.
const REGIONS: usize = 1024;
/// The same for one part: with as many buffers as that, a list of them saves no time.
const REGIONS_OF_A_PART: usize = DEAL / 2;

impl Group {
    fn join(&mut self, other: Group) {
        self.entries += other.entries;
        self.runs += other.runs;
        self.bytes += other.bytes;
    }
}

/// What is known of all entries of a copy. It does not depend on the stream or the time.
pub(crate) struct Survey<'a> {
    pub(crate) group: Group,
    /// All buffers, if there are many entries and few buffers.
    pub(super) regions: Option<Vec<Region<'a>>>,
    pub(super) sums: Sums,
    /// A page-locked entry needs several items of the kernel: it lies in several registrations, or
    /// it is longer than [`PIECE`].
    pub(super) has_pieces: bool,
    /// Some of the device memory is borrowed, so ranges of two buffers may overlap.
    pub(crate) is_borrowed: bool,
    /// Device ranges may overlap: some of the memory is borrowed, and they do not ascend.
    pub(crate) may_overlap: bool,
}

/// The ranges of one buffer that successive entries name, joined into one.
#[derive(Clone)]
pub(crate) struct Region<'a> {
    pub(super) side: Side,
    pub(super) hazards: &'a Hazards,
    pub(super) range: Range<usize>,
    /// The bytes of the ranges themselves, without the gaps.
    bytes: usize,
    /// The number of its first entry.
    first: usize,
}

impl Region<'_> {
    fn add(&mut self, range: &Range<usize>, bytes: usize) {
        self.bytes += bytes;
        self.range = self.range.start.min(range.start)..self.range.end.max(range.end);
    }

    /// Whether the ranges have no gaps. They are disjoint if they are written.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes == self.range.len()
    }
}

/// The findings of one thread.
#[derive(Default)]
struct Findings<'a> {
    group: Group,
    used_elsewhere: Vec<Region<'a>>,
    /// All regions, unless there are `too_many`.
    regions: Vec<Region<'a>>,
    too_many: bool,
    error: Option<Error>,
    has_pieces: bool,
    borrowed: bool,
    /// The device ranges do not ascend.
    unordered: bool,
}

impl<'a> Findings<'a> {
    fn join(&mut self, other: Findings<'a>) {
        self.group.join(other.group);
        self.used_elsewhere.extend(other.used_elsewhere);
        self.too_many |= other.too_many;
        if !self.too_many {
            self.regions.extend(other.regions);
        }
        self.error = self.error.take().or(other.error);
        self.has_pieces |= other.has_pieces;
        self.borrowed |= other.borrowed;
        self.unordered |= other.unordered;
    }

    /// Counts the entries in `part`.
    fn count(&mut self, entries: &[Entry<'_>], part: Range<usize>, sums: &Sums) {
        let counts = match are_pinned(entries) {
            true => Counts::of::<true>(entries, part, sums),
            false => Counts::of::<false>(entries, part, sums),
        };
        self.group.join(counts.group);
        self.has_pieces |= counts.has_pieces;
        self.borrowed |= counts.borrowed;
        self.unordered |= counts.unordered;
    }

    /// Finds the buffers of the entries in `part`.
    fn look_at_buffers(&mut self, door: Door<'_>, entries: &[Entry<'a>], part: Range<usize>) {
        let keeps = entries.len() >= MANY && !self.too_many;
        let most = REGIONS.min(self.regions.len() + REGIONS_OF_A_PART);
        self.look_at_side::<DEVICE>(door, entries, part.clone(), keeps.then_some(most));
        if are_pinned(entries) {
            self.look_at_side::<HOST>(door, entries, part, keeps.then_some(most));
        }
    }

    /// As [`look_at_buffers`](Self::look_at_buffers), on one side. Keeps the regions, if there is a
    /// `most`, until there are more.
    fn look_at_side<const SIDE: bool>(
        &mut self,
        door: Door<'_>,
        entries: &[Entry<'a>],
        part: Range<usize>,
        mut most: Option<usize>,
    ) {
        // The last memory whose owner was asked: asking takes a call.
        let mut known: Option<PinnedBytes<'_>> = None;
        for region in Regions::<SIDE>::of(entries, part) {
            let entry = &entries[region.first];
            let pinned = entry.pinned.filter(|_| SIDE == HOST);
            let is_known = known.zip(pinned).is_some_and(|(known, it)| it.has_owner_of(&known));
            if !is_known {
                if let Err(error) = check_owner(door, entry, region.side) {
                    self.note_error(error);
                }
                known = pinned;
            }
            if region.hazards.is_used_elsewhere(door.stream) {
                self.note_used(region.clone());
            }
            if let Some(room) = most {
                most = self.keep(region, room);
            }
        }
    }

    // Out of line, so that the loop above keeps regions in registers.

    #[cold]
    fn note_error(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    #[inline(never)]
    fn note_used(&mut self, region: Region<'a>) {
        self.used_elsewhere.push(region);
    }

    /// Keeps a region, and returns `most` unless there are too many then.
    #[inline(never)]
    fn keep(&mut self, region: Region<'a>, most: usize) -> Option<usize> {
        self.regions.push(region);
        self.too_many |= self.regions.len() > most;
        (!self.too_many).then_some(most)
    }
}

/// What is counted of some entries.
struct Counts {
    group: Group,
    has_pieces: bool,
    borrowed: bool,
    unordered: bool,
}

impl Counts {
    /// Counts the entries in `part`. They are page-locked if `PINNED`.
    fn of<const PINNED: bool>(entries: &[Entry<'_>], part: Range<usize>, sums: &Sums) -> Self {
        let before = part.start.checked_sub(1).map(|before| &entries[before]);
        // After an empty entry the order is unknown.
        let mut pass = Pass::<PINNED> {
            before: before.filter(|before| before.bytes() > 0),
            unordered: before.is_some_and(|before| before.bytes() == 0),
            ..Pass::default()
        };
        let mut group = Group::default();
        for (index, summed) in (part.start / SUMMED..).zip(entries[part].chunks(SUMMED)) {
            let (sum, runs) = pass.over(summed);
            sums.set(index, sum);
            group.join(Group { entries: sum.parts, runs, bytes: sum.bytes });
        }
        let Pass { has_pieces, borrowed, unordered, .. } = pass;
        Counts { group, has_pieces, borrowed, unordered }
    }
}

/// A pass over entries.
#[derive(Default)]
struct Pass<'e, 'a, const PINNED: bool> {
    /// The last entry that was not empty.
    before: Option<&'e Entry<'a>>,
    has_pieces: bool,
    borrowed: bool,
    unordered: bool,
}

impl<'e, 'a, const PINNED: bool> Pass<'e, 'a, PINNED> {
    /// Counts the next [`SUMMED`] entries: returns their sum and the number of runs. A function of
    /// its own, with few local values, so that all stay in registers.
    #[inline(never)]
    fn over(&mut self, summed: &'e [Entry<'a>]) -> (Sum, usize) {
        let mut before = self.before;
        let (mut end, mut home) = before.map_or((0, 0), |it| (it.device.end(), it.device.home()));
        let first = &summed[0].device;
        let continues = end == first.ptr() && home == first.home();
        // How many are not empty, follow the one before on the device, and do so on both sides.
        let (mut bytes, mut parts, mut next, mut follow) = (0, 0, 0, 0);
        let (mut has_pieces, mut borrowed, mut unordered) = (false, false, false);
        for entry in summed.iter().filter(|entry| entry.bytes() > 0) {
            let device = &entry.device;
            unordered |= device.ptr() < end;
            borrowed |= device.is_borrowed();
            let next_to = (end == device.ptr()) & (home == device.home());
            next += usize::from(next_to);
            if PINNED {
                let on_host = || before.is_some_and(|it| it.is_followed_by(entry));
                follow += usize::from(next_to && on_host());
                has_pieces |= entry.has_pieces();
            }
            parts += 1;
            bytes += entry.bytes();
            (end, home, before) = (device.end(), device.home(), Some(entry));
        }
        self.before = before;
        self.has_pieces |= has_pieces;
        self.borrowed |= borrowed;
        self.unordered |= unordered;
        let is_whole = parts == SUMMED && next - usize::from(continues) == SUMMED - 1;
        (Sum { bytes, parts, is_whole }, parts - if PINNED { follow } else { next })
    }
}

impl<'a> Survey<'a> {
    /// Surveys all entries for a copy on a stream. Also finds the buffers that other streams may
    /// use.
    ///
    /// # Errors
    ///
    /// An entry belongs to another device or driver than the stream.
    pub(super) fn of(door: Door<'_>, entries: &[Entry<'a>]) -> Result<(Self, Vec<Region<'a>>)> {
        debug_assert!(entries.iter().all(|entry| entry.is_pinned() == are_pinned(entries)));
        let many = entries.len() >= MANY;
        let sums = Sums::new(if many { entries.len() / SUMMED } else { 0 });
        let found = find(door, entries, &|found, part| {
            found.count(entries, part.clone(), &sums);
            found.look_at_buffers(door, entries, part);
        })?;
        let regions = (many && !found.too_many).then(|| joined(found.regions));
        let used_elsewhere = match &regions {
            Some(regions) => used_elsewhere(door, regions),
            None => found.used_elsewhere,
        };
        let survey = Survey {
            group: found.group,
            regions,
            sums,
            has_pieces: found.has_pieces,
            is_borrowed: found.borrowed,
            may_overlap: found.borrowed && found.unordered,
        };
        Ok((survey, used_elsewhere))
    }

    /// Looks only at the buffers again, for another copy of the same entries. Finds the buffers
    /// that other streams may use.
    ///
    /// # Errors
    ///
    /// As for [`of`](Self::of).
    pub(super) fn again(&self, door: Door<'_>, entries: &[Entry<'a>]) -> Result<Vec<Region<'a>>> {
        if let Some(regions) = &self.regions {
            for region in regions {
                check_owner(door, &entries[region.first], region.side)?;
            }
            return Ok(used_elsewhere(door, regions));
        }
        let look = |found: &mut Findings<'a>, part| found.look_at_buffers(door, entries, part);
        Ok(find(door, entries, &look)?.used_elsewhere)
    }
}

/// Whether the entries are page-locked: of one copy, either all are or none.
fn are_pinned(entries: &[Entry<'_>]) -> bool {
    entries.first().is_some_and(Entry::is_pinned)
}

/// Runs `look` over all entries, and joins what it finds.
fn find<'a>(
    door: Door<'_>,
    entries: &[Entry<'a>],
    look: &(dyn Fn(&mut Findings<'a>, Range<usize>) + Sync),
) -> Result<Findings<'a>> {
    let mut all = Mutex::new(Findings::default());
    let device = door.stream.context().ordinal();
    share(device, entries.len(), SEVERAL, look, &|found| all.lock().join(found));
    let mut found = std::mem::take(all.get_mut());
    found.error.take().map_or(Ok(found), Err)
}

/// The regions that other streams may use.
fn used_elsewhere<'a>(door: Door<'_>, regions: &[Region<'a>]) -> Vec<Region<'a>> {
    let is_used = |region: &&Region<'_>| region.hazards.is_used_elsewhere(door.stream);
    regions.iter().filter(is_used).cloned().collect()
}

/// Checks that the entry's memory belongs to the stream's device and driver.
#[inline]
fn check_owner(door: Door<'_>, entry: &Entry<'_>, side: Side) -> Result<()> {
    let context: &Context = match (side, entry.pinned) {
        (Side::Host, Some(pinned)) => pinned.context(),
        _ => entry.device.context(),
    };
    match side {
        _ if std::ptr::eq(context, &raw const **door.stream.context()) => Ok(()),
        Side::Host => door.check_driver(context),
        Side::Device => door.check_device(&[context]),
    }
}

/// The sides of a copy, as constants.
pub(super) const DEVICE: bool = false;
pub(super) const HOST: bool = true;

/// The buffers of successive entries, on one side. Successive views of one buffer are one region:
/// the buffer's list would merge them anyway, at a cost for each. The gaps between them may belong
/// to other code, which may use them at any time.
///
/// A region is made in registers, and its side is a constant: there may be as many as entries.
pub(super) struct Regions<'e, 'a, const SIDE: bool> {
    entries: &'e [Entry<'a>],
    next: usize,
}

impl<'e, 'a, const SIDE: bool> Regions<'e, 'a, SIDE> {
    const SIDE: Side = if SIDE == HOST { Side::Host } else { Side::Device };

    /// Those of the entries in `part`.
    #[inline]
    pub(super) fn of(entries: &'e [Entry<'a>], part: Range<usize>) -> Self {
        Regions { entries: &entries[..part.end], next: part.start }
    }
}

impl<'a, const SIDE: bool> Iterator for Regions<'_, 'a, SIDE> {
    type Item = Region<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Region<'a>> {
        let side = Self::SIDE;
        loop {
            let first = self.next;
            let entry = self.entries.get(first)?;
            self.next += 1;
            let Some((hazards, range)) = entry.buffer(side).zip(entry.range(side)) else {
                continue;
            };
            // In addresses, so that the loop does not read the buffer.
            let (mut low, mut bytes) = (entry.address(side), range.len());
            let (mut high, base) = (low + bytes, low - range.start);
            while let Some(entry) = self.entries.get(self.next)
                && entry.buffer(side).is_some_and(|it| std::ptr::eq(it, hazards))
            {
                let (start, more) = (entry.address(side), entry.bytes());
                (low, high) = (low.min(start), high.max(start + more));
                bytes += more;
                self.next += 1;
            }
            let range = low - base..high - base;
            return Some(Region { side, hazards, range, bytes, first });
        }
    }
}

/// Joins the regions of one buffer that several threads found one after the other.
fn joined(mut regions: Vec<Region<'_>>) -> Vec<Region<'_>> {
    regions.sort_unstable_by_key(|region| (region.side as usize, region.first));
    regions.dedup_by(|next, region| {
        let same = next.side == region.side && std::ptr::eq(next.hazards, region.hazards);
        if same {
            region.add(&next.range, next.bytes);
        }
        same
    });
    regions
}

/// How many entries share one sum.
pub(super) const SUMMED: usize = 16;
const _: () = assert!(DEAL.is_multiple_of(SUMMED), "one thread makes a sum");

/// The sum of [`SUMMED`] entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: usize,
    /// How many are not empty.
    pub(super) parts: usize,
    /// Whether all have bytes, and each follows the one before on the device.
    pub(super) is_whole: bool,
}

impl Sum {
    /// Adds an entry. `follows` says whether it follows the one before on the device.
    #[cfg(test)]
    fn add(&mut self, bytes: usize, follows: bool) {
        self.is_whole = self.parts == 0 || (self.is_whole && follows);
        self.bytes += bytes;
        self.parts += 1;
    }
}

/// The sums that are known, one for each [`SUMMED`] entries.
#[derive(Debug, Default)]
pub(super) struct Sums(Box<[AtomicU64]>);

impl Sums {
    /// How many of the lowest bits hold the number of parts; the next one holds `is_whole`.
    const PARTS: u32 = 7;

    fn new(count: usize) -> Self {
        Sums((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    #[cfg(test)]
    pub(super) fn of(ranges: &[(u64, usize)]) -> Self {
        let sums = Sums::new(ranges.len() / SUMMED);
        for (index, ranges) in ranges.chunks_exact(SUMMED).enumerate() {
            let (mut sum, mut end) = (Sum::default(), 0);
            for &(start, bytes) in ranges.iter().filter(|range| range.1 > 0) {
                sum.add(bytes, start == end);
                end = start + bytes as u64;
            }
            sums.set(index, sum);
        }
        sums
    }

    fn set(&self, index: usize, Sum { bytes, parts, is_whole }: Sum) {
        if let Some(place) = self.0.get(index) {
            let is_whole = u64::from(is_whole && parts == SUMMED);
            let sum = ((bytes as u64) << 1 | is_whole) << Self::PARTS | parts as u64;
            place.store(sum, Ordering::Relaxed);
        }
    }

    /// The sum of the entries from `entry` on, if one begins there.
    pub(super) fn at(&self, entry: usize) -> Option<Sum> {
        if !entry.is_multiple_of(SUMMED) {
            return None;
        }
        let sum = self.0.get(entry / SUMMED)?.load(Ordering::Relaxed);
        let parts = (sum & ((1 << Self::PARTS) - 1)) as usize;
        let (bytes, is_whole) = (sum >> Self::PARTS >> 1, sum >> Self::PARTS & 1 == 1);
        Some(Sum { bytes: bytes as usize, parts, is_whole })
    }
}
