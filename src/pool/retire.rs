//! Blocks in flight: freed, but perhaps still used by a device.
//!
//! They are parked behind the stream that used them, in the order in which they came. A stream is
//! FIFO, so that its [`advance`](Timeline::advance) finds all that it is done with in a logarithmic
//! number of queries, and the blocks parked behind it are then free from the front on. A block that
//! several streams use goes from one to the next. A stuck stream holds up what is parked behind it,
//! and nothing else.

use std::collections::VecDeque;
use std::sync::Arc;

use super::core::Core;
use super::trace;
use crate::memory::block::BlockRef;
use crate::memory::hazard::Access;
use crate::timeline::Timeline;

/// How many blocks are looked at between two holds of the lock.
const BATCH: usize = 64;

/// The blocks in flight, by stream.
#[derive(Default)]
pub(super) struct Parked {
    lots: Vec<Lot>,
    /// All that is in flight, what is being looked at outside the lock included.
    pub(super) blocks: usize,
}

struct Lot {
    stream: Arc<Timeline>,
    blocks: VecDeque<BlockRef>,
}

impl Parked {
    pub(super) fn push(&mut self, stream: Arc<Timeline>, block: BlockRef) {
        self.blocks += 1;
        self.lot(stream).push_back(block);
    }

    fn lot(&mut self, stream: Arc<Timeline>) -> &mut VecDeque<BlockRef> {
        let index = self.lots.iter().position(|lot| Arc::ptr_eq(&lot.stream, &stream));
        let index = index.unwrap_or_else(|| {
            self.lots.push(Lot { stream, blocks: VecDeque::new() });
            self.lots.len() - 1
        });
        &mut self.lots[index].blocks
    }

    /// The streams that blocks are parked behind. Those that have no blocks any more leave the
    /// books; the caller must drop what it gets without the lock, for a stream may end with it.
    fn streams(&mut self) -> Vec<Arc<Timeline>> {
        let streams = self.lots.iter().map(|lot| lot.stream.clone()).collect();
        self.lots.retain(|lot| !lot.blocks.is_empty());
        streams
    }

    fn take_front(&mut self, stream: &Arc<Timeline>) -> VecDeque<BlockRef> {
        let Some(lot) = self.lots.iter_mut().find(|lot| Arc::ptr_eq(&lot.stream, stream)) else {
            return VecDeque::new();
        };
        lot.blocks.drain(..lot.blocks.len().min(BATCH)).collect()
    }

    /// Puts back, in their order, what was taken and is still in flight.
    fn put_front(&mut self, stream: &Arc<Timeline>, blocks: VecDeque<BlockRef>) {
        if blocks.is_empty() {
            return;
        }
        let lot = self.lot(stream.clone());
        blocks.into_iter().rev().for_each(|block| lot.push_front(block));
    }

    /// Everything, at the end of the pool.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = BlockRef> + use<> {
        std::mem::take(&mut self.lots).into_iter().flat_map(|lot| lot.blocks)
    }
}

impl Core {
    /// Finds blocks in flight that the devices are done with. Does not block.
    pub(super) fn retire(&self) {
        if self.context.driver("PinnedPool::alloc").is_err() {
            return;
        }
        let streams = self.lock().store.parked.streams();
        for stream in &streams {
            let advanced = stream.advance();
            while self.retire_front(stream, advanced.is_err()) {}
        }
    }

    /// Looks at the oldest blocks parked behind `stream`; whether it is worth looking at the next.
    /// If the stream cannot say, each block is asked about, and lost if that fails too.
    fn retire_front(&self, stream: &Arc<Timeline>, ask: bool) -> bool {
        let mut front = self.lock().store.parked.take_front(stream);
        let (mut done, mut elsewhere, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(block) = front.pop_front() {
            let hazards = block.hazards();
            if hazards.all_complete() {
                done.push(block);
            } else if ask && hazards.poll(&(0..usize::MAX), Access::Write).is_err() {
                lost.push(block);
            } else if hazards.first_pending_stream().is_some_and(|next| Arc::ptr_eq(&next, stream))
            {
                front.push_front(block);
                break;
            } else {
                elsewhere.push(block);
            }
        }
        let go_on =
            front.is_empty() && !(done.is_empty() && elsewhere.is_empty() && lost.is_empty());
        trace::quarantined(&lost);
        let mut state = self.lock();
        let store = &mut state.store;
        store.parked.put_front(stream, front);
        done.into_iter().for_each(|block| store.unpark(block));
        lost.into_iter().for_each(|block| store.quarantine(block));
        elsewhere.into_iter().for_each(|block| store.park_elsewhere(block));
        self.serve(state);
        go_on
    }
}
