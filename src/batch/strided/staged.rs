//! Rows of slices.
//!
//! Few bytes go through a block of page-locked memory at once, which the caller's thread gathers or
//! scatters. More go through slots: if the rows follow each other on the device, without an entry
//! for each row.

use super::Rows;
use super::grid::{Dimension, End, Grid};
use crate::batch::gather::Gathered;
use crate::batch::items::{HostSide, HostSlice, HostSliceMut};
use crate::copy::entry::{Direction, Entry};
use crate::copy::order::Door;
use crate::copy::route::Route;
use crate::copy::staged::team::Workload;
use crate::copy::transfer::Transfer;
use crate::error::Result;
use crate::memory::PinnedBuf;
use crate::stream::Stream;
use crate::ticket::Ticket;

/// Shorter rows are mostly waited for, because each begins on another page. Longer ones are copied
/// as a slice is. A first guess: `benches/transfer/strided.rs` measures it.
const PAGE: usize = 4096;

/// Copies the rows of a slice. An upload returns when the slice may be reused, a download when the
/// rows have arrived.
pub(super) fn copy(stream: &Stream, door: Door<'_>, rows: &Rows<'_>) -> Result<Ticket> {
    if rows.host.pinned.is_some() {
        return stream.copy_as_batch(door, rows);
    }
    if let Some(block) = stream.device.engine()?.small_block(rows.grid.bytes())? {
        return through(stream, door, rows, block);
    }
    for grid in [rows.grid, rows.grid.swapped()] {
        if grid.is_dense_on_device(rows.direction) {
            return gathered(stream, door, &Rows { grid, ..*rows });
        }
    }
    stream.copy_as_batch(door, rows)
}

/// Copies rows by way of a block of as many bytes.
fn through(
    stream: &Stream,
    door: Door<'_>,
    rows: &Rows<'_>,
    mut block: PinnedBuf<u8>,
) -> Result<Ticket> {
    let Rows { direction, host, device, grid } = *rows;
    let row = |n: usize, (src, dst)| {
        let (at, _) = direction.pair(src, dst);
        (n * grid.row..(n + 1) * grid.row, host.host.wrapping_add(at))
    };
    let places = || grid.starts().enumerate().map(move |(n, starts)| row(n, starts));
    let context = device.context();
    match direction {
        Direction::Up => {
            let packed = block.write()?;
            for (to, from) in places() {
                // SAFETY: a row lies in the slice, which is borrowed for the call.
                let from = unsafe { std::slice::from_raw_parts(from.cast_const(), grid.row) };
                packed[to].copy_from_slice(from);
            }
            let grid = grid.packed(End::Source);
            let host = HostSide::read(HostSlice::Pinned(block.as_slice()), context);
            stream.copy_page_locked(door, &Rows { host, grid, ..*rows })
        }
        Direction::Down => {
            let target = HostSide::write(HostSliceMut::Pinned(block.as_slice_mut()), context);
            let packed = grid.packed(End::Destination);
            let rows = Rows { host: target, grid: packed, ..*rows };
            let ticket = stream.copy_page_locked(door, &rows)?;
            let packed = block.read()?;
            for (from, to) in places() {
                // SAFETY: a row lies in the slice, which is borrowed exclusively for the call.
                let to = unsafe { std::slice::from_raw_parts_mut(to, grid.row) };
                to.copy_from_slice(&packed[from]);
            }
            Ok(ticket)
        }
    }
}

impl Grid {
    /// Whether the rows of a plane follow each other on the device.
    fn is_dense_on_device(&self, direction: Direction) -> bool {
        let (_, device) = direction.pair(self.rows.src, self.rows.dst);
        self.rows.count > 1 && device == self.row
    }
}

/// Copies planes of rows that follow each other on the device, as a copy of as many slices.
fn gathered(stream: &Stream, door: Door<'_>, rows: &Rows<'_>) -> Result<Ticket> {
    let Rows { direction, host, device, grid } = *rows;
    let by_side = |dimension: Dimension| direction.pair(dimension.src, dimension.dst);
    let (pitch, _) = by_side(grid.rows);
    let (plane_pitch, device_pitch) = by_side(grid.planes);
    let planes: Vec<_> = (0..grid.planes.count)
        .map(|plane| {
            let first = host.host.wrapping_add(plane * plane_pitch);
            let at = move |n: usize| first.wrapping_add(n * pitch);
            // SAFETY: each row lies in the slice, which is borrowed for the call, exclusively for a
            // download; no two rows overlap (`Strided::new`).
            unsafe { Gathered::new(grid.row, at) }
        })
        .collect();
    let far: Vec<_> = planes.iter().map(|plane| plane.far(direction)).collect();
    let bytes = grid.rows.count * grid.row;
    let entries: Vec<_> = far
        .iter()
        .enumerate()
        .map(|(plane, far)| Entry::far(far, device.part(plane * device_pitch, bytes)))
        .collect();
    let transfer = Transfer::new(door, direction, &entries)?.of_rows(rows.uses_of_entries());
    let workload = if grid.row < PAGE { Workload::Waiting } else { Workload::Copying };
    stream.device.engine()?.copy(transfer, Route::Copies, workload)
}
