//! Blocks in flight: freed, but perhaps still used by a device.
//!
//! Each stream has a queue of the blocks that it used, in the order in which they came. A stream is
//! FIFO: finished blocks are at the front. A block that several streams use moves from one queue to
//! the next. A stuck stream holds up its own queue, and nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::memory::block::BlockRef;
use crate::timeline::Timeline;

/// How many blocks are examined between two acquisitions of the lock.
const BATCH: usize = 64;

/// The blocks in flight, by the number of their stream.
#[derive(Default)]
pub(crate) struct Parked {
    lots: BTreeMap<u64, (Arc<Timeline>, VecDeque<BlockRef>)>,
    /// All blocks in flight, including those examined right now without the lock.
    pub(crate) blocks: usize,
}

impl Parked {
    pub(crate) fn lot(&mut self, stream: &Arc<Timeline>) -> &mut VecDeque<BlockRef> {
        let lot = self.lots.entry(stream.id());
        &mut lot.or_insert_with(|| (stream.clone(), VecDeque::new())).1
    }

    /// The streams with parked blocks. The caller must drop the result without the lock, because a
    /// stream may end with it.
    pub(crate) fn streams(&self) -> Vec<Arc<Timeline>> {
        self.lots.values().map(|(stream, _)| stream.clone()).collect()
    }

    /// Forgets the streams that have no parked blocks any more. The caller must drop the result
    /// without the lock.
    pub(crate) fn forget_streams(&mut self) -> Vec<Arc<Timeline>> {
        let mut empty = Vec::new();
        self.lots.retain(|_, (stream, blocks)| {
            if blocks.is_empty() {
                empty.push(stream.clone());
            }
            !blocks.is_empty()
        });
        empty
    }

    /// The oldest blocks of a stream's queue.
    pub(crate) fn take_front(&mut self, stream: &Arc<Timeline>) -> VecDeque<BlockRef> {
        match self.lots.get_mut(&stream.id()) {
            Some((_, blocks)) => blocks.drain(..blocks.len().min(BATCH)).collect(),
            None => VecDeque::new(),
        }
    }

    /// Everything, at the end of the pool.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = BlockRef> + use<> {
        std::mem::take(&mut self.lots).into_values().flat_map(|(_, blocks)| blocks)
    }
}
