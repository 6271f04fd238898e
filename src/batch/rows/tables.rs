//! The operands of a copy of rows, and their checks.

use crate::batch::items::HostSide;
use crate::copy::entry::Direction;
use crate::copy::order::Door;
use crate::copy::route::{Abilities, Between, Group, Route};
use crate::copy::transfer::check_apart;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::DeviceBytes;
use crate::memory::hazard::Access;

use super::indices::Indices;

use bytemuck::Pod;

/// Rows of the tables of some layers, and their destinations.
pub(super) struct Tables<'a, 'i> {
    pub(super) direction: Direction,
    pub(super) layers: Vec<(HostSide<'a>, DeviceBytes<'a>)>,
    /// The length of a row in bytes.
    pub(super) row: usize,
    pub(super) from: Indices<'i>,
    pub(super) to: Indices<'i>,
    /// How many rows of each layer are copied.
    pub(super) count: usize,
    /// How many rows a table has, on the host and on the device.
    pub(super) host_rows: usize,
    pub(super) device_rows: usize,
}

impl<'a, 'i> Tables<'a, 'i> {
    /// Checks all that is known at the call; `None` if there is nothing to copy. A row has `row`
    /// elements.
    pub(super) fn new<T: Pod>(
        door: Door<'_>,
        direction: Direction,
        layers: Vec<(HostSide<'a>, DeviceBytes<'a>)>,
        row: usize,
        from: Indices<'i>,
        to: Indices<'i>,
    ) -> Result<Option<Self>> {
        let operation = door.operation;
        door.stream.context().check_process(operation)?;
        let row = row.saturating_mul(size_of::<T>());
        for (host, device) in &layers {
            door.check_device(&[device.context()])?;
            if let Some(pinned) = host.pinned {
                door.check_driver(pinned.context())?;
            }
        }
        let Some(&(host, device)) = layers.first() else { return Ok(None) };
        if row == 0 {
            let empty = layers.iter().all(|it| it.0.bytes == 0 && it.1.len() == 0);
            return if empty { Ok(None) } else { Err(no_rows(operation, 0, host.bytes)) };
        }
        for (host, device) in &layers {
            for bytes in [host.bytes, device.len()] {
                if !bytes.is_multiple_of(row) {
                    return Err(no_rows(operation, row, bytes));
                }
            }
        }
        let same = |it: &(HostSide<'_>, DeviceBytes<'_>)| {
            it.0.bytes == host.bytes && it.1.len() == device.len()
        };
        if let Some(other) = layers.iter().position(|layer| !same(layer)) {
            let what = format!("the tables of layer {other} are not as long as those of layer 0");
            let remedy = "give all layers tables of one length";
            return Err(Error::new(ErrorKind::LengthMismatch, operation, what, remedy));
        }
        let (host_rows, device_rows) = (host.bytes / row, device.len() / row);
        let (from_rows, to_rows) = direction.pair(host_rows, device_rows);
        let count = match (from.count(), to.count()) {
            (Some(from), Some(to)) if from != to => {
                return Err(mismatch(operation, format!("{from} rows are to go to {to} places")));
            }
            (Some(count), _) | (_, Some(count)) => count,
            (None, None) if from_rows == to_rows => from_rows,
            (None, None) => {
                let what = format!("all {from_rows} rows are to go to {to_rows} places");
                return Err(mismatch(operation, what));
            }
        };
        for (indices, rows) in [(&from, from_rows), (&to, to_rows)] {
            indices.check(operation, rows)?;
            if indices.count().is_none() && count > rows {
                let what = format!("{count} rows of a table that has {rows}");
                return Err(mismatch(operation, what));
            }
        }
        if !to.distinct {
            to.check_distinct(operation)?;
        }
        let tables = Tables { direction, layers, row, from, to, count, host_rows, device_rows };
        tables.check_overlaps(operation)?;
        for numbers in [&tables.from, &tables.to].into_iter().filter_map(Indices::on_device) {
            door.check_device(&[numbers.context()])?;
        }
        Ok(Some(tables).filter(|_| count > 0))
    }

    /// How many rows the source and the destination of a layer have.
    pub(super) fn rows(&self) -> (usize, usize) {
        self.direction.pair(self.host_rows, self.device_rows)
    }

    /// The numbers of the rows on the host, and on the device.
    pub(super) fn by_side(&self) -> (&Indices<'_>, &Indices<'_>) {
        self.direction.pair(&self.from, &self.to)
    }

    /// Only ranges of borrowed device memory can overlap.
    fn check_overlaps(&self, operation: &'static str) -> Result<()> {
        let numbers = [&self.from, &self.to].into_iter().filter_map(Indices::on_device);
        let borrowed = self.layers.iter().map(|layer| layer.1).chain(numbers.clone());
        if self.direction == Direction::Down || !borrowed.clone().any(|it| it.is_borrowed()) {
            return Ok(());
        }
        let written = self.layers.iter().map(|layer| (layer.1, Access::Write));
        let ranges = written.chain(numbers.map(|it| (it, Access::Read)));
        check_apart(operation, ranges.map(|(it, access)| (it.ptr(), it.len(), access)))
    }

    /// Whether the moving kernel can copy the rows, and is the fastest way.
    pub(super) fn fit_the_kernel(&self, door: Door<'_>, abilities: Abilities) -> bool {
        let in_one_piece = |host: &HostSide<'_>| {
            let pinned = host.pinned.filter(|_| !host.is_slice);
            pinned.is_some_and(|pinned| !pinned.crosses_seam(host.host, host.bytes))
        };
        let rows = self.count * self.layers.len();
        let bytes = rows.saturating_mul(self.row);
        let group = Group { entries: rows, runs: rows, bytes };
        let unknown = self.from.is_on_device() || self.to.is_on_device();
        self.layers.iter().all(|layer| in_one_piece(&layer.0))
            && abilities.allow(Route::Kernel, door.stream)
            && (unknown
                || abilities.choose(door.stream, Between::PageLocked, group) == Route::Kernel)
    }
}

fn no_rows(operation: &'static str, row: usize, bytes: usize) -> Error {
    let what = format!("a table of {bytes} bytes is no whole number of rows of {row} bytes");
    mismatch(operation, what)
}

fn mismatch(operation: &'static str, what: String) -> Error {
    let remedy = "give tables of whole rows, and as many places as rows";
    Error::new(ErrorKind::LengthMismatch, operation, what, remedy)
}
