//! The slots between workers and consumer: which worker may pull, what is ready, which threads
//! sleep.
//!
//! ```text
//!            head                 next
//!              |                    |
//!   ... taken [3: ready][4: -][5: ready] [6: not pulled yet]      depth 3: no worker may
//! ```
//!
//! A batch has the number of its pull. Ordered, the outcome of number `n` goes into slot `n %
//! depth`; otherwise into the slot after the one filled last. In both cases the consumer takes the
//! slots in turns.
//!
//! # Invariants
//!
//! * `head <= next <= head + depth`, so that no two batches share a slot.
//! * `pulling` is set while a worker has the producer. After `ended`, no worker pulls again.
//! * The lock is held for a few instructions; outcomes that leave a slot are dropped, and wakers
//!   called, without it.

use std::any::Any;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::copy::Copied;
use crate::error::Error;
use crate::process::call_user;
use crate::sync::{CachePadded, Condvar, Mutex, MutexGuard};
use crate::ticket::Ticket;
use crate::wakers;

/// The call that makes a pipeline, for errors.
pub(super) const START: &str = "Prefetch::start";

/// How long an idle worker spins before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

/// The outcome of a batch. Not boxed, because a running pipeline does not allocate.
#[expect(clippy::large_enum_variant)]
pub(super) enum Outcome {
    Batch(Copied),
    Failed(Error),
    Panicked(Box<dyn Any + Send>),
}

/// What the consumer finds in the slot of the next batch.
pub(super) enum Head {
    /// The copy to wait for; `None` for a failure.
    Ready(Option<Ticket>),
    Pending,
    End,
}

pub(crate) struct Core {
    ordered: bool,
    state: Mutex<Window>,
    /// Signalled when there may be a batch to pull.
    room: Condvar,
    /// Counts, under the lock, how often `room` was signalled. Read by workers that spin.
    changes: CachePadded<AtomicU64>,
    /// Signalled when there may be an outcome to take.
    ready: Condvar,
}

#[derive(Default)]
struct Window {
    slots: Box<[Option<Outcome>]>,
    /// The number of the next batch to take.
    head: u64,
    /// The number of the next batch to pull.
    next: u64,
    /// How many have been delivered.
    delivered: u64,
    pulling: bool,
    ended: bool,
    stopped: bool,
    waker: Option<Waker>,
    /// How many idle workers spin.
    spinning: usize,
    /// How many idle workers sleep.
    asleep: usize,
}

impl Window {
    fn at(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }

    fn head(&self) -> Head {
        match &self.slots[self.at(self.head)] {
            Some(Outcome::Batch(batch)) => Head::Ready(Some(batch.ticket.clone())),
            Some(_) => Head::Ready(None),
            None if self.stopped || (self.ended && self.head == self.next) => Head::End,
            None => Head::Pending,
        }
    }
}

/// Asks the driver whether a copy is complete. If it is, the consumer need not make its stream wait
/// later, which would be the most expensive part of its call.
fn look(head: Head) {
    if let Head::Ready(Some(ticket)) = head {
        // Ignores errors: the consumer queries again.
        let _ = ticket.is_done();
    }
}

impl Core {
    pub(super) fn new(depth: usize, ordered: bool) -> Self {
        let slots = (0..depth).map(|_| None).collect();
        Core {
            ordered,
            state: Mutex::new(Window { slots, ..Window::default() }),
            room: Condvar::new(),
            changes: CachePadded(AtomicU64::new(0)),
            ready: Condvar::new(),
        }
    }

    /// For a worker: blocks until it may have the producer. `false`: no more batches will be
    /// pulled.
    pub(super) fn claim(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.ended || state.stopped {
                return false;
            }
            if !state.pulling && state.next < state.head + state.slots.len() as u64 {
                state.pulling = true;
                return true;
            }
            let seen = self.changes.load(Ordering::Relaxed);
            state.spinning += 1;
            let head = state.head();
            drop(state);
            look(head);
            self.spin_while(seen);
            state = self.state.lock();
            state.spinning -= 1;
            if self.changes.load(Ordering::Relaxed) == seen {
                state.asleep += 1;
                state = self.room.wait(state);
                state.asleep -= 1;
            }
        }
    }

    /// Spins until something changes, or for [`SPIN`]. A consumer that comes soon then does not
    /// have to wake this worker, which would be the most expensive part of [`take`](Self::take).
    fn spin_while(&self, seen: u64) {
        let start = Instant::now();
        while start.elapsed() < SPIN {
            for _ in 0..64 {
                if self.changes.load(Ordering::Relaxed) != seen {
                    return;
                }
                spin_loop();
            }
        }
    }

    /// Wakes one worker, or all, because there may be a batch to pull. A worker that spins needs no
    /// wake-up, and wakes the next one after its pull.
    fn wake_workers(&self, state: MutexGuard<'_, Window>, all: bool) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        let Window { spinning, asleep, .. } = *state;
        drop(state);
        if asleep > 0 && all {
            self.room.notify_all();
        } else if asleep > 0 && spinning == 0 {
            self.room.notify_one();
        }
    }

    /// Gives a pulled batch its number. The worker has released the producer.
    pub(super) fn pulled(&self, is_last: bool) -> u64 {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.pulling = false;
        state.ended |= is_last;
        self.wake_workers(state, is_last);
        number
    }

    /// Drops the number of the last pulled batch, which is not delivered.
    pub(super) fn withdraw(&self) {
        let mut state = self.state.lock();
        state.next -= 1;
        self.wake_consumer(state);
    }

    /// Ends the pulling.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.pulling = false;
        self.wake_consumer(state);
        self.wake_workers(self.state.lock(), true);
    }

    /// Puts the outcome of a batch into its slot.
    pub(super) fn deliver(&self, number: u64, outcome: Outcome) {
        let mut state = self.state.lock();
        if state.stopped {
            drop(state);
            return call_user(move || drop(outcome));
        }
        let place = if self.ordered { number } else { state.delivered };
        state.delivered += 1;
        let at = state.at(place);
        state.slots[at] = Some(outcome);
        self.wake_consumer(state);
    }

    fn wake_consumer(&self, mut state: MutexGuard<'_, Window>) {
        let waker = state.waker.take();
        drop(state);
        self.ready.notify_one();
        if let Some(waker) = waker {
            wakers::wake(waker);
        }
    }

    /// For the consumer: blocks until an outcome is ready, or the end, or until `deadline`.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Head {
        let mut state = self.state.lock();
        loop {
            match state.head() {
                Head::Pending => {}
                head => return head,
            }
            state = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                None => self.ready.wait(state),
                Some(Duration::ZERO) => return Head::Pending,
                Some(left) => self.ready.wait_timeout(state, left),
            };
        }
    }

    /// For the consumer: as [`wait`](Self::wait), but if nothing is ready, arranges to call the
    /// waker when it is.
    pub(super) fn poll(&self, waker: &Waker) -> Head {
        // A waker runs the executor's code, so it is cloned and dropped without the lock.
        let waker = waker.clone();
        let mut state = self.state.lock();
        let head = state.head();
        let unused = match head {
            Head::Pending => state.waker.replace(waker),
            _ => Some(waker),
        };
        drop(state);
        call_user(|| drop(unused));
        head
    }

    /// For the consumer: takes the ready outcome.
    pub(super) fn take(&self) -> Option<Outcome> {
        let mut state = self.state.lock();
        let at = state.at(state.head);
        let outcome = state.slots[at].take();
        state.head += u64::from(outcome.is_some());
        self.wake_workers(state, false);
        outcome
    }

    /// The consumer has gone: ends the workers, drops ready outcomes, and ends a wait of the
    /// consumer.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        let slots = std::mem::take(&mut state.slots);
        let waker = state.waker.take();
        // Workers may access slots until the last of them has seen the end.
        state.slots = Box::new([None]);
        self.wake_workers(state, true);
        self.ready.notify_one();
        // One by one, so that a panic in one drop does not happen during another.
        slots.into_iter().for_each(|slot| call_user(|| drop(slot)));
        waker.into_iter().for_each(wakers::wake);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}
