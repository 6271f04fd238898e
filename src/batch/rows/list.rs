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
    let (mut short, mut long) = (<[Vec<u32>; 2]>::default(), <[Vec<u64>; 2]>::default());
    let [short_from, short_to] = &mut short;
    let [long_from, long_to] = &mut long;
    let from = fetched(stream, &tables.from, short_from, long_from)?;
    let to = fetched(stream, &tables.to, short_to, long_to)?;
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

/// The same numbers, in host memory.
fn fetched<'n>(
    stream: &Stream,
    indices: &Indices<'n>,
    short: &'n mut Vec<u32>,
    long: &'n mut Vec<u64>,
) -> Result<Indices<'n>> {
    let numbers = match &indices.numbers {
        Numbers::OnDevice(view) if indices.width == 4 => {
            short.resize(view.len() / 4, 0);
            stream.download_slice(view.clone(), bytemuck::cast_slice_mut(short))?;
            Numbers::Short(short)
        }
        Numbers::OnDevice(view) => {
            long.resize(view.len() / 8, 0);
            stream.download_slice(view.clone(), bytemuck::cast_slice_mut(long))?;
            Numbers::Long(long)
        }
        numbers => numbers.clone(),
    };
    Ok(Indices { numbers, ..indices.clone() })
}
