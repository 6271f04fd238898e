//! Rows of pageable tables that are contiguous on the device.

use super::tables::Tables;
use crate::batch::gather::Gathered;
use crate::batch::items::HostSide;
use crate::copy::entry::{Direction, Entry};
use crate::copy::order::Door;
use crate::copy::route::Route;
use crate::copy::staged::team::Workload;
use crate::copy::transfer::Transfer;
use crate::error::Result;
use crate::stream::Stream;
use crate::ticket::Ticket;

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
    let gathered = |(table, _): &(HostSide<'_>, _)| {
        let first = table.host;
        let at = move |n| {
            let number = numbers.get(n) as usize;
            assert!(number < tables.host_rows, "checked at the call");
            first.wrapping_add(number * row)
        };
        // SAFETY: each row lies in the table (`at`), which is borrowed, exclusively for a download;
        // no number comes twice then (`check_distinct`). The numbers are borrowed.
        unsafe { Gathered::new(row, at) }
    };
    let of_layers: Vec<_> = tables.layers.iter().map(gathered).collect();
    let far: Vec<_> = of_layers.iter().map(|rows| rows.far(direction)).collect();
    let both = far.iter().zip(&tables.layers);
    let entries: Vec<_> = both
        .map(|(far, (_, device))| Entry::far(far, device.part(0, tables.count * row)))
        .collect();
    let transfer = Transfer::new(door, direction, &entries)?;
    let engine = stream.device.engine()?;
    engine.copy(transfer, Route::Copies, Workload::Waiting)
}
