//! Rows of tables, by their numbers.
//!
//! ```text
//!   pinlane_upload_blocks(stream, layers, count, block_bytes, from, to, ...)
//!     layers           the tables, as C names them
//!     indices          the numbers, as C names them; as the Rust interface takes them
//!     batch::lend      the tables as the Rust interface takes them, for the time of the call
//!       Stream::upload_blocks
//! ```

mod indices;
mod layers;

use self::indices::{Numbers, pinlane_indices};
use self::layers::pinlane_layer;
use super::lend::Sides;
use crate::capi::{Out, Result, invalid, pinlane_status, pinlane_stream, pinlane_ticket, pointer};
use crate::copy::entry::Direction;

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
    Err(invalid(
        "the numbers are in a buffer that the copy writes",
        "put the numbers into another buffer",
    ))
}
