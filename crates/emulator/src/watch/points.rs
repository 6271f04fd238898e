//! Loads of a pending destination, whose pages cannot be closed: seen by watchpoints of the
//! processor.
//!
//! ```text
//!      guard | word ........ destination ............ | guard
//! ```
//!
//! The first bytes of the destination are watched, for the thread that has made the call. One
//! instruction may touch them though the program has not asked for it: string functions and
//! vectorized loops read more than they need. Such an access is one range, so it also touches a
//! byte next to the destination. The guards watch these bytes. An instruction that touches the word
//! and a guard does not count as an access to the destination.
//!
//! # Invariants
//!
//! * The handler takes no lock and allocates nothing: a program that frees a destination too early
//!   traps inside the allocator. It notes where the access was made. The next call of the machine
//!   hands the access to the race checker first.
//! * Files are closed when no handler looks at them.
//! * What is watched ends with the destination: when the host knows that its operation is complete.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::{hint, mem, ptr};

use super::stack;
use super::watchpoint::{self, Watchpoint};
use crate::memory::look::{Look, look};
use crate::races::{Callers, Note};
use crate::words::thread::is_held;
use pinlane_base::process::Process;

/// How many destinations are watched at a time, by all threads.
const MOST: usize = 32;
/// How often a thread may trap for one destination: a variable next to it may be in use.
const MOST_TRAPS: u32 = 16;
/// How often the machine itself may trap there. It writes a destination with few instructions; but
/// a string instruction was seen to trap forever, without a byte of progress, in a virtual machine.
const MOST_OWN_TRAPS: u32 = 64;
/// The most bytes that one instruction touches.
const WIDEST: usize = 64;
/// What signals bring: this, and the number of the place.
const MARK: u64 = 0x7069_6e6c_616e_6500;

const VACANT: u32 = 0;
/// Another thread is beginning or ending it.
const CHANGING: u32 = 1;
const ARMED: u32 = 2;
const HIT: u32 = 3;
const SPENT: u32 = 4;

static PLACES: [Place; MOST] = [const { Place::vacant() }; MOST];
/// The hits that no machine has taken yet.
static HITS: AtomicUsize = AtomicUsize::new(0);

/// What notes where an interpreter is: null, or a `fn(&mut Note)`.
static NOTES: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// From now on the handler also notes by this where an interpreter is. The first one counts.
pub(crate) fn note_by(note: fn(&mut Note)) {
    let (none, note) = (ptr::null_mut(), note as *mut ());
    let _ = NOTES.compare_exchange(none, note, Ordering::Release, Ordering::Relaxed);
}

/// Where the interpreter is that runs this thread.
fn noted() -> Note {
    let mut note = Note::default();
    let by = NOTES.load(Ordering::Acquire);
    if !by.is_null() {
        // SAFETY: it is not null, so it is the function that `note_by` was given.
        let by = unsafe { mem::transmute::<*mut (), fn(&mut Note)>(by) };
        by(&mut note);
    }
    note
}

/// A read of a destination.
#[derive(Debug)]
pub(crate) struct Hit {
    /// The bytes.
    pub(crate) read: Range<usize>,
    /// Where it was.
    pub(crate) callers: Callers,
    pub(crate) note: Note,
}

/// A destination that is watched, as the handler knows it.
#[derive(Debug)]
struct Place {
    state: AtomicU32,
    /// How many handlers look at it.
    handlers: AtomicU32,
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// What the word was: an access that has changed it is a store, and no load.
    value: AtomicU64,
    traps: AtomicU32,
    own_traps: AtomicU32,
    /// The word, then the guards.
    points: [Watchpoint; 3],
    callers: [AtomicUsize; Callers::MOST],
    note: [AtomicUsize; size_of::<Note>() / size_of::<usize>()],
}

impl Place {
    const fn vacant() -> Self {
        Place {
            state: AtomicU32::new(VACANT),
            handlers: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            value: AtomicU64::new(0),
            traps: AtomicU32::new(0),
            own_traps: AtomicU32::new(0),
            points: [const { Watchpoint::none() }; 3],
            callers: [const { AtomicUsize::new(0) }; Callers::MOST],
            note: [const { AtomicUsize::new(0) }; size_of::<Note>() / size_of::<usize>()],
        }
    }

    fn word(&self) -> Range<usize> {
        let start = self.start.load(Ordering::Relaxed);
        start..start + self.bytes.load(Ordering::Relaxed)
    }

    /// What the word is now; the memory may be gone.
    fn now(&self) -> Option<u64> {
        let (word, mut value) = (self.word(), [0; 8]);
        let is_there = look(word.start, &mut value[..word.len()]) == Look::Read;
        is_there.then_some(u64::from_ne_bytes(value))
    }

    /// The thread has touched something that is watched.
    fn trapped(&self, has_waited: bool, context: &libc::ucontext_t) {
        let [word, guards @ ..] = &self.points;
        // All are asked: what was hit before is known then.
        let beside = guards.iter().filter(|guard| guard.was_hit()).count() > 0;
        let is_hit = word.was_hit() && !beside && !has_waited;
        let now = self.now();
        let was = now.map(|now| self.value.swap(now, Ordering::Relaxed));
        if is_held() {
            if self.own_traps.fetch_add(1, Ordering::Relaxed) + 1 == MOST_OWN_TRAPS {
                self.points.iter().for_each(Watchpoint::silence);
            }
            return;
        }
        let traps = self.traps.fetch_add(1, Ordering::Relaxed) + 1;
        if is_hit && now.is_some() && now == was {
            note_callers(context, &self.callers);
            self.note
                .iter()
                .zip(noted())
                .for_each(|(word, new)| word.store(new, Ordering::Relaxed));
            HITS.fetch_add(1, Ordering::Relaxed);
            self.state.store(HIT, Ordering::Release);
        }
        if self.state.load(Ordering::Relaxed) == HIT || traps == MOST_TRAPS {
            self.points.iter().for_each(Watchpoint::silence);
        }
    }
}

/// A destination is watched until this is dropped.
#[derive(Debug)]
pub(super) struct Point {
    place: &'static Place,
    process: Process,
}

/// The watchpoints that a destination needs: for its first bytes, and for those next to it.
fn needed(destination: &Range<usize>) -> Vec<Range<usize>> {
    let fits =
        |bytes: &usize| destination.start.is_multiple_of(*bytes) && *bytes <= destination.len();
    let bytes = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
    let (start, end) = (destination.start, destination.end);
    let mut all = vec![start..start + bytes, start - 1..start];
    if destination.len() < bytes + WIDEST {
        all.push(end..end + 1);
    }
    all
}

impl Point {
    /// How many watchpoints the destination needs.
    pub(super) fn cost(destination: &Range<usize>) -> usize {
        needed(destination).len()
    }

    /// Watches a destination for the calling thread. `None` if there is nothing to watch with.
    pub(super) fn begin(destination: &Range<usize>) -> Option<Self> {
        let vacant = |place: &&Place| {
            let (now, next) = (VACANT, CHANGING);
            place.state.compare_exchange(now, next, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let (number, place) = PLACES.iter().enumerate().find(|(_, place)| vacant(place))?;
        let needed = needed(destination);
        place.start.store(needed[0].start, Ordering::Relaxed);
        place.bytes.store(needed[0].len(), Ordering::Relaxed);
        place.traps.store(0, Ordering::Relaxed);
        place.own_traps.store(0, Ordering::Relaxed);
        let point = Point { place, process: Process::current() };
        // Dropped, it gives back what it has.
        place.value.store(place.now()?, Ordering::Relaxed);
        let mut pairs = needed.iter().zip(&place.points);
        let all = pairs.all(|(bytes, point)| point.begin(bytes, MARK | number as u64));
        all.then(|| {
            place.state.store(ARMED, Ordering::Release);
            point
        })
    }

    /// The bytes that were read, and where that was: once.
    pub(super) fn take_hit(&self) -> Option<Hit> {
        let (now, next) = (HIT, SPENT);
        let state = &self.place.state;
        state.compare_exchange(now, next, Ordering::Acquire, Ordering::Relaxed).ok()?;
        HITS.fetch_sub(1, Ordering::Relaxed);
        let callers = self.place.callers.each_ref().map(|at| at.load(Ordering::Relaxed));
        let note = self.place.note.each_ref().map(|word| word.load(Ordering::Relaxed));
        Some(Hit { read: self.place.word(), callers: Callers(callers), note })
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // In a child that was forked the thread is not there, nor are handlers that look at it.
        if !self.process.is_current() {
            return;
        }
        self.take_hit();
        let place = self.place;
        place.state.store(CHANGING, Ordering::SeqCst);
        while place.handlers.load(Ordering::SeqCst) > 0 {
            hint::spin_loop();
            std::thread::yield_now();
        }
        place.points.iter().for_each(Watchpoint::end);
        place.state.store(VACANT, Ordering::Release);
    }
}

/// Whether there are reads of destinations that no machine has taken yet.
#[inline]
pub(crate) fn are_hit() -> bool {
    HITS.load(Ordering::Relaxed) > 0
}

/// Handles a signal of SIGTRAP. False if it is of no watchpoint of ours.
pub(super) fn on_trap(info: &libc::siginfo_t, context: &libc::ucontext_t) -> bool {
    let Some((mark, has_waited)) = watchpoint::mark_of(info) else { return false };
    let Some(place) = PLACES.get((mark ^ MARK) as usize) else { return false };
    place.handlers.fetch_add(1, Ordering::SeqCst);
    if place.state.load(Ordering::SeqCst) == ARMED {
        stack::with_room(|| place.trapped(has_waited, context));
    }
    place.handlers.fetch_sub(1, Ordering::SeqCst);
    true
}

/// Writes down where a signal has interrupted the thread, and the functions that lead there.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn note_callers(context: &libc::ucontext_t, callers: &[AtomicUsize; Callers::MOST]) {
    /// What the walk through the frames knows.
    struct Walk<'a> {
        interrupted: usize,
        found: usize,
        callers: &'a [AtomicUsize; Callers::MOST],
    }
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            each: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            with: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    }
    unsafe extern "C" fn each(frame: *mut c_void, walk: *mut c_void) -> c_int {
        // SAFETY: the frame is the one that the walk has come to; the call below gives it the walk.
        let (at, walk) = unsafe { (_Unwind_GetIP(frame), &mut *walk.cast::<Walk<'_>>()) };
        if walk.found > 0 || at == walk.interrupted {
            walk.callers[walk.found].store(at, Ordering::Relaxed);
            walk.found += 1;
        }
        const ENOUGH: c_int = 5;
        if walk.found == Callers::MOST { ENOUGH } else { 0 }
    }
    let interrupted = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    callers.iter().for_each(|caller| caller.store(0, Ordering::Relaxed));
    callers[0].store(interrupted, Ordering::Relaxed);
    let mut walk = Walk { interrupted, found: 0, callers };
    // SAFETY: the function is that of the library which unwinds stacks, and calls `each` with what
    // it is given, until it returns.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn note_callers(_: &libc::ucontext_t, _: &[AtomicUsize; Callers::MOST]) {}

#[cfg(test)]
mod tests {
    use super::super::owner;
    use super::*;

    #[test]
    fn what_is_watched_is_aligned_and_the_guards_are_beside_it() {
        for (destination, all) in [
            (0x1000..0x1004, vec![0x1000..0x1004, 0xfff..0x1000, 0x1004..0x1005]),
            (0x1002..0x1010, vec![0x1002..0x1004, 0x1001..0x1002, 0x1010..0x1011]),
            (0x1008..0x1010, vec![0x1008..0x1010, 0x1007..0x1008, 0x1010..0x1011]),
            (0x1001..0x1002, vec![0x1001..0x1002, 0x1000..0x1001, 0x1002..0x1003]),
            (0x1000..0x1048, vec![0x1000..0x1008, 0xfff..0x1000]),
            (0x1000..0x1047, vec![0x1000..0x1008, 0xfff..0x1000, 0x1047..0x1048]),
        ] {
            assert_eq!(needed(&destination), all);
            assert_eq!(Point::cost(&destination), all.len());
        }
    }

    /// Memory in which the bytes 64 to 68 are a destination.
    #[repr(align(64))]
    struct Memory([u8; 128]);

    impl Memory {
        fn destination(&self) -> Range<usize> {
            let start = self.0.as_ptr().addr() + 64;
            start..start + 4
        }

        /// Really loads: optimised code may know what stands in memory that it has just filled.
        fn load<T>(&self, at: usize) {
            assert!(at + size_of::<T>() <= self.0.len());
            let place = hint::black_box(self.0.as_ptr());
            // SAFETY: inside the memory, whose bytes are any integer's.
            hint::black_box(unsafe { place.add(at).cast::<T>().read_unaligned() });
        }
    }

    /// `None` where the system lends no watchpoints.
    fn watched(memory: &Memory) -> Option<Point> {
        assert!(owner::install());
        watchpoint::may_be_lent().then(|| Point::begin(&memory.destination()))?
    }

    #[test]
    fn a_load_is_a_hit_once() {
        let memory = Memory([1; 128]);
        let Some(point) = watched(&memory) else { return };
        assert!(point.take_hit().is_none());
        memory.load::<u8>(66);
        assert!(are_hit());
        let Hit { read, callers, .. } = point.take_hit().expect("a hit");
        assert!(read == memory.destination() && callers != Callers::NONE);
        memory.load::<u8>(66);
        assert!(point.take_hit().is_none());
    }

    #[test]
    fn a_store_and_what_touches_bytes_beside_it_are_no_hits() {
        let mut memory = Memory([1; 128]);
        let Some(point) = watched(&memory) else { return };
        for at in [61, 63, 64 - 15] {
            memory.load::<u128>(at);
        }
        memory.load::<u8>(63);
        memory.load::<u8>(68);
        // SAFETY: inside the memory.
        unsafe { memory.0.as_mut_ptr().add(64).write_volatile(7) };
        assert!(point.take_hit().is_none());
        memory.load::<u32>(64);
        assert!(point.take_hit().is_some());
    }

    #[test]
    fn bytes_beside_it_that_are_in_use_end_the_watch() {
        let memory = Memory([1; 128]);
        let Some(point) = watched(&memory) else { return };
        (0..10 * MOST_TRAPS).for_each(|_| memory.load::<u8>(63));
        assert_eq!(point.place.traps.load(Ordering::Relaxed), MOST_TRAPS);
        memory.load::<u8>(64);
        assert!(point.take_hit().is_none());
    }

    #[test]
    fn another_thread_and_what_comes_later_are_not_watched() {
        let memory = Memory([1; 128]);
        let Some(point) = watched(&memory) else { return };
        std::thread::scope(|scope| scope.spawn(|| memory.load::<u8>(64)).join()).unwrap();
        assert!(point.take_hit().is_none());
        drop(point);
        memory.load::<u8>(64);
        let again = watched(&memory).expect("watchpoints come back");
        assert!(again.take_hit().is_none());
        memory.load::<u8>(64);
        assert!(again.take_hit().is_some());
    }
}
