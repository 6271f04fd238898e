//! Requests that wait for memory, in the order in which they came.
//!
//! A [`Request`] is in the pool's [`Queue`] until it is served or withdrawn, both under the pool's
//! lock. Its [`Reply`] then carries the outcome to the thread or task that waits. Wakers are user
//! code: the [helpers](crate::wakers) call them, with nothing locked.
//!
//! # Fairness
//!
//! Free blocks, and room in the budget, go to the first request in the queue that they can serve.
//! From time to time they go to the first request only, so that smaller ones cannot overtake it
//! forever: see [`Request::alone_for`].
//!
//! A waiting thread always takes its block, but a task may be forgotten. So a task is *called*
//! (woken) when the first turn of its request comes, and has turns only while it answers by
//! polling. If [`ABSENT_AFTER`] other requests are served before it answers, its request is
//! *absent*: it is passed over until the task polls.
//!
//! # Cost
//!
//! Callers can make the queue as long as they like, and it is used under the pool's lock. So a
//! request has a number, by which it is found and removed at a logarithmic cost, and a search for
//! requests that free memory can serve looks at one request of each size.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::memory::block::BlockRef;
use crate::pool::classes::Size;
use crate::pool::trace;
use crate::process::call_user;
use crate::sync::{Condvar, Mutex};
use crate::wakers;

/// A task that does not answer is passed over after this many other requests were served.
const ABSENT_AFTER: u64 = 64;

/// The waiter of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A thread, in the call.
    Thread,
    Task {
        /// When it last answered. At first, when it arrived.
        answered: Instant,
        /// If it has been called since: how many requests had been served at that time.
        called: Option<u64>,
    },
}

impl Waiter {
    pub(crate) fn task() -> Self {
        Waiter::Task { answered: Instant::now(), called: None }
    }
}

/// A period in which one request is the only one served.
struct Turn {
    began: Instant,
    left: Duration,
}

/// One request in the queue.
pub(crate) struct Request {
    /// The call, for messages.
    pub(crate) operation: &'static str,
    pub(crate) size: Size,
    /// Ends with an error when only live buffers stand in its way, instead of waiting for a buffer
    /// to drop.
    pub(crate) gives_up: bool,
    pub(crate) waiter: Waiter,
    pub(crate) since: Instant,
    /// There was no room for new memory at first.
    pub(crate) waited: bool,
    pub(crate) reply: Arc<Reply>,
}

impl Request {
    /// How much longer this request, if it is the first in the queue, is the only one served;
    /// `None` if it is not its turn. A task must have answered in this turn.
    pub(crate) fn alone_for(&self) -> Option<Duration> {
        let turn = self.turn()?;
        let there = match self.waiter {
            Waiter::Thread => true,
            Waiter::Task { answered, .. } => answered >= turn.began,
        };
        there.then_some(turn.left)
    }

    /// The request waits for room, which appears only while no other request takes the freed
    /// blocks. But others must make progress too, because the holder of a block may need another
    /// one to finish. So turns alternate and double: 10 ms for all, 10 ms for the request, 20 ms
    /// for all, 40 ms for the request, and so on, up to 1.28 s; then from the beginning.
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

    /// Whether its task does not answer, now that `served` requests have been served.
    fn is_absent(&self, served: u64) -> bool {
        matches!(self.waiter, Waiter::Task { called: Some(at), .. } if served - at >= ABSENT_AFTER)
    }

    /// Ends the request.
    pub(crate) fn end(self, result: Result<BlockRef>) -> Delivery {
        let waited = self.waited.then(|| self.since.elapsed());
        Delivery { reply: self.reply, bytes: self.size.bytes, waited, result }
    }
}

/// The requests that wait.
#[derive(Default)]
pub(crate) struct Queue {
    /// By their numbers, which ascend in the order in which they came.
    requests: BTreeMap<u64, Request>,
    /// Those that are not absent.
    present: BTreeSet<u64>,
    /// The same, by size.
    by_size: BTreeMap<Size, BTreeSet<u64>>,
    giving_up: BTreeSet<u64>,
    /// How many requests of each size there are, absent ones included.
    sizes: BTreeMap<Size, usize>,
    /// Those that were called and have not answered. They are few: only the first present request
    /// is called.
    called: Vec<u64>,
    next: u64,
    /// How many requests the books have served.
    served: u64,
}

impl Queue {
    /// How many requests there are, absent ones included.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Enters a request; gives its number.
    pub(crate) fn push(&mut self, request: Request) -> u64 {
        let number = self.next;
        self.next += 1;
        if request.gives_up {
            self.giving_up.insert(number);
        }
        self.show(number, request.size);
        *self.sizes.entry(request.size).or_default() += 1;
        self.requests.insert(number, request);
        number
    }

    /// Takes a request out of the queue, if it is there.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Request> {
        let request = self.requests.remove(&number)?;
        self.hide(number, request.size);
        self.giving_up.remove(&number);
        self.called.retain(|&called| called != number);
        if let Entry::Occupied(mut count) = self.sizes.entry(request.size) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(request)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Request> {
        self.requests.get_mut(&number)
    }

    /// The requested sizes, including those of absent requests.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = Size> {
        self.sizes.keys().copied()
    }

    /// The requests of these sizes, absent ones included.
    pub(crate) fn of_sizes(&self, sizes: &BTreeSet<Size>) -> Vec<u64> {
        let of_sizes = self.requests.iter().filter(|(_, request)| sizes.contains(&request.size));
        of_sizes.map(|(&number, _)| number).collect()
    }

    /// The first request that gives up.
    pub(crate) fn first_that_gives_up(&self) -> Option<u64> {
        self.giving_up.first().copied()
    }

    fn show(&mut self, number: u64, size: Size) {
        self.present.insert(number);
        self.by_size.entry(size).or_default().insert(number);
    }

    fn hide(&mut self, number: u64, size: Size) {
        self.present.remove(&number);
        if let Some(numbers) = self.by_size.get_mut(&size) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_size.remove(&size);
            }
        }
    }

    /// The number of the first request that is not absent.
    pub(crate) fn first(&self) -> Option<u64> {
        self.present.first().copied()
    }

    /// Whether a request that is not absent asks for `size`.
    pub(crate) fn has(&self, size: Size) -> bool {
        self.by_size.contains_key(&size)
    }

    /// The first request of each size that is not absent, and not `but`.
    pub(crate) fn first_of_each_size(&self, but: Option<u64>) -> BTreeMap<u64, &Request> {
        let others = |numbers: &BTreeSet<u64>| numbers.iter().copied().find(|&n| Some(n) != but);
        let first = self.by_size.values().filter_map(others);
        first.map(|number| (number, &self.requests[&number])).collect()
    }

    /// Whether free blocks are for the first request only.
    pub(crate) fn first_is_alone(&self) -> bool {
        self.first().is_some_and(|first| self.requests[&first].alone_for().is_some())
    }

    /// If the turn of the first request has begun and its task has not answered in it: the task,
    /// which the caller must call. Returned once.
    pub(crate) fn call_first(&mut self) -> Option<Arc<Reply>> {
        let number = self.first()?;
        let first = self.requests.get_mut(&number)?;
        let began = first.turn()?.began;
        match &mut first.waiter {
            Waiter::Task { answered, called: called @ None } if *answered < began => {
                *called = Some(self.served);
                self.called.push(number);
                Some(first.reply.clone())
            }
            _ => None,
        }
    }

    /// Notes that the task of a request was called and has polled: it is no longer absent.
    pub(crate) fn answer(&mut self, number: u64) -> Option<&Request> {
        let request = self.requests.get_mut(&number)?;
        request.waiter = Waiter::task();
        let size = request.size;
        self.called.retain(|&called| called != number);
        self.show(number, size);
        self.requests.get(&number)
    }

    /// Notes that a request was served, from the queue or past it. Tasks that do not answer may be
    /// absent now.
    pub(crate) fn count_served(&mut self) {
        self.served += 1;
        let is_absent = |number: &mut u64| self.requests[number].is_absent(self.served);
        let absent: Vec<u64> = self.called.extract_if(.., is_absent).collect();
        for number in absent {
            self.hide(number, self.requests[&number].size);
        }
    }

    /// Serves the requests for which `take` finds free blocks, first come, first served. If there
    /// is no block for one request, it skips the others of its size.
    pub(crate) fn serve(
        &mut self,
        mut take: impl FnMut(Size) -> Option<BlockRef>,
    ) -> Vec<Delivery> {
        let mut served = Vec::new();
        let next = self.first_of_each_size(None);
        let mut next: BTreeMap<u64, Size> = next.iter().map(|(&n, it)| (n, it.size)).collect();
        while let Some((number, size)) = next.pop_first() {
            let others_wait = self.first().is_some_and(|first| number > first);
            if others_wait && self.first_is_alone() {
                break;
            }
            if self.present.contains(&number) {
                let Some(block) = take(size) else { continue };
                let request = self.remove(number).expect("it is present");
                self.count_served();
                served.push(request.end(Ok(block)));
            }
            let numbers = self.by_size.get(&size).and_then(BTreeSet::first);
            next.extend(numbers.map(|&number| (number, size)));
        }
        served
    }
}

/// An outcome on its way.
pub(crate) struct Delivery {
    reply: Arc<Reply>,
    /// The size of the block.
    bytes: usize,
    pub(crate) waited: Option<Duration>,
    result: Result<BlockRef>,
}

impl Delivery {
    /// Delivers the outcome. Call it without the pool's lock.
    pub(crate) fn make(self) {
        match (&self.result, self.waited) {
            (Ok(_), Some(time)) => trace::waited(self.bytes, time),
            (Ok(_), None) => {}
            (Err(error), _) => trace::failed_elsewhere(self.bytes, error),
        }
        self.reply.fill(self.result);
    }
}

/// Where the outcome of a request appears.
#[derive(Default)]
pub(crate) struct Reply {
    outcome: Mutex<Outcome>,
    there: Condvar,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<BlockRef>>,
    waker: Option<Waker>,
    /// The task must poll, or its request will be passed over.
    called: bool,
    /// The waiter has gone.
    abandoned: bool,
}

impl Reply {
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
        waker.into_iter().for_each(wakers::wake);
    }

    /// Wakes the task, which answers by polling. Call it without the pool's lock.
    pub(crate) fn call(&self) {
        let mut outcome = self.outcome.lock();
        outcome.called = true;
        let waker = outcome.waker.take();
        drop(outcome);
        waker.into_iter().for_each(wakers::wake);
    }

    /// Notes that the waiter has gone: a block that arrives, or has arrived, goes back to the pool.
    pub(crate) fn abandon(&self) {
        let mut outcome = self.outcome.lock();
        outcome.abandoned = true;
        let (result, waker) = (outcome.result.take(), outcome.waker.take());
        drop(outcome);
        give_back(result);
        call_user(|| drop(waker));
    }

    /// Blocks until the outcome is there, or until `deadline`.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<Result<BlockRef>> {
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

    /// Returns the outcome, or arranges to wake `task` when it arrives; and whether the task had
    /// been called.
    pub(crate) fn poll(&self, task: &mut Context<'_>) -> (Poll<Result<BlockRef>>, bool) {
        // Cloning and dropping a waker runs user code.
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

fn give_back(result: Option<Result<BlockRef>>) {
    if let Some(Ok(block)) = result {
        drop(block.give_back());
    }
}
