//! The state of a pool under its lock: the books.

pub(super) mod parked;
pub(super) mod queue;
pub(super) mod stats;
pub(super) mod store;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::classes::Size;
use super::errors;
use super::options::Options;
use super::thread::cache::{Cache, Shelf};
use super::thread::gate::Gate;
use crate::process::thread::Thread;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use queue::{Delivery, Queue};
use stats::{Brief, ClassStats, Stats};
use store::{Slab, Stock, Store};

// Not on the cache line of the lock, which threads that wait for it read over and over.
#[repr(align(64))]
pub(crate) struct Books {
    pub(crate) store: Store,
    pub(crate) caches: Vec<Arc<Cache>>,
    pub(crate) queue: Queue,
    /// Outcomes to deliver after the lock is released.
    pub(crate) ready: Vec<Delivery>,
    /// What happened so far: `hits` outside of threads' caches, and `thread_hits` of threads that
    /// have ended. [`stats`](Self::stats) adds the rest.
    pub(crate) counts: Stats,
    /// How many batches of slabs are in transit to the system, neither here nor in buffers.
    pub(crate) under_way: usize,
    pub(crate) keeper: Option<Thread>,
    pub(crate) keeper_runs: bool,
    pub(crate) last_request: Instant,
    /// When blocks in flight were last checked without a request.
    pub(crate) looked_at: Instant,
    /// The keeper is page-locking memory.
    pub(crate) growing: bool,
    /// The most that the system registers in one call, as far as growths have found out.
    pub(crate) largest_part: usize,
    /// The last growth failed; the next is for one block only.
    pub(crate) frugal: bool,
    /// No handle to the pool exists any more. Buffers may exist.
    pub(crate) closed: bool,
}

impl Books {
    pub(crate) fn new(options: &Options) -> Self {
        let now = Instant::now();
        Books {
            store: Store::new(options.max_bytes, options.watermarks.is_some()),
            caches: Vec::new(),
            queue: Queue::default(),
            ready: Vec::new(),
            counts: Stats::default(),
            under_way: 0,
            keeper: None,
            keeper_runs: false,
            last_request: now,
            looked_at: now,
            growing: false,
            largest_part: usize::MAX,
            frugal: false,
            closed: false,
        }
    }

    /// Hands free blocks to the requests that they fit.
    pub(crate) fn match_requests(&mut self) {
        let store = &mut self.store;
        for delivery in self.queue.serve(|size| store.take(size)) {
            if let Some(time) = delivery.waited {
                self.counts.waits.add(time);
            }
            self.ready.push(delivery);
        }
        if std::mem::take(&mut self.store.shrunk) {
            self.end_hopeless();
        }
    }

    /// Ends the requests that no memory can ever serve. Every few lost blocks cause a call, so it
    /// looks at requests only if there may be one to end.
    #[cold]
    fn end_hopeless(&mut self) {
        let sizes = self.queue.sizes();
        let hopeless: BTreeSet<Size> = sizes.filter(|&it| !self.store.could_serve(it)).collect();
        if hopeless.is_empty() {
            return;
        }
        let stats = self.stats();
        for number in self.queue.of_sizes(&hopeless) {
            let Some(request) = self.queue.remove(number) else { continue };
            let error = errors::unserved(request.operation, request.size, &stats);
            self.ready.push(request.end(Err(error)));
        }
    }

    /// Moves what the `wanted` threads' caches keep into the books. Closes the gate; the caller
    /// opens it again, or leaves it closed.
    pub(crate) fn collect(&mut self, gate: &Gate, wanted: fn(&Cache) -> bool) {
        gate.close();
        let store = &mut self.store;
        for cache in self.caches.iter().filter(|cache| wanted(cache)) {
            gate.wait_for(&cache.busy);
            // SAFETY: the caller may touch the cache: this is under the pool's lock, the gate is
            // closed, and the lane is idle.
            unsafe { empty(cache, store) };
        }
    }

    /// A thread ends: moves all that it kept into the books. Called by the owner of `cache`.
    pub(crate) fn take_back(&mut self, cache: &Arc<Cache>) {
        let Some(index) = self.caches.iter().position(|other| Arc::ptr_eq(other, cache)) else {
            return;
        };
        self.caches.swap_remove(index);
        self.counts.thread_hits += cache.hits();
        // SAFETY: the caller may touch the cache: this is the owner's thread, under the pool's
        // lock.
        unsafe { empty(cache, &mut self.store) };
    }

    /// Takes wholly free slabs out of the books; see [`Store::take_empty`]. If there are any, the
    /// caller must pass them to `Core::release`.
    pub(crate) fn take_empty(&mut self, bytes: usize, before: Option<Instant>) -> Vec<Slab> {
        let slabs = self.store.take_empty(bytes, before);
        self.under_way += usize::from(!slabs.is_empty());
        slabs
    }

    /// How much free memory the pool should give back by its own options. `None` also if it could
    /// not: if no slab is wholly free.
    pub(crate) fn excess(&self, options: &Options) -> Option<usize> {
        let free = self.store.free_bytes;
        let (high, low) = options.watermarks?;
        let possible = !self.closed && self.store.has_whole_slabs();
        (possible && free > high).then(|| free - low)
    }

    pub(crate) fn brief(&self) -> Brief {
        Brief {
            max_bytes: self.store.max_bytes(),
            by_system: self.store.ceiling().is_some(),
            committed_bytes: self.store.committed,
            free_bytes: self.store.free_bytes,
            in_flight: self.store.parked.blocks,
            waiting: self.queue.len(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let (store, counts) = (&self.store, &self.counts);
        let in_threads = |class: Option<usize>, of: fn(&Shelf) -> &AtomicU64| -> usize {
            let Some(class) = class else { return 0 };
            let kept = self.caches.iter().map(|cache| of(&cache.shelves[class]).load(Relaxed));
            kept.sum::<u64>() as usize
        };
        let of_size = |stock: &Stock| {
            let class = stock.size.class();
            let cached = stock.free + in_threads(class, |shelf| &shelf.len);
            let in_flight = stock.parked + in_threads(class, |shelf| &shelf.posted);
            let elsewhere = cached + in_flight + stock.quarantined;
            ClassStats {
                block_bytes: stock.size.bytes,
                blocks: stock.blocks,
                live: stock.blocks.saturating_sub(elsewhere),
                cached,
                in_flight,
                quarantined: stock.quarantined,
                growths: stock.growths,
            }
        };
        let stocks = store.stocks().filter(|stock| stock.blocks > 0);
        let classes: Vec<ClassStats> = stocks.map(of_size).collect();
        let sum = |of: fn(&ClassStats) -> usize| -> usize {
            classes.iter().map(|class| of(class) * class.block_bytes).sum()
        };
        let of_caches =
            |of: fn(&Cache) -> u64| -> u64 { self.caches.iter().map(|cache| of(cache)).sum() };
        let thread_hits = counts.thread_hits + of_caches(Cache::hits);
        Stats {
            max_bytes: store.max_bytes(),
            by_system: store.ceiling().is_some(),
            committed_bytes: store.committed,
            peak_bytes: store.peak,
            live_bytes: sum(|class| class.live),
            cached_bytes: sum(|class| class.cached),
            thread_bytes: of_caches(|cache| cache.bytes.load(Relaxed)) as usize,
            in_flight_bytes: sum(|class| class.in_flight),
            quarantined_bytes: sum(|class| class.quarantined) + store.unreleased,
            hits: thread_hits + counts.hits,
            thread_hits,
            threads: self.caches.len(),
            waiting: self.queue.len(),
            classes,
            ..counts.clone()
        }
    }
}

/// Moves all that a thread keeps into the books.
///
/// # Safety
///
/// * The caller may touch the cache (its first invariant).
unsafe fn empty(cache: &Cache, store: &mut Store) {
    // SAFETY: the caller's precondition.
    unsafe {
        cache.empty_shelves(|block| store.put(block));
        cache.take_outbox().into_iter().for_each(|block| store.park(block));
    }
}
