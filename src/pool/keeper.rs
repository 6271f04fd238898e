//! The thread that makes memory available to requests that wait.
//!
//! A request that is not served at once goes into the pool's queue, and the *keeper* works for the
//! queue: it page-locks new memory, releases what is free to make room, and looks for blocks that
//! devices are done with. So a caller with a deadline, or a task, never blocks in the runtime, and
//! threads that hit their caches never notice. The keeper starts with the first request that needs
//! it, lingers for a moment, and ends; with an idle age it stays while there is memory to give
//! back.
//!
//! # Fairness
//!
//! Free blocks, and room in the budget, go to the first request in the queue that they are enough
//! for; but from time to time to the first request only, so that smaller ones cannot overtake it
//! for ever ([`Request::alone_for`]). A request of a task that does not poll when it is called
//! counts for nothing until it does: it may have been forgotten. A request that [gives
//! up](super::wait::Request::gives_up) gets an error as soon as nothing is in flight and nothing
//! can be released: only buffers that are alive, or requests that wait for such, stand in its way.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::cache::Cache;
use super::classes::Size;
use super::core::{Core, State};
use super::grow::page_lock;
use super::store::{Slab, Store};
use super::wait::{Delivery, Request, Slot};
use super::{errors, trace};
use crate::error::Result;

/// How long the keeper waits for more to do before it ends.
const LINGER: Duration = Duration::from_millis(50);
/// How long a request waits for a block of its size that is in flight, before blocks of other sizes
/// are released for it: about what that costs.
const WORTH_WAITING: Duration = Duration::from_millis(1);
/// How often the keeper looks for blocks in flight before it sleeps between two looks.
const SPINS: u32 = 100;
/// How long the keeper sleeps at least while it waits for memory to be idle for long enough.
const SHORTEST_NAP: Duration = Duration::from_millis(1);
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

/// What the keeper does next, without the lock.
enum Step {
    /// Page-lock committed bytes for a request.
    Grow(Growth),
    Release(Vec<Slab>),
    /// See whether something in flight is done.
    Retire,
    /// Nothing, until somebody drops a buffer or asks for one, or the time has passed.
    Sleep(Option<Duration>),
    End,
}

/// What is to be page-locked, and for whom.
struct Growth {
    bytes: usize,
    size: Size,
    operation: &'static str,
    slot: Arc<Slot>,
}

impl Growth {
    /// `None` if the budget does not allow it.
    fn reserve(store: &mut Store, request: &Request, bytes: usize) -> Option<Growth> {
        let &Request { operation, size, ref slot, .. } = request;
        store.reserve(bytes).then(|| Growth { bytes, size, operation, slot: slot.clone() })
    }
}

impl State {
    /// What the room that is too small for the first request is enough for, while it is not its
    /// turn.
    fn growth_for_others(&mut self) -> Option<Growth> {
        if self.first_is_alone() {
            return None;
        }
        let fits =
            |request: &Request| self.store.smallest_growth(request.size) <= self.store.room();
        let (index, request) = self.present().skip(1).find(|(_, request)| fits(request))?;
        let bytes = self.store.smallest_growth(request.size);
        Growth::reserve(&mut self.store, &self.queue[index], bytes)
    }
}

thread_local! {
    /// The number of the pool that this thread is a keeper of, or was until it ends; 0 for no pool.
    static WORKS_FOR: Cell<u64> = const { Cell::new(0) };
}

/// Whether the calling thread is a keeper of `core`, which must not wait for its keepers.
pub(super) fn is_current(core: &Core) -> bool {
    WORKS_FOR.get() == core.id
}

/// Makes sure that the keeper runs and looks at the queue. The caller holds the pool's lock.
pub(super) fn call(core: &Arc<Core>, operation: &'static str, state: &mut State) -> Result<()> {
    core.wake.notify_all();
    if state.keeper_runs {
        return Ok(());
    }
    // The last one is past its work, but may still end what its thread keeps, which takes the lock.
    // The new one waits for it, so that whoever joins the one has joined both.
    let last = state.keeper.take();
    let own = core.clone();
    let work = move || {
        WORKS_FOR.set(own.id);
        run(&own);
        drop(own);
        last.map(JoinHandle::join);
    };
    let spawned = std::thread::Builder::new().name("pinlane-pool".into()).spawn(work);
    state.keeper = Some(spawned.map_err(|error| errors::no_keeper(operation, &error))?);
    state.keeper_runs = true;
    Ok(())
}

fn run(core: &Core) {
    let mut looks = 0;
    loop {
        let mut state = core.lock();
        state.match_requests();
        let step = core.plan(&mut state);
        state.growing = matches!(step, Step::Grow(_));
        let (ready, due) = (std::mem::take(&mut state.ready), std::mem::take(&mut state.due));
        if ready.is_empty() && due.is_empty() {
            match step {
                Step::Sleep(None) => {
                    drop(core.wake.wait(state));
                    continue;
                }
                Step::Sleep(Some(time)) => {
                    drop(core.wake.wait_timeout(state, time));
                    continue;
                }
                Step::End => {
                    state.keeper_runs = false;
                    return;
                }
                _ => {}
            }
        }
        drop(state);
        ready.into_iter().for_each(Delivery::make);
        due.iter().for_each(|slot| slot.call());
        match step {
            Step::Grow(growth) => core.grow(&growth),
            Step::Release(slabs) => drop(core.release(slabs)),
            Step::Retire => {
                core.retire();
                looks += 1;
                core.pause(looks);
                continue;
            }
            Step::Sleep(_) | Step::End => {}
        }
        looks = 0;
    }
}

impl Core {
    /// What the first request needs, after the free blocks have been handed out.
    fn plan(&self, state: &mut State) -> Step {
        if state.closed {
            return Step::End;
        }
        state.call_first();
        let Some(index) = state.first() else { return self.maintain(state) };
        let first = &mut state.queue[index];
        let (size, waiting_since) = (first.size, first.since);
        let bytes = state.store.growth(size, state.frugal);
        if let Some(growth) = Growth::reserve(&mut state.store, first, bytes) {
            return Step::Grow(growth);
        }
        first.waited = true;
        if !self.gate.is_closed() {
            // What other threads keep may be just what is needed. The gate stays closed while
            // requests wait, so that every block that is freed is seen.
            self.collect(state);
            state.match_requests();
            return self.plan(state);
        }
        if let Some(growth) = state.growth_for_others() {
            return Step::Grow(growth);
        }
        if state.store.in_flight(size) && waiting_since.elapsed() < WORTH_WAITING {
            return Step::Retire;
        }
        let missing = bytes.saturating_sub(state.store.room());
        let slabs = state.take_empty(missing, None);
        if !slabs.is_empty() {
            return Step::Release(slabs);
        }
        if state.store.parked.blocks > 0 {
            return Step::Retire;
        }
        if let Some(time) = state.queue[index].alone_for() {
            return Step::Sleep(Some(time));
        }
        if state.under_way == 0 {
            self.give_up(state);
        }
        Step::Sleep(None)
    }

    /// Ends the requests that do not wait for buffers to be dropped.
    fn give_up(&self, state: &mut State) {
        let stats = self.stats_of(state);
        let (hopeless, patient): (Vec<Request>, Vec<Request>) =
            state.queue.drain(..).partition(|request| request.gives_up);
        state.queue = patient.into();
        state.ready.extend(hopeless.into_iter().map(|request| {
            let error = errors::exhausted(request.operation, request.size, &stats);
            request.end(Err(error))
        }));
    }

    /// What there is to do while nobody waits.
    fn maintain(&self, state: &mut State) -> Step {
        // A block that a thread keeps is found the next time that somebody waits.
        self.gate.open();
        let now = Instant::now();
        if let Some(excess) = self.excess(state) {
            let slabs = state.take_empty(excess, None);
            state.kept_bytes = state.store.free_bytes;
            if !slabs.is_empty() {
                return Step::Release(slabs);
            }
        }
        let lingers = LINGER.saturating_sub(now.saturating_duration_since(state.last_request));
        if !lingers.is_zero() {
            return Step::Sleep(Some(lingers));
        }
        let Some(age) = self.options.idle_age else { return Step::End };
        let nap = (age / 4).max(SHORTEST_NAP);
        if state.store.parked.blocks > 0 && state.looked_at.elapsed() > nap {
            state.looked_at = now;
            return Step::Retire;
        }
        // What threads keep that have not allocated since the last time.
        self.collect_from(state, Cache::is_idle);
        self.gate.open();
        let slabs = now.checked_sub(age).map(|before| state.take_empty(usize::MAX, Some(before)));
        match slabs {
            Some(slabs) if !slabs.is_empty() => Step::Release(slabs),
            _ if state.store.committed == 0 => Step::End,
            _ => Step::Sleep(Some(nap)),
        }
    }

    /// Page-locks committed bytes for a request.
    fn grow(&self, growth: &Growth) {
        let &Growth { bytes, size, operation, .. } = growth;
        let largest_part = self.lock().largest_part;
        let start = Instant::now();
        let grown = page_lock(&self.context, &self.options.growth, largest_part, bytes, size.align);
        let took = start.elapsed();
        let mut state = self.lock();
        state.growing = false;
        match grown {
            Ok((memory, fallbacks)) => {
                state.frugal = false;
                state.kept_bytes = 0;
                if fallbacks.in_parts {
                    state.largest_part = memory.seam();
                }
                state.store.add(memory, size, self.as_owner());
                state.counts.grew(took, fallbacks);
                self.serve(state);
                trace::grew(bytes, size.bytes, took, fallbacks);
            }
            Err(failure) => {
                state.store.release(bytes);
                // A smaller slab may do; or what is cached in other sizes is just what the system
                // lacks.
                if !state.frugal {
                    state.frugal = true;
                    return;
                }
                self.collect(&mut state);
                let slabs = state.take_empty(usize::MAX, None);
                if !slabs.is_empty() {
                    drop(state);
                    self.release(slabs);
                    return;
                }
                state.frugal = false;
                let error = errors::not_page_locked(&self.context, failure, operation, bytes);
                if let Some(request) = state.remove(&growth.slot) {
                    state.ready.push(request.end(Err(error)));
                }
                self.serve(state);
            }
        }
    }

    /// Between two looks at what is in flight: a moment at first, then up to half a millisecond,
    /// unless something happens.
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
