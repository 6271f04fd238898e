//! Parts of two sides, by arrays of their offsets.

use super::lend::Sides;
use super::rows::pinlane_layer;
use super::{chosen_route, pinlane_batch_options};
use crate::batch::Parts;
use crate::capi::{Out, Result, layout, pinlane_status, pinlane_stream, pinlane_ticket, pointer};
use crate::copy::entry::Direction;

/// The parts of a source and of a destination that a copy moves: `lengths[i]` elements from
/// `from[i]` on in the source go to `to[i]` in the destination. An element has `unit` bytes.
///
/// Parts of the source may overlap, those of the destination may not. An empty part copies nothing,
/// but must lie in both too. The arrays may be NULL if `count` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_parts {
    /// Where the parts begin in the source, in elements.
    pub from: *const usize,
    /// Where the parts begin in the destination, in elements.
    pub to: *const usize,
    /// How long the parts are, in elements. NULL: each has `length`.
    pub lengths: *const usize,
    /// The length of each part, in elements. No meaning unless `lengths` is NULL.
    pub length: usize,
    /// The number of parts.
    pub count: usize,
    /// The size of an element in bytes. 0 means 1: all numbers count bytes.
    pub unit: usize,
}

layout!(pinlane_parts: 48; to 8, lengths 16, length 24, count 32, unit 40);

/// Copies parts of the source of `layer`, in host memory, to parts of its destination, in device
/// memory. `parts` says where they lie. The bytes between them are left alone.
///
/// A call costs less than `pinlane_upload_batch` for as many copies, because pinlane makes no list
/// of them. Does not block if the source is a part of a `buffer` or `pinned`; other memory may be
/// reused when the call returns. Ordered on `stream`, and after conflicting uses of the buffers on
/// other streams, as a use from the first part to the end of the last one. `options` may be NULL:
/// pinlane chooses the route that should be fastest. `ticket` may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`; `OUT_OF_RANGE` if a part does not lie in its side, or a side not in its buffer;
/// `INVALID_VALUE` if parts of the destination overlap, a pointer is NULL, a side is named twice or
/// not at all, or a `pinned` one is not in memory of a pool, or for options of an unknown size,
/// route or flag; `UNSUPPORTED` if that route is not possible: nothing was enqueued. The message
/// has the number of the part. `CUDA`, `DEVICE_LOST`, and `OUT_OF_HOST_MEMORY` if no memory can be
/// page-locked: the contents of the destination are unspecified.
///
/// # Safety
///
/// - `layer` and `parts` are NULL or point to a struct.
/// - The arrays of `parts` are NULL or have `count` elements, which are not written until the call
///   returns.
/// - Host memory named by its address is readable, and not written, until the call returns.
/// - `pinned` memory is not freed before the call returns, and not written until the copy is
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copy is complete.
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_parts(
    stream: *const pinlane_stream,
    layer: *const pinlane_layer,
    parts: *const pinlane_parts,
    options: *const pinlane_batch_options,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_parts", stream, |stream| {
        // SAFETY: the caller's preconditions on the structs and the arrays.
        let (layer, parts) = unsafe { arguments(layer, parts, options) }?;
        // SAFETY: the caller's preconditions on the memory that the layer names.
        unsafe {
            Sides::new(layer, Direction::Up)?.up(stream, |sides| {
                let (src, dst) = sides.next().expect("one layer")?;
                stream.upload_parts(src, dst, parts)
            })
        }
    })
}

/// As `pinlane_upload_parts`, from parts in device memory to parts in host memory.
///
/// Does not block if the destination is a part of a `buffer` or `pinned`: `pinlane_buffer_read`
/// waits for the parts, and the ticket says when they have arrived. In other memory they have
/// arrived when the call returns.
///
/// Statuses: as for `pinlane_upload_parts`.
///
/// # Safety
///
/// - `layer` and `parts` are NULL or point to a struct.
/// - The arrays of `parts` are NULL or have `count` elements, which are not written until the call
///   returns.
/// - Host memory named by its address is writable, and no other code accesses it until the call
///   returns.
/// - `pinned` memory is not freed before the call returns, and not accessed until the copy is
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copy is complete.
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_parts(
    stream: *const pinlane_stream,
    layer: *const pinlane_layer,
    parts: *const pinlane_parts,
    options: *const pinlane_batch_options,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_download_parts", stream, |stream| {
        // SAFETY: the caller's preconditions on the structs and the arrays.
        let (layer, parts) = unsafe { arguments(layer, parts, options) }?;
        // SAFETY: the caller's preconditions on the memory that the layer names.
        unsafe {
            Sides::new(layer, Direction::Down)?.down(stream, |sides| {
                let (src, dst) = sides.next().expect("one layer")?;
                stream.download_parts(src, dst, parts)
            })
        }
    })
}

/// The arguments of a copy of parts.
///
/// # Safety
///
/// * `layer` and `parts` are NULL, misaligned (both are errors), or point to a struct during `'a`.
/// * `options` is as for [`chosen_route`].
/// * The arrays of `parts` are NULL, misaligned (both are errors), or have `count` elements during
///   `'a`, which are not written.
unsafe fn arguments<'a>(
    layer: *const pinlane_layer,
    parts: *const pinlane_parts,
    options: *const pinlane_batch_options,
) -> Result<(&'a [pinlane_layer], Parts<'a>)> {
    // SAFETY: the preconditions.
    unsafe {
        let route = chosen_route(options)?;
        let layer = pointer::inputs("layer", layer, 1)?;
        let pinlane_parts { from, to, lengths, length, count, unit } =
            pointer::inputs("parts", parts, 1)?[0];
        let (from, to) = (pointer::inputs("from", from, count)?, pointer::inputs("to", to, count)?);
        let parts = match lengths.is_null() {
            true => Parts::of_length(from, to, length),
            false => Parts::new(from, to, pointer::inputs("lengths", lengths, count)?),
        };
        Ok((layer, parts.route(route).of_unit(unit.max(1))))
    }
}
