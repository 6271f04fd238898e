//! What all handles of a pool share: the gate to the threads' caches, and the books under one lock.
//!
//! ```text
//!   alloc ---> this thread's cache (hit.rs) --------------------------------------> block
//!                | empty, or the gate is closed
//!                v
//!              the books (take.rs): free blocks; then blocks that devices are done with, first
//!                | nothing           those that this thread has dropped ------------> block
//!                v
//!              the queue, for which the keeper works (keeper): it page-locks and
//!              releases memory, and looks for blocks that devices are done with -> block, or error
//! ```
//!
//! Each of those files adds its methods to [`Core`], and so do `reclaim.rs` (how blocks come back)
//! and `retire.rs` (which blocks in flight are done).

use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::books::Books;
use super::books::queue::Delivery;
use super::books::store::Slab;
use super::classes::MAX_ALIGN;
use super::options::Options;
use super::thread::cache::Cache;
use super::thread::gate::Gate;
use super::trace;
use crate::context::Context;
use crate::error::Result;
use crate::memory::block::{Block, BlockOwner, BlockRef};
use crate::sync::{CachePadded, Condvar, Mutex, MutexGuard};

pub(super) struct Core {
    pub(super) gate: Gate,
    /// Unique among the pools of the process.
    pub(super) id: u64,
    pub(super) context: Arc<Context>,
    pub(super) options: Options,
    /// The block of all buffers without bytes.
    empty: Block,
    pub(super) me: Weak<Core>,
    /// What the handles of the pool share.
    pub(super) handle: OnceLock<Weak<dyn Any + Send + Sync>>,
    /// On its own cache lines: slow paths write it, and hits read the other fields.
    books: CachePadded<Mutex<Books>>,
    /// Notified when the keeper has something to do.
    pub(super) wake: CachePadded<Condvar>,
}

impl Core {
    pub(super) fn new(context: Arc<Context>, options: Options) -> Arc<Core> {
        static POOLS: AtomicU64 = AtomicU64::new(1);
        Arc::new_cyclic(|me| {
            // Aligned to the largest alignment of a request.
            let nowhere = NonNull::new(ptr::without_provenance_mut(MAX_ALIGN)).expect("not null");
            Core {
                gate: Gate::new(context.process()),
                id: POOLS.fetch_add(1, Ordering::Relaxed),
                context,
                empty: Block::new(nowhere, 0, usize::MAX, 0, None, owner(me)),
                me: me.clone(),
                handle: OnceLock::new(),
                books: CachePadded(Mutex::new(Books::new(&options))),
                wake: CachePadded(Condvar::new()),
                options,
            }
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock()
    }

    pub(super) fn as_owner(&self) -> NonNull<dyn BlockOwner> {
        owner(&self.me)
    }

    /// The block of a buffer without bytes, which keeps the pool itself alive.
    pub(super) fn take_empty_block(self: &Arc<Self>) -> BlockRef {
        let _ = Arc::into_raw(self.clone());
        // SAFETY: the descriptor lives as long as the pool, which the reference just leaked keeps
        // alive until `reclaim` takes it back. The block has no memory.
        unsafe { BlockRef::new(NonNull::from(&self.empty)) }
    }

    /// Gives free blocks to the requests that wait for them, and releases the lock.
    pub(super) fn serve(&self, mut books: MutexGuard<'_, Books>) {
        books.match_requests();
        if !books.queue.is_empty() {
            // Also if all requests are absent: the keeper then opens the gate.
            self.wake.notify_all();
        }
        if books.queue.first().is_none() && books.excess(&self.options).is_some() {
            // If no thread can be started, the memory goes back later.
            let _ = self.call_keeper("PinnedPool::trim", &mut books);
        }
        let ready = std::mem::take(&mut books.ready);
        drop(books);
        ready.into_iter().for_each(Delivery::make);
    }

    /// Closes the gate, and moves all that threads keep into the books. The caller opens the gate
    /// again, or leaves it closed.
    pub(super) fn collect(&self, books: &mut Books) {
        books.collect(&self.gate, |_: &Cache| true);
    }

    /// As [`collect`](Self::collect), and leaves the gate as it was.
    pub(super) fn collect_once(&self, books: &mut Books) {
        let was_closed = self.gate.is_closed();
        self.collect(books);
        if !was_closed {
            self.gate.open();
        }
    }

    /// Gives slabs that have left the books back to the system. Returns how many bytes it took.
    pub(super) fn release(&self, slabs: Vec<Slab>) -> usize {
        let (mut released, mut lost) = (0, 0);
        for slab in slabs {
            let bytes = slab.memory.bytes();
            // SAFETY: all blocks of a slab that has left the books are free, so no pending
            // operation names the memory, and no code accesses it. The thread is not inside a host
            // function: `trim` has asked `Context::driver`, and `close` and the keeper run on
            // ordinary threads.
            if unsafe { slab.release(&self.context) } { released += bytes } else { lost += bytes }
        }
        let mut books = self.lock();
        books.under_way -= 1;
        books.store.release(released);
        books.store.keep_unreleased(lost);
        books.counts.trims += u64::from(released > 0);
        self.serve(books);
        // Reported without the lock: other threads may wait for what this thread held.
        trace::released(released, lost);
        released
    }

    /// See [`PinnedPool::trim_to`](super::PinnedPool::trim_to).
    pub(super) fn trim(&self, operation: &'static str, keep: usize) -> Result<usize> {
        self.context.driver(operation)?;
        // Collects twice: blocks that threads have posted must be in the books before `retire` can
        // find them complete.
        self.collect_once(&mut self.lock());
        self.retire();
        let mut books = self.lock();
        self.collect_once(&mut books);
        let excess = books.store.free_bytes.saturating_sub(keep);
        let slabs = books.take_empty(excess, None);
        drop(books);
        Ok(if slabs.is_empty() { 0 } else { self.release(slabs) })
    }
}

/// The pool as the owner of its blocks.
fn owner(core: &Weak<Core>) -> NonNull<dyn BlockOwner> {
    let core: *const dyn BlockOwner = core.as_ptr();
    NonNull::new(core.cast_mut()).expect("a pool's address is not null")
}
