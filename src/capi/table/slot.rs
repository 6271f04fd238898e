//! One slot of a table of handles: an object, and the calls that use it.
//!
//! ```text
//!   bit 63        32  31     30        29          28      27     0
//!      [ generation | live | freed | exclusive | homeless | users ]
//!
//!   vacant --fill--> live --free, no call inside--> taken --vacate--> vacant, next generation
//!                      |                              ^
//!                      +--free, calls inside--> freed: the last call to leave takes the object
//!                      +--free at home--> vacant, next generation: the object drops afterwards
//! ```
//!
//! # Invariants
//!
//! * The object exists at least until the slot is vacant. A thread drops it only after it has taken
//!   it: changed the word from `freed` or from `live`, without other users. Only one thread can: by
//!   a compare-and-swap; or at home, or with the object alone, when no other thread may.
//! * Nobody fills a slot before its object has been dropped: the thread that drops it has the index
//!   until then.
//! * A call gets in only while the slot is live in the generation that the handle names.
//! * A call that the word does not count is in the [record](super::records) of its thread.
//! * A slot's generation grows each time it is vacated. Slots never move.

use std::mem::{ManuallyDrop, MaybeUninit};

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::cell::UnsafeCell;

const LIVE: u64 = 1 << 31;
const FREED: u64 = 1 << 30;
const EXCLUSIVE: u64 = 1 << 29;
/// The slot is not, or no longer, part of a [home](super::home).
const HOMELESS: u64 = 1 << 28;
/// Shared users and an exclusive one.
const USERS: u64 = (HOMELESS - 1) | EXCLUSIVE;
const GENERATION: u64 = !0 << 32;

/// How a call uses an object: its mark in a [record](super::records), 1 to 3. A byte, which is
/// passed in a register. Its constants are not `pub`, because cbindgen would put the type into the
/// header.
#[derive(Clone, Copy)]
pub struct Access(u8);

pub(super) const SHARED: Access = Access(1);
pub(super) const ALONE: Access = Access(2);
/// Never counted in the word.
pub(super) const FREEING: Access = Access(3);

impl Access {
    const fn is_shared(self) -> bool {
        self.0 == SHARED.0
    }

    /// The counts in the word that conflict with it.
    const fn conflicts(self) -> u64 {
        if self.is_shared() { EXCLUSIVE } else { USERS }
    }

    /// What the call adds to the word.
    const fn counts(self) -> u64 {
        if self.is_shared() { 1 } else { EXCLUSIVE }
    }

    pub const fn mark(self) -> u64 {
        self.0 as u64
    }

    /// The marks in records that conflict with it, as bit numbers.
    pub const fn excludes(self) -> u8 {
        if self.is_shared() { 0b1100 } else { 0b1110 }
    }
}

/// Instead of a token: the slot is not part of a thread's home.
pub(super) const NOBODY: u64 = 0;

/// Why a slot cannot be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The handle was freed, or never was one.
    Invalid,
    /// Another call uses the object in a way that conflicts.
    Busy,
}

/// The word of a slot that was freed.
pub struct Freed(u64);

impl Freed {
    /// Whether the slot was homeless at the end.
    pub fn homeless(&self) -> bool {
        self.0 & HOMELESS != 0
    }
}

// Two slots share no cache line, and no pair of lines that is fetched together.
#[repr(align(128))]
pub struct Slot<T> {
    word: AtomicU64,
    /// The home that the slot is part of, unless it is homeless. Written by the thread that fills
    /// the slot.
    home: AtomicU64,
    notes: [AtomicUsize; 2],
    object: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: one thread at a time moves the object in or out, and calls inside share it (first and
// second invariant). The word orders them.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

impl<T> Slot<T> {
    /// A vacant slot, for models. Tables use zeroed memory instead.
    #[cfg(test)]
    #[allow(dead_code)]
    pub fn new() -> Self {
        Slot {
            word: AtomicU64::new(0),
            home: AtomicU64::new(NOBODY),
            notes: [AtomicUsize::new(0), AtomicUsize::new(0)],
            object: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Puts an object in, and numbers that [`notes`](Self::notes) returns. `home` is the calling
    /// thread's home, or [`NOBODY`]. Returns the generation, at its place in the word.
    ///
    /// # Safety
    ///
    /// * The slot is vacant, and no other thread has its index.
    #[inline(always)]
    pub unsafe fn fill(&self, object: ManuallyDrop<T>, notes: [usize; 2], home: u64) -> u64 {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word as u32, 0, "the slot is not vacant");
        let object = ManuallyDrop::into_inner(object);
        // SAFETY: the slot is vacant and no other thread fills it, by the precondition.
        self.object.with_mut(|place| unsafe { (*place).write(object) });
        // Release: a thread that sees the new home sees that the last generation is over, and finds
        // the record of that home.
        self.home.store(home, Ordering::Release);
        for (place, note) in self.notes.iter().zip(notes) {
            // Release: a thread that sees the new note sees that the last generation is over.
            place.store(note, Ordering::Release);
        }
        let homeless = if home == NOBODY { HOMELESS } else { 0 };
        self.word.store(word | LIVE | homeless, Ordering::Release);
        word
    }

    /// Whether the slot is live in that generation.
    #[inline]
    pub fn is_live(&self, generation: u32) -> bool {
        is_live(self.word.load(Ordering::Acquire), generation)
    }

    /// Whether the slot is live in any generation.
    pub fn has_entry(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LIVE != 0
    }

    /// Whether the slot is live in that generation, part of that home, and counts no call.
    #[inline(always)]
    pub fn is_at_home(&self, generation: u32, home: u64) -> bool {
        // The word first: a home that was read before might be one that the slot had earlier.
        self.word.load(Ordering::Acquire) == live(generation)
            && self.home.load(Ordering::Relaxed) == home
    }

    /// The home that the slot is part of, or [`NOBODY`]. `None` if it is not live in that
    /// generation.
    #[inline(always)]
    pub fn home(&self, generation: u32) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        if !is_live(word, generation) {
            return None;
        }
        // If the generation has ended since, this may be the next one's home.
        Some(if word & HOMELESS != 0 { NOBODY } else { self.home.load(Ordering::Acquire) })
    }

    /// Makes the slot homeless, if it is live in that generation. A thread that sees that sees what
    /// the caller has seen.
    pub fn end_home(&self, generation: u32) {
        // If it is not live, or is homeless already, nothing changes.
        let _ = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, |word| {
            (is_live(word, generation) && word & HOMELESS == 0).then_some(word | HOMELESS)
        });
    }

    /// The numbers that came with the object.
    #[inline(always)]
    pub fn notes(&self, generation: u32) -> Option<[usize; 2]> {
        let notes = self.some_notes();
        if self.is_live(generation) { Some(notes) } else { None }
    }

    /// As [`notes`](Self::notes), of the current generation, whichever it is.
    #[inline(always)]
    pub fn some_notes(&self) -> [usize; 2] {
        let [first, second] = &self.notes;
        [first.load(Ordering::Acquire), second.load(Ordering::Acquire)]
    }

    /// The first of [`some_notes`](Self::some_notes).
    #[inline(always)]
    pub fn some_note(&self) -> usize {
        self.notes[0].load(Ordering::Acquire)
    }

    /// Counts a call, until it [leaves](Self::leave).
    #[inline(always)]
    pub fn enter(&self, generation: u32, access: Access) -> Result<(), Miss> {
        let entered = self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
            let may = is_live(word, generation) && word & access.conflicts() == 0;
            may.then(|| word + access.counts())
        });
        match entered {
            Ok(_) => Ok(()),
            Err(word) if is_live(word, generation) => Err(Miss::Busy),
            Err(_) => Err(Miss::Invalid),
        }
    }

    /// Turns the one shared call that the word counts into an exclusive one.
    pub fn upgrade(&self, generation: u32) -> Result<(), Miss> {
        let upgraded = self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
            let only = is_live(word, generation) && word & USERS == SHARED.counts();
            only.then(|| word - SHARED.counts() + ALONE.counts())
        });
        match upgraded {
            Ok(_) => Ok(()),
            Err(word) if is_live(word, generation) => Err(Miss::Busy),
            Err(_) => Err(Miss::Invalid),
        }
    }

    /// Turns the exclusive call that the word counts into a shared one. Those that come next see
    /// what it has written.
    ///
    /// # Safety
    ///
    /// * The word counts an exclusive call.
    pub unsafe fn downgrade(&self) {
        self.word.fetch_sub(ALONE.counts() - SHARED.counts(), Ordering::Release);
    }

    /// Stops counting the call. True if the slot has been [freed](Self::freed): then the caller
    /// must try to take the object.
    #[inline]
    #[must_use]
    pub fn leave(&self, access: Access) -> bool {
        self.word.fetch_sub(access.counts(), Ordering::AcqRel) & FREED != 0
    }

    /// Ends the generation. Only one of several threads succeeds. When no call is inside,
    /// [`take`](Self::take) gets the object.
    #[inline]
    pub fn free(&self, generation: u32) -> Result<(), Miss> {
        let freed = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            is_live(word, generation).then_some(word & !LIVE | FREED)
        });
        freed.map(drop).map_err(|_| Miss::Invalid)
    }

    /// What [`take`](Self::take) needs, if that generation has been freed and the word counts no
    /// user. `None` for a later generation, whose calls the caller has not checked.
    #[inline(always)]
    pub fn freed(&self, generation: u32) -> Option<Freed> {
        let word = self.word.load(Ordering::Acquire);
        // Every call asks when it leaves. Usually the answer takes one test.
        if word & FREED == 0 { None } else { freed_in(word, generation) }
    }

    /// Takes the object of a slot that has been freed. False if another thread has taken it.
    ///
    /// # Safety
    ///
    /// * After [`freed`](Self::freed), the word counted every call that was inside.
    pub unsafe fn take(&self, freed: Freed) -> bool {
        self.take_from(freed.0)
    }

    /// [`free`](Self::free) and [`take`](Self::take) in one step, if no call is inside.
    ///
    /// # Safety
    ///
    /// * The word counts every call that is inside, or gets in during this call.
    #[inline]
    pub unsafe fn free_idle(&self, generation: u32) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & !HOMELESS == live(generation) && self.take_from(word)
    }

    /// As [`free_idle`](Self::free_idle), without a check. The slot is vacant except for the
    /// object: the caller [drops](Self::drop_object) that.
    ///
    /// # Safety
    ///
    /// * The slot is live in that generation, and no call is inside. During this call none gets in
    ///   or frees it.
    #[inline(always)]
    pub unsafe fn take_at_home(&self, generation: u32) {
        self.word.store((u64::from(generation) + 1) << 32, Ordering::Release);
    }

    /// Frees the slot and takes its object, for the call that has it alone and leaves here.
    ///
    /// # Safety
    ///
    /// * The calling thread has the object alone.
    pub unsafe fn take_alone(&self) {
        // No other call gets in or takes the object, but one may free the slot or end its home.
        self.word.fetch_and(GENERATION, Ordering::AcqRel);
    }

    #[inline]
    fn take_from(&self, word: u64) -> bool {
        let (set, fail) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word.compare_exchange(word, word & GENERATION, set, fail).is_ok()
    }

    /// Drops the object and makes the slot vacant. False if its generations are used up: then it
    /// must not be filled again.
    ///
    /// # Safety
    ///
    /// * The caller has taken the object.
    #[inline(always)]
    pub unsafe fn vacate(&self, generations: u32) -> bool {
        // SAFETY: the same precondition; the object is not used again.
        unsafe { self.drop_object(|object| ManuallyDrop::drop(object)) };
        self.next_generation(generations)
    }

    /// Lets `drop` drop the object in place: moving it out would wait for its cache lines.
    ///
    /// # Safety
    ///
    /// * The caller has taken the object, and nobody else has the slot's index.
    #[inline(always)]
    pub unsafe fn drop_object(&self, drop: impl FnOnce(&mut ManuallyDrop<T>)) {
        // SAFETY: the object exists, and the caller has it alone: all calls have left, which the
        // caller has acquired, and no other thread can take it, or fill the slot.
        self.object.with_mut(|place| drop(unsafe { &mut *place.cast() }));
    }

    /// As [`vacate`](Self::vacate), but returns the object too.
    ///
    /// # Safety
    ///
    /// * The caller has taken the object.
    pub unsafe fn empty(&self, generations: u32) -> (T, bool) {
        // SAFETY: as in `vacate`.
        let object = self.object.with_mut(|place| unsafe { (*place).assume_init_read() });
        (object, self.next_generation(generations))
    }

    #[inline(always)]
    fn next_generation(&self, generations: u32) -> bool {
        let next = (self.word.load(Ordering::Relaxed) >> 32) + 1;
        self.word.store(next << 32, Ordering::Release);
        next < u64::from(generations)
    }

    /// Passes the object's address to `f`.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.object.with(|object| f(object.cast()))
    }

    /// As [`with`](Self::with), for the call that has the object alone.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.object.with_mut(|object| f(object.cast()))
    }

    /// For a test of the last generations.
    #[cfg(test)]
    pub fn skip_to(&self, generation: u32) {
        self.word.store(u64::from(generation) << 32, Ordering::Relaxed);
    }
}

#[cold]
fn freed_in(word: u64, generation: u32) -> Option<Freed> {
    let freed = u64::from(generation) << 32 | FREED;
    (word & !HOMELESS == freed).then_some(Freed(word))
}

/// The word of a slot that is live, has a home, and counts no call.
#[inline(always)]
fn live(generation: u32) -> u64 {
    u64::from(generation) << 32 | LIVE
}

#[inline(always)]
fn is_live(word: u64, generation: u32) -> bool {
    word & !(LIVE - 1) == live(generation)
}
