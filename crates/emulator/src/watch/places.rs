//! Where watched blocks and pending destinations lie, for code that must take no lock.
//!
//! A call of the C library's may come from a handler of signals, or from a child that was forked
//! while some thread held any lock. So the lists are made of atomics. They grow and never shrink; a
//! place that is vacant is taken again.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use pinlane_base::lock::Mutex;
use pinlane_base::process::{PerProcess, Process};

/// How many ranges each part of a list has places for.
const PLACES: usize = 64;

/// The watched blocks of the process.
pub(super) static BLOCKS: Places = Places::new();

struct Place {
    /// 0 if it is vacant.
    start: AtomicUsize,
    end: AtomicUsize,
    /// The mark of the process that listed the range.
    process: AtomicU32,
}

/// A range that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) range: Range<usize>,
    /// This process has listed it, and not an ancestor.
    pub(super) is_own: bool,
}

impl Place {
    const fn vacant() -> Self {
        let (start, end) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Place { start, end, process: AtomicU32::new(0) }
    }

    fn is_own(&self) -> bool {
        Process::has_mark(self.process.load(Ordering::Relaxed))
    }

    /// Whether an ancestor process has listed it and it overlaps the range, where this process now
    /// lists memory of its own: what it shared with the ancestor is not mapped there any more.
    fn is_stale(&self, range: &Range<usize>) -> bool {
        let start = self.start.load(Ordering::Relaxed);
        let overlaps = start < range.end && range.start < self.end.load(Ordering::Relaxed);
        start != 0 && overlaps && !self.is_own()
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

/// A list of ranges of addresses.
pub(super) struct Places {
    /// How many are listed.
    count: AtomicUsize,
    /// Addresses below it, and from `highest` on, are in no range that was ever listed.
    lowest: AtomicUsize,
    highest: AtomicUsize,
    first: Part,
    /// One thread at a time changes the list.
    changes: PerProcess<Mutex<()>>,
}

impl Places {
    pub(super) const fn new() -> Self {
        Places {
            count: AtomicUsize::new(0),
            lowest: AtomicUsize::new(usize::MAX),
            highest: AtomicUsize::new(0),
            first: Part::new(),
            changes: PerProcess::new(),
        }
    }

    fn parts(&'static self) -> impl Iterator<Item = &'static Part> {
        std::iter::successors(Some(&self.first), |part| part.next())
    }

    /// All places, in an order that stays.
    fn places(&'static self) -> impl Iterator<Item = &'static Place> {
        self.parts().flat_map(|part| &part.places)
    }

    /// Lists a range, which may overlap others of this process.
    pub(super) fn insert(&'static self, range: Range<usize>) {
        let _one_at_a_time = self.changes.get().lock();
        self.places().filter(|place| place.is_stale(&range)).for_each(|place| self.vacate(place));
        self.lowest.fetch_min(range.start, Ordering::Relaxed);
        self.highest.fetch_max(range.end, Ordering::Relaxed);
        let vacant = self.places().find(|place| place.start.load(Ordering::Relaxed) == 0);
        let place = vacant.unwrap_or_else(|| {
            let part: &'static Part = Box::leak(Box::new(Part::new()));
            let last = self.parts().last().expect("the first part is always there");
            last.next.store(ptr::from_ref(part).cast_mut(), Ordering::Release);
            &part.places[0]
        });
        place.end.store(range.end, Ordering::Relaxed);
        place.process.store(Process::current().mark, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        place.start.store(range.start, Ordering::Release);
    }

    /// Takes away a range, as it was listed.
    pub(super) fn remove(&'static self, range: &Range<usize>) {
        let _one_at_a_time = self.changes.get().lock();
        let is_it = |place: &&Place| {
            place.start.load(Ordering::Relaxed) == range.start
                && place.end.load(Ordering::Relaxed) == range.end
        };
        if let Some(place) = self.places().find(is_it) {
            self.vacate(place);
        }
    }

    fn vacate(&self, place: &Place) {
        place.start.store(0, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// A listed range that has a byte of this one. A range that another thread lists or removes
    /// during the search may be found or missed.
    pub(super) fn find(&'static self, range: &Range<usize>) -> Option<Found> {
        let lowest = self.lowest.load(Ordering::Relaxed);
        let highest = self.highest.load(Ordering::Relaxed);
        if range.end <= lowest || highest <= range.start || range.is_empty() {
            return None;
        }
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.places().find_map(|place| {
            let start = place.start.load(Ordering::Acquire);
            if start == 0 || range.end <= start {
                return None;
            }
            let end = place.end.load(Ordering::Relaxed);
            (range.start < end).then(|| Found { range: start..end, is_own: place.is_own() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses are not those of a process.
    const FAR: usize = 1 << 60;

    #[test]
    fn ranges_are_found_by_each_of_their_bytes_until_they_go() {
        static LIST: Places = Places::new();
        let starts: Vec<usize> = (0..3 * PLACES).map(|at| FAR + at * 100).collect();
        starts.iter().for_each(|&start| LIST.insert(start..start + 10));
        for &start in &starts {
            let found = Some(Found { range: start..start + 10, is_own: true });
            assert_eq!(LIST.find(&(start..start + 1)), found);
            assert_eq!(LIST.find(&(start + 9..start + 20)), found);
            assert_eq!(LIST.find(&(start - 5..start + 1)), found);
            assert_eq!(LIST.find(&(start + 10..start + 20)), None);
            assert_eq!(LIST.find(&(start..start)), None);
        }
        starts.iter().for_each(|&start| LIST.remove(&(start..start + 10)));
        assert_eq!(LIST.find(&(FAR..usize::MAX)), None);
    }

    #[test]
    fn a_range_that_is_listed_twice_is_there_until_both_are_gone() {
        static LIST: Places = Places::new();
        (0..2).for_each(|_| LIST.insert(FAR..FAR + 10));
        LIST.insert(FAR + 5..FAR + 20);
        LIST.remove(&(FAR..FAR + 10));
        assert!(LIST.find(&(FAR..FAR + 1)).is_some());
        LIST.remove(&(FAR..FAR + 10));
        assert_eq!(LIST.find(&(FAR..FAR + 1)), None);
        assert_eq!(LIST.find(&(FAR..FAR + 6)).map(|found| found.range), Some(FAR + 5..FAR + 20));
    }
}
