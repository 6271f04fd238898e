//! A hit: an allocation takes a free block that its thread keeps, and a drop gives it back.
//!
//! Nothing else runs in a hit but the typed wrappers [`PinnedPool::alloc`](crate::pool::PinnedPool)
//! and `PinnedBuf`. A hit takes no lock, waits for nothing, and writes only to memory of its own
//! thread. Everything else is slower: `take.rs` when no block is kept, `reclaim.rs` when the block
//! cannot be kept.

use std::any::Any;
use std::sync::Arc;

use super::cache::Cache;
use super::local::LAST;
use crate::context::Context;
use crate::memory::block::{BlockOwner, BlockRef};
use crate::pool::core::Core;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The calling thread is in the lane of its cache until this drops.
struct InLane<'a>(&'a Cache);

impl Core {
    /// Enters this thread's lane, unless the gate is closed or the thread used another pool last.
    ///
    /// # Safety
    ///
    /// * The result is dropped before this thread keeps another cache, or ends.
    #[inline]
    unsafe fn enter<'a>(&self) -> Option<InLane<'a>> {
        // SAFETY: `LAST` is null, or points to a cache that `local` keeps alive until the thread
        // keeps another one or ends. By the caller's precondition that is after the last use.
        let cache = unsafe { LAST.get().as_ref() }?;
        if cache.pool != self.id {
            return None;
        }
        cache.busy.store(true, Relaxed);
        let inside = InLane(cache);
        self.gate.fences.light();
        // Acquire: sees what the last closer did to the lane.
        let open_to = self.gate.open_to.load(Acquire);
        (open_to == self.gate.process.cell.load(Relaxed)).then_some(inside)
    }

    /// A free block of `class` that this thread keeps.
    #[inline]
    pub(crate) fn hit(&self, class: usize) -> Option<BlockRef> {
        // SAFETY: nothing here keeps a cache or ends the thread.
        let inside = unsafe { self.enter() }?;
        let cache = inside.0;
        let shelf = &cache.shelves[class];
        // SAFETY: the owner is in its lane.
        let block = unsafe { &mut *shelf.blocks.get() }.pop()?;
        // The counters have one writer: a load and a store are enough.
        shelf.len.store(shelf.len.load(Relaxed) - 1, Relaxed);
        shelf.hits.store(shelf.hits.load(Relaxed) + 1, Relaxed);
        cache.bytes.store(cache.bytes.load(Relaxed) - shelf.size, Relaxed);
        Some(block)
    }

    /// Keeps a block of `class` that a device may still use, or returns it.
    pub(crate) fn post(&self, class: usize, block: BlockRef) -> Result<(), BlockRef> {
        // SAFETY: nothing here keeps a cache or ends the thread.
        let Some(inside) = (unsafe { self.enter() }) else { return Err(block) };
        // SAFETY: the owner is in its lane.
        unsafe { inside.0.post(class, block) }
    }
}

impl BlockOwner for Core {
    fn context(&self) -> &Context {
        &self.context
    }

    fn held(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.handle.get()?.upgrade()
    }

    fn reclaim(&self, block: BlockRef) -> Option<Arc<dyn BlockOwner>> {
        if block.hazards.is_idle()
            && let Some(class) = block.class
            // SAFETY: nothing up to the end of this block keeps a cache or ends the thread.
            && let Some(inside) = unsafe { self.enter() }
        {
            let cache = inside.0;
            let shelf = &cache.shelves[usize::from(class)];
            // SAFETY: the owner is in its lane.
            let blocks = unsafe { &mut *shelf.blocks.get() };
            let bytes = cache.bytes.load(Relaxed) + shelf.size;
            if !blocks.is_full() && bytes <= cache.max_bytes {
                blocks.push(block);
                shelf.len.store(blocks.len() as u64, Relaxed);
                cache.bytes.store(bytes, Relaxed);
                // The pool has its block back. When `inside` drops, the pool may end. From here on
                // nothing touches `self`.
                return None;
            }
        }
        self.reclaim_slow(block)
    }
}

impl Drop for InLane<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.store(false, Release);
    }
}
