//! Rows as a batch: of pageable tables, of memory that is lent for the call, and where the kernel
//! is not the fastest way or cannot be used.

use super::indices::{Indices, Numbers};
use super::tables::{HostTable, Tables};
use crate::batch::items::BatchItem;
use crate::batch::list::{Downloads, List, Prepared, Uploads};
use crate::copy::entry::{Direction, Entry};
use crate::copy::order::Door;
use crate::error::Result;
use crate::stream::Stream;
use crate::ticket::Ticket;

/// Copies the rows, and waits as a batch of the same memory does. Numbers on the device are fetched
/// first, which blocks.
pub(super) fn copy(stream: &Stream, door: Door<'_>, tables: Tables<'_, '_>) -> Result<Ticket> {
    let (mut short, mut long) = (<[Vec<u32>; 2]>::default(), <[Vec<u64>; 2]>::default());
    let [short_from, short_to] = &mut short;
    let [long_from, long_to] = &mut long;
    let from = fetched(stream, &tables.from, short_from, long_from)?;
    let to = fetched(stream, &tables.to, short_to, long_to)?;
    let (from_rows, to_rows) = match tables.direction {
        Direction::Up => (tables.host_rows, tables.device_rows),
        Direction::Down => (tables.device_rows, tables.host_rows),
    };
    // Only numbers that were on the device can be outside: those rows are not copied.
    let limits = (from.limit(from_rows), to.limit(to_rows));
    let is_inside = |&n: &usize| from.get(n) < limits.0 && to.get(n) < limits.1;
    let copied: Vec<usize> = (0..tables.count).filter(is_inside).collect();
    if tables.to.is_on_device() || tables.to.distinct {
        // Two threads must not write one row of pageable memory, whatever was promised.
        to.check_distinct_at(door.operation, &copied)?;
    }
    let mut list = List::default();
    for (host, device) in &tables.layers {
        for &n in &copied {
            let (from, to) = (from.get(n), to.get(n));
            let (at_host, at_device) = match tables.direction {
                Direction::Up => (from, to),
                Direction::Down => (to, from),
            };
            let device = device.part(at_device as usize * tables.row, tables.row);
            let &HostTable { host, pinned, is_slice, .. } = host;
            let host = host.wrapping_add(at_host as usize * tables.row);
            let entry = match pinned {
                Some(pinned) => Entry::pinned(host, pinned, device),
                None => Entry::pageable(host, device),
            };
            list.push(BatchItem { entry, host_bytes: tables.row, is_slice });
        }
    }
    match tables.direction {
        Direction::Up => stream.upload_entries(door, &mut Uploads(list, Prepared::default())),
        Direction::Down => {
            stream.download_entries(door, &mut Downloads(list, Prepared::default()), None)
        }
    }
}

/// The same numbers, in host memory.
fn fetched<'n>(
    stream: &Stream,
    indices: &Indices<'n>,
    short: &'n mut Vec<u32>,
    long: &'n mut Vec<u64>,
) -> Result<Indices<'n>> {
    let numbers = match &indices.numbers {
        Numbers::ShortOnDevice(view) => {
            short.resize(view.len(), 0);
            stream.download_slice(view.clone(), short)?;
            Numbers::Short(short)
        }
        Numbers::LongOnDevice(view) => {
            long.resize(view.len(), 0);
            stream.download_slice(view.clone(), long)?;
            Numbers::Long(long)
        }
        numbers => numbers.clone(),
    };
    Ok(Indices { numbers, ..indices.clone() })
}
