//! Rows of tables, by their numbers.
//!
//! ```text
//!   pinlane_upload_blocks(stream, layers, count, block_bytes, from, to, ...)
//!     pinlane_layer    the tables, as C names them
//!     indices          the numbers, as C names them; as the Rust interface takes them
//!     batch::lend      the tables as the Rust interface takes them, for the time of the call
//!       Stream::upload_blocks
//! ```

mod indices;

use std::ffi::c_void;

use self::indices::{Numbers, pinlane_indices};
use super::lend::{Named, Sides, TwoSides};
use super::places::Place;
use crate::capi::{
    Out, Result, invalid, layout, pinlane_buffer, pinlane_device_buffer, pinlane_status,
    pinlane_stream, pinlane_ticket, pointer,
};
use crate::copy::entry::Direction;

/// Two tables: one in host memory and one in device memory. A table is a range of memory that is
/// cut into rows, or blocks, of equal length. Set all members that you do not use to 0.
///
/// The host table is pageable memory, named by its address, a part of a page-locked `buffer`, or
/// memory of a pool, named by `pinned`. The device table is the caller's own device memory, named
/// by its address, or a part of a `device_buffer`. Name each table once: if not by its address, the
/// address must be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_layer {
    /// The source: host memory in an upload, device memory in a download.
    pub src: *const c_void,
    /// The destination: device memory in an upload, host memory in a download.
    pub dst: *mut c_void,
    /// The size of the source. If 0, its address may be NULL.
    pub src_bytes: usize,
    /// The size of the destination. If 0, its address may be NULL.
    pub dst_bytes: usize,
    /// The page-locked buffer with the host table, or NULL.
    pub buffer: *mut pinlane_buffer,
    /// The offset of the table in `buffer`, in bytes.
    pub buffer_offset: usize,
    /// The device buffer with the device table, or NULL.
    pub device_buffer: *mut pinlane_device_buffer,
    /// The offset of the table in `device_buffer`, in bytes.
    pub device_offset: usize,
    /// Memory of a pool with the host table, or NULL. It is copied as by `pinlane_upload_pinned`
    /// and `pinlane_download_pinned`: no call waits for it.
    pub pinned: *mut c_void,
}

layout!(pinlane_layer: 72; src_bytes 16, dst_bytes 24, buffer 32, buffer_offset 40,
    device_buffer 48, device_offset 56, pinned 64);

impl Named for pinlane_layer {
    const WHAT: &'static str = "layer";

    fn sides(&self, direction: Direction) -> TwoSides {
        let (src, dst) = ((self.src, self.src_bytes), (self.dst.cast_const(), self.dst_bytes));
        let ((host, host_bytes), (device, device_bytes)) = direction.pair(src, dst);
        (
            Place::new(host, self.buffer, self.buffer_offset, host_bytes).or_pinned(self.pinned),
            Place::new(device, self.device_buffer, self.device_offset, device_bytes),
        )
    }
}

/// Gathers rows of a table in host memory: row `i` of the layer's destination, on the device, gets
/// the row of its source whose number is `indices[i]`. A row has as many bytes as the destination
/// has for each number. Numbers may be repeated.
///
/// Does not block if the table is a part of a `buffer` or `pinned`; other memory may be reused when
/// the call returns. Ordered on `stream`, and after conflicting uses of the buffers on other
/// streams, as a use of the whole table. If the table is pageable and the numbers are on the
/// device, the call also waits for the numbers. `ticket` may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`; `OUT_OF_RANGE` if a number in host memory is not in the table, or a part not in
/// its buffer; `LENGTH_MISMATCH` if a length is not a whole number of rows; `INVALID_VALUE` if a
/// pointer is NULL, a table or the numbers are named twice or not at all, a `pinned` table is not
/// in memory of a pool, or the numbers are in the buffer that is written, and for a struct of an
/// unknown size, kind or flag: nothing was enqueued. `CUDA`, `DEVICE_LOST`, and
/// `OUT_OF_HOST_MEMORY` if no memory can be page-locked: the contents of the destination are
/// unspecified.
///
/// # Safety
///
/// - `layer` is NULL or points to a struct.
/// - `indices` is NULL or points to an initialised struct whose `size` member is right.
/// - Host memory that they name by its address is readable, and not written, until the call
///   returns.
/// - `pinned` memory is not freed before the call returns, and not written until the copy is
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_rows(
    stream: *const pinlane_stream,
    layer: *const pinlane_layer,
    indices: *const pinlane_indices,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_rows", stream, |stream| {
        // SAFETY: the caller's preconditions on `layer` and `indices`.
        let (layer, indices) = unsafe { one_layer(layer, indices) }?;
        let sides = Sides::new(layer, Direction::Up)?;
        check_apart(&sides, [&indices])?;
        // SAFETY: the caller's preconditions on the memory that the arguments name.
        unsafe {
            sides.up(stream, |tables| {
                let (table, rows) = tables.next().expect("one layer")?;
                stream.upload_rows(table, indices.indices()?, rows)
            })
        }
    })
}

/// Scatters rows to a table in host memory: the row of the layer's destination whose number is
/// `indices[i]` gets row `i` of its source, on the device. A row has as many bytes as the source
/// has for each number. No row of the table may be named twice.
///
/// Does not block if the table is a part of a `buffer` or `pinned`: `pinlane_buffer_read` waits for
/// the rows, and the ticket says when they have arrived. In other memory they have arrived when the
/// call returns. Ordered as `pinlane_upload_rows`. `ticket` may be NULL.
///
/// Statuses: as for `pinlane_upload_rows`; `INVALID_VALUE` if a number in host memory is repeated:
/// nothing was enqueued.
///
/// # Safety
///
/// - `layer` is NULL or points to a struct.
/// - `indices` is NULL or points to an initialised struct whose `size` member is right.
/// - Until the call returns, numbers in host memory are readable and not written. A table in host
///   memory that is named by its address is writable, and no other code accesses it.
/// - `pinned` memory is not freed before the call returns, and not accessed until the copy is
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_rows(
    stream: *const pinlane_stream,
    layer: *const pinlane_layer,
    indices: *const pinlane_indices,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_download_rows", stream, |stream| {
        // SAFETY: the caller's preconditions on `layer` and `indices`.
        let (layer, indices) = unsafe { one_layer(layer, indices) }?;
        let sides = Sides::new(layer, Direction::Down)?;
        // SAFETY: the caller's preconditions on the memory that the arguments name.
        unsafe {
            sides.down(stream, |tables| {
                let (rows, table) = tables.next().expect("one layer")?;
                stream.download_rows(rows, indices.indices()?, table)
            })
        }
    })
}

/// Copies blocks of the tables of `count` layers, from host memory to the stream's device: in each
/// layer, block `to[i]` of the destination gets block `from[i]` of the source. A block has
/// `block_bytes` bytes. Each table is a whole number of blocks, the same in all layers.
/// Destinations must not overlap, and no block may be written twice.
///
/// `from` or `to` may be NULL: all blocks in order, as many as the other one names. `layers` may be
/// NULL if `count` is 0; `ticket` may be NULL. Blocks, and is ordered, as `pinlane_upload_rows`.
///
/// Statuses: as for `pinlane_upload_rows`; `LENGTH_MISMATCH` if `from` and `to` do not have the
/// same number of blocks; `INVALID_VALUE` if a number of `to` in host memory is repeated, or if
/// destinations overlap: nothing was enqueued.
///
/// # Safety
///
/// - `layers` is NULL or points to an array of `count` elements.
/// - `from` and `to` are NULL or point to initialised structs whose `size` members are right.
/// - Host memory that they name by its address is readable, and not written, until the call
///   returns.
/// - `pinned` memory is not freed before the call returns, and not written until the copy is
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_blocks(
    stream: *const pinlane_stream,
    layers: *const pinlane_layer,
    count: usize,
    block_bytes: usize,
    from: *const pinlane_indices,
    to: *const pinlane_indices,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_blocks", stream, |stream| {
        // SAFETY: the caller's preconditions on `layers`, `from` and `to`.
        let (layers, from, to) = unsafe { many_layers(layers, count, from, to) }?;
        let sides = Sides::new(layers, Direction::Up)?;
        check_apart(&sides, [&from, &to])?;
        // SAFETY: the caller's preconditions on the memory that the arguments name.
        unsafe {
            sides.up(stream, |tables| {
                let tables: Vec<_> = tables.collect::<Result<_>>()?;
                stream.upload_blocks(tables, block_bytes, from.indices()?, to.indices()?)
            })
        }
    })
}

/// As `pinlane_upload_blocks`, from the stream's device to host memory. Blocks as
/// `pinlane_download_rows`.
///
/// Statuses: as for `pinlane_upload_blocks`.
///
/// # Safety
///
/// - `layers` is NULL or points to an array of `count` elements.
/// - `from` and `to` are NULL or point to initialised structs whose `size` members are right.
/// - Until the call returns, numbers in host memory are readable and not written. Tables in host
///   memory that are named by their addresses are writable, and no other code accesses them.
/// - `pinned` memory is not freed before the call returns, and not accessed until the copy is
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_blocks(
    stream: *const pinlane_stream,
    layers: *const pinlane_layer,
    count: usize,
    block_bytes: usize,
    from: *const pinlane_indices,
    to: *const pinlane_indices,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_download_blocks", stream, |stream| {
        // SAFETY: the caller's preconditions on `layers`, `from` and `to`.
        let (layers, from, to) = unsafe { many_layers(layers, count, from, to) }?;
        let sides = Sides::new(layers, Direction::Down)?;
        // SAFETY: the caller's preconditions on the memory that the arguments name.
        unsafe {
            sides.down(stream, |tables| {
                let tables: Vec<_> = tables.collect::<Result<_>>()?;
                stream.download_blocks(tables, block_bytes, from.indices()?, to.indices()?)
            })
        }
    })
}

/// The arguments of a copy of rows.
///
/// # Safety
///
/// * `layer` is NULL, misaligned (both are errors), or points to a struct during `'a`.
/// * `indices` is NULL (an error), or as for [`Numbers::new`].
unsafe fn one_layer<'a>(
    layer: *const pinlane_layer,
    indices: *const pinlane_indices,
) -> Result<(&'a [pinlane_layer], Numbers)> {
    // SAFETY: the first precondition.
    let layer = unsafe { pointer::inputs("layer", layer, 1) }?;
    if indices.is_null() {
        return Err(pointer::null("indices", pointer::VARIABLE));
    }
    // SAFETY: the second precondition.
    Ok((layer, unsafe { Numbers::new("indices", indices) }?))
}

/// The arguments of a copy of blocks.
///
/// # Safety
///
/// * `layers` is NULL, misaligned (both are errors), or points to `count` structs during `'a`.
/// * `from` and `to` are as for [`Numbers::new`].
unsafe fn many_layers<'a>(
    layers: *const pinlane_layer,
    count: usize,
    from: *const pinlane_indices,
    to: *const pinlane_indices,
) -> Result<(&'a [pinlane_layer], Numbers, Numbers)> {
    // SAFETY: the two preconditions.
    unsafe {
        let layers = pointer::inputs("layers", layers, count)?;
        Ok((layers, Numbers::new("from", from)?, Numbers::new("to", to)?))
    }
}

/// Refuses numbers in a buffer that the upload writes.
fn check_apart<const N: usize>(sides: &Sides, numbers: [&Numbers; N]) -> Result<()> {
    if numbers.iter().all(|numbers| !sides.devices.name(numbers.buffer())) {
        return Ok(());
    }
    let what = "the numbers are in a buffer that the copy writes";
    Err(invalid(what, "put the numbers into another buffer"))
}
