//! Finds blocks in flight that the devices are done with.
//!
//! A stream is FIFO: [`advance`](Timeline::advance) finds everything that is complete in a
//! logarithmic number of queries, and the blocks in the stream's queue are then free from the front
//! on. A thread looks at its own blocks first, which are the last that it dropped.

use std::sync::Arc;

use crate::memory::hazard::{Access, Hazards};
use crate::pool::books::store::Fate;
use crate::pool::core::Core;
use crate::pool::thread::cache::Cache;
use crate::pool::trace;
use crate::sync::atomic::Ordering::Relaxed;
use crate::timeline::Timeline;

/// Streams that blocks use, held until the blocks are where they belong: a stream may end with its
/// last use, and then code of its owner runs, which may need those blocks.
#[derive(Default)]
struct Streams(Vec<Arc<Timeline>>);

impl Streams {
    fn add(&mut self, hazards: &Hazards) {
        let Streams(streams) = self;
        let is_of = |stream: &Arc<Timeline>| !hazards.is_used_elsewhere(stream);
        if hazards.is_idle() || streams.iter().any(is_of) {
            return;
        }
        hazards.for_streams(|stream| {
            if !streams.iter().any(|known| Arc::ptr_eq(known, stream)) {
                streams.push(Arc::clone(stream));
            }
        });
    }
}

impl Core {
    /// Finds out which of the blocks that this thread has posted are free, and puts those on its
    /// shelves. Does not block. If a query fails, the other blocks are parked, for
    /// [`retire`](Self::retire). Returns false if nothing is posted. `cache` is this thread's.
    pub(crate) fn settle(&self, cache: &Cache) -> bool {
        if cache.posted.load(Relaxed) == 0 {
            return false;
        }
        let mut streams = Streams::default();
        {
            let _books = self.lock();
            // SAFETY: the owner's thread, under the pool's lock.
            unsafe { cache.posted() }.iter().for_each(|block| streams.add(&block.hazards));
        }
        let failed = streams.0.iter().filter(|stream| stream.advance().is_err()).count() > 0;
        let mut books = self.lock();
        // While the gate is closed, the outbox is empty: its blocks are in the books.
        debug_assert!(!self.gate.is_closed() || cache.posted.load(Relaxed) == 0);
        // Requests that wait come first.
        let keeps = books.queue.is_empty();
        // SAFETY: as above.
        for block in unsafe { cache.take_outbox() } {
            // No stream ends here: all are held.
            let free = block.hazards.all_complete();
            // SAFETY: as above; and the shelf has room.
            let kept = unsafe {
                match block.class.map(usize::from) {
                    Some(class) if free && keeps && cache.room(class) > 0 => {
                        cache.push(class, block);
                        Ok(())
                    }
                    Some(class) if !free && !failed => cache.post(class, block),
                    _ => Err(block),
                }
            };
            match kept {
                Ok(()) => {}
                Err(block) if free => books.store.put(block),
                Err(block) => books.store.park(block),
            }
        }
        self.serve(books);
        true
    }

    /// Finds blocks in flight that the devices are done with. Does not block.
    pub(crate) fn retire(&self) {
        if self.context.driver("PinnedPool::alloc").is_err() {
            return;
        }
        let streams = self.lock().store.parked.streams();
        for stream in &streams {
            let failed = stream.advance().is_err();
            while self.retire_front(stream, failed) {}
        }
        // Dropped without the lock.
        let _ended = self.lock().store.parked.forget_streams();
    }

    /// Looks at the oldest blocks in the queue of `stream`. Returns whether to look at the next
    /// ones. With `ask`, the stream's own query has failed: then each block is queried, and is lost
    /// if that fails too.
    fn retire_front(&self, stream: &Arc<Timeline>, ask: bool) -> bool {
        let mut front = self.lock().store.parked.take_front(stream);
        let mut streams = Streams::default();
        let (mut settled, mut lost) = (Vec::new(), Vec::new());
        while let Some(block) = front.pop_front() {
            let hazards = &block.hazards;
            streams.add(hazards);
            let next = || hazards.first_pending_stream();
            let fate = if hazards.all_complete() {
                Fate::Free
            } else if ask && hazards.poll(&(0..usize::MAX), Access::Write).is_err() {
                lost.push(block.bytes());
                Fate::Lost
            } else if next().is_some_and(|next| Arc::ptr_eq(&next, stream)) {
                front.push_front(block);
                break;
            } else {
                Fate::Elsewhere
            };
            settled.push((block, fate));
        }
        let go_on = front.is_empty() && !settled.is_empty();
        let mut books = self.lock();
        let store = &mut books.store;
        if !front.is_empty() {
            let lot = store.parked.lot(stream);
            front.into_iter().rev().for_each(|block| lot.push_front(block));
        }
        settled.into_iter().for_each(|(block, fate)| store.unpark(block, fate));
        self.serve(books);
        // Reported without the lock: other threads may wait for what this thread held.
        lost.into_iter().for_each(trace::quarantined);
        go_on
    }
}
