//! How several threads share one copy: who opens the next slot, who takes which unit, who finishes a slot.
//!
//! ```text
//!   opener     | open 0 |          | open 1 |            ...one at a time
//!   worker 1            | unit 0,0 | unit 0,3 | unit 1,0 | unit 1,2 |
//!   worker 2            | unit 0,1 | unit 0,2  F| unit 1,1   |        F: finishes slot 0
//! ```
//!
//! # Invariants
//!
//! * At most one thread opens at a time; the others wait for it, which waits for nobody but the device and
//!   other jobs.
//! * Each unit is given to one thread. Whoever ends the last unit of a slot finishes it, alone.
//! * After the first error no unit is given out; those given out are ended, and their slots given up.
//! * When [`run`] returns, no thread is in the job, and every slot has been finished or given up.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ring::Slot;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::transfer::team;

/// One direction of a copy through slots.
pub(super) trait Work<'r>: Sync {
    /// The next slot, laid out and ready for its units; `None` when there are no more. Called by one
    /// thread at a time, which has the slot alone.
    fn open(&self) -> Result<Option<&'r Slot>>;

    /// Moves the bytes of one unit.
    fn unit(&self, slot: &'r Slot, unit: usize) -> Result<()>;

    /// All units are done; the caller has the slot alone.
    fn finish(&self, slot: &'r Slot) -> Result<()>;

    /// Gives up a slot after an error; the caller has it alone.
    fn abandon(&self, slot: &'r Slot);
}

/// What is to be done next.
enum Claim<'r> {
    Unit(&'r Slot, usize),
    Open,
    /// Somebody is opening.
    Wait(usize),
    End,
}

struct State<'r> {
    /// The slot whose units are given out: the next one, and how many there are.
    current: Option<(&'r Slot, usize, usize)>,
    opening: bool,
    ended: bool,
    error: Option<Error>,
}

struct Job<'w, 'r, W> {
    work: &'w W,
    state: Mutex<State<'r>>,
    /// Counts what those who wait for the opener wait for.
    opened: AtomicUsize,
}

/// Does all of `work`, on this thread and on up to `helpers` others.
pub(super) fn run<'r>(work: &impl Work<'r>, helpers: usize) -> Result<()> {
    let state = State { current: None, opening: false, ended: false, error: None };
    let job = Job { work, state: Mutex::new(state), opened: AtomicUsize::new(0) };
    team::run(helpers, &|| job.take_part());
    let mut state = job.state.lock();
    state.error.take().map_or(Ok(()), Err)
}

impl<'r, W: Work<'r>> Job<'_, 'r, W> {
    fn take_part(&self) {
        loop {
            match self.claim() {
                Claim::Unit(slot, unit) => self.unit(slot, unit),
                Claim::Open => self.open(),
                Claim::Wait(seen) => self.wait_for_opener(seen),
                Claim::End => return,
            }
        }
    }

    fn claim(&self) -> Claim<'r> {
        let mut state = self.state.lock();
        if let Some((slot, next, units)) = &mut state.current {
            let claim = Claim::Unit(slot, *next);
            *next += 1;
            if next == units {
                state.current = None;
            }
            return claim;
        }
        if state.ended {
            Claim::End
        } else if state.opening {
            Claim::Wait(self.opened.load(Ordering::Relaxed))
        } else {
            state.opening = true;
            Claim::Open
        }
    }

    fn open(&self) {
        let opened = self.work.open();
        let mut state = self.state.lock();
        state.opening = false;
        match opened {
            Ok(Some(slot)) => {
                // SAFETY: just opened, so that this thread has it alone.
                let units = unsafe { slot.layout() }.units();
                slot.publish(units);
                if state.ended {
                    // Another thread failed meanwhile.
                    drop(state);
                    self.work.abandon(slot);
                    state = self.state.lock();
                } else {
                    state.current = Some((slot, 0, units));
                }
            }
            Ok(None) => state.ended = true,
            Err(error) => end(&mut state, error),
        }
        self.opened.fetch_add(1, Ordering::Release);
        drop(state);
    }

    fn unit(&self, slot: &'r Slot, unit: usize) {
        if let Err(error) = self.work.unit(slot, unit) {
            self.fail(error);
        }
        if slot.unit_done() {
            self.finish(slot);
        }
    }

    fn finish(&self, slot: &'r Slot) {
        if self.state.lock().error.is_some() {
            return self.work.abandon(slot);
        }
        if let Err(error) = self.work.finish(slot) {
            self.fail(error);
        }
    }

    /// Notes an error. The units that nobody has are not done, and so count as done.
    fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        let current = state.current.take();
        end(&mut state, error);
        drop(state);
        let Some((slot, next, units)) = current else { return };
        let mut alone = false;
        for _ in next..units {
            alone |= slot.unit_done();
        }
        if alone {
            self.work.abandon(slot);
        }
    }

    fn wait_for_opener(&self, seen: usize) {
        let mut spins = 0u32;
        while self.opened.load(Ordering::Acquire) == seen {
            spins += 1;
            if spins < 20_000 {
                spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// The first error is the one that is reported.
fn end(state: &mut State<'_>, error: Error) {
    state.ended = true;
    state.error.get_or_insert(error);
}
