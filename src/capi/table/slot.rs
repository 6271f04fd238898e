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
//! * The object is there while the slot is live or freed. A thread moves it out only after it made
//!   the word `taken` by a compare-and-swap, from `freed` or from `live`, with no users. One thread
//!   can.
//! * A call gets in only while the slot is live in the generation that the handle names.
//! * A call that the word does not count is protected by a record (see [`inside`](super::inside)).
//! * A slot's generation grows each time it is vacated. Slots never move.

use std::mem::MaybeUninit;

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::cell::UnsafeCell;

const LIVE: u64 = 1 << 31;
const FREED: u64 = 1 << 30;
const EXCLUSIVE: u64 = 1 << 29;
/// Shared users and an exclusive one.
const USERS: u64 = (EXCLUSIVE - 1) | EXCLUSIVE;

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
            notes: [AtomicUsize::new(0), AtomicUsize::new(0)],
            object: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Puts an object in, and numbers that [`notes`](Self::notes) returns. Returns the generation.
    ///
    /// # Safety
    ///
    /// * The slot is vacant, and no other thread has its index.
    #[inline(always)]
    pub unsafe fn fill(&self, object: T, notes: [usize; 2]) -> u32 {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word as u32, 0, "the slot is not vacant");
        // SAFETY: the slot is vacant and no other thread fills it, by the precondition.
        self.object.with_mut(|place| unsafe { (*place).write(object) });
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

    /// The numbers that came with the object.
    #[inline]
    pub fn notes(&self, generation: u32) -> Option<[usize; 2]> {
        let before = self.is_live(generation);
        let [first, second] = &self.notes;
        let notes = [first.load(Ordering::Acquire), second.load(Ordering::Acquire)];
        (before && self.is_live(generation)).then_some(notes)
    }

    /// Lets the caller share the object until it [leaves](Self::leave).
    #[inline]
    pub fn enter(&self, generation: u32) -> Result<(), Miss> {
        self.admit(generation, EXCLUSIVE, 1)
    }

    /// Lets the caller have the object alone until it [leaves](Self::leave_exclusive).
    #[inline]
    pub fn enter_exclusive(&self, generation: u32) -> Result<(), Miss> {
        self.admit(generation, USERS, EXCLUSIVE)
    }

    #[inline]
    fn admit(&self, generation: u32, conflicts: u64, add: u64) -> Result<(), Miss> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if !is_live(word, generation) {
                return Err(Miss::Invalid);
            }
            if word & conflicts != 0 {
                return Err(Miss::Busy);
            }
            let (set, fail) = (Ordering::Acquire, Ordering::Relaxed);
            match self.word.compare_exchange_weak(word, word + add, set, fail) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Ends a shared use. True if the slot has been [freed](Self::freed): then the caller must try
    /// to take the object.
    #[inline]
    #[must_use]
    pub fn leave(&self) -> bool {
        self.word.fetch_sub(1, Ordering::AcqRel) & FREED != 0
    }

    /// Ends an exclusive use, as [`leave`](Self::leave).
    #[inline]
    #[must_use]
    pub fn leave_exclusive(&self) -> bool {
        self.word.fetch_sub(EXCLUSIVE, Ordering::AcqRel) & FREED != 0
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

    /// The object of a slot that has been freed, unless another thread has taken it.
    ///
    /// # Safety
    ///
    /// * After [`freed`](Self::freed), the records were read, and none protects the slot.
    pub unsafe fn take(&self, freed: Freed) -> Option<T> {
        self.take_from(freed.0)
    }

    /// [`free`](Self::free) and [`take`](Self::take) in one step, if no call is inside.
    ///
    /// # Safety
    ///
    /// * No record ever protects a slot of this table.
    #[inline]
    pub unsafe fn free_idle(&self, generation: u32) -> Option<T> {
        let word = u64::from(generation) << 32 | LIVE;
        self.take_from(word)
    }

    /// Frees the slot and takes the object, for the call that has it alone.
    ///
    /// # Safety
    ///
    /// * The call entered by [`enter_exclusive`](Self::enter_exclusive), and leaves here.
    /// * No record ever protects a slot of this table.
    pub unsafe fn take_exclusive(&self) -> T {
        let word = self.word.load(Ordering::Relaxed);
        // No other call gets in, but one may free the slot.
        match self.take_from(word).or_else(|| self.take_from(word & !LIVE | FREED)) {
            Some(object) => object,
            None => unreachable!("no other thread changes the word"),
        }
    }

    #[inline]
    fn take_from(&self, word: u64) -> Option<T> {
        let taken = word & !(LIVE | FREED | USERS);
        let (set, fail) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word.compare_exchange(word, taken, set, fail).ok()?;
        // SAFETY: the object is there until the word says taken, and only this thread made it say
        // that. All calls have left; the exchange acquires what they did.
        Some(self.object.with_mut(|place| unsafe { (*place).assume_init_read() }))
    }

    /// Makes a slot vacant whose object was taken. False if its generations are used up: then it
    /// must not be filled again.
    ///
    /// # Safety
    ///
    /// * The caller has taken the object.
    pub unsafe fn vacate(&self, generations: u32) -> bool {
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

#[inline]
fn is_live(word: u64, generation: u32) -> bool {
    word >> 32 == u64::from(generation) && word & LIVE != 0
}
