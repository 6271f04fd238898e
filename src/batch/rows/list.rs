//! Rows copied as a batch: rows of pageable tables, of memory that is lent for the call, and those
//! for which the kernel is slower or impossible.

use super::indices::{Indices, Numbers};
use super::tables::Tables;
use crate::batch::list::{List, Prepared};
use crate::copy::order::Door;
use crate::error::Result;
use crate::stream::Stream;
use crate::ticket::Ticket;

/// Copies the rows, and waits as a batch of the same memory does. First fetches numbers that are on
/// the device, which blocks.
pub(super) fn copy(stream: &Stream, door: Door<'_>, tables: Tables<'_, '_>) -> Result<Ticket> {
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let from = fetched(stream, &tables.from, &mut from)?;
    let to = fetched(stream, &tables.to, &mut to)?;
    let (from_rows, to_rows) = tables.rows();
    // Only numbers that were on the device can be out of range: those rows are not copied.
    let limits = (from.limit(from_rows), to.limit(to_rows));
    let is_inside = |&n: &usize| from.get(n) < limits.0 && to.get(n) < limits.1;
    let copied: Vec<usize> = (0..tables.count).filter(is_inside).collect();
    if tables.to.is_on_device() || tables.to.distinct {
        // Two threads must not write one row of pageable memory, even if the caller's promise is
        // false.
        to.check_distinct_at(door.operation, &copied)?;
    }
    let mut list = List::default();
    for (host, device) in &tables.layers {
        for &n in &copied {
            let (at_host, at_device) = tables.direction.pair(from.get(n), to.get(n));
            let device = device.part(at_device as usize * tables.row, tables.row);
            list.push(host.part(at_host as usize * tables.row, tables.row).with(device));
        }
    }
    stream.copy_entries(door, tables.direction, &list, &mut Prepared::default(), None)
}

/// The same numbers, in host memory: in `room`, if they are on the device.
fn fetched<'n>(
    stream: &Stream,
    indices: &Indices<'n>,
    room: &'n mut Vec<u64>,
) -> Result<Indices<'n>> {
    let Numbers::OnDevice(view) = &indices.numbers else { return Ok(indices.clone()) };
    if indices.width == size_of::<u32>() {
        let mut short = vec![0u32; view.len() / size_of::<u32>()];
        stream.download_slice(view.clone(), bytemuck::cast_slice_mut(&mut short))?;
        room.extend(short.into_iter().map(u64::from));
    } else {
        room.resize(view.len() / size_of::<u64>(), 0);
        stream.download_slice(view.clone(), bytemuck::cast_slice_mut(room))?;
    }
    Ok(Indices { numbers: Numbers::Long(room), ..indices.clone() })
}
