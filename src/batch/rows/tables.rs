//! What a copy of rows copies, and its checks.

use crate::batch::items::{HostSlice, HostSliceMut};
use crate::context::Context;
use crate::copy::entry::Direction;
use crate::copy::order::Door;
use crate::copy::route::{Abilities, Between, Group, Route};
use crate::copy::transfer::check_apart;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::hazard::Access;
use crate::memory::{DeviceBytes, PinnedBytes};
use crate::pool::block_at;

use super::indices::{Indices, Numbers};

use bytemuck::Pod;

/// A table in host memory, borrowed for `'a`: exclusively if it is written.
#[derive(Clone, Copy)]
pub(super) struct HostTable<'a> {
    pub(super) host: *mut u8,
    pub(super) bytes: usize,
    /// If it is page-locked.
    pub(super) pinned: Option<PinnedBytes<'a>>,
    /// It is borrowed only for the call.
    pub(super) is_slice: bool,
}

impl<'a> HostTable<'a> {
    pub(super) fn read<T: Pod>(table: HostSlice<'a, T>, context: &Context) -> Self {
        match table {
            // SAFETY: the slice is borrowed for 'a.
            HostSlice::Pageable(table) => unsafe {
                Self::of_slice(table.as_ptr().cast_mut().cast(), size_of_val(table), context)
            },
            HostSlice::Pinned(table) => HostTable {
                host: table.as_ptr().cast_mut().cast(),
                bytes: table.len() * size_of::<T>(),
                pinned: Some(table.bytes()),
                is_slice: false,
            },
        }
    }

    pub(super) fn write<T: Pod>(table: HostSliceMut<'a, T>, context: &Context) -> Self {
        match table {
            // SAFETY: the slice is borrowed exclusively for 'a.
            HostSliceMut::Pageable(table) => unsafe {
                Self::of_slice(table.as_mut_ptr().cast(), size_of_val(table), context)
            },
            HostSliceMut::Pinned(mut table) => HostTable {
                host: table.as_mut_ptr().cast(),
                bytes: table.len() * size_of::<T>(),
                pinned: Some(table.into_bytes()),
                is_slice: false,
            },
        }
    }

    /// # Safety
    ///
    /// * `bytes` bytes from `host` on are borrowed for `'a`, exclusively if they are written.
    unsafe fn of_slice(host: *mut u8, bytes: usize, context: &Context) -> Self {
        // SAFETY: the bytes are borrowed for 'a, so they stay allocated.
        let pinned = unsafe { block_at(host, bytes, context) };
        HostTable { host, bytes, pinned, is_slice: true }
    }
}

/// Rows of the tables of some layers, and where they go.
pub(super) struct Tables<'a, 'i> {
    pub(super) direction: Direction,
    pub(super) layers: Vec<(HostTable<'a>, DeviceBytes<'a>)>,
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
    /// A row has `row` elements. To be [`checked`](Self::checked).
    pub(super) fn new<T: Pod>(
        direction: Direction,
        layers: Vec<(HostTable<'a>, DeviceBytes<'a>)>,
        row: usize,
        from: Indices<'i>,
        to: Indices<'i>,
    ) -> Self {
        Tables {
            direction,
            layers,
            row: row.saturating_mul(size_of::<T>()),
            from,
            to,
            count: 0,
            host_rows: 0,
            device_rows: 0,
        }
    }

    /// Checks all that is known at the call; `None` if there is nothing to copy.
    pub(super) fn checked(mut self, door: Door<'_>) -> Result<Option<Self>> {
        let operation = door.operation;
        let stream = door.stream.context();
        stream.check_process(operation)?;
        for (host, device) in &self.layers {
            door.check_device(&[device.context()])?;
            if let Some(pinned) = host.pinned {
                door.check_driver(pinned.context())?;
            }
        }
        let Some(&(host, device)) = self.layers.first() else { return Ok(None) };
        if self.row == 0 {
            let empty = self.layers.iter().all(|it| it.0.bytes == 0 && it.1.len() == 0);
            return if empty { Ok(None) } else { Err(no_rows(operation, 0, host.bytes)) };
        }
        for (host, device) in &self.layers {
            for bytes in [host.bytes, device.len()] {
                if !bytes.is_multiple_of(self.row) {
                    return Err(no_rows(operation, self.row, bytes));
                }
            }
        }
        let same = |it: &(HostTable<'_>, DeviceBytes<'_>)| {
            it.0.bytes == host.bytes && it.1.len() == device.len()
        };
        if let Some(other) = self.layers.iter().position(|layer| !same(layer)) {
            return Err(Error::new(
                ErrorKind::LengthMismatch,
                operation,
                format!("the tables of layer {other} are not as long as those of layer 0"),
                "give all layers tables of one length",
            ));
        }
        (self.host_rows, self.device_rows) = (host.bytes / self.row, device.len() / self.row);
        let (from_rows, to_rows) = match self.direction {
            Direction::Up => (self.host_rows, self.device_rows),
            Direction::Down => (self.device_rows, self.host_rows),
        };
        self.count = match (self.from.count(), self.to.count()) {
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
        for (indices, rows) in [(&self.from, from_rows), (&self.to, to_rows)] {
            indices.check(operation, rows)?;
            if indices.count().is_none() && self.count > rows {
                let what = format!("{} rows of a table that has {rows}", self.count);
                return Err(mismatch(operation, what));
            }
        }
        if !self.to.distinct {
            self.to.check_distinct(operation)?;
        }
        self.check_overlaps(operation)?;
        for indices in [&self.from, &self.to] {
            match &indices.numbers {
                Numbers::ShortOnDevice(view) => door.check_device(&[view.context()])?,
                Numbers::LongOnDevice(view) => door.check_device(&[view.context()])?,
                _ => {}
            }
        }
        Ok(Some(self).filter(|tables| tables.count > 0))
    }

    /// Only ranges of borrowed device memory can overlap.
    fn check_overlaps(&self, operation: &'static str) -> Result<()> {
        let numbers = [&self.from, &self.to].into_iter().filter_map(|it| it.on_device());
        let borrowed = self.layers.iter().map(|layer| layer.1).chain(numbers.clone());
        if self.direction == Direction::Down || !borrowed.clone().any(|it| it.is_borrowed()) {
            return Ok(());
        }
        let written = self.layers.iter().map(|layer| (layer.1, Access::Write));
        let ranges = written.chain(numbers.map(|it| (it, Access::Read)));
        check_apart(operation, ranges.map(|(it, access)| (it.ptr(), it.len(), access)))
    }

    /// Whether the moving kernel can copy the rows, and is the fastest.
    pub(super) fn fit_the_kernel(&self, door: Door<'_>, abilities: Abilities) -> bool {
        let in_one_piece = |host: &HostTable<'_>| {
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

impl<'a> Indices<'a> {
    pub(super) fn on_device(&self) -> Option<DeviceBytes<'a>> {
        match &self.numbers {
            Numbers::ShortOnDevice(view) => Some(view.as_bytes()),
            Numbers::LongOnDevice(view) => Some(view.as_bytes()),
            _ => None,
        }
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
