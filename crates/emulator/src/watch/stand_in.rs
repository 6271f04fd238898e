//! What a stand-in for a kernel loads and stores, seen without help of the program.
//!
//! While it runs, the memory of the devices is closed, and so is the page-locked memory that it was
//! given addresses of. Each page opens at its first load, for loads, and at its first store. What
//! is known then:
//!
//! * the byte at which that load or store began;
//! * of device memory, which bytes have another value when the stand-in has returned.
//!
//! Nothing else counts as used. So a use may be missed, but is never invented: not by other bytes
//! of a page, and not by other threads, which may use page-locked memory while the stand-in runs.
//!
//! Many pages take much time and memory. From some hundred faults on, several are opened at once,
//! and past [`MOST_KEPT`] bytes nothing is compared.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::view::PAGE;
use crate::memory::area::{Area, OPEN};
use pinlane_base::lock::Mutex;
use pinlane_base::process::PerProcess;

/// The most bytes that are kept for a comparison.
const MOST_KEPT: usize = 64 << 20;
/// How many ranges of changed bytes are kept apart, on one page and in all.
const RANGES_OF_A_PAGE: usize = 16;
const RANGES: usize = 4096;

/// What stand-ins are running on. No code that holds this touches memory that is closed, so no
/// handler waits for its own thread.
static RUNNING: PerProcess<Mutex<Vec<Observation>>> = PerProcess::new();
/// How many there are; in a forked child perhaps those of its parent's too.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Bytes that a stand-in has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) writes: bool,
    pub(crate) of_host: bool,
}

/// Bytes as they were before the first store to any of them.
#[derive(Debug)]
struct Kept {
    start: usize,
    storage: *mut u8,
    before: Vec<u8>,
}

// SAFETY: the pointer is to a mapping of the process, which no thread owns.
unsafe impl Send for Kept {}

#[derive(Debug)]
struct Observation {
    areas: Vec<Area>,
    thread: libc::pthread_t,
    /// The pages that are open, and whether for stores too.
    open: HashMap<usize, bool>,
    noted: Vec<Touched>,
    kept: Vec<Kept>,
    kept_bytes: usize,
}

/// What was seen of a stand-in that has returned.
#[derive(Debug)]
pub(crate) struct Seen {
    noted: Vec<Touched>,
    kept: Vec<Kept>,
}

/// Whether a fault may be a stand-in's.
pub(super) fn is_running() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

impl Observation {
    /// A page was closed to an access. False if it cannot be opened.
    fn fault(&mut self, address: usize, writes: bool) -> bool {
        let at = self.areas.iter().position(|area| area.contains(address)).expect("looked up");
        let area = &self.areas[at];
        let (page, of_host) = (address / PAGE * PAGE, area.of_host);
        // SAFETY: asks for the number of the thread.
        let is_another = of_host && unsafe { libc::pthread_self() } != self.thread;
        if !is_another {
            self.noted.push(Touched { start: address, bytes: 1, writes, of_host });
        }
        let most = page.saturating_add(self.pages_at_once() * PAGE).min(area.end());
        let is_closed =
            |page: &usize| self.open.get(page).is_none_or(|&for_all| writes && !for_all);
        let pages: Vec<usize> = (page..most).step_by(PAGE).take_while(is_closed).collect();
        let Some(&last) = pages.last() else { return true };
        let range = page..last + PAGE;
        if writes && !of_host {
            self.keep(at, range.clone());
        }
        self.open.extend(pages.into_iter().map(|page| (page, writes)));
        let area = &self.areas[at];
        let protection = if writes { OPEN } else { libc::PROT_READ };
        // The system may have no room for more mappings. To open all at once takes no new one.
        area.protect(range, protection) || area.protect(area.start()..area.end(), OPEN)
    }

    fn pages_at_once(&self) -> usize {
        match self.noted.len() {
            ..512 => 1,
            512..1024 => 16,
            _ => 256,
        }
    }

    fn keep(&mut self, area: usize, range: Range<usize>) {
        let area = &self.areas[area];
        if range.len() > MOST_KEPT - self.kept_bytes {
            return;
        }
        self.kept_bytes += range.len();
        let storage = area.storage_of(range.start);
        // SAFETY: inside the storage, which is always readable. The pages are closed to stores, and
        // operations run one at a time.
        let before = unsafe { std::slice::from_raw_parts(storage, range.len()) }.to_vec();
        self.kept.push(Kept { start: range.start, storage, before });
    }
}

/// A load or store has faulted. False if it is of no memory that a stand-in runs on.
pub(super) fn fault(address: usize, writes: bool) -> bool {
    let Some(running) = RUNNING.known() else { return false };
    let mut running = running.lock();
    let is_its = |one: &&mut Observation| one.areas.iter().any(|area| area.contains(address));
    running.iter_mut().find(is_its).is_some_and(|one| one.fault(address, writes))
}

/// A stand-in is about to make a system call that uses the buffer: the kernel raises no signal for
/// pages that are closed.
pub(crate) fn used_by_call(buffer: &Range<usize>, writes: bool) {
    let mut at = buffer.start;
    while at < buffer.end && fault(at, writes) {
        at = (at / PAGE + 1) * PAGE;
    }
}

impl Kept {
    fn after(&self) -> &[u8] {
        // SAFETY: inside the storage, which is always readable; the stand-in has returned, and
        // operations run one at a time.
        unsafe { std::slice::from_raw_parts(self.storage, self.before.len()) }
    }

    /// The bytes that have another value than before, as far as ranges are kept apart.
    fn changed(&self, of_a_page: usize) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let pages = self.before.chunks(PAGE).zip(self.after().chunks(PAGE)).enumerate();
        for (number, (before, after)) in pages.filter(|(_, (before, after))| before != after) {
            let (page, mut at, mut found) = (self.start + number * PAGE, 0, 0);
            let differs = |at: &usize| before[*at] != after[*at];
            while found < of_a_page
                && let Some(start) = (at..before.len()).find(differs)
            {
                at = (start..before.len()).find(|at| !differs(at)).unwrap_or(before.len());
                found += 1;
                match ranges.last_mut().filter(|last| last.end == page + start) {
                    Some(last) => last.end = page + at,
                    None => ranges.push(page + start..page + at),
                }
            }
        }
        ranges
    }
}

impl Seen {
    /// Runs a stand-in on these areas, whose pages are closed. Pages that it opens stay open.
    pub(crate) fn of(areas: Vec<Area>, stand_in: impl FnOnce()) -> Self {
        let first = areas[0].start();
        COUNT.fetch_add(1, Ordering::AcqRel);
        RUNNING.get().lock().push(Observation {
            areas,
            // SAFETY: asks for the number of the thread.
            thread: unsafe { libc::pthread_self() },
            open: HashMap::new(),
            noted: Vec::new(),
            kept: Vec::new(),
            kept_bytes: 0,
        });
        stand_in();
        let mut running = RUNNING.get().lock();
        let at =
            running.iter().position(|one| one.areas[0].start() == first).expect("pushed above");
        let Observation { noted, kept, .. } = running.swap_remove(at);
        COUNT.fetch_sub(1, Ordering::AcqRel);
        Seen { noted, kept }
    }

    /// What it has used: first the bytes that it has changed.
    pub(crate) fn touched(&self) -> Vec<Touched> {
        let pages: usize = self.kept.iter().map(|kept| kept.before.len() / PAGE).sum();
        let of_a_page = (RANGES / pages.max(1)).clamp(1, RANGES_OF_A_PAGE);
        let changed = self.kept.iter().flat_map(|kept| kept.changed(of_a_page));
        let write = |range: Range<usize>| Touched {
            start: range.start,
            bytes: range.len(),
            writes: true,
            of_host: false,
        };
        let mut touched: Vec<Touched> = changed.map(write).collect();
        touched.sort_unstable_by_key(|touched| touched.start);
        touched.dedup_by(|next, last| {
            let goes_on = last.start + last.bytes == next.start;
            last.bytes += if goes_on { next.bytes } else { 0 };
            goes_on
        });
        // The last that begins there, or before.
        let changed = touched.clone();
        let is_in_it = |noted: &&Touched| {
            let behind = changed.partition_point(|range| range.start <= noted.start);
            let range = behind.checked_sub(1).map(|at| &changed[at]);
            range.is_some_and(|range| noted.start - range.start < range.bytes)
        };
        let others = self.noted.iter().filter(|noted| !noted.writes || !is_in_it(noted));
        touched.extend(others.cloned());
        touched
    }

    /// Restores the bytes that the page of an address had before the stand-in.
    pub(crate) fn undo(&self, address: usize) {
        let page = address / PAGE * PAGE;
        let has = |kept: &&Kept| page.wrapping_sub(kept.start) < kept.before.len();
        for kept in self.kept.iter().filter(has) {
            let offset = page - kept.start;
            let before = &kept.before[offset..][..PAGE];
            // SAFETY: inside the storage, which is always writable; operations run one at a time.
            unsafe { kept.storage.add(offset).copy_from_nonoverlapping(before.as_ptr(), PAGE) };
        }
    }
}
