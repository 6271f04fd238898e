//! Finds blocks in flight that the devices are done with.
//!
//! A stream is FIFO: [`advance`](Timeline::advance) finds everything that is complete in a
//! logarithmic number of queries, and the blocks in the stream's queue are then free from the front
//! on.

use std::sync::Arc;

use crate::memory::hazard::Access;
use crate::pool::books::store::Fate;
use crate::pool::core::Core;
use crate::pool::trace;
use crate::timeline::Timeline;

impl Core {
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
    }

    /// Looks at the oldest blocks in the queue of `stream`. Returns whether to look at the next
    /// ones. With `ask`, the stream's own query has failed: then each block is queried, and is lost
    /// if that fails too.
    fn retire_front(&self, stream: &Arc<Timeline>, ask: bool) -> bool {
        let mut front = self.lock().store.parked.take_front(stream);
        let (mut settled, mut lost) = (Vec::new(), Vec::new());
        while let Some(block) = front.pop_front() {
            let hazards = &block.hazards;
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
