//! Finds the block that an address lies in: a sorted table of slabs that is read without a lock.
//!
//! ```text
//!   slabs   [ slab | slab | slab ]      ascending, under a lock
//!             |  published
//!             v
//!   table   [ row | row | row | - ]     atomics, for readers; `version` is odd while they change
//! ```
//!
//! # Invariants
//!
//! * The slabs do not overlap.
//! * A reader uses its result only if `version` was even and the same before and after the search.
//!   Otherwise it searches under the lock. Rows that change under a reader give wrong numbers,
//!   which are never dereferenced.
//! * Tables stay until the index drops, because a reader may be in an old one. Each is twice as
//!   long as the one before, so all of them are at most twice as long as the last.

use std::ptr::NonNull;

use crate::memory::block::Block;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

/// Memory in blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// The size of a block.
    pub(crate) each: usize,
    /// The descriptor of the first block; the others follow it.
    pub(crate) blocks: NonNull<Block>,
}

// SAFETY: an `Extent` describes memory. Its pointer is to descriptors, which are `Send` and `Sync`.
unsafe impl Send for Extent {}
// SAFETY: as above.
unsafe impl Sync for Extent {}

#[derive(Default)]
pub(crate) struct Index {
    version: AtomicUsize,
    /// Null before there is a slab.
    table: AtomicPtr<Table>,
    /// How many rows of the table are in use.
    count: AtomicUsize,
    slabs: Mutex<Slabs>,
}

#[derive(Default)]
struct Slabs {
    sorted: Vec<Extent>,
    /// The last is the one in use. Boxed, because readers have their addresses.
    #[allow(clippy::vec_box)]
    tables: Vec<Box<Table>>,
}

struct Table(Box<[Row]>);

#[derive(Default)]
struct Row {
    begin: AtomicUsize,
    end: AtomicUsize,
    each: AtomicUsize,
    blocks: AtomicPtr<Block>,
}

impl Row {
    fn set(&self, slab: Extent) {
        self.begin.store(slab.begin, Ordering::Relaxed);
        self.end.store(slab.end, Ordering::Relaxed);
        self.each.store(slab.each, Ordering::Relaxed);
        self.blocks.store(slab.blocks.as_ptr(), Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> Option<Extent> {
        Some(Extent {
            begin: self.begin.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            each: self.each.load(Ordering::Relaxed),
            blocks: NonNull::new(self.blocks.load(Ordering::Relaxed))?,
        })
    }
}

impl Index {
    /// The slab that `address` lies in.
    #[inline]
    pub(crate) fn find(&self, address: usize) -> Option<Extent> {
        // Acquire: sees the rows of that version.
        let before = self.version.load(Ordering::Acquire);
        let found = self.search(address);
        // The rows were read before the version is read again.
        fence(Ordering::Acquire);
        let unchanged = self.version.load(Ordering::Relaxed) == before;
        let found = if unchanged && before.is_multiple_of(2) {
            found
        } else {
            self.find_under_lock(address)
        };
        found.filter(|slab| address < slab.end)
    }

    #[cold]
    fn find_under_lock(&self, address: usize) -> Option<Extent> {
        let slabs = &self.slabs.lock().sorted;
        let behind = slabs.partition_point(|slab| slab.begin <= address);
        slabs[..behind].last().copied()
    }

    /// The last slab that begins at or below `address`, unless the rows change during the search.
    #[inline]
    fn search(&self, address: usize) -> Option<Extent> {
        // SAFETY: null, or a table, which stays as long as the index.
        let table = unsafe { self.table.load(Ordering::Acquire).as_ref() }?;
        // The count may be that of a longer table.
        let count = self.count.load(Ordering::Relaxed).min(table.0.len());
        let rows = &table.0[..count];
        let behind = rows.partition_point(|row| row.begin.load(Ordering::Relaxed) <= address);
        rows[..behind].last()?.get()
    }

    pub(crate) fn insert(&self, slab: Extent) {
        let mut slabs = self.slabs.lock();
        let at = slabs.sorted.partition_point(|other| other.begin < slab.begin);
        let (before, behind) = slabs.sorted.split_at(at);
        debug_assert!(before.last().is_none_or(|before| before.end <= slab.begin), "they overlap");
        debug_assert!(behind.first().is_none_or(|behind| slab.end <= behind.begin), "they overlap");
        slabs.sorted.insert(at, slab);
        self.publish(&mut slabs, at);
    }

    /// Removes a slab, if it is there.
    pub(crate) fn remove(&self, slab: Extent) {
        let mut slabs = self.slabs.lock();
        let at = slabs.sorted.partition_point(|other| other.begin < slab.begin);
        if slabs.sorted.get(at) == Some(&slab) {
            slabs.sorted.remove(at);
            self.publish(&mut slabs, at);
        }
    }

    /// Shows the slabs to readers; those before the first `same` have not changed.
    fn publish(&self, slabs: &mut Slabs, same: usize) {
        let Slabs { sorted, tables } = slabs;
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees a changed row also sees the odd version, or a later one.
        fence(Ordering::Release);
        let mut same = same;
        if tables.last().is_none_or(|table| table.0.len() < sorted.len()) {
            let rows = sorted.len().next_power_of_two().max(FEWEST);
            tables.push(Box::new(Table((0..rows).map(|_| Row::default()).collect())));
            same = 0;
        }
        let table = tables.last().expect("there is one");
        for (row, &slab) in table.0.iter().zip(sorted.iter()).skip(same) {
            row.set(slab);
        }
        self.table.store(std::ptr::from_ref(&**table).cast_mut(), Ordering::Release);
        self.count.store(sorted.len(), Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// The rows of the first table. Few in tests, so that tables grow soon.
const FEWEST: usize = if cfg!(test) { 1 } else { 64 };
