//! Copies of rows that lie a pitch apart.

use super::lend::Sides;
use super::rows::pinlane_layer;
use crate::batch::{HostSlice, HostSliceMut};
use crate::capi::memory::range;
use crate::capi::transfer::same_buffer;
use crate::capi::{
    Out, Result, handle, layout, members, pinlane_device_buffer, pinlane_status, pinlane_stream,
    pinlane_ticket, pointer,
};
use crate::copy::entry::Direction;
use crate::memory::{Strided, Strides, View};

/// Where rows of equal length lie, in bytes. The first one begins at the first byte of its side.
///
/// Rows lie in planes of equally many: a matrix is one plane, a volume has several. Rows must not
/// overlap. Planes may follow each other, or lie interleaved, a row of each in turn.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_strided {
    /// The length of a row.
    pub row_bytes: usize,
    /// The number of rows of a plane.
    pub rows: usize,
    /// From the start of a row to that of the next. No meaning if a plane has one row.
    pub pitch: usize,
    /// The number of planes. 0 means 1.
    pub planes: usize,
    /// From the start of a plane to that of the next. No meaning if there is one plane.
    pub plane_pitch: usize,
}

layout!(pinlane_strided: 40; rows 8, pitch 16, planes 24, plane_pitch 32);

members!(pinlane_strided of strides: Strides, same [rows, pitch, planes, plane_pitch],
    row_bytes: strides.row,
);

impl pinlane_strided {
    fn strides(&self) -> Strides {
        let Self { row_bytes, rows, pitch, planes, plane_pitch } = *self;
        Strides::new(row_bytes, rows, pitch).planes(planes.max(1), plane_pitch)
    }
}

/// The rows of a side, as C names them: of all bytes if there are none.
///
/// # Safety
///
/// * `rows` is NULL, misaligned (an error), or points to a struct.
unsafe fn strides_of(name: &'static str, rows: *const pinlane_strided) -> Result<Option<Strides>> {
    if rows.is_null() {
        return Ok(None);
    }
    // SAFETY: the precondition.
    Ok(unsafe { pointer::inputs(name, rows, 1) }?.first().map(pinlane_strided::strides))
}

/// The rows of a view.
fn rows_of<V: View>(view: V, strides: Option<Strides>) -> Result<Strided<V>> {
    let strides = strides.unwrap_or(Strides::flat(view.elements()));
    Strided::new(view, strides)
}

/// Copies rows that lie a pitch apart in the source of `layer`, in host memory, to rows of its
/// destination, in device memory: row by row, and plane by plane. The bytes between the rows are
/// left alone. `source` and `destination` say where the rows lie; NULL for a side without gaps,
/// whose bytes are all copied.
///
/// Does not block if the source is a part of a `buffer` or `pinned`; other memory may be reused
/// when the call returns. Ordered on `stream`, and after conflicting uses of the buffers on other
/// streams, as a use of the rows without the gaps between them. `ticket` may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`; `OUT_OF_RANGE` if rows do not lie in their side, or a side not in its buffer;
/// `LENGTH_MISMATCH` unless both sides have rows of the same shape, or one has no gaps and as many
/// bytes; `INVALID_VALUE` if rows of a side overlap, a pointer is NULL, a side is named twice or
/// not at all, or a `pinned` one is not in memory of a pool: nothing was enqueued. `CUDA`,
/// `DEVICE_LOST`, and `OUT_OF_HOST_MEMORY` if no memory can be page-locked: the contents of the
/// destination are unspecified.
///
/// # Safety
///
/// - `layer` is NULL or points to a struct. `source` and `destination` are NULL or point to one.
/// - Host memory named by its address is readable, and not written, until the call returns.
/// - `pinned` memory is not freed before the call returns, and not written until the copy is
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_strided(
    stream: *const pinlane_stream,
    layer: *const pinlane_layer,
    source: *const pinlane_strided,
    destination: *const pinlane_strided,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_strided", stream, |stream| {
        // SAFETY: the caller's preconditions on the structs.
        let (layer, from, to) = unsafe { arguments(layer, source, destination) }?;
        // SAFETY: the caller's preconditions on the memory that the layer names.
        unsafe {
            Sides::new(layer, Direction::Up)?.up(stream, |sides| {
                let (src, dst) = sides.next().expect("one layer")?;
                stream.upload_strided(rows_of::<HostSlice<'_, u8>>(src, from)?, rows_of(dst, to)?)
            })
        }
    })
}

/// As `pinlane_upload_strided`, from rows in device memory to rows in host memory.
///
/// Does not block if the destination is a part of a `buffer` or `pinned`: `pinlane_buffer_read`
/// waits for the rows, and the ticket says when they have arrived. In other memory they have
/// arrived when the call returns.
///
/// Statuses: as for `pinlane_upload_strided`.
///
/// # Safety
///
/// - `layer` is NULL or points to a struct. `source` and `destination` are NULL or point to one.
/// - Host memory named by its address is writable, and no other code accesses it until the call
///   returns.
/// - `pinned` memory is not freed before the call returns, and not accessed until the copy is
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_strided(
    stream: *const pinlane_stream,
    layer: *const pinlane_layer,
    source: *const pinlane_strided,
    destination: *const pinlane_strided,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_download_strided", stream, |stream| {
        // SAFETY: the caller's preconditions on the structs.
        let (layer, from, to) = unsafe { arguments(layer, source, destination) }?;
        // SAFETY: the caller's preconditions on the memory that the layer names.
        unsafe {
            Sides::new(layer, Direction::Down)?.down(stream, |sides| {
                let (src, dst) = sides.next().expect("one layer")?;
                let dst = rows_of::<HostSliceMut<'_, u8>>(dst, to)?;
                stream.download_strided(rows_of(src, from)?, dst)
            })
        }
    })
}

/// As `pinlane_upload_strided`, between two device buffers, of one device or of two; `stream`
/// belongs to one of them. The rows lie in `source_bytes` bytes of `source`, from `source_offset`
/// on, as `source_rows` says, and in those of `destination`. Does not block.
///
/// Statuses: as for `pinlane_upload_strided`; `INVALID_VALUE` if both are the same buffer.
///
/// # Safety
///
/// - `source_rows` and `destination_rows` are NULL or point to a struct.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_copy_strided(
    stream: *const pinlane_stream,
    source: *const pinlane_device_buffer,
    source_offset: usize,
    source_bytes: usize,
    source_rows: *const pinlane_strided,
    destination: *mut pinlane_device_buffer,
    destination_offset: usize,
    destination_bytes: usize,
    destination_rows: *const pinlane_strided,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    let name = "pinlane_device_buffer_copy_strided";
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue(name, stream, |stream| {
        let same = std::ptr::eq(source, destination);
        let source = handle::get(source)?;
        if same {
            return Err(same_buffer());
        }
        let mut destination = handle::get_mut(destination)?;
        // SAFETY: the caller's preconditions on the structs.
        let (from, to) = unsafe {
            let from = strides_of("source_rows", source_rows)?;
            (from, strides_of("destination_rows", destination_rows)?)
        };
        let src = source.slice(range(source_offset, source_bytes)?)?;
        let dst = destination.slice_mut(range(destination_offset, destination_bytes)?)?;
        stream.copy_strided(rows_of(src, from)?, rows_of(dst, to)?)
    })
}

/// The arguments of a copy between host and device.
///
/// # Safety
///
/// * Each is NULL (of `layer` an error), misaligned (an error), or points to a struct, `layer`
///   during `'a`.
unsafe fn arguments<'a>(
    layer: *const pinlane_layer,
    source: *const pinlane_strided,
    destination: *const pinlane_strided,
) -> Result<(&'a [pinlane_layer], Option<Strides>, Option<Strides>)> {
    // SAFETY: the precondition.
    unsafe {
        let layer = pointer::inputs("layer", layer, 1)?;
        Ok((layer, strides_of("source", source)?, strides_of("destination", destination)?))
    }
}
