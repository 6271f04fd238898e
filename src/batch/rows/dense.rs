//! Rows of pageable tables that are contiguous on the device. They are gathered into slots, or
//! scattered out of them, by as many threads as a slice of that length gets, without an entry for
//! each row.

use super::indices::Indices;
use super::tables::Tables;
use crate::batch::items::HostSide;
use crate::copy::entry::{Direction, Entry, Far, Sink, Source};
use crate::copy::order::Door;
use crate::copy::route::Route;
use crate::copy::staged::simd::{self, Stores};
use crate::copy::staged::team::Workload;
use crate::copy::transfer::Transfer;
use crate::error::Result;
use crate::stream::Stream;
use crate::ticket::Ticket;

/// How many rows ahead of its copy a row is prefetched: rows of a large table are usually in no
/// cache.
const AHEAD: usize = 8;

impl Tables<'_, '_> {
    /// Whether the rows are contiguous on the device, and all tables lie in pageable memory.
    pub(super) fn are_dense_and_pageable(&self) -> bool {
        let (host, device) = self.by_side();
        device.count().is_none()
            && !host.is_on_device()
            && self.layers.iter().all(|layer| layer.0.pinned.is_none())
    }
}

/// Copies the rows, as a copy of slices. Tables [are dense and
/// pageable](Tables::are_dense_and_pageable).
pub(super) fn copy(stream: &Stream, door: Door<'_>, tables: &Tables<'_, '_>) -> Result<Ticket> {
    let (direction, row) = (tables.direction, tables.row);
    if direction == Direction::Down && tables.to.distinct {
        // Two threads must not write one row, even if the caller's promise is false.
        tables.to.check_distinct(door.operation)?;
    }
    let numbers = tables.by_side().0;
    let of_layers: Vec<_> = tables
        .layers
        .iter()
        .map(|(table, _)| Rows { table, row, rows: tables.host_rows, numbers })
        .collect();
    let far: Vec<_> = of_layers
        .iter()
        .map(|rows| match direction {
            Direction::Up => Far::Source(rows, 0),
            Direction::Down => Far::Sink(rows),
        })
        .collect();
    let both = far.iter().zip(&tables.layers);
    let entries: Vec<_> = both
        .map(|(far, (_, device))| Entry::far(far, device.part(0, tables.count * row)))
        .collect();
    let transfer = Transfer::new(door, direction, &entries)?;
    let engine = stream.device.engine()?;
    engine.copy(transfer, Route::Copies, Workload::Waiting)
}

/// The rows of one table, as contiguous bytes.
struct Rows<'t> {
    table: &'t HostSide<'t>,
    row: usize,
    /// How many rows the table has.
    rows: usize,
    numbers: &'t Indices<'t>,
}

// SAFETY: a borrowed table and borrowed numbers. Callers of `Sink::drain` guarantee that no other
// code writes those rows; no two numbers are the same then (`check_distinct`).
unsafe impl Sync for Rows<'_> {}

impl Rows<'_> {
    /// The address of a row, by its index among the numbers.
    #[inline]
    fn at(&self, n: usize) -> *mut u8 {
        let number = self.numbers.get(n) as usize;
        assert!(number < self.rows, "checked at the call");
        self.table.host.wrapping_add(number * self.row)
    }

    /// Calls `with` for the parts of rows that make up `bytes` bytes from `offset` on: the address
    /// of a part, its offset in these bytes, and its length.
    fn each(&self, offset: u64, bytes: usize, mut with: impl FnMut(*mut u8, usize, usize)) {
        let offset = offset as usize;
        let last = (offset + bytes).div_ceil(self.row);
        let (mut done, mut from) = (0, offset % self.row);
        for n in offset / self.row..last {
            if n + AHEAD < last {
                simd::prefetch(self.at(n + AHEAD), self.row);
            }
            let part = (self.row - from).min(bytes - done);
            with(self.at(n).wrapping_add(from), done, part);
            done += part;
            from = 0;
        }
    }
}

impl Source for Rows<'_> {
    fn is_in_blocks(&self) -> bool {
        false
    }

    fn fill(&self, _: &'static str, offset: u64, into: &mut [u8], stores: Stores) -> Result<()> {
        let to = into.as_mut_ptr();
        self.each(offset, into.len(), |row, at, bytes| {
            // SAFETY: the part lies in a row, which lies in the borrowed table (`at`), and in
            // `into` (`each`), which is borrowed exclusively.
            unsafe { simd::copy(to.wrapping_add(at), row, bytes, stores) };
        });
        Ok(())
    }
}

impl Sink for Rows<'_> {
    unsafe fn drain(&self, offset: u64, bytes: &[u8], stores: Stores) {
        let from = bytes.as_ptr();
        self.each(offset, bytes.len(), |row, at, bytes| {
            // SAFETY: as in `fill`; the table is borrowed exclusively, no other number names the
            // row, and no other code writes these bytes of it, by the precondition.
            unsafe { simd::copy(row, from.wrapping_add(at), bytes, stores) };
        });
    }
}
