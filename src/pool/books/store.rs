//! Which memory is page-locked, and which of its blocks are free or in flight. Pure data, changed
//! under the pool's lock, without driver calls.
//!
//! ```text
//!   stocks, by size                  slabs
//!     4 KiB:  free in {0, 3} ------>   0  [free o-o ][ live  live  in flight ]
//!             slabs, blocks, ...       3  [free o-o-o-o-o-o-o-o ]   could go back to the system
//!    64 KiB:  free in {}               1  [ live ]
//! ```
//!
//! # Invariants
//!
//! * `committed` counts every byte from before it is page-locked until it is released, including
//!   memory whose release failed. It never exceeds the budget.
//! * A slab that has left the books with all its blocks free is unused. Only such slabs are
//!   released.
//! * Live blocks, and those that threads keep, are in no list here.
//! * A free block is *loose* (in its stock) or *sorted* (in its slab); all others are *away*.
//!   Blocks that threads exchange stay loose. They are sorted when the pool looks for slabs that
//!   are wholly free.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::parked::Parked;
use crate::context::Context;
use crate::memory::block::{Block, BlockOwner, BlockRef};
use crate::pool::by_address::known::Known;
use crate::pool::classes::{PAGE, Size};
use crate::pool::keeper::grow::{LEAST_PART, SlabMemory};

/// For how long the system's refusal to page-lock more counts. Another process may release some.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// A piece of page-locked memory, cut into blocks of one size. Dropping it leaks it.
pub(crate) struct Slab {
    pub(crate) memory: SlabMemory,
    size: Size,
    blocks: NonNull<[Block]>,
    /// The number of the stock of its size.
    stock: usize,
    /// The slab's entry in the index that finds a block by address.
    known: Known,
    /// Sorted free blocks.
    free: Vec<BlockRef>,
    /// When all blocks were found to be free and sorted, while they are.
    empty_since: Option<Instant>,
    /// A block is quarantined, so the slab is never released.
    stuck: bool,
}

// SAFETY: a `Slab` owns its memory and its descriptors, which are `Send` and `Sync`.
unsafe impl Send for Slab {}

impl Slab {
    /// Cuts `memory` into blocks, which are all free. `owner` must outlive every block that is
    /// taken.
    fn new(
        memory: SlabMemory,
        size: Size,
        home: usize,
        stock: usize,
        owner: NonNull<dyn BlockOwner>,
    ) -> Self {
        let count = memory.bytes() / size.bytes;
        let class = size.class().map(|class| u8::try_from(class).expect("fewer than 256 classes"));
        let seam = memory.seam();
        debug_assert!(count == 1 || memory.bytes() <= seam, "no seam within a slab");
        let block = |index: usize| {
            // SAFETY: the offset lies within the memory, which has room for `count` blocks.
            let ptr = unsafe { memory.ptr().add(index * size.bytes) };
            Block::new(ptr, size.bytes, seam, home, class, owner)
        };
        let blocks: Box<[Block]> = (0..count).map(block).collect();
        let blocks = NonNull::from(Box::leak(blocks));
        let known = Known::new(memory.ptr(), size.bytes, blocks);
        // SAFETY: the descriptors were just made and live as long as the slab; each gets one right.
        let right = |index| unsafe { BlockRef::new(blocks.cast::<Block>().add(index)) };
        let free = (0..count).rev().map(right).collect();
        let empty_since = Some(Instant::now());
        Slab { memory, size, blocks, stock, known, free, empty_since, stuck: false }
    }

    /// Gives the memory of a slab that has left the books back; see [`Memory::release`].
    ///
    /// # Safety
    ///
    /// * As for [`Memory::release`].
    pub(crate) unsafe fn release(self, context: &Context) -> bool {
        debug_assert!(self.is_empty());
        drop(self.known);
        // SAFETY: `new` leaked the slice from a box. All rights to descriptors are in `free`, which
        // goes too.
        drop(unsafe { Box::from_raw(self.blocks.as_ptr()) });
        // SAFETY: the caller's precondition.
        unsafe { self.memory.release(context) }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.blocks.len()
    }
}

/// All blocks of one size.
#[derive(Default)]
pub(crate) struct Stock {
    pub(crate) size: Size,
    loose: Vec<BlockRef>,
    /// The slabs that have sorted free blocks. The oldest is used first, so that the youngest
    /// become empty.
    with_free: BTreeSet<usize>,
    pub(crate) blocks: usize,
    pub(crate) free: usize,
    pub(crate) parked: usize,
    pub(crate) quarantined: usize,
    pub(crate) growths: u64,
}

/// The outcome for a block in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Free,
    /// Another stream uses it.
    Elsewhere,
    Lost,
}

#[derive(Default)]
pub(crate) struct Store {
    budget: usize,
    /// How much the system has been found to page-lock, and when.
    refused: Option<(usize, Instant)>,
    /// The wanted bytes of one size: a growth page-locks what is missing of them in one slab, if
    /// there is room.
    pub(crate) slab_bytes: usize,
    pub(crate) committed: usize,
    pub(crate) peak: usize,
    /// Bytes of slabs that could not be released.
    pub(crate) unreleased: usize,
    /// Bytes of slabs that are stuck.
    stuck: usize,
    /// Less memory is left for requests, and those that this ends have not been looked for yet.
    pub(crate) shrunk: bool,
    stocks: Vec<Stock>,
    by_size: BTreeMap<Size, usize>,
    pub(crate) parked: Parked,
    slabs: Vec<Option<Slab>>,
    vacant: Vec<usize>,
    /// Bytes of free blocks.
    pub(crate) free_bytes: usize,
    /// Counted only for watermarks: two threads that exchange blocks would write these numbers in
    /// turn, which takes a tenth of the time.
    whole: Option<Whole>,
}

/// The slabs that have no block away, so that they could be given back.
#[derive(Default)]
struct Whole {
    slabs: usize,
    /// How many blocks of each slab are away.
    away: Vec<u32>,
}

impl Whole {
    fn add(&mut self, slab: usize) {
        self.slabs += 1;
        self.away.resize(self.away.len().max(slab + 1), 0);
    }

    fn lend(&mut self, slab: usize) {
        let away = &mut self.away[slab];
        self.slabs -= usize::from(*away == 0);
        *away += 1;
    }

    fn get_back(&mut self, slab: usize) {
        let away = &mut self.away[slab];
        *away -= 1;
        self.slabs += usize::from(*away == 0);
    }
}

impl Store {
    pub(crate) fn new(max_bytes: usize, counts_whole: bool) -> Self {
        // No block is larger than `isize::MAX`, so no sum overflows.
        let budget = max_bytes.min(isize::MAX as usize);
        Store { budget, whole: counts_whole.then(Whole::default), ..Store::default() }
    }

    /// Whether a slab could be given back. False if that is not counted.
    pub(crate) fn has_whole_slabs(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.slabs > 0)
    }

    /// The most that may be committed now.
    pub(crate) fn max_bytes(&self) -> usize {
        self.ceiling().unwrap_or(self.budget)
    }

    /// What the system page-locks, if it has refused more lately.
    pub(crate) fn ceiling(&self) -> Option<usize> {
        self.refused.filter(|(_, since)| since.elapsed() < BELIEVED_FOR).map(|(bytes, _)| bytes)
    }

    /// Notes that the system page-locks `more` bytes besides the committed ones, and refuses what
    /// goes beyond. For a moment that is the budget.
    pub(crate) fn note_refusal(&mut self, more: usize) {
        self.refused = Some((self.budget.min(self.committed + more), Instant::now()));
        self.shrunk = true;
    }

    /// The stocks, by size.
    pub(crate) fn stocks(&self) -> impl Iterator<Item = &Stock> {
        self.by_size.values().map(|&stock| &self.stocks[stock])
    }

    /// Whether a block of `size` is in flight.
    pub(crate) fn in_flight(&self, size: Size) -> bool {
        self.by_size.get(&size).is_some_and(|&stock| self.stocks[stock].parked > 0)
    }

    /// How many more bytes may be committed.
    pub(crate) fn room(&self) -> usize {
        self.max_bytes().saturating_sub(self.committed)
    }

    /// The stock that a block belongs to.
    fn stock_of(&mut self, block: &BlockRef) -> &mut Stock {
        let slab = self.slabs[block.home].as_ref();
        &mut self.stocks[slab.expect("a slab with blocks outside stays").stock]
    }

    /// A free block for a request of `size`.
    pub(crate) fn take(&mut self, size: Size) -> Option<BlockRef> {
        let stock = self.fitting(size)?;
        self.take_from(stock)
    }

    /// Up to `count` free blocks of exactly `size`.
    pub(crate) fn take_batch(&mut self, size: Size, count: usize, mut give: impl FnMut(BlockRef)) {
        let Some(&stock) = self.by_size.get(&size) else { return };
        for _ in 0..count {
            let Some(block) = self.take_from(stock) else { return };
            give(block);
        }
    }

    /// The stocks whose blocks may serve a request of `size`.
    fn serving(&self, size: Size) -> impl Iterator<Item = usize> {
        let last = Size { bytes: size.bytes.saturating_add(size.bytes / 4), ..size };
        let stocks = self.by_size.range(size..=last);
        stocks.filter(move |&(&other, _)| size.accepts(other)).map(|(_, &stock)| stock)
    }

    /// A stock with free blocks for a request of `size`.
    fn fitting(&self, size: Size) -> Option<usize> {
        self.serving(size).find(|&stock| self.stocks[stock].free > 0)
    }

    /// Whether a request of `size` could be served if every buffer were dropped and every device
    /// were done: by a block that is not lost, or by new memory in place of all that can be
    /// released. Once false it stays false, unless the system had refused memory.
    pub(crate) fn could_serve(&self, size: Size) -> bool {
        let left = self.max_bytes().saturating_sub(self.stuck + self.unreleased);
        let alive = |stock: usize| self.stocks[stock].blocks > self.stocks[stock].quarantined;
        self.smallest_growth(size) <= left || self.serving(size).any(alive)
    }

    fn take_from(&mut self, stock: usize) -> Option<BlockRef> {
        let stock = &mut self.stocks[stock];
        let block = match stock.loose.pop() {
            Some(block) => block,
            None => {
                let home = *stock.with_free.first()?;
                let slab = self.slabs[home].as_mut().expect("it has free blocks");
                let block = slab.free.pop()?;
                slab.empty_since = None;
                if slab.free.is_empty() {
                    stock.with_free.remove(&home);
                }
                block
            }
        };
        stock.free -= 1;
        self.free_bytes -= stock.size.bytes;
        if let Some(whole) = &mut self.whole {
            whole.lend(block.home);
        }
        Some(block)
    }

    /// Takes a block that is free again.
    pub(crate) fn put(&mut self, block: BlockRef) {
        if let Some(whole) = &mut self.whole {
            whole.get_back(block.home);
        }
        let stock = self.stock_of(&block);
        stock.loose.push(block);
        stock.free += 1;
        self.free_bytes += stock.size.bytes;
    }

    /// Moves the loose blocks to their slabs.
    fn sort(&mut self) {
        let now = Instant::now();
        for stock in &mut self.stocks {
            for block in stock.loose.drain(..) {
                let home = block.home;
                let slab = self.slabs[home].as_mut().expect("it has loose blocks");
                slab.free.push(block);
                if slab.free.len() == 1 {
                    stock.with_free.insert(home);
                }
                if slab.is_empty() {
                    slab.empty_since = Some(now);
                }
            }
        }
    }

    /// Takes a block back whose uses may be pending. It is parked even if they are complete by now:
    /// [`retire`](crate::pool::keeper::retire) ends them, without the lock, because a stream may
    /// end with them.
    pub(crate) fn park(&mut self, block: BlockRef) {
        match block.hazards.a_stream() {
            None => self.put(block),
            Some(stream) => {
                self.stock_of(&block).parked += 1;
                self.parked.blocks += 1;
                self.parked.lot(&stream).push_back(block);
            }
        }
    }

    /// Settles a block that was taken out of a queue: it is free, or used by another stream, or
    /// lost. If it cannot be known whether the device is done with it, the block is never used
    /// again and its slab is never released (soundness rule 4).
    pub(crate) fn unpark(&mut self, block: BlockRef, fate: Fate) {
        self.parked.blocks -= 1;
        let stock = self.stock_of(&block);
        stock.parked -= 1;
        match fate {
            Fate::Free => self.put(block),
            Fate::Elsewhere => self.park(block),
            Fate::Lost => {
                stock.quarantined += 1;
                self.stick(block.home);
            }
        }
    }

    /// Notes that a block of this slab is lost.
    fn stick(&mut self, home: usize) {
        let slab = self.slabs[home].as_mut().expect("a slab with blocks outside stays");
        if !std::mem::replace(&mut slab.stuck, true) {
            self.stuck += slab.memory.bytes();
        }
        self.shrunk = true;
    }

    /// Notes that the system did not take back slabs of this many bytes.
    pub(crate) fn keep_unreleased(&mut self, bytes: usize) {
        self.unreleased += bytes;
        self.shrunk |= bytes > 0;
    }

    /// Commits `bytes`, if the budget allows it.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.room();
        if fits {
            self.committed += bytes;
            self.peak = self.peak.max(self.committed);
        }
        fits
    }

    /// Uncommits bytes that have been released, or could not be page-locked.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.committed -= bytes;
    }

    /// How many bytes must be page-locked for one block.
    pub(crate) fn smallest_growth(&self, size: Size) -> usize {
        size.bytes.next_multiple_of(PAGE)
    }

    /// How many bytes to page-lock for a request of `size`: one block if there is no room for more
    /// or if `frugal`. Otherwise a slab with what is missing of the bytes that the owner wants, or,
    /// for a size of a class, as large as all memory of that size so far, at least 256 KiB, but at
    /// most 8 MiB and a sixteenth of the budget.
    pub(crate) fn growth(&self, size: Size, frugal: bool) -> usize {
        const SMALLEST_SLAB: usize = 256 << 10;
        let limit = LEAST_PART.min(self.budget / 16);
        let blocks = self.by_size.get(&size).map_or(0, |&stock| self.stocks[stock].blocks);
        let present = blocks * size.bytes;
        let by_itself = size.class().map_or(0, |_| present.max(SMALLEST_SLAB).min(limit));
        let target = by_itself.max(self.slab_bytes.saturating_sub(present));
        let one = self.smallest_growth(size);
        let slab = ((target / size.bytes).max(1) * size.bytes).next_multiple_of(PAGE);
        if slab <= self.room() && !frugal { slab } else { one }
    }

    /// Adds page-locked memory of committed bytes.
    pub(crate) fn add(&mut self, memory: SlabMemory, size: Size, owner: NonNull<dyn BlockOwner>) {
        let home = self.vacant.pop().unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() - 1
        });
        let number = *self.by_size.entry(size).or_insert_with(|| {
            self.stocks.push(Stock { size, ..Stock::default() });
            self.stocks.len() - 1
        });
        let slab = Slab::new(memory, size, home, number, owner);
        let blocks = slab.blocks.len();
        self.slabs[home] = Some(slab);
        self.free_bytes += blocks * size.bytes;
        if let Some(whole) = &mut self.whole {
            whole.add(home);
        }
        let stock = &mut self.stocks[number];
        stock.blocks += blocks;
        stock.free += blocks;
        stock.growths += 1;
        stock.with_free.insert(home);
    }

    /// Takes wholly free slabs out of the books, those free for longest first, until `bytes` of
    /// free blocks are gone. With `before`, only slabs that were free before that time. Their
    /// memory stays committed until it is [released](Self::release).
    pub(crate) fn take_empty(&mut self, bytes: usize, before: Option<Instant>) -> Vec<Slab> {
        self.sort();
        let mut empty: Vec<(Instant, usize)> = Vec::new();
        for (home, slab) in self.slabs.iter().enumerate() {
            if let Some(since) = slab.as_ref().and_then(|slab| slab.empty_since)
                && before.is_none_or(|before| since < before)
            {
                empty.push((since, home));
            }
        }
        let whole = self.whole.as_ref().map(|whole| whole.slabs);
        debug_assert!(before.is_some() || whole.is_none_or(|whole| whole == empty.len()));
        empty.sort_unstable();
        let mut taken = Vec::new();
        let mut sum = 0;
        for (_, home) in empty {
            if sum >= bytes {
                break;
            }
            let slab = self.slabs[home].take().expect("it was there");
            self.vacant.push(home);
            let free = slab.blocks.len() * slab.size.bytes;
            if let Some(whole) = &mut self.whole {
                whole.slabs -= 1;
            }
            sum += free;
            self.free_bytes -= free;
            let stock = &mut self.stocks[slab.stock];
            stock.blocks -= slab.blocks.len();
            stock.free -= slab.blocks.len();
            stock.with_free.remove(&home);
            taken.push(slab);
        }
        taken
    }

    /// How many blocks are outside of the books: live, or kept by threads.
    pub(crate) fn outside(&self) -> usize {
        let outside = |stock: &Stock| stock.blocks - stock.free - stock.parked - stock.quarantined;
        self.stocks.iter().map(outside).sum()
    }
}
