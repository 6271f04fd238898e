//! Rows of pageable memory, as contiguous bytes: they are gathered into slots, or scattered out of
//! them, by as many threads as a slice of that length gets, without an entry for each row.

use crate::copy::entry::{Direction, Far, Sink, Source};
use crate::copy::staged::simd::{self, Stores};
use crate::error::Result;

/// How many rows ahead of its copy a row is prefetched: rows of a large table are usually in no
/// cache.
const AHEAD: usize = 8;

/// Rows of `row` bytes. `at` gives the address of a row, by its index among them.
pub(super) struct Gathered<A> {
    row: usize,
    at: A,
}

// SAFETY: several threads may call `at`, by the precondition of `new`. Callers of `Sink::drain`
// guarantee that no other code writes those bytes; no two rows are the same then.
unsafe impl<A> Sync for Gathered<A> {}

impl<A: Fn(usize) -> *mut u8> Gathered<A> {
    /// # Safety
    ///
    /// * While it is used, every row that the copy has is `row` bytes from `at` on, which are
    ///   borrowed. For a download they are borrowed exclusively, and no two rows overlap.
    /// * Several threads may call `at` at once.
    pub(super) unsafe fn new(row: usize, at: A) -> Self {
        Gathered { row, at }
    }

    /// The host side of an entry of all rows.
    pub(super) fn far(&self, direction: Direction) -> Far<'_> {
        match direction {
            Direction::Up => Far::Source(self, 0),
            Direction::Down => Far::Sink(self),
        }
    }

    /// Calls `with` for the parts of rows that make up `bytes` bytes from `offset` on: the address
    /// of a part, its offset in these bytes, and its length.
    fn each(&self, offset: u64, bytes: usize, mut with: impl FnMut(*mut u8, usize, usize)) {
        let offset = offset as usize;
        let last = (offset + bytes).div_ceil(self.row);
        let (mut done, mut from) = (0, offset % self.row);
        for n in offset / self.row..last {
            if n + AHEAD < last {
                simd::prefetch((self.at)(n + AHEAD), self.row);
            }
            let part = (self.row - from).min(bytes - done);
            with((self.at)(n).wrapping_add(from), done, part);
            done += part;
            from = 0;
        }
    }
}

impl<A: Fn(usize) -> *mut u8> Source for Gathered<A> {
    fn is_in_blocks(&self) -> bool {
        false
    }

    fn fill(&self, _: &'static str, offset: u64, into: &mut [u8], stores: Stores) -> Result<()> {
        let to = into.as_mut_ptr();
        self.each(offset, into.len(), |row, at, bytes| {
            // SAFETY: the part lies in a borrowed row (`new`), and in `into` (`each`), which is
            // borrowed exclusively.
            unsafe { simd::copy(to.wrapping_add(at), row, bytes, stores) };
        });
        Ok(())
    }
}

impl<A: Fn(usize) -> *mut u8> Sink for Gathered<A> {
    unsafe fn drain(&self, offset: u64, bytes: &[u8], stores: Stores) {
        let from = bytes.as_ptr();
        self.each(offset, bytes.len(), |row, at, bytes| {
            // SAFETY: as in `fill`; the row is borrowed exclusively and overlaps no other (`new`),
            // and no other code writes these bytes of it, by the precondition.
            unsafe { simd::copy(row, from.wrapping_add(at), bytes, stores) };
        });
    }
}
