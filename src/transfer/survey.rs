//! What one pass over the entries of a copy finds out.
//!
//! Ten thousand entries are more than a core's own cache holds, so that every look at all of them
//! takes time. All that must be known before the first byte moves is found in one pass, by several
//! threads if they are many: what there is to copy, whose buffers other streams use, and sums, by
//! which portions are laid out without looking at each entry again.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::apart::check_disjoint;
use super::entry::{Entry, List, Side};
use super::order::{check_device, check_driver};
use super::share::{DEAL, share};
use crate::error::{Error, Result};
use crate::memory::hazard::Hazards;
use crate::stream::Stream;
use crate::sync::Mutex;

/// So many entries are looked at by several threads: fewer, before the first would come.
const SEVERAL: usize = 2048;
/// So many have sums and regions.
const MANY: usize = 512;
/// A thread that finds more regions leaves them to be found again.
const REGIONS: usize = 1024;

/// What one kind of entries comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) entries: usize,
    pub(super) runs: usize,
    pub(super) bytes: usize,
}

impl Group {
    pub(super) fn add(&mut self, bytes: usize, follows: bool) {
        self.entries += 1;
        self.runs += usize::from(!follows);
        self.bytes += bytes;
    }

    fn join(&mut self, other: Group) {
        self.entries += other.entries;
        self.runs += other.runs;
        self.bytes += other.bytes;
    }
}

/// What there is to copy.
pub(super) struct Survey<'e> {
    pub(super) ordinary: Group,
    pub(super) pinned: Group,
    /// The buffers that other streams may use.
    pub(super) used_elsewhere: Vec<Region<'e>>,
    /// All buffers, if the entries are many and the buffers few.
    pub(super) regions: Option<Vec<Region<'e>>>,
    pub(super) sums: Sums,
    /// A page-locked entry lies in several registrations.
    pub(super) crosses_seams: bool,
    /// Somebody else's device memory is among it, so that ranges may overlap.
    borrowed: bool,
    /// The device ranges ascend.
    ascending: bool,
}

/// Ranges of one buffer, as one.
#[derive(Clone)]
pub(super) struct Region<'e> {
    pub(super) side: Side,
    pub(super) hazards: &'e Hazards,
    pub(super) range: Range<usize>,
    /// How many bytes the ranges have themselves.
    bytes: usize,
    /// The first entry.
    first: usize,
}

impl Region<'_> {
    fn add(&mut self, range: &Range<usize>, bytes: usize) {
        self.bytes += bytes;
        self.range = self.range.start.min(range.start)..self.range.end.max(range.end);
    }

    /// Whether nothing lies between the ranges, which are disjoint where they are written.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes == self.range.len()
    }
}

/// What one thread found.
struct Findings<'e> {
    ordinary: Group,
    pinned: Group,
    used_elsewhere: Vec<Region<'e>>,
    regions: Option<Vec<Region<'e>>>,
    strange: Option<Error>,
    crosses_seams: bool,
    borrowed: bool,
    ascending: bool,
}

impl Default for Findings<'_> {
    fn default() -> Self {
        Findings {
            ordinary: Group::default(),
            pinned: Group::default(),
            used_elsewhere: Vec::new(),
            regions: Some(Vec::new()),
            strange: None,
            crosses_seams: false,
            borrowed: false,
            ascending: true,
        }
    }
}

impl<'e> Findings<'e> {
    fn join(&mut self, other: Findings<'e>) {
        self.ordinary.join(other.ordinary);
        self.pinned.join(other.pinned);
        self.used_elsewhere.extend(other.used_elsewhere);
        self.regions = match (self.regions.take(), other.regions) {
            (Some(mut ours), Some(theirs)) => {
                ours.extend(theirs);
                Some(ours)
            }
            _ => None,
        };
        self.strange = self.strange.take().or(other.strange);
        self.crosses_seams |= other.crosses_seams;
        self.borrowed |= other.borrowed;
        self.ascending &= other.ascending;
    }

    /// Looks at the entries in `part`.
    fn look(&mut self, list: List<'e, '_>, part: Range<usize>, sums: &Sums) {
        let before = part.start.checked_sub(1).map(|before| list.get(before));
        // An empty one says nothing of those before it.
        self.ascending &= before.is_none_or(|before| before.bytes() > 0);
        let before = before.filter(|before| before.bytes() > 0);
        match list.slice(part.clone()) {
            Some(entries) => self.count(before, part.start, entries.iter(), sums),
            None => self.count(before, part.start, part.map(|n| list.get(n)), sums),
        }
    }

    /// Counts the entries from the `first` on. Nothing but values of its own in the loop, which so
    /// stay in registers.
    fn count<'l, 'a: 'l>(
        &mut self,
        mut before: Option<&'l Entry<'a>>,
        first: usize,
        entries: impl Iterator<Item = &'l Entry<'a>>,
        sums: &Sums,
    ) {
        let mut ordinary = Group::default();
        let mut pinned = Group::default();
        let mut sum = Sum::default();
        let (mut borrowed, mut ascending, mut crosses_seams) = (false, true, false);
        for (n, entry) in (first..).zip(entries) {
            let bytes = entry.bytes();
            if bytes > 0 {
                let device = &entry.device;
                let mut next_to = false;
                if let Some(before) = before {
                    let end = before.device.ptr() + before.bytes() as u64;
                    ascending &= end <= device.ptr();
                    next_to = end == device.ptr() && before.device.home() == device.home();
                }
                borrowed |= device.is_borrowed();
                match &entry.pinned {
                    None => ordinary.add(bytes, next_to),
                    Some(memory) => {
                        let both = next_to && before.is_some_and(|it| it.is_followed_by(entry));
                        pinned.add(bytes, both);
                        crosses_seams |= memory.crosses_seam(entry.host(), bytes);
                    }
                }
                sum.add(bytes, next_to);
                before = Some(entry);
            }
            if (n + 1).is_multiple_of(SUMMED) {
                sums.set(n / SUMMED, std::mem::take(&mut sum));
            }
        }
        self.ordinary.join(ordinary);
        self.pinned.join(pinned);
        self.borrowed |= borrowed;
        self.ascending &= ascending;
        self.crosses_seams |= crosses_seams;
    }

    /// Looks at whose buffers the entries in `part` are.
    fn look_at_buffers(
        &mut self,
        stream: &Stream,
        operation: &'static str,
        list: List<'e, '_>,
        part: Range<usize>,
    ) {
        let timeline = &stream.timeline;
        let ours = timeline.context();
        for_regions(list, part, |region| {
            let entry = list.get(region.first);
            let checked = match (region.side, entry.pinned) {
                (Side::Host, Some(pinned)) => check_driver(operation, ours, pinned.context()),
                _ => check_device(operation, stream, &[entry.device.context()]),
            };
            if let Err(error) = checked {
                self.strange.get_or_insert(error);
            }
            if region.hazards.is_used_elsewhere(timeline) {
                self.used_elsewhere.push(region.clone());
            }
            if list.len() >= MANY {
                match &mut self.regions {
                    Some(known) if known.len() < REGIONS => known.push(region),
                    known => *known = None,
                }
            }
        });
    }
}

impl<'e> Survey<'e> {
    /// Looks at all entries, which a stream is to copy.
    ///
    /// # Errors
    ///
    /// An entry belongs to another device or driver than the stream.
    pub(super) fn of(
        stream: &Stream,
        operation: &'static str,
        list: List<'e, '_>,
    ) -> Result<Survey<'e>> {
        let many = list.len() >= MANY;
        let sums = Sums::new(if many { list.len() / SUMMED } else { 0 });
        let mut all = Mutex::new(Findings::default());
        share(
            list.len(),
            SEVERAL,
            &|found: &mut Findings<'e>, part| {
                found.look(list, part.clone(), &sums);
                found.look_at_buffers(stream, operation, list, part);
            },
            &|found| all.lock().join(found),
        );
        let found = std::mem::take(all.get_mut());
        if let Some(error) = found.strange {
            return Err(error);
        }
        let regions = found.regions.filter(|_| many).map(joined);
        let is_used = |region: &&Region<'_>| region.hazards.is_used_elsewhere(&stream.timeline);
        Ok(Survey {
            ordinary: found.ordinary,
            pinned: found.pinned,
            used_elsewhere: match &regions {
                Some(regions) => regions.iter().filter(is_used).cloned().collect(),
                None => found.used_elsewhere,
            },
            regions,
            sums,
            crosses_seams: found.crosses_seams,
            borrowed: found.borrowed,
            ascending: found.ascending,
        })
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> usize {
        self.ordinary.bytes + self.pinned.bytes
    }

    /// Refuses destinations on the device that overlap. Those that this crate allocated cannot.
    pub(super) fn check_overlaps(
        &self,
        operation: &'static str,
        entries: &[Entry<'_>],
    ) -> Result<()> {
        if !self.borrowed || self.ascending {
            return Ok(());
        }
        let ranges = entries.iter().map(|entry| (entry.device.ptr(), entry.bytes()));
        check_disjoint(operation, ranges)
    }
}

/// Calls `with` for the buffers of the entries in `part`. Views of one buffer that come one after
/// the other are one region: the buffer's list would merge them all the same, at a price for each.
/// What lies between them may be somebody else's, and be in use again at any time.
pub(super) fn for_regions<'e>(
    list: List<'e, '_>,
    part: Range<usize>,
    mut with: impl FnMut(Region<'e>),
) {
    for side in [Side::Device, Side::Host] {
        match list.slice(part.clone()) {
            Some(entries) => regions_of(side, part.start, entries.iter(), &mut with),
            None => {
                regions_of(side, part.start, part.clone().map(|n| list.get(n)), &mut with);
            }
        }
    }
}

/// The regions of one side of the entries from the `first` on.
fn regions_of<'e, 'a: 'e>(
    side: Side,
    first: usize,
    entries: impl Iterator<Item = &'e Entry<'a>>,
    mut with: impl FnMut(Region<'e>),
) {
    let mut current: Option<Region<'e>> = None;
    for (first, entry) in (first..).zip(entries) {
        let Some((hazards, range)) = entry.buffer(side) else { continue };
        let bytes = range.len();
        match &mut current {
            Some(same) if std::ptr::eq(same.hazards, hazards) => same.add(&range, bytes),
            place => {
                let before = place.replace(Region { side, hazards, range, bytes, first });
                before.into_iter().for_each(&mut with);
            }
        }
    }
    current.into_iter().for_each(with);
}

/// Regions of one buffer that several threads found, one after the other, are one.
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

/// How many entries have one sum.
pub(super) const SUMMED: usize = 16;
const _: () = assert!(DEAL.is_multiple_of(SUMMED), "a sum is one thread's");

/// What some entries come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: usize,
    /// How many are not empty.
    pub(super) parts: usize,
    /// Whether none is empty, and each follows the one before on the device.
    pub(super) is_whole: bool,
}

impl Sum {
    /// `follows`, on the device, the one before.
    fn add(&mut self, bytes: usize, follows: bool) {
        self.is_whole = self.parts == 0 || (self.is_whole && follows);
        self.bytes += bytes;
        self.parts += 1;
    }
}

/// The sums of [`SUMMED`] entries each, where they are known.
#[derive(Debug, Default)]
pub(super) struct Sums(Box<[AtomicU64]>);

impl Sums {
    /// The lowest bits: the parts, and behind them whether they are whole.
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

    /// That of the entries from `entry` on, if one begins there.
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
