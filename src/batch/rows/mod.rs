//! Rows of tables, by their numbers: embeddings, expert weights, blocks of KV caches.
//!
//! A table is a range of memory that is cut into rows of equal length. One call copies any rows,
//! without a list of copies: the kernel computes the addresses. Pageable rows that are contiguous
//! on the device are gathered into slots, or scattered out of them. All others are copied as a
//! batch.
//!
//! ```text
//!   indices   which rows           tables   what is copied, and its checks
//!   kernel    one launch for all   near     the order in which it copies them
//!   list      rows as a batch      dense    pageable rows, contiguous on the device
//! ```

mod dense;
mod indices;
mod kernel;
mod list;
mod near;
mod tables;

use bytemuck::Pod;

pub use self::indices::Indices;
use self::tables::Tables;
use super::items::{HostSide, HostSlice, HostSliceMut};
use crate::copy::entry::Direction;
use crate::copy::order::Door;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut, counted};
use crate::stream::Stream;
use crate::ticket::Ticket;

impl Stream {
    /// Gathers rows of a table in host memory: row `i` of `rows` gets row `indices[i]` of `table`.
    /// A row has `rows.len() / indices.len()` elements. Numbers may be repeated.
    ///
    /// Ordered as [`upload`](Self::upload), as a use of the whole table. Does not block if `table`
    /// is a page-locked buffer or a view of one; a slice may be reused when the call returns.
    ///
    /// ```
    /// use pinlane::{Device, PinnedPool};
    ///
    /// let device = Device::open_or_emulated()?;
    /// let (pool, stream) = (PinnedPool::builder(&device).build()?, device.stream()?);
    /// let mut table = pool.alloc_zeroed::<f32>(1000 * 64)?; // 1000 rows of 64 numbers
    /// table.write()?[7 * 64..8 * 64].fill(1.5);
    /// let mut rows = device.alloc::<f32>(3 * 64)?;
    /// stream.upload_rows(&table, &[7u32, 0, 7], &mut rows)?;
    ///
    /// let mut back = vec![0.0f32; 3 * 64];
    /// stream.download_slice(&rows, &mut back)?;
    /// assert_eq!((back[0], back[64], back[128]), (1.5, 0.0, 1.5));
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if a number in host memory is not in the table;
    /// [`LengthMismatch`](crate::ErrorKind::LengthMismatch) if a length is not a whole number of
    /// rows;
    /// otherwise as for [`upload_batch`](Self::upload_batch).
    pub fn upload_rows<'a, 'd, 'i, T: Pod>(
        &self,
        table: impl Into<HostSlice<'a, T>>,
        indices: impl Into<Indices<'i>>,
        rows: impl Into<DeviceSliceMut<'d, T>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::upload_rows");
        let (indices, rows) = (indices.into(), rows.into());
        let row = row_length::<T>(door, rows.len(), &indices)?;
        let table = HostSide::read(table.into(), rows.context());
        let layers = vec![(table, rows.into())];
        let tables = Tables::new::<T>(door, Direction::Up, layers, row, indices, (..).into())?;
        self.move_rows(door, tables)
    }

    /// Scatters rows to a table in host memory: row `indices[i]` of `table` gets row `i` of `rows`.
    /// A row has `rows.len() / indices.len()` elements. No row of the table may be named twice.
    ///
    /// Ordered as [`upload_rows`](Self::upload_rows). Does not block if `table` is a page-locked
    /// buffer or a view of one; in a slice the rows have arrived when the call returns.
    ///
    /// # Errors
    ///
    /// As for [`upload_rows`](Self::upload_rows), and
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue) if a number in host memory is repeated.
    pub fn download_rows<'a, 'd, 'i, T: Pod>(
        &self,
        rows: impl Into<DeviceSlice<'d, T>>,
        indices: impl Into<Indices<'i>>,
        table: impl Into<HostSliceMut<'a, T>>,
    ) -> Result<Ticket> {
        let door = self.door("Stream::download_rows");
        let (indices, rows) = (indices.into(), rows.into());
        let row = row_length::<T>(door, rows.len(), &indices)?;
        let table = HostSide::write(table.into(), rows.context());
        let layers = vec![(table, rows.into())];
        let tables = Tables::new::<T>(door, Direction::Down, layers, row, (..).into(), indices)?;
        self.move_rows(door, tables)
    }

    /// Copies blocks of the tables of many layers: in each layer, block `to[i]` of the destination
    /// gets block `from[i]` of the source. A block has `block` elements; each table is a whole
    /// number of blocks, the same in all layers. `..` names the first blocks in order, as many as
    /// the other side names.
    ///
    /// Ordered, and blocking, as [`upload_rows`](Self::upload_rows).
    ///
    /// ```
    /// use pinlane::{Device, PinnedPool};
    ///
    /// let device = Device::open_or_emulated()?;
    /// let (pool, stream) = (PinnedPool::builder(&device).build()?, device.stream()?);
    /// const BLOCK: usize = 512;
    /// let keys = pool.alloc_zeroed::<u8>(100 * BLOCK)?;
    /// let values = pool.alloc_zeroed::<u8>(100 * BLOCK)?;
    /// let mut cache = [device.alloc::<u8>(16 * BLOCK)?, device.alloc(16 * BLOCK)?];
    /// let [on_keys, on_values] = &mut cache;
    /// // Blocks 90, 3 and 41 of each come back to places 0, 5 and 2.
    /// let layers = [(&keys, on_keys), (&values, on_values)];
    /// stream.upload_blocks(layers, BLOCK, &[90u32, 3, 41], &[0u32, 5, 2])?;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`download_rows`](Self::download_rows).
    pub fn upload_blocks<'a, 'f, 't, T: Pod, S, D>(
        &self,
        layers: impl IntoIterator<Item = (S, D)>,
        block: usize,
        from: impl Into<Indices<'f>>,
        to: impl Into<Indices<'t>>,
    ) -> Result<Ticket>
    where
        S: Into<HostSlice<'a, T>>,
        D: Into<DeviceSliceMut<'a, T>>,
    {
        let door = self.door("Stream::upload_blocks");
        let layers = layers.into_iter().map(|(src, dst)| {
            let dst = dst.into();
            (HostSide::read(src.into(), dst.context()), dst.into())
        });
        let layers = layers.collect();
        let (from, to) = (from.into(), to.into());
        self.move_rows(door, Tables::new::<T>(door, Direction::Up, layers, block, from, to)?)
    }

    /// As [`upload_blocks`](Self::upload_blocks), from tables on the device to tables in host
    /// memory.
    ///
    /// # Errors
    ///
    /// As for [`upload_blocks`](Self::upload_blocks).
    pub fn download_blocks<'a, 'f, 't, T: Pod, S, D>(
        &self,
        layers: impl IntoIterator<Item = (S, D)>,
        block: usize,
        from: impl Into<Indices<'f>>,
        to: impl Into<Indices<'t>>,
    ) -> Result<Ticket>
    where
        S: Into<DeviceSlice<'a, T>>,
        D: Into<HostSliceMut<'a, T>>,
    {
        let door = self.door("Stream::download_blocks");
        let layers = layers.into_iter().map(|(src, dst)| {
            let src = src.into();
            (HostSide::write(dst.into(), src.context()), src.into())
        });
        let layers = layers.collect();
        let (from, to) = (from.into(), to.into());
        self.move_rows(door, Tables::new::<T>(door, Direction::Down, layers, block, from, to)?)
    }

    fn move_rows(&self, door: Door<'_>, tables: Option<Tables<'_, '_>>) -> Result<Ticket> {
        let Some(tables) = tables else { return door.nothing() };
        let engine = self.device.engine()?;
        if tables.fit_the_kernel(door, engine.abilities(door)?) {
            kernel::enqueue(door, &tables, &engine.lists)
        } else if tables.are_dense_and_pageable() {
            dense::copy(self, door, &tables)
        } else {
            list::copy(self, door, tables)
        }
    }
}

/// The elements of a row, if the named rows have `elements` in total.
fn row_length<T>(door: Door<'_>, elements: usize, indices: &Indices<'_>) -> Result<usize> {
    match indices.count() {
        None => {
            let remedy = "name the rows, or copy the table: upload, download";
            Err(Error::invalid(door.operation, "`..` does not say how long a row is", remedy))
        }
        Some(0) => door.check_lengths::<T>(0, elements).map(|()| 1),
        Some(count) if elements.is_multiple_of(count) => Ok(elements / count),
        Some(count) => {
            let what = format!("{} are not {count} rows of equal length", counted::<T>(elements));
            let remedy = "give as much as the rows have together";
            Err(Error::new(ErrorKind::LengthMismatch, door.operation, what, remedy))
        }
    }
}
