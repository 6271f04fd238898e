//! The copy of one batch to the device.
//!
//! ```text
//!   slices of pageable memory, much    --- the staging ring, the copy team ---.
//!   slices of pageable memory, little  --- memcpy ----> a block ---------------+--> device memory
//!   reserved slices                    --- fill() ----> of the pool            '    recycled
//! ```
//!
//! A worker keeps its blocks and lists from batch to batch.

use std::error::Error as StdError;
use std::sync::Arc;

use super::host::{FillBlock, HostBatch, IntoHostBatch, Slices};
use super::parts::Parts;
use super::progress::Progress;
use super::recycler::{BatchMemory, Recycler};
use crate::copy::entry::{Direction, Entry};
use crate::copy::route::Between;
use crate::copy::staged::team::Workload;
use crate::copy::transfer::Transfer;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::memory::PinnedBuf;
use crate::pool::PinnedPool;
use crate::stream::Stream;
use crate::ticket::Ticket;

const OPERATION: &str = "Prefetch";

/// A batch whose copy has been enqueued.
pub(super) struct Copied {
    pub(super) number: u64,
    /// With an event of its own, so that one call makes the consumer's stream wait.
    pub(super) ticket: Ticket,
    pub(super) set: BatchMemory,
}

/// The resources that a worker copies with.
pub(super) struct Copier {
    /// Only this worker's: a copy that waits for the consumer delays no other worker.
    stream: Stream,
    blocks: Blocks,
    recycler: Arc<Recycler>,
    progress: Progress,
    /// Empty between two batches, but keeps its capacity.
    slices: Slices<'static>,
    entries: Vec<Entry<'static>>,
}

impl Copier {
    pub(super) fn new(
        recycler: &Arc<Recycler>,
        pool: &PinnedPool,
        progress: &Progress,
    ) -> Result<Self> {
        Ok(Copier {
            stream: recycler.device().stream()?,
            blocks: Blocks { pool: pool.clone(), kept: [None, None] },
            recycler: recycler.clone(),
            progress: progress.clone(),
            slices: Slices::default(),
            entries: Vec::new(),
        })
    }

    /// Copies a batch, unless `wanted` refuses its size in bytes. Runs the batch's own code.
    pub(super) fn copy(
        &mut self,
        number: u64,
        item: impl IntoHostBatch,
        wanted: impl FnOnce(usize) -> bool,
    ) -> Result<Option<Copied>> {
        let mut batch = item.into_batch().map_err(|source| failed(number, source))?;
        let mut slices: Slices<'_> = std::mem::take(&mut self.slices);
        batch.visit(&mut slices);
        if let Some(error) = slices.error.take() {
            return Err(error);
        }
        let total = slices.parts.total();
        let bytes = slices.parts.as_slice().iter().map(|part| part.bytes).sum();
        if !wanted(bytes) {
            return Ok(None);
        }
        let is_small = self.stream.device.engine()?.is_small(total);
        let mut set = self.recycler.take(total)?;
        std::mem::swap(&mut slices.parts, &mut set.parts);
        let reserved = slices.has_reserved();
        let enqueued = if reserved || is_small {
            let block = self.gather(&set.parts, &slices.sources);
            self.slices = slices.emptied();
            block.and_then(|mut block| {
                if reserved {
                    let mut room =
                        FillBlock { parts: &set.parts, bytes: &mut block.write()?[..total] };
                    batch.fill(&mut room).map_err(|source| failed(number, source))?;
                }
                self.stream.upload(block.slice(..total)?, set.buffer.slice_mut(..total)?)?;
                self.blocks.keep(block);
                self.stream.record()
            })
        } else {
            let enqueued = self.stage(&mut set, &slices.sources);
            self.slices = slices.emptied();
            enqueued
        };
        match enqueued {
            Ok(ticket) => {
                // Before the return: if the batch's drop panics, ticket and set drop with it.
                drop(batch);
                self.progress.count_uploaded(bytes);
                Ok(Some(Copied { number, ticket, set }))
            }
            Err(error) => {
                self.recycler.put(set);
                Err(error)
            }
        }
    }

    /// A block with the existing slices, each at its offset.
    fn gather(&mut self, parts: &Parts, sources: &[Option<&[u8]>]) -> Result<PinnedBuf<u8>> {
        let mut block = self.blocks.take(parts.total())?;
        let bytes = block.write()?;
        for (part, source) in parts.as_slice().iter().zip(sources) {
            if let Some(source) = source {
                bytes[part.start..part.end()].copy_from_slice(source);
            }
        }
        Ok(block)
    }

    /// Copies slices through the ring. All of them exist already.
    fn stage(&mut self, set: &mut BatchMemory, sources: &[Option<&[u8]>]) -> Result<Ticket> {
        let BatchMemory { parts, buffer } = set;
        let slices = parts.as_slice().iter().zip(sources.iter().flatten());
        let (mut rest, mut at) = (buffer.as_slice_mut(), 0);
        let mut entries: Vec<Entry<'_>> = std::mem::take(&mut self.entries);
        for (part, &source) in slices {
            let (_, behind) = rest.split_at_mut(part.start - at)?;
            let (device, behind) = behind.split_at_mut(part.bytes)?;
            entries.push(Entry::from_host(source, device.into()));
            (rest, at) = (behind, part.end());
        }
        let door = self.stream.door(OPERATION);
        let engine = self.stream.device.engine()?;
        let transfer = Transfer::new(door, Direction::Up, &entries)?;
        let group = transfer.survey.group;
        let route =
            engine.abilities(door)?.choose(door.stream, Between::Slots(Direction::Up), group);
        let ticket = engine.copy(transfer, route, Workload::Ahead);
        self.entries = emptied(entries);
        ticket
    }
}

/// A worker's page-locked memory: two blocks, so that one is filled while the other is copied. The
/// worker keeps them until it ends, because giving blocks in flight back to the pool costs more.
struct Blocks {
    pool: PinnedPool,
    /// The most recently kept block is last.
    kept: [Option<PinnedBuf<u8>>; 2],
}

impl Blocks {
    /// A block of at least `bytes` bytes; its last copy may be pending.
    fn take(&mut self, bytes: usize) -> Result<PinnedBuf<u8>> {
        let fits = |block: &PinnedBuf<u8>| block.len() >= bytes;
        self.kept[0].take_if(|block| !fits(block));
        if let Some(block) = self.kept[0].take() {
            return Ok(block);
        }
        let new = self.pool.alloc::<u8>(PinnedPool::block_bytes(bytes).unwrap_or(bytes));
        match (new, self.kept[1].take_if(|block| fits(block))) {
            (Ok(new), last) => {
                self.kept[1] = last;
                Ok(new)
            }
            // If memory is short, one block is enough.
            (Err(_), Some(last)) => Ok(last),
            (Err(error), None) => Err(error),
        }
    }

    fn keep(&mut self, block: PinnedBuf<u8>) {
        self.kept.swap(0, 1);
        self.kept[1] = Some(block);
    }
}

impl Slices<'_> {
    /// Empties the list, and keeps its memory for another batch.
    fn emptied(mut self) -> Slices<'static> {
        self.parts.clear();
        Slices { parts: self.parts, sources: emptied(self.sources), error: None }
    }
}

/// An empty list in the memory of `list`: a list of no elements borrows nothing. The standard
/// library collects in place where the elements have the same layout.
fn emptied<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().map(|_| unreachable!("it has been cleared")).collect()
}

/// An error of the producer's own code.
#[cold]
fn failed(number: u64, source: Box<dyn StdError + Send + Sync>) -> Error {
    let what = format!("batch {number}: {source}");
    Error::new(ErrorKind::Producer, OPERATION, what, Remedy::LookAtProducer).with_source(source)
}

#[cfg(test)]
mod tests {
    use super::emptied;

    #[test]
    fn an_emptied_list_keeps_its_memory() {
        let text = String::from("borrowed");
        let list: Vec<&str> = Vec::from([text.as_str(); 100]);
        let place = list.as_ptr().addr();
        let emptied: Vec<&'static str> = emptied(list);
        drop(text);
        assert!(emptied.is_empty() && emptied.capacity() >= 100);
        assert_eq!(emptied.as_ptr().addr(), place);
    }
}
