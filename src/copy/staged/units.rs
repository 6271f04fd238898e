//! How several threads share one copy: which thread opens the next slot, takes a unit, or finishes
//! a slot.
//!
//! ```text
//!   opener     | open 0 |          | open 1 |            ...one at a time
//!   worker 1            | unit 0,0 | unit 0,3 | unit 1,0 | unit 1,2 |
//!   worker 2            | unit 0,1 | unit 0,2  F| unit 1,1   |        F: finishes slot 0
//! ```
//!
//! # Invariants
//!
//! * At most one thread opens at a time, and the others wait for it. It waits only for the device
//!   and other transfers.
//! * Each unit is given to one thread. The thread that ends the last unit of a slot finishes the
//!   slot, alone.
//! * After the first error, or panic, no more units are given out. Those given out are completed,
//!   and their slots given up. A panic continues only after all threads have left: a thread that
//!   left early would be waited for.
//! * A thread's stores are fenced before its unit counts as done, also after an error.
//! * Taking a unit needs no lock: eight threads that queue for a lock copy nothing.
//! * When [`run`] returns, no thread is in the transfer, and every slot has been finished or given
//!   up.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::ring::Slot;
use super::team::{Helpers, pause};
use super::{simd, team};
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// A transfer as a series of portions, one for each time that a slot is filled.
pub(super) trait Portions<'r>: Sync {
    /// The next slot, laid out and ready for its units; `None` when there are no more. Called by
    /// one thread at a time, which has the slot alone.
    fn open(&self) -> Result<Option<&'r Slot>>;

    /// The slot with this number.
    fn slot(&self, index: usize) -> &'r Slot;

    /// Moves the bytes of one unit.
    fn unit(&self, slot: &'r Slot, unit: usize) -> Result<()>;

    /// Called when all units are done; the caller has the slot alone.
    fn finish(&self, slot: &'r Slot) -> Result<()>;

    /// Gives up a slot after an error; the caller has it alone.
    fn abandon(&self, slot: &'r Slot);
}

/// The state of the open slot in one word, so that one compare-and-exchange takes a unit.
///
/// The same word may come again in a later round of the same slot. That is harmless: the thread
/// that exchanges it takes a unit of the current round.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    /// No units, and no thread opens.
    const IDLE: Word = Word(0);
    const OPENING: Word = Word(1);
    const ENDED: Word = Word(2);

    fn units(slot: &Slot, left: usize) -> Word {
        Word((slot.index() as u64) << 32 | (left as u64) << 2)
    }

    fn slot(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn left(self) -> usize {
        (self.0 as u32 >> 2) as usize
    }

    fn one_less(self) -> Word {
        Word(self.0 - (1 << 2))
    }
}

/// Gives out the units of a transfer.
struct Units<'p, P> {
    portions: &'p P,
    word: AtomicU64,
    failed: AtomicBool,
    /// The first failure.
    failure: Mutex<Option<Failure>>,
}

enum Failure {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

fn guarded<R>(step: impl FnOnce() -> Result<R>) -> std::result::Result<R, Failure> {
    match catch_unwind(AssertUnwindSafe(step)) {
        Ok(result) => result.map_err(Failure::Error),
        Err(panic) => Err(Failure::Panic(panic)),
    }
}

/// Processes all portions, on this thread and on up to `helpers` others. This thread calls
/// `after_unit` after each unit.
pub(super) fn run<'r>(
    portions: &impl Portions<'r>,
    helpers: Helpers,
    after_unit: &mut dyn FnMut(),
) -> Result<()> {
    let units = Units {
        portions,
        word: AtomicU64::new(Word::IDLE.0),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    team::run(helpers, &|| units.take_part(&mut || {}), &mut || units.take_part(after_unit));
    let failure = units.failure.lock().take();
    match failure {
        None => Ok(()),
        Some(Failure::Error(error)) => Err(error),
        Some(Failure::Panic(panic)) => resume_unwind(panic),
    }
}

impl<'r, P: Portions<'r>> Units<'_, P> {
    fn exchange(&self, old: Word, new: Word) -> bool {
        self.word.compare_exchange_weak(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn take_part(&self, after_unit: &mut dyn FnMut()) {
        let mut waits = 0u32;
        loop {
            let word = Word(self.word.load(Ordering::Acquire));
            if word == Word::ENDED {
                return;
            }
            if word == Word::OPENING {
                pause(&mut waits);
                continue;
            }
            waits = 0;
            if word.left() == 0 {
                if self.exchange(word, Word::OPENING) {
                    self.open();
                }
            } else if self.exchange(word, word.one_less()) {
                self.unit(self.portions.slot(word.slot()), word.left());
                after_unit();
            }
        }
    }

    fn open(&self) {
        match guarded(|| self.portions.open()) {
            Ok(Some(slot)) => {
                // SAFETY: just opened, so that this thread has it alone.
                let units = unsafe { slot.layout() }.units();
                slot.publish(units);
                let word = Word::units(slot, units);
                let (set, fail) = (Ordering::AcqRel, Ordering::Relaxed);
                if self.word.compare_exchange(Word::OPENING.0, word.0, set, fail).is_err() {
                    // Another thread has failed.
                    self.portions.abandon(slot);
                }
            }
            Ok(None) => self.word.store(Word::ENDED.0, Ordering::Release),
            Err(failure) => self.fail(failure),
        }
    }

    /// Does one unit. `left` units, including this one, had not been given out before.
    fn unit(&self, slot: &'r Slot, left: usize) {
        // SAFETY: a unit was given out, so that this thread is a worker of the slot.
        let units = unsafe { slot.layout() }.units();
        if let Err(failure) = guarded(|| self.portions.unit(slot, units - left)) {
            self.fail(failure);
        }
        // After all writes, also after an error: the slot will have another owner.
        simd::fence();
        if slot.unit_done() {
            self.finish(slot);
        }
    }

    fn finish(&self, slot: &'r Slot) {
        if self.failed.load(Ordering::Acquire) {
            self.portions.abandon(slot);
        } else if let Err(failure) = guarded(|| self.portions.finish(slot)) {
            self.fail(failure);
        }
    }

    /// Ends the transfer; the first failure is the one that is reported.
    fn fail(&self, failure: Failure) {
        self.failed.store(true, Ordering::Release);
        self.failure.lock().get_or_insert(failure);
        let word = Word(self.word.swap(Word::ENDED.0, Ordering::AcqRel));
        // The units that were not given out will not be done.
        if word.left() > 0 {
            let slot = self.portions.slot(word.slot());
            let last = (0..word.left()).fold(false, |last, _| slot.unit_done() || last);
            if last {
                self.portions.abandon(slot);
            }
        }
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests;
