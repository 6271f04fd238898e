//! What all handles of a pool share: the gate to the threads' caches, and the books under one lock.
//!
//! ```text
//!   alloc ---> this thread's cache ---------------------------------------------> block
//!                | empty, or the gate is closed
//!                v
//!              the books: a batch of free blocks; what devices are done with ---> block
//!                | nothing
//!                v
//!              the queue, for which the keeper works: grow, release, retire ----> block, or an error
//! ```

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use super::builder::Options;
use super::cache::{Cache, batch};
use super::classes::{MAX_ALIGN, Size};
use super::gate::Gate;
use super::stats::Counts;
use super::store::{Slab, Store};
use super::wait::{Delivery, Request, Slot, Waiter, Waiting};
use super::{errors, keeper, local, trace};
use crate::context::Context;
use crate::error::Result;
use crate::memory::block::{Block, BlockOwner, BlockRef};
use crate::process::Process;
use crate::sync::{Apart, Condvar, Mutex, MutexGuard};

pub(super) struct Core {
    pub(super) gate: Gate,
    pub(super) id: u64,
    pub(super) context: Arc<Context>,
    /// The context's, here because every hit asks, and others write beside the context's.
    pub(super) process: Process,
    pub(super) options: Options,
    /// What buffers without bytes have.
    empty: Block,
    pub(super) me: Weak<Core>,
    /// Apart, since the slow ways write here, and hits read the rest.
    pub(super) state: Apart<Mutex<State>>,
    /// Notified when there is something for the keeper to look at.
    pub(super) wake: Apart<Condvar>,
}

pub(super) struct State {
    pub(super) store: Store,
    pub(super) caches: Vec<Arc<Cache>>,
    pub(super) queue: VecDeque<Request>,
    /// Outcomes to be handed over once the lock is free.
    pub(super) ready: Vec<Delivery>,
    /// Tasks to be called once the lock is free.
    pub(super) due: Vec<Arc<Slot>>,
    /// How many requests the books have served.
    pub(super) served: u64,
    pub(super) counts: Counts,
    /// How many batches are neither here nor in buffers at the moment: blocks on their way from a
    /// thread to the books, and slabs on their way to the system.
    pub(super) under_way: usize,
    pub(super) keeper: Option<JoinHandle<()>>,
    pub(super) keeper_runs: bool,
    pub(super) last_request: Instant,
    /// When blocks in flight were last looked at for no request.
    pub(super) looked_at: Instant,
    /// What was still free when the keeper had given back what it could.
    pub(super) kept_bytes: usize,
    /// The keeper is page-locking memory.
    pub(super) growing: bool,
    /// The most that the system registers in one call, as far as growths have found out.
    pub(super) largest_part: usize,
    /// The last growth failed; the next is for one block only.
    pub(super) frugal: bool,
    /// No handle to the pool is left; buffers may be.
    pub(super) closed: bool,
}

/// How long an allocation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Only what is page-locked and free already.
    None,
    /// Grow, and wait for devices, but not for buffers to be dropped.
    Devices,
    /// Wait for anything, until then.
    Until(Option<Instant>),
}

impl Core {
    pub(super) fn new(context: Arc<Context>, options: Options) -> Arc<Core> {
        static POOLS: AtomicU64 = AtomicU64::new(1);
        let now = Instant::now();
        Arc::new_cyclic(|me| {
            let owner: NonNull<dyn BlockOwner> = owner(me);
            // As aligned as can be asked for.
            let nowhere = NonNull::new(ptr::without_provenance_mut(MAX_ALIGN)).expect("not null");
            Core {
                gate: Gate::new(),
                id: POOLS.fetch_add(1, Ordering::Relaxed),
                process: context.process(),
                context,
                empty: Block::new(nowhere, 0, usize::MAX, 0, None, owner),
                me: me.clone(),
                state: Apart(Mutex::new(State {
                    store: Store::new(options.max_bytes),
                    caches: Vec::new(),
                    queue: VecDeque::new(),
                    ready: Vec::new(),
                    due: Vec::new(),
                    served: 0,
                    counts: Counts::default(),
                    under_way: 0,
                    keeper: None,
                    keeper_runs: false,
                    last_request: now,
                    looked_at: now,
                    kept_bytes: 0,
                    growing: false,
                    largest_part: usize::MAX,
                    frugal: false,
                    closed: false,
                })),
                wake: Apart(Condvar::new()),
                options,
            }
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn as_owner(&self) -> NonNull<dyn BlockOwner> {
        owner(&self.me)
    }

    /// The block of a buffer without bytes, which keeps the pool itself alive.
    pub(super) fn take_empty_block(self: &Arc<Self>) -> BlockRef {
        let _ = Arc::into_raw(self.clone());
        // SAFETY: the descriptor lives as long as the pool, which the reference just leaked keeps
        // alive until `reclaim` takes it back; the block has no memory and is never linked.
        unsafe { BlockRef::new(NonNull::from(&self.empty)) }
    }

    /// A block of a class that this thread keeps.
    #[inline]
    pub(super) fn take_own(&self, class: usize) -> Option<BlockRef> {
        // SAFETY: `take` neither adds a cache nor ends the thread.
        match unsafe { local::last(self.id) } {
            Some(cache) => cache.take(&self.gate, class),
            None => self.take_other(class),
        }
    }

    #[cold]
    fn take_other(&self, class: usize) -> Option<BlockRef> {
        local::get(self.id)?.take(&self.gate, class)
    }

    /// A block for a request of `size`, which this thread keeps none for.
    pub(super) fn take(
        self: &Arc<Self>,
        operation: &'static str,
        size: Size,
        patience: Patience,
    ) -> Result<BlockRef> {
        if let Some(block) = self.take_now(size, patience == Patience::None) {
            return Ok(block);
        }
        let deadline = match patience {
            Patience::None => return Err(errors::not_ready(operation, size)),
            Patience::Devices => None,
            Patience::Until(deadline) => deadline,
        };
        let gives_up = patience == Patience::Devices;
        let waiting = self.enqueue(operation, size, gives_up, Waiter::Thread)?;
        waiting.wait(deadline).unwrap_or_else(|| {
            let error = errors::timed_out(operation, size, self.stats_of(&self.lock()));
            trace::failed(size.bytes, &error);
            Err(error)
        })
    }

    /// A block that is free, or that a device turns out to be done with. Does not block. `others`
    /// says whether to look at what other threads keep, too.
    pub(super) fn take_now(self: &Arc<Self>, size: Size, others: bool) -> Option<BlockRef> {
        let cache = self.own_cache();
        if let Some(cache) = &cache {
            self.post_all(cache);
        }
        if let Some(block) = self.take_shared(size, cache.as_ref()) {
            return Some(block);
        }
        self.retire();
        if let Some(block) = self.take_shared(size, cache.as_ref()) {
            return Some(block);
        }
        if !others {
            return None;
        }
        let mut state = self.lock();
        if state.first().is_some() || self.gate.is_closed() {
            return None;
        }
        self.collect_once(&mut state);
        state.store.take(size)
    }

    /// A block from the books, and a batch for this thread's cache, unless a request that was there
    /// first waits for it.
    fn take_shared(&self, size: Size, cache: Option<&Arc<Cache>>) -> Option<BlockRef> {
        let mut state = self.lock();
        if state.first_is_alone() || state.present().any(|(_, earlier)| earlier.size == size) {
            return None;
        }
        let block = state.store.take(size)?;
        state.served += 1;
        state.counts.shared_hits += 1;
        if let (Some(cache), Some(class)) = (cache, size.class())
            && !self.gate.is_closed()
        {
            // SAFETY: the owner's thread, under the pool's lock, and the gate is open.
            let room = unsafe { cache.room(class, size.bytes) };
            state.store.take_batch(size, room.min(batch(size.bytes)), |block| {
                // SAFETY: as above; there is room for so many.
                unsafe { cache.push(class, block) };
            });
        }
        Some(block)
    }

    /// Enters a request into the queue.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        operation: &'static str,
        size: Size,
        gives_up: bool,
        waiter: Waiter,
    ) -> Result<Waiting> {
        // Inside a host function only what is free already can be had.
        self.context.driver(operation)?;
        let slot = Arc::new(Slot::default());
        let mut state = self.lock();
        if state.store.smallest_growth(size) > state.store.max_bytes {
            let error = errors::exhausted(operation, size, &self.stats_of(&state));
            drop(state);
            trace::failed(size.bytes, &error);
            return Err(error);
        }
        let now = Instant::now();
        state.counts.misses += 1;
        state.last_request = now;
        keeper::call(self, operation, &mut state)?;
        let (since, waited) = (now, false);
        let request =
            Request { operation, size, gives_up, waiter, since, waited, slot: slot.clone() };
        state.queue.push_back(request);
        Ok(Waiting { core: self.clone(), slot })
    }

    /// A task that was called has polled: it may have its turn.
    pub(super) fn answer(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<()> {
        let mut state = self.lock();
        let waits = state.queue.iter_mut().find(|request| Arc::ptr_eq(&request.slot, slot));
        let Some(request) = waits else { return Ok(()) };
        request.answer();
        let operation = request.operation;
        keeper::call(self, operation, &mut state)?;
        self.serve(state);
        Ok(())
    }

    /// Takes a request out of the queue; false if it has been served.
    pub(super) fn withdraw(&self, slot: &Arc<Slot>) -> bool {
        let request = self.lock().remove(slot);
        // Whoever was behind it may be first now; and the keeper opens the gate when the queue is
        // empty.
        self.wake.notify_all();
        request.is_some()
    }

    /// Hands free blocks to the requests that wait for them, and lets go of the lock.
    pub(super) fn serve(&self, mut state: MutexGuard<'_, State>) {
        state.match_requests();
        if !state.queue.is_empty() {
            // Also when all are absent: the keeper then opens the gate.
            self.wake.notify_all();
        }
        if state.first().is_none()
            && self.excess(&state).is_some()
            && let Some(core) = self.me.upgrade()
        {
            // Without a thread, the memory goes back later.
            let _ = keeper::call(&core, "PinnedPool::trim", &mut state);
        }
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        ready.into_iter().for_each(Delivery::make);
    }

    /// How much free memory is to be given back by itself; `None` too if that was tried and there
    /// is hardly more to try with.
    pub(super) fn excess(&self, state: &State) -> Option<usize> {
        let free = state.store.free_bytes;
        let worth = !state.closed && free > state.kept_bytes + state.kept_bytes / 8;
        self.options.excess(free).filter(|_| worth)
    }

    /// Closes the gate, and puts all that threads keep into the books. The caller opens it again,
    /// or does not.
    pub(super) fn collect(&self, state: &mut State) {
        self.collect_from(state, |_| true);
    }

    /// As [`collect`](Self::collect), from some of the caches.
    pub(super) fn collect_from(&self, state: &mut State, wanted: fn(&Cache) -> bool) {
        self.gate.close();
        for cache in state.caches.iter().filter(|cache| wanted(cache)) {
            cache.empty(&self.gate, |block| state.store.put(block));
            // SAFETY: under the pool's lock, the gate is closed, and `empty` waited for the lane.
            unsafe { cache.take_outbox() }.for_each(|block| state.store.park(block));
        }
    }

    /// As [`collect`](Self::collect), but the gate is then as it was.
    fn collect_once(&self, state: &mut State) {
        let was_closed = self.gate.is_closed();
        self.collect(state);
        if !was_closed {
            self.gate.open();
        }
    }

    /// Gives slabs that are out of the books back to the system; gives the bytes that it took back.
    pub(super) fn release(&self, slabs: Vec<Slab>) -> usize {
        let mut released = 0;
        let mut lost = 0;
        for slab in slabs {
            let bytes = slab.memory.bytes();
            // SAFETY: all blocks of a slab that is out of the books are free, so that no operation
            // names the memory and nobody accesses it. Whoever calls this passed the gate to the
            // driver, or is on an ordinary thread.
            if unsafe { slab.release(&self.context) } { released += bytes } else { lost += bytes }
        }
        trace::released(released, lost);
        let mut state = self.lock();
        state.under_way -= 1;
        state.store.release(released);
        state.store.unreleased += lost;
        state.counts.trims += u64::from(released > 0);
        self.serve(state);
        released
    }

    /// See [`PinnedPool::trim_to`](super::PinnedPool::trim_to).
    pub(super) fn trim(&self, operation: &'static str, keep: usize) -> Result<usize> {
        self.context.driver(operation)?;
        // Twice: what threads have posted must be in the books to be found complete.
        self.collect_once(&mut self.lock());
        self.retire();
        let mut state = self.lock();
        self.collect_once(&mut state);
        let excess = state.store.free_bytes.saturating_sub(keep);
        let slabs = state.take_empty(excess, None);
        drop(state);
        Ok(if slabs.is_empty() { 0 } else { self.release(slabs) })
    }

    /// This thread's cache, made if it has none; `None` if the thread is ending.
    pub(super) fn own_cache(&self) -> Option<Arc<Cache>> {
        if let Some(cache) = local::get(self.id) {
            return Some(cache);
        }
        let cache = Arc::new(Cache::new(self.id, self.options.thread_cache_bytes));
        if !local::keep(&cache, &self.me) {
            return None;
        }
        let mut state = self.lock();
        if !state.closed {
            state.caches.push(cache.clone());
        }
        Some(cache)
    }
}

/// The pool as the owner of its blocks.
fn owner(core: &Weak<Core>) -> NonNull<dyn BlockOwner> {
    let core: *const dyn BlockOwner = core.as_ptr();
    NonNull::new(core.cast_mut()).expect("a pool's address is not null")
}

impl State {
    /// Takes wholly free slabs out of the books; see [`Store::take_empty`]. If there are any they
    /// must go to [`Core::release`].
    pub(super) fn take_empty(&mut self, bytes: usize, before: Option<Instant>) -> Vec<Slab> {
        let slabs = self.store.take_empty(bytes, before);
        self.under_way += usize::from(!slabs.is_empty());
        slabs
    }
}
