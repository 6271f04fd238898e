//! How blocks come back: from buffers, from threads that end, and all of them at the end of the
//! pool.
//!
//! A dropped buffer's block goes to its thread's cache: to a shelf if it is free, to the outbox if
//! a device may still use it. What the cache does not take goes to the books, under the lock.
//!
//! # The end of a pool
//!
//! Buffers hold no reference to the pool; they do not count themselves. When the last handle goes,
//! the gate closes for good and the pool takes one reference to itself for every block that is
//! outside. From then on each block that comes back, now always under the lock, brings its
//! reference along, and the last one ends the pool.

use std::sync::Arc;

use super::cache::Cache;
use super::core::Core;
use super::store::Store;
use super::{keeper, local};
use crate::context::Context;
use crate::memory::block::{BlockOwner, BlockRef};
use crate::memory::hazard::Access;
use crate::process::on_ordinary_thread;

impl BlockOwner for Core {
    fn context(&self) -> &Context {
        &self.context
    }

    fn reclaim(&self, block: BlockRef) -> Option<Arc<dyn BlockOwner>> {
        // The lock may be held there by a thread that exists in the parent only.
        if !self.process.is_current() {
            return None;
        }
        // SAFETY: neither `put` nor `post` adds a cache or ends the thread.
        let cache = unsafe { local::last(self.id) };
        let (Some(class), Some(cache)) = (block.class(), cache) else {
            return self.reclaim_unusual(block);
        };
        let free = block.hazards().all_complete();
        let kept = if free {
            cache.put(&self.gate, class, block)
        } else {
            cache.post(&self.gate, class, block)
        };
        match kept {
            // From here on `self` may be gone: nothing of it is touched.
            Ok(()) => None,
            Err(block) => self.reclaim_slow(block, free),
        }
    }
}

impl Core {
    /// Takes a block back that has no bytes, or that threads do not keep, or when this thread used
    /// another pool last.
    #[cold]
    fn reclaim_unusual(&self, block: BlockRef) -> Option<Arc<dyn BlockOwner>> {
        if block.bytes() == 0 {
            // SAFETY: `take_empty_block` leaked a reference for this block.
            return Some(unsafe { Arc::from_raw(self.me.as_ptr()) });
        }
        if block.class().is_some() && local::get(self.id).is_some() {
            return self.reclaim(block);
        }
        let free = block.hazards().all_complete();
        self.reclaim_slow(block, free)
    }

    /// Takes a block back that the thread's cache did not take.
    #[cold]
    fn reclaim_slow(&self, block: BlockRef, free: bool) -> Option<Arc<dyn BlockOwner>> {
        let cache = self.own_cache();
        let mut state = self.lock();
        let open = !self.gate.is_closed();
        match (&cache, block.class()) {
            (Some(cache), Some(class)) if open && free => {
                // SAFETY: the owner's thread, under the pool's lock, and the gate is open; and
                // there is room.
                unsafe {
                    if cache.room(class, block.bytes()) == 0 {
                        cache.make_room(class, |other| state.store.put(other));
                    }
                    if cache.room(class, block.bytes()) > 0 {
                        cache.push(class, block);
                    } else {
                        state.store.put(block);
                    }
                }
            }
            (Some(cache), Some(_)) if open => {
                // SAFETY: as above.
                unsafe { cache.take_outbox() }.for_each(|block| state.store.park(block));
                state.store.park(block);
            }
            _ if free => state.store.put(block),
            _ => state.store.park(block),
        }
        if state.closed {
            // SAFETY: when the pool was closed it took a reference for every block that was
            // outside; this block was, and has just come back.
            return Some(unsafe { Arc::from_raw(self.me.as_ptr()) });
        }
        self.serve(state);
        None
    }

    /// Brings what this thread has posted to the books; `cache` is its own.
    pub(super) fn post_all(&self, cache: &Cache) {
        if !cache.has_posted(&self.gate) {
            return;
        }
        let mut state = self.lock();
        // SAFETY: the owner's thread, under the pool's lock.
        let posted = unsafe { cache.take_outbox() };
        state.under_way += 1;
        drop(state);
        // Oldest first; and the uses that are complete end here, without the lock, for streams may
        // end with them.
        let blocks: Vec<(bool, BlockRef)> =
            posted.map(|block| (block.hazards().all_complete(), block)).collect();
        let mut state = self.lock();
        state.under_way -= 1;
        for (free, block) in blocks {
            if free { state.store.put(block) } else { state.store.park(block) }
        }
        self.serve(state);
    }

    /// A thread ends; what it kept is everybody's.
    pub(super) fn forget_cache(&self, cache: &Arc<Cache>) {
        if self.context.releaser().is_none() {
            return;
        }
        let mut state = self.lock();
        let Some(index) = state.caches.iter().position(|other| Arc::ptr_eq(other, cache)) else {
            return;
        };
        state.caches.swap_remove(index);
        state.counts.forget(cache);
        // SAFETY: the owner's thread, under the pool's lock.
        unsafe {
            cache.empty_shelves(|block| state.store.put(block));
            cache.take_outbox().for_each(|block| state.store.park(block));
        }
        self.serve(state);
    }

    /// The last handle is gone: gives back what is free, and leaves the rest to the buffers that
    /// are alive.
    pub(super) fn close(self: Arc<Self>) {
        let (keeper, slabs) = {
            let mut state = self.lock();
            state.closed = true;
            self.collect(&mut state);
            state.caches.clear();
            let (all, here) = state.store.blocks();
            for _ in here..all {
                let _ = Arc::into_raw(self.clone());
            }
            self.wake.notify_all();
            (state.keeper.take(), state.take_empty(usize::MAX, None))
        };
        if !slabs.is_empty() {
            self.release(slabs);
        }
        if let Some(keeper) = keeper.filter(|_| !keeper::is_current(&self)) {
            let _ = keeper.join();
        }
    }
}

impl Drop for Core {
    /// Neither handles nor buffers are left: waits for what is in flight, and gives everything
    /// back.
    fn drop(&mut self) {
        let mut store = std::mem::replace(&mut self.lock().store, Store::new(0));
        let context = self.context.clone();
        on_ordinary_thread(move || {
            for block in store.parked.take_all() {
                // What cannot be waited for stays out of its slab, which is then never given back.
                if block.hazards().wait(&(0..usize::MAX), Access::Write).is_ok() {
                    store.put(block);
                }
            }
            for slab in store.take_empty(usize::MAX, None) {
                // SAFETY: all blocks of the slab are free and nobody can take one any more; this is
                // an ordinary thread. A failure leaks the memory.
                let _ = unsafe { slab.release(&context) };
            }
        });
    }
}
