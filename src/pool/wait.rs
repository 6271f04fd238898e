//! Requests that wait for memory, in the order in which they came.
//!
//! A [`Request`] is in the pool's queue until it is served or withdrawn, both under the pool's
//! lock; its [`Slot`] then carries the outcome to whoever waits, a thread or a task. Wakers are
//! user code: they are handed to the [helpers](crate::wakers), with nothing locked.
//!
//! A thread that waits is there. A task may be forgotten: when the first turn of its request comes
//! it is *called*, that is woken, and it has turns only while it answers by polling. A request that
//! lets [`PATIENCE`] others be served without an answer is *absent*: it is passed over until it
//! polls.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use super::classes::Size;
use super::core::{Core, State};
use super::trace;
use crate::error::Result;
use crate::memory::block::BlockRef;
use crate::process::call_user;
use crate::sync::{Condvar, Mutex};
use crate::wakers;

/// How many others are served while a task does not answer, before it is passed over.
const PATIENCE: u64 = 64;

/// Who waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A thread, in the call.
    Thread,
    Task {
        /// When it last answered; at first, when it came.
        answered: Instant,
        /// It has been called since: how many requests had been served by then.
        called: Option<u64>,
    },
}

impl Waiter {
    pub(super) fn task() -> Self {
        Waiter::Task { answered: Instant::now(), called: None }
    }
}

/// A turn of a request to be the only one served.
struct Turn {
    began: Instant,
    left: Duration,
}

/// One request in the queue.
pub(super) struct Request {
    /// The call, for messages.
    pub(super) operation: &'static str,
    pub(super) size: Size,
    /// Ends with an error when only buffers that are alive stand in the way, instead of waiting for
    /// somebody to drop them.
    pub(super) gives_up: bool,
    pub(super) waiter: Waiter,
    pub(super) since: Instant,
    /// New memory was not to be had at once.
    pub(super) waited: bool,
    pub(super) slot: Arc<Slot>,
}

impl Request {
    /// While it is this request's turn to be the only one served, if it is the first in the queue:
    /// how much longer. A task must have answered in this turn.
    pub(super) fn alone_for(&self) -> Option<Duration> {
        let turn = self.turn()?;
        let there = match self.waiter {
            Waiter::Thread => true,
            Waiter::Task { answered, .. } => answered >= turn.began,
        };
        there.then_some(turn.left)
    }

    /// It waits for room, which comes only if nobody takes the blocks that are freed; but others
    /// must go on too, for whoever holds a block may need another to be done with it. So turns
    /// alternate, and double: one of 10 ms for all, one for the request, 20 ms for all, 40 ms for
    /// the request, and so on, up to 1.28 s, and from the beginning.
    fn turn(&self) -> Option<Turn> {
        const TURN: Duration = Duration::from_millis(10);
        const CYCLE: u128 = 256;
        if !self.waited {
            return None;
        }
        let elapsed = self.since.elapsed();
        let turns = elapsed.as_nanos() / TURN.as_nanos() % CYCLE;
        let doublings = turns.checked_ilog2().filter(|doublings| doublings % 2 == 0)?;
        let begin = TURN.as_nanos() << doublings;
        let now = elapsed.as_nanos() % (TURN.as_nanos() * CYCLE);
        let passed = Duration::from_nanos((now - begin) as u64);
        let left = Duration::from_nanos((2 * begin - now) as u64);
        Some(Turn { began: self.since + elapsed - passed, left })
    }

    /// Whether a task is to be called, `served` requests having been served. It is then called
    /// once.
    pub(super) fn is_due(&mut self, served: u64) -> bool {
        let turn = self.turn();
        match &mut self.waiter {
            Waiter::Task { answered, called: called @ None } => {
                let due = turn.is_some_and(|turn| *answered < turn.began);
                *called = due.then_some(served);
                due
            }
            _ => false,
        }
    }

    /// Whether a task does not answer, `served` requests having been served.
    pub(super) fn is_absent(&self, served: u64) -> bool {
        matches!(self.waiter, Waiter::Task { called: Some(at), .. } if served - at >= PATIENCE)
    }

    /// The task has been called, and has polled.
    pub(super) fn answer(&mut self) {
        self.waiter = Waiter::task();
    }

    /// The request's end.
    pub(super) fn end(self, result: Result<BlockRef>) -> Delivery {
        let waited = self.waited.then(|| self.since.elapsed());
        Delivery { slot: self.slot, bytes: self.size.bytes, waited, result }
    }
}

/// The queue.
impl State {
    /// The requests that are not absent, with their places in the queue.
    pub(super) fn present(&self) -> impl Iterator<Item = (usize, &Request)> {
        let requests = self.queue.iter().enumerate();
        requests.filter(|(_, request)| !request.is_absent(self.served))
    }

    /// The place of the first request that is not absent.
    pub(super) fn first(&self) -> Option<usize> {
        self.present().map(|(index, _)| index).next()
    }

    /// Whether free blocks are for the first request only.
    pub(super) fn first_is_alone(&self) -> bool {
        self.first().is_some_and(|first| self.queue[first].alone_for().is_some())
    }

    /// Has the task of the first request called, if that is due.
    pub(super) fn call_first(&mut self) {
        if let Some(first) = self.first()
            && self.queue[first].is_due(self.served)
        {
            self.due.push(self.queue[first].slot.clone());
        }
    }

    /// Finds the requests that free blocks fit, first come, first served.
    pub(super) fn match_requests(&mut self) {
        let mut index = 0;
        while let Some(first) = self.first() {
            index = index.max(first);
            let Some(request) = self.queue.get(index) else { return };
            if index > first && self.queue[first].alone_for().is_some() {
                return;
            }
            let block = match request.is_absent(self.served) {
                true => None,
                false => self.store.take(request.size),
            };
            let Some(block) = block else {
                index += 1;
                continue;
            };
            let request = self.queue.remove(index).expect("the index is in range");
            self.served += 1;
            self.counts.served(&request);
            self.ready.push(request.end(Ok(block)));
        }
    }

    /// Takes a request out of the queue, if it is there.
    pub(super) fn remove(&mut self, slot: &Arc<Slot>) -> Option<Request> {
        let position = self.queue.iter().position(|request| Arc::ptr_eq(&request.slot, slot))?;
        self.queue.remove(position)
    }
}

/// An outcome on its way.
pub(super) struct Delivery {
    slot: Arc<Slot>,
    /// Of the block.
    bytes: usize,
    waited: Option<Duration>,
    result: Result<BlockRef>,
}

impl Delivery {
    /// Hands the outcome over. Call it without the pool's lock.
    pub(super) fn make(self) {
        match (&self.result, self.waited) {
            (Ok(_), Some(time)) => trace::waited(self.bytes, time),
            (Ok(_), None) => {}
            (Err(error), _) => trace::failed(self.bytes, error),
        }
        self.slot.fill(self.result);
    }
}

/// Where the outcome of a request appears.
#[derive(Default)]
pub(super) struct Slot {
    outcome: Mutex<Outcome>,
    there: Condvar,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<BlockRef>>,
    waker: Option<Waker>,
    /// The task is to poll, or it will be passed over.
    called: bool,
    /// Nobody waits any more.
    abandoned: bool,
}

impl Slot {
    fn fill(&self, result: Result<BlockRef>) {
        let mut outcome = self.outcome.lock();
        if outcome.abandoned {
            drop(outcome);
            give_back(Some(result));
            return;
        }
        outcome.result = Some(result);
        self.there.notify_all();
        let waker = outcome.waker.take();
        drop(outcome);
        if let Some(waker) = waker {
            wakers::wake(waker);
        }
    }

    /// Wakes the task, which is to answer by polling. Call it without the pool's lock.
    pub(super) fn call(&self) {
        let mut outcome = self.outcome.lock();
        outcome.called = true;
        let waker = outcome.waker.take();
        drop(outcome);
        if let Some(waker) = waker {
            wakers::wake(waker);
        }
    }

    /// Nobody waits any more: a block that comes, or has come, goes back to the pool.
    fn abandon(&self) {
        let mut outcome = self.outcome.lock();
        outcome.abandoned = true;
        let (result, waker) = (outcome.result.take(), outcome.waker.take());
        drop(outcome);
        give_back(result);
        call_user(|| drop(waker));
    }

    /// Blocks until the outcome is there, or until `deadline`.
    fn wait(&self, deadline: Option<Instant>) -> Option<Result<BlockRef>> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(result) = outcome.result.take() {
                return Some(result);
            }
            outcome = match deadline {
                None => self.there.wait(outcome),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    self.there.wait_timeout(outcome, left)
                }
            };
        }
    }

    /// The outcome, or a note to wake `task` when it is there. Whether the task had been called,
    /// too.
    fn poll(&self, task: &mut TaskContext<'_>) -> (Poll<Result<BlockRef>>, bool) {
        // Cloning a waker and dropping one is user code.
        let new = task.waker().clone();
        let mut outcome = self.outcome.lock();
        if let Some(result) = outcome.result.take() {
            drop(outcome);
            return (Poll::Ready(result), false);
        }
        let old = outcome.waker.replace(new);
        let called = std::mem::take(&mut outcome.called);
        drop(outcome);
        call_user(|| drop(old));
        (Poll::Pending, called)
    }
}

/// A request whose outcome somebody waits for; withdrawn when dropped.
pub(super) struct Waiting {
    pub(super) core: Arc<Core>,
    pub(super) slot: Arc<Slot>,
}

impl Waiting {
    /// Blocks until the outcome is there; `None` if it is not by `deadline`.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Option<Result<BlockRef>> {
        // Once out of the queue it is served, and the outcome is at most a moment away.
        self.slot
            .wait(deadline)
            .or_else(|| if self.core.withdraw(&self.slot) { None } else { self.slot.wait(None) })
    }
}

impl Future for Waiting {
    type Output = Result<BlockRef>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        // Nobody works for the request in a forked child, where locks may be held for ever.
        self.core.context.check_process("PinnedPool::alloc_async")?;
        let (outcome, called) = self.slot.poll(task);
        if called {
            self.core.answer(&self.slot)?;
        }
        outcome
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that exists in the parent only.
        if !self.core.context.is_current() {
            return;
        }
        // If it is not in the queue any more it has been served, or will be in a moment.
        self.core.withdraw(&self.slot);
        self.slot.abandon();
    }
}

fn give_back(result: Option<Result<BlockRef>>) {
    if let Some(Ok(block)) = result {
        drop(block.give_back());
    }
}
