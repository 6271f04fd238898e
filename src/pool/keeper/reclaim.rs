//! How blocks come back without a hit: from buffers, from threads that end, and all of them at the
//! end of the pool.
//!
//! A dropped buffer's block goes to its thread's cache: to a shelf if it is free, to the outbox if
//! a device may still use it. If the cache does not take the block, it goes to the books, under the
//! lock.
//!
//! # The end of a pool
//!
//! Buffers hold no reference to the pool; they do not count themselves. When the last handle drops,
//! the gate closes for good and the pool takes one reference to itself for every block that is
//! outside. From then on each block that comes back, now always under the lock, brings its
//! reference along. The last one ends the pool.

use std::sync::Arc;

use crate::context::Context;
use crate::memory::block::{BlockOwner, BlockRef};
use crate::memory::hazard::Access;
use crate::pool::books::store::Store;
use crate::pool::core::Core;
use crate::pool::thread::cache::Cache;
use crate::pool::thread::local::{self, Home};
use crate::pool::trace;
use crate::process::on_ordinary_thread;

impl Core {
    /// Takes back a block that the hit path could not take. Not inlined: a hit would save the
    /// registers that this needs.
    #[inline(never)]
    pub(crate) fn reclaim_slow(&self, block: BlockRef) -> Option<Arc<dyn BlockOwner>> {
        // In a forked child a thread that exists only in the parent may hold the lock.
        if !self.context.is_current() {
            return None;
        }
        if block.bytes() == 0 {
            // SAFETY: `take_empty_block` leaked a reference for this block.
            return Some(unsafe { Arc::from_raw(self.me.as_ptr()) });
        }
        let was_idle = block.hazards.is_idle();
        // A stream may end with its last use, and then code of its owner runs, which may need the
        // block: not before the block is in its place.
        let (free, _ended) = block.hazards.end_complete();
        if free && !was_idle {
            // Its uses are over, so it may be kept.
            return self.reclaim(block);
        }
        let block = match block.class {
            Some(class) if !free => match self.post(class.into(), block) {
                Ok(()) => return None,
                Err(block) => block,
            },
            _ => block,
        };
        if block.class.is_some() && local::switch_to(self.id) {
            // This thread used another pool last.
            return self.reclaim(block);
        }
        self.give_to_books(block, free)
    }

    /// Takes back, under the lock, a block that the thread's cache did not take.
    #[cold]
    fn give_to_books(&self, block: BlockRef, free: bool) -> Option<Arc<dyn BlockOwner>> {
        let cache = block.class.and_then(|class| Some((class.into(), self.own_cache()?)));
        let mut books = self.lock();
        match cache.filter(|_| !self.gate.is_closed()) {
            // SAFETY: the owner's thread, under the pool's lock; and there is room.
            Some((class, cache)) if free => unsafe {
                if cache.room(class) == 0 {
                    cache.make_room(class, |other| books.store.put(other));
                }
                match cache.room(class) {
                    0 => books.store.put(block),
                    _ => cache.push(class, block),
                }
            },
            Some((_, cache)) => {
                // SAFETY: as above.
                let posted = unsafe { cache.take_outbox() };
                posted.into_iter().for_each(|block| books.store.park(block));
                books.store.park(block);
            }
            None if free => books.store.put(block),
            None => books.store.park(block),
        }
        if books.closed {
            // SAFETY: when the pool was closed, it took a reference for every block that was
            // outside. This block was outside, and has just come back.
            return Some(unsafe { Arc::from_raw(self.me.as_ptr()) });
        }
        self.serve(books);
        None
    }

    /// Called when the last handle drops: gives back free memory, and leaves the rest to the live
    /// buffers.
    pub(crate) fn close(self: Arc<Self>) {
        let (keeper, slabs) = {
            let mut books = self.lock();
            books.closed = true;
            self.collect(&mut books);
            books.caches.clear();
            for _ in 0..books.store.outside() {
                let _ = Arc::into_raw(self.clone());
            }
            self.wake.notify_all();
            (books.keeper.take(), books.take_empty(usize::MAX, None))
        };
        if !slabs.is_empty() {
            self.release(slabs);
        }
        if let Some(keeper) = keeper.filter(|_| !self.is_keeper()) {
            keeper.join();
        }
    }
}

impl Home for Core {
    fn take_back(&self, cache: &Arc<Cache>) {
        if self.context.is_current() {
            let mut books = self.lock();
            books.take_back(cache);
            self.serve(books);
        }
    }
}

impl Drop for Core {
    /// No handles and no buffers are left: waits for blocks in flight, and gives everything back.
    fn drop(&mut self) {
        const OPERATION: &str = "PinnedPool::drop";
        let store = std::mem::take(&mut self.lock().store);
        let end = |(context, mut store): (Arc<Context>, Store)| {
            for block in store.parked.take_all() {
                // A block that cannot be waited for stays out of its slab, which is then never
                // given back.
                match block.hazards.wait(&(0..usize::MAX), Access::Write, OPERATION) {
                    Ok(()) => store.put(block),
                    Err(_) => trace::quarantined(block.bytes()),
                }
            }
            for slab in store.take_empty(usize::MAX, None) {
                let bytes = slab.memory.bytes();
                // SAFETY: all blocks of the slab are free and can no longer be taken; this is an
                // ordinary thread. A failure leaks the memory.
                if !unsafe { slab.release(&context) } {
                    trace::released(0, bytes);
                }
            }
        };
        let lost = |(_, store): &mut (Arc<Context>, Store)| trace::released(0, store.committed);
        on_ordinary_thread((self.context.clone(), store), end, lost);
    }
}
