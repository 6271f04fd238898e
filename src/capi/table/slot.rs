//! One slot of a table of handles: an object, and the calls that use it.
//!
//! ```text
//!   bit 63        32  31     30        29      28     0
//!      [ generation | live | freed | exclusive | users ]
//!
//!   vacant --fill--> live --free, no call inside--> taken --vacate--> vacant, next generation
//!                      |                              ^
//!                      +--free, calls inside--> freed: the last call to leave takes the object
//! ```
//!
//! # Invariants
//!
//! * The object is there until the slot is vacant. A thread drops it only after it made the word
//!   `taken`, from `freed` or from `live`, with no users. One thread can: by a compare-and-swap or,
//!   at home, because no other thread writes the word.
//! * A call gets in only while the slot is live in the generation that the handle names.
//! * A call that the word does not count stands in the [record](super::records) of its thread.
//! * A slot's generation grows each time it is vacated. Slots never move.

use std::mem::{ManuallyDrop, MaybeUninit};

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::cell::UnsafeCell;

const LIVE: u64 = 1 << 31;
const FREED: u64 = 1 << 30;
const EXCLUSIVE: u64 = 1 << 29;
/// Shared users and an exclusive one.
const USERS: u64 = (EXCLUSIVE - 1) | EXCLUSIVE;

/// How a call uses an object.
#[derive(Clone, Copy)]
pub struct Access {
    /// The calls that must not be counted in the word meanwhile.
    conflicts: u64,
    /// What the call adds there.
    counts: u64,
    /// What stands for it in a [record](super::records), 1 to 3.
    pub mark: u64,
    /// The marks that must not stand in records meanwhile: bit numbers.
    pub excludes: u8,
}

pub const SHARED: Access = Access { conflicts: EXCLUSIVE, counts: 1, mark: 1, excludes: 0b1100 };
pub const ALONE: Access = Access { conflicts: USERS, counts: EXCLUSIVE, mark: 2, excludes: 0b1110 };
/// Never counted in the word.
pub const FREEING: Access = Access { mark: 3, ..ALONE };

/// In place of a token: the slot is part of no thread's home.
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

// Two slots share no cache line, and no pair of lines that is fetched together.
#[repr(align(128))]
pub struct Slot<T> {
    word: AtomicU64,
    /// The home that the slot is part of; see [`home`](super::home).
    pub home: AtomicU64,
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
    /// thread's, or nobody's. Returns the generation.
    ///
    /// # Safety
    ///
    /// * The slot is vacant, and no other thread has its index.
    #[inline(always)]
    pub unsafe fn fill(&self, object: ManuallyDrop<T>, notes: [usize; 2], home: u64) -> u32 {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word as u32, 0, "the slot is not vacant");
        let object = ManuallyDrop::into_inner(object);
        // SAFETY: the slot is vacant and no other thread fills it, by the precondition.
        self.object.with_mut(|place| unsafe { (*place).write(object) });
        self.home.store(home, Ordering::Relaxed);
        for (place, note) in self.notes.iter().zip(notes) {
            // Release: a thread that sees the new note sees that the last generation is over.
            place.store(note, Ordering::Release);
        }
        self.word.store(word | LIVE, Ordering::Release);
        (word >> 32) as u32
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

    /// Whether the slot is live in that generation, and the word counts no call.
    #[inline(always)]
    pub fn is_idle(&self, generation: u32) -> bool {
        self.word.load(Ordering::Acquire) == live(generation)
    }

    /// The numbers that came with the object.
    #[inline(always)]
    pub fn notes(&self, generation: u32) -> Option<[usize; 2]> {
        let notes = self.some_notes();
        if self.is_live(generation) { Some(notes) } else { None }
    }

    /// As [`notes`](Self::notes), of whatever generation there is.
    #[inline(always)]
    pub fn some_notes(&self) -> [usize; 2] {
        let [first, second] = &self.notes;
        [first.load(Ordering::Acquire), second.load(Ordering::Acquire)]
    }

    /// Counts a call, until it [leaves](Self::leave).
    #[inline(always)]
    pub fn enter(&self, generation: u32, access: Access) -> Result<(), Miss> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if !is_live(word, generation) {
                return Err(Miss::Invalid);
            }
            if word & access.conflicts != 0 {
                return Err(Miss::Busy);
            }
            let (set, fail) = (Ordering::Acquire, Ordering::Relaxed);
            match self.word.compare_exchange_weak(word, word + access.counts, set, fail) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Counts the call no more. True if the slot has been [freed](Self::freed): then the caller
    /// must try to take the object.
    #[inline]
    #[must_use]
    pub fn leave(&self, access: Access) -> bool {
        self.word.fetch_sub(access.counts, Ordering::AcqRel) & FREED != 0
    }

    /// Ends the life of the generation. Of several threads one succeeds. When no call is inside,
    /// [`take`](Self::take) gets the object.
    #[inline]
    pub fn free(&self, generation: u32) -> Result<(), Miss> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if !is_live(word, generation) {
                return Err(Miss::Invalid);
            }
            let freed = word & !LIVE | FREED;
            let (set, fail) = (Ordering::AcqRel, Ordering::Relaxed);
            match self.word.compare_exchange_weak(word, freed, set, fail) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// What [`take`](Self::take) needs, if the slot has been freed and the word counts no user.
    #[inline]
    pub fn freed(&self) -> Option<Freed> {
        let word = self.word.load(Ordering::Acquire);
        (word & FREED != 0 && word & USERS == 0).then_some(Freed(word))
    }

    /// Takes the object of a slot that has been freed. False if another thread has taken it.
    ///
    /// # Safety
    ///
    /// * After [`freed`](Self::freed), no call was inside that the word does not count.
    pub unsafe fn take(&self, freed: Freed) -> bool {
        self.take_from(freed.0)
    }

    /// [`free`](Self::free) and [`take`](Self::take) in one step, if no call is inside.
    ///
    /// # Safety
    ///
    /// * No call is inside, or gets in meanwhile, that the word does not count.
    #[inline]
    pub unsafe fn free_idle(&self, generation: u32) -> bool {
        self.take_from(live(generation))
    }

    /// As [`free_idle`](Self::free_idle), without asking.
    ///
    /// # Safety
    ///
    /// * The slot is live in that generation, no call is inside, and none gets in, or frees it,
    ///   meanwhile.
    #[inline(always)]
    pub unsafe fn take_at_home(&self, generation: u32) {
        self.word.store(u64::from(generation) << 32, Ordering::Release);
    }

    /// Frees the slot and takes its object, for the call that has it alone and leaves here.
    ///
    /// # Safety
    ///
    /// * The calling thread has the object alone.
    pub unsafe fn take_alone(&self) {
        let word = self.word.load(Ordering::Relaxed);
        // No other call gets in, but one may free the slot.
        if !self.take_from(word) && !self.take_from(word & !LIVE | FREED) {
            unreachable!("no other thread changes the word");
        }
    }

    #[inline]
    fn take_from(&self, word: u64) -> bool {
        let taken = word & !(LIVE | FREED | USERS);
        let (set, fail) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word.compare_exchange(word, taken, set, fail).is_ok()
    }

    /// Drops the object and makes the slot vacant. False if its generations are used up: then it
    /// must not be filled again.
    ///
    /// # Safety
    ///
    /// * The caller has taken the object.
    #[inline(always)]
    pub unsafe fn vacate(&self, generations: u32) -> bool {
        // SAFETY: the object is there until the slot is vacant, and it is the caller's alone: all
        // calls have left, which the caller has acquired, and no other thread can take it. In
        // place: to move it out would have to wait until it has arrived in the cache.
        self.object.with_mut(|place| unsafe { (*place).assume_init_drop() });
        self.next_generation(generations)
    }

    /// As [`vacate`](Self::vacate), but gives the object too.
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

    /// Gives `f` the object's address.
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

/// The word of a slot that is live and counts no call.
#[inline(always)]
fn live(generation: u32) -> u64 {
    u64::from(generation) << 32 | LIVE
}

#[inline(always)]
fn is_live(word: u64, generation: u32) -> bool {
    word & !(LIVE - 1) == live(generation)
}
