//! Which block an address lies in: a sorted table of slabs that is read without a lock.
//!
//! ```text
//!   state   [ slab | slab | slab ]      ascending, under a lock
//!             |  published
//!             v
//!   table   [ row | row | row | - ]     atomics, for readers; `version` is odd while they change
//! ```
//!
//! # Invariants
//!
//! * The slabs do not overlap.
//! * A reader takes what it has found only if `version` was even and the same before and after the
//!   search. Otherwise it searches under the lock. Rows that change under a reader give wrong
//!   numbers, and nothing of them is dereferenced.
//! * Tables stay until the index drops, because a reader may be in an old one. Each is twice as
//!   long as the one before, so all of them are at most twice as long as the last.

use std::ptr::NonNull;

use crate::memory::block::Block;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

/// Memory in blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) begin: usize,
    pub(super) end: usize,
    /// The size of a block.
    pub(super) each: usize,
    /// The descriptor of the first block; the others follow it.
    pub(super) blocks: NonNull<Block>,
}

// SAFETY: a `Extent` describes memory. Its pointer is to descriptors, which are `Send` and `Sync`.
unsafe impl Send for Extent {}

#[derive(Default)]
pub(super) struct Index {
    version: AtomicUsize,
    /// Null before there is a slab.
    table: AtomicPtr<Table>,
    /// How many rows of the table are in use.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slabs: Vec<Extent>,
    /// The last is the one in use. Boxed, since readers have their addresses.
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
    pub(super) fn find(&self, address: usize) -> Option<Extent> {
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
        let slabs = &self.state.lock().slabs;
        let behind = slabs.partition_point(|slab| slab.begin <= address);
        slabs[..behind].last().copied()
    }

    /// The last slab that begins at or below `address`, unless the rows change meanwhile.
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

    pub(super) fn insert(&self, slab: Extent) {
        let mut state = self.state.lock();
        let at = state.slabs.partition_point(|other| other.begin < slab.begin);
        let (before, behind) = state.slabs.split_at(at);
        debug_assert!(before.last().is_none_or(|before| before.end <= slab.begin), "they overlap");
        debug_assert!(behind.first().is_none_or(|behind| slab.end <= behind.begin), "they overlap");
        state.slabs.insert(at, slab);
        self.publish(&mut state, at);
    }

    /// Removes a slab, if it is there.
    pub(super) fn remove(&self, slab: Extent) {
        let mut state = self.state.lock();
        let at = state.slabs.partition_point(|other| other.begin < slab.begin);
        if state.slabs.get(at) == Some(&slab) {
            state.slabs.remove(at);
            self.publish(&mut state, at);
        }
    }

    /// Shows the slabs to readers; those before the first `same` have not changed.
    fn publish(&self, state: &mut State, same: usize) {
        let State { slabs, tables } = state;
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Who reads a changed row also reads the odd version, or a later one.
        fence(Ordering::Release);
        let mut same = same;
        if tables.last().is_none_or(|table| table.0.len() < slabs.len()) {
            let rows = slabs.len().next_power_of_two().max(FEWEST);
            tables.push(Box::new(Table((0..rows).map(|_| Row::default()).collect())));
            same = 0;
        }
        let table = tables.last().expect("there is one");
        for (row, &slab) in table.0.iter().zip(slabs.iter()).skip(same) {
            row.set(slab);
        }
        self.table.store(std::ptr::from_ref(&**table).cast_mut(), Ordering::Release);
        self.count.store(slabs.len(), Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// The rows of the first table.
const FEWEST: usize = if cfg!(test) { 1 } else { 64 };

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A slab of blocks that nobody looks at.
    fn slab(begin: usize, each: usize, count: usize) -> Extent {
        Extent { begin, end: begin + each * count, each, blocks: NonNull::dangling() }
    }

    #[test]
    fn an_address_lies_in_a_slab_from_its_first_byte_to_its_last() {
        let index = Index::default();
        assert_eq!(index.find(4096), None);
        let (first, second) = (slab(4096, 256, 16), slab(3 * 4096, 4096, 2));
        index.insert(second);
        index.insert(first);
        for (address, found) in [
            (0, None),
            (4095, None),
            (4096, Some(first)),
            (8191, Some(first)),
            (8192, None),
            (3 * 4096 - 1, None),
            (3 * 4096, Some(second)),
            (5 * 4096 - 1, Some(second)),
            (5 * 4096, None),
            (usize::MAX, None),
        ] {
            assert_eq!(index.find(address), found, "{address}");
        }
        index.remove(first);
        index.remove(first);
        assert_eq!((index.find(4096), index.find(4 * 4096)), (None, Some(second)));
        // Not the one that is there.
        index.remove(slab(3 * 4096, 4096, 1));
        assert_eq!(index.find(4 * 4096), Some(second));
    }

    #[test]
    fn it_agrees_with_a_map_whatever_comes_and_goes() {
        let index = Index::default();
        let mut model = BTreeMap::new();
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..3000 {
            let begin = (1 + random(200) as usize) * 4096;
            let there = slab(begin, 512, 1 + random(8) as usize);
            match model.remove(&begin) {
                Some(there) => index.remove(there),
                None => {
                    index.insert(there);
                    model.insert(begin, there);
                }
            }
            let address = random(210 * 4096) as usize;
            let below = model.range(..=address).next_back();
            let expected = below.map(|(_, &slab)| slab).filter(|slab| address < slab.end);
            assert_eq!(index.find(address), expected);
        }
        assert!(model.len() > 64, "it has grown: {}", model.len());
    }

    /// A slab that stays is found all the time, and nothing is found where nothing is.
    #[test]
    fn readers_are_right_while_others_write() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let (index, done) = (Index::default(), AtomicBool::new(false));
        let stays = slab(100 * 4096, 4096, 1);
        index.insert(stays);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(index.find(100 * 4096 + 7), Some(stays));
                        assert_eq!(index.find(101 * 4096), None);
                    }
                });
            }
            for round in 0..20_000 {
                let (below, above) =
                    (slab((round % 50) * 4096, 4096, 1), slab((200 + round % 70) * 4096, 256, 16));
                index.insert(below);
                index.insert(above);
                index.remove(below);
                index.remove(above);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
