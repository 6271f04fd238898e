//! The thread that makes memory available to requests that wait.
//!
//! A request that is not served at once goes into the pool's queue, which the *keeper* works off:
//! it page-locks new memory, releases free memory to make room, and looks for blocks that devices
//! are done with. So a caller with a deadline, or a task, never blocks in the runtime, and threads
//! that hit their caches are not affected. The keeper starts with the first request that needs it,
//! lingers for a moment, and ends. With an idle age it stays as long as there is memory to give
//! back.
//!
//! `queue.rs` decides which request is next. A request that [gives
//! up](super::books::queue::Request::gives_up) gets an error as soon as no block is in flight and
//! no memory can be released: then only live buffers, or requests that wait for live buffers, stand
//! in its way. When memory is lost, every request that no live buffer could serve any more gets an
//! error at once ([`Store::could_serve`]).

pub(super) mod current;
pub(super) mod grow;
pub(super) mod limits;
mod pages;
mod reclaim;
mod retire;
pub(super) mod take;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::books::Books;
use super::books::queue::{Delivery, Reply, Request};
use super::books::store::{Slab, Store};
use super::classes::Size;
use super::core::Core;
use super::thread::cache::Cache;
use super::{errors, trace};
use crate::error::Result;
use crate::process::background::{self, Busy};
use crate::process::thread::{self, Thread};
use crate::trace::Kind;
use crate::wakers;
use grow::{NotLocked, page_lock};

/// How long the keeper waits for more work before it ends.
const LINGER: Duration = Duration::from_millis(50);
/// How long a request waits for a block of its size that is in flight, before blocks of other sizes
/// are released for it. A release costs about as much.
const WORTH_WAITING: Duration = Duration::from_millis(1);
/// How often the keeper looks for blocks in flight before it sleeps between two looks.
const SPINS: u32 = 100;
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_micros(500);
/// The least that the keeper sleeps while it waits for memory to be idle for long enough.
const SHORTEST_NAP: Duration = Duration::from_millis(1);

/// What the keeper does next, without the lock.
enum Step {
    /// Page-lock committed bytes for a request.
    Grow(Growth),
    Release(Vec<Slab>),
    /// Look for blocks in flight that are done.
    Retire,
    /// Sleep until a buffer is dropped or requested, or until the time has passed.
    Sleep(Option<Duration>),
    End,
}

/// What to page-lock, and for which request.
struct Growth {
    bytes: usize,
    size: Size,
    operation: &'static str,
    /// The number of the request in the queue.
    number: u64,
}

impl Growth {
    /// `None` if the budget does not allow it.
    fn reserve(
        store: &mut Store,
        (number, request): (u64, &Request),
        bytes: usize,
    ) -> Option<Growth> {
        let &Request { operation, size, .. } = request;
        store.reserve(bytes).then_some(Growth { bytes, size, operation, number })
    }
}

impl Core {
    /// Makes sure that the keeper runs and looks at the queue.
    pub(crate) fn call_keeper(&self, operation: &'static str, books: &mut Books) -> Result<()> {
        self.wake.notify_all();
        if books.keeper_runs {
            return Ok(());
        }
        let Some(own) = self.me.upgrade() else { return Ok(()) };
        // The last keeper has finished its work, but may still give back its cache, which takes the
        // lock. The new keeper waits for it, so that a join of the new one joins both.
        let last = books.keeper.take();
        let work = |(own, last): (Arc<Core>, Option<Thread>)| {
            current::set(own.id);
            wakers::serve_others();
            own.keep();
            drop(own);
            last.map(Thread::join);
        };
        background::prepare();
        match thread::start("pinlane-pool", (own, last), work) {
            Ok(keeper) => books.keeper = Some(keeper),
            Err(refused) => {
                books.keeper = refused.owned.1;
                return Err(errors::no_keeper(operation, &refused.error));
            }
        }
        books.keeper_runs = true;
        Ok(())
    }

    /// Whether the calling thread is a keeper of this pool. A keeper must not wait for the pool's
    /// keepers.
    pub(crate) fn is_keeper(&self) -> bool {
        current::pool() == self.id
    }

    /// The keeper's work.
    fn keep(&self) {
        let mut looks = 0;
        loop {
            let busy = background::busy();
            let mut books = self.lock();
            books.match_requests();
            let (step, called) = self.plan(&mut books, busy.is_some());
            books.growing = matches!(step, Step::Grow(_));
            let ready = std::mem::take(&mut books.ready);
            let is_idle = ready.is_empty() && called.is_none();
            match step {
                Step::Sleep(time) if is_idle => {
                    drop(busy);
                    drop(match time {
                        None => self.wake.wait(books),
                        Some(time) => self.wake.wait_timeout(books, time),
                    });
                }
                Step::End if is_idle => {
                    books.keeper_runs = false;
                    return;
                }
                step => {
                    drop(books);
                    ready.into_iter().for_each(Delivery::make);
                    called.iter().for_each(|reply| reply.call());
                    looks = self.take_step(step, looks, busy);
                }
            }
        }
    }

    /// Returns how many consecutive steps have looked for blocks in flight.
    fn take_step(&self, step: Step, looks: u32, busy: Option<Busy>) -> u32 {
        match step {
            Step::Grow(growth) => self.grow(&growth),
            Step::Release(slabs) => _ = self.release(slabs),
            Step::Retire => {
                self.retire();
                drop(busy);
                self.pause(looks + 1);
                return looks + 1;
            }
            Step::Sleep(_) | Step::End => {}
        }
        0
    }

    /// What the first request needs after the free blocks have been given out, and the task to
    /// call. Who makes a request while the process ends waits for it: only the rest is left out.
    fn plan(&self, books: &mut Books, goes_on: bool) -> (Step, Option<Arc<Reply>>) {
        if books.closed {
            return (Step::End, None);
        }
        let step = match books.queue.first() {
            Some(first) => self.plan_for(first, books, goes_on),
            None => self.maintain(books, goes_on),
        };
        // After the plan, which may have found that the first request has to wait.
        (step, books.queue.call_first())
    }

    fn plan_for(&self, number: u64, books: &mut Books, goes_on: bool) -> Step {
        let first = books.queue.get_mut(number).expect("the first one");
        let (size, waiting_since) = (first.size, first.since);
        let bytes = books.store.growth(size, books.frugal);
        if let Some(growth) = Growth::reserve(&mut books.store, (number, first), bytes) {
            return Step::Grow(growth);
        }
        first.waited = true;
        if !self.gate.is_closed() {
            // Other threads may keep what is needed. The gate stays closed while requests wait, so
            // that every freed block is seen.
            self.collect(books);
            books.match_requests();
            return match books.queue.first() {
                Some(first) => self.plan_for(first, books, goes_on),
                None => self.maintain(books, goes_on),
            };
        }
        if let Some(growth) = growth_for_others(books) {
            return Step::Grow(growth);
        }
        if books.store.in_flight(size) && waiting_since.elapsed() < WORTH_WAITING {
            return Step::Retire;
        }
        let missing = bytes.saturating_sub(books.store.room());
        let slabs = books.take_empty(missing, None);
        if !slabs.is_empty() {
            return Step::Release(slabs);
        }
        if books.store.parked.blocks > 0 {
            return Step::Retire;
        }
        if let Some(time) = books.queue.get_mut(number).and_then(|first| first.alone_for()) {
            return Step::Sleep(Some(time));
        }
        if books.under_way == 0 {
            give_up(books);
        }
        Step::Sleep(None)
    }

    /// The next step while no request waits; none if the process is ending.
    fn maintain(&self, books: &mut Books, goes_on: bool) -> Step {
        // Blocks that threads keep are found the next time that a request waits.
        self.gate.open();
        if !goes_on {
            return Step::End;
        }
        let now = Instant::now();
        if let Some(excess) = books.excess(&self.options) {
            let slabs = books.take_empty(excess, None);
            if !slabs.is_empty() {
                return Step::Release(slabs);
            }
        }
        let lingers = LINGER.saturating_sub(now.saturating_duration_since(books.last_request));
        if !lingers.is_zero() {
            return Step::Sleep(Some(lingers));
        }
        let Some(age) = self.options.idle_age else { return Step::End };
        let nap = (age / 4).max(SHORTEST_NAP);
        if books.store.parked.blocks > 0 && books.looked_at.elapsed() > nap {
            books.looked_at = now;
            return Step::Retire;
        }
        // Threads that have not allocated since the last nap lose what they keep.
        books.collect(&self.gate, Cache::note_idle);
        self.gate.open();
        let slabs = now.checked_sub(age).map(|before| books.take_empty(usize::MAX, Some(before)));
        match slabs {
            Some(slabs) if !slabs.is_empty() => Step::Release(slabs),
            _ if books.store.committed == 0 => Step::End,
            _ => Step::Sleep(Some(nap)),
        }
    }

    /// Page-locks committed bytes for a request.
    fn grow(&self, growth: &Growth) {
        let &Growth { bytes, size, operation, .. } = growth;
        let parts = {
            let books = self.lock();
            let several = bytes > books.store.smallest_growth(size);
            if several { None } else { Some(books.largest_part) }
        };
        let start = Instant::now();
        let grown = {
            let _shown = self.context.recording.begin(Kind::PageLock, operation, || bytes);
            page_lock(&self.context, &self.options, parts, bytes, size.align)
        };
        let took = start.elapsed();
        let mut books = self.lock();
        books.growing = false;
        match grown {
            Ok((memory, fallbacks)) => {
                books.frugal = false;
                if fallbacks.in_parts {
                    books.largest_part = memory.seam();
                }
                books.store.add(memory, size, self.as_owner());
                books.counts.growths.add(took);
                books.counts.fallbacks.add(fallbacks);
                self.serve(books);
                trace::grew(bytes, size.bytes, took, fallbacks);
            }
            Err(failure) => {
                books.store.release(bytes);
                // A smaller slab may be enough, or the release of cached blocks of other sizes.
                if !books.frugal {
                    books.frugal = true;
                    return;
                }
                self.collect(&mut books);
                let slabs = books.take_empty(usize::MAX, None);
                if !slabs.is_empty() {
                    drop(books);
                    self.release(slabs);
                    return;
                }
                books.frugal = false;
                if let NotLocked::Full(more) = failure
                    && self.options.follows_system
                    && books.store.committed + more > 0
                {
                    // The requests wait or end as at the end of the budget.
                    books.store.note_refusal(more);
                    self.serve(books);
                    return;
                }
                let error = errors::not_page_locked(&self.context, failure, operation, bytes);
                if let Some(request) = books.queue.remove(growth.number) {
                    books.ready.push(request.end(Err(error)));
                }
                self.serve(books);
            }
        }
    }

    /// Pauses between two looks at blocks in flight: for a moment at first, then up to half a
    /// millisecond, unless notified.
    fn pause(&self, looks: u32) {
        if looks < SPINS {
            std::thread::yield_now();
        } else {
            let doublings = (looks - SPINS).min(8);
            let sleep = (SHORTEST_SLEEP * (1 << doublings)).min(LONGEST_SLEEP);
            drop(self.wake.wait_timeout(self.lock(), sleep));
        }
    }
}

/// The room is too small for the first request: the growth of another request that fits, unless it
/// is the turn of the first.
fn growth_for_others(books: &mut Books) -> Option<Growth> {
    if books.queue.first_is_alone() {
        return None;
    }
    let store = &mut books.store;
    let others = books.queue.first_of_each_size(books.queue.first());
    others.into_iter().find_map(|other| {
        let least = store.smallest_growth(other.1.size);
        Growth::reserve(store, other, least)
    })
}

/// Ends the requests that do not wait for buffers to be dropped.
fn give_up(books: &mut Books) {
    let stats = books.stats();
    while let Some(number) = books.queue.first_that_gives_up() {
        let Some(request) = books.queue.remove(number) else { return };
        let error = errors::exhausted(request.operation, request.size, &stats);
        books.ready.push(request.end(Err(error)));
    }
}
