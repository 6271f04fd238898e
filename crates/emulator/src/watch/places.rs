//! Where the watched blocks of the process lie, for whoever must take no lock.
//!
//! A call of the C library's may come from a handler of signals, or from a child that was forked
//! while some thread held any lock. So the list is made of atomics. It grows and never shrinks; a
//! place that is vacant is taken again.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use pinlane_base::process::Process;

/// How many blocks each part of the list has places for.
const PLACES: usize = 64;

/// Addresses below it, and from `HIGHEST` on, are in no block that there ever was.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
static LIST: Part = Part::new();

struct Place {
    /// 0 if it is vacant.
    start: AtomicUsize,
    end: AtomicUsize,
    /// The mark of the process that made the block.
    process: AtomicU32,
}

/// A block that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) block: Range<usize>,
    /// This process has made it, and not an ancestor.
    pub(super) is_own: bool,
}

impl Place {
    const fn vacant() -> Self {
        let (start, end) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Place { start, end, process: AtomicU32::new(0) }
    }
}

struct Part {
    places: [Place; PLACES],
    next: AtomicPtr<Part>,
}

impl Part {
    const fn new() -> Self {
        Part { places: [const { Place::vacant() }; PLACES], next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Part> {
        // SAFETY: `insert` leaks what it puts there.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

/// All places, in an order that stays.
fn places() -> impl Iterator<Item = &'static Place> {
    std::iter::successors(Some(&LIST), |part| part.next()).flat_map(|part| &part.places)
}

/// Adds a block. One thread at a time.
pub(super) fn insert(block: Range<usize>) {
    // Blocks of an ancestor's that this process does not have may be listed there.
    let is_stale = |place: &&Place| {
        let start = place.start.load(Ordering::Relaxed);
        start != 0 && start < block.end && block.start < place.end.load(Ordering::Relaxed)
    };
    places().filter(is_stale).for_each(|place| place.start.store(0, Ordering::Relaxed));
    LOWEST.fetch_min(block.start, Ordering::Relaxed);
    HIGHEST.fetch_max(block.end, Ordering::Relaxed);
    let vacant = places().find(|place| place.start.load(Ordering::Relaxed) == 0);
    let place = vacant.unwrap_or_else(|| {
        let part: &'static Part = Box::leak(Box::new(Part::new()));
        let last = std::iter::successors(Some(&LIST), |part| part.next()).last();
        let last = last.expect("the first part is always there");
        last.next.store(ptr::from_ref(part).cast_mut(), Ordering::Release);
        &part.places[0]
    });
    place.end.store(block.end, Ordering::Relaxed);
    place.process.store(Process::current().mark, Ordering::Relaxed);
    place.start.store(block.start, Ordering::Release);
}

/// Takes away the block that begins there. One thread at a time.
pub(super) fn remove(start: usize) {
    if let Some(place) = places().find(|place| place.start.load(Ordering::Relaxed) == start) {
        place.start.store(0, Ordering::Relaxed);
    }
}

/// A block that has a byte of the range. A block that comes or goes meanwhile is there or is not.
pub(super) fn find(range: &Range<usize>) -> Option<Found> {
    let (lowest, highest) = (LOWEST.load(Ordering::Relaxed), HIGHEST.load(Ordering::Relaxed));
    if range.end <= lowest || highest <= range.start || range.is_empty() {
        return None;
    }
    places().find_map(|place| {
        let start = place.start.load(Ordering::Acquire);
        if start == 0 || range.end <= start {
            return None;
        }
        let end = place.end.load(Ordering::Relaxed);
        let is_own = Process::has_mark(place.process.load(Ordering::Relaxed));
        (range.start < end).then_some(Found { block: start..end, is_own })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No block of a machine's lies there: the addresses are not those of a process.
    const FAR: usize = 1 << 60;

    #[test]
    fn blocks_are_found_by_each_of_their_bytes_until_they_go() {
        let starts: Vec<usize> = (0..3 * PLACES).map(|at| FAR + at * 100).collect();
        starts.iter().for_each(|&start| insert(start..start + 10));
        for &start in &starts {
            let block = Some(Found { block: start..start + 10, is_own: true });
            assert_eq!(find(&(start..start + 1)), block);
            assert_eq!(find(&(start + 9..start + 20)), block);
            assert_eq!(find(&(start - 5..start + 1)), block);
            assert_eq!(find(&(start + 10..start + 20)), None);
            assert_eq!(find(&(start..start)), None);
        }
        starts.iter().for_each(|&start| remove(start));
        assert_eq!(find(&(FAR..usize::MAX)), None);
    }
}
