//! Many copies by one call.
//!
//! ```text
//!   pinlane_upload_batch(stream, copies, count, ...)
//!     copies           what C says: addresses, or buffers and offsets
//!     places           each buffer is looked up and borrowed once; written ones are cut into parts
//!     lend             items of the Rust interface, for the time of the call
//!       Stream::upload_batch
//! ```
//!
//! `rows` has copies of rows, by their numbers; `pairs` has lists of copies that are made
//! repeatedly, `strided` copies of rows that lie a pitch apart, `parts` those by arrays of offsets.

mod copies;
mod hosts;
mod lend;
mod pairs;
mod parts;
mod places;
mod rows;
mod strided;

use std::ffi::c_void;

pub use self::copies::{pinlane_copy, pinlane_device_copy};
use self::lend::Sides;
pub(super) use self::pairs::pinlane_pairs;
pub(super) use self::places::{Place, Places};
pub(super) use self::strided::pinlane_strided;
use super::transfer::same_buffer;
use super::{
    Out, Result, boundary, check_flags, check_spare, growing, handle, layout, pinlane_status,
    pinlane_stream, pinlane_ticket, pointer, unknown,
};
use crate::batch::{DeviceCopy, Downloads, Route, Uploads};
use crate::copy::entry::Direction;
use crate::sync::sanitizer::theirs;

/// pinlane takes the route that is fastest by rule.
pub const PINLANE_ROUTE_AUTOMATIC: i32 = 0;
/// One `cudaMemcpyAsync` for each run of adjacent copies. Best for one long run.
pub const PINLANE_ROUTE_COPIES: i32 = 1;
/// One `cudaMemcpyBatchAsync` for many copies, if the driver has it (CUDA 12.8). Not on the legacy
/// default stream.
pub const PINLANE_ROUTE_BATCH_CALL: i32 = 2;
/// A kernel moves the bytes: it reads or writes page-locked memory over the bus.
pub const PINLANE_ROUTE_KERNEL: i32 = 3;

/// Options of a batch. Initialise with `PINLANE_BATCH_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_batch_options {
    /// `sizeof(pinlane_batch_options)`.
    pub size: usize,
    /// `PINLANE_ROUTE_AUTOMATIC`, or another of `PINLANE_ROUTE_*`.
    pub route: i32,
    /// Must be 0.
    pub flags: u32,
}

layout!(pinlane_batch_options: 16; route 8, flags 12);
growing!(pinlane_batch_options_init: pinlane_batch_options, sizes [16], default {
    route: PINLANE_ROUTE_AUTOMATIC
});

/// The route that the options choose.
///
/// # Safety
///
/// * `options` is NULL, misaligned (an error), or points to a struct that is as large as its `size`
///   says.
unsafe fn chosen_route(options: *const pinlane_batch_options) -> Result<Option<Route>> {
    // SAFETY: the same precondition.
    let options = unsafe { growing::options(options) }?;
    check_flags(options.flags, 0)?;
    Ok(Some(match options.route {
        PINLANE_ROUTE_AUTOMATIC => return Ok(None),
        PINLANE_ROUTE_COPIES => Route::Copies,
        PINLANE_ROUTE_BATCH_CALL => Route::BatchCall,
        PINLANE_ROUTE_KERNEL => Route::Kernel,
        route => return Err(unknown("route", route, "use one of PINLANE_ROUTE_*")),
    }))
}

/// Makes all `count` copies of `copies`, from host memory, pageable or page-locked, to the stream's
/// device. Returns when pageable memory may be reused; the ticket says when everything has arrived.
/// Ordered on `stream`, and after conflicting uses of the buffers on other streams. The copies have
/// no order among themselves, so their destinations must not overlap. `options` may be NULL:
/// pinlane chooses the route that should be fastest. `copies` may be NULL if `count` is 0; `ticket`
/// may be NULL.
///
/// Does not block if all sources are buffers or `pinned`. With pageable memory it blocks as
/// `pinlane_upload_slice`. Memory of a pool that is named by its address is copied as page-locked
/// memory, and the call blocks until the device has read it: name it as `pinned` instead, or name
/// its buffer.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`,
/// `FORKED_PROCESS`, `WRONG_THREAD`; `INVALID_VALUE` if destinations overlap, a pointer is NULL, a
/// side is named twice, or `pinned` memory does not belong to a pool, or for options of an unknown
/// size, route or flag; `UNSUPPORTED` if that route is not possible for these copies: nothing was
/// enqueued. `CUDA`, `DEVICE_LOST`, and `OUT_OF_HOST_MEMORY` if no memory can be page-locked for
/// the pageable copies: the contents of all destinations are unspecified.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements.
/// - Host memory named by its address is readable, and not written, until the call returns.
/// - `pinned` memory is not freed before the call returns, and not written until the copies are
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copies are complete.
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_batch(
    stream: *const pinlane_stream,
    copies: *const pinlane_copy,
    count: usize,
    options: *const pinlane_batch_options,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_batch", stream, |stream| {
        // SAFETY: the caller's precondition on `options`.
        let route = unsafe { chosen_route(options) }?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs("copies", copies, count) }?;
        // SAFETY: the caller's preconditions on the memory that the copies name.
        unsafe {
            Sides::new(copies, Direction::Up)?.up(stream, |pairs| {
                let list = pairs.collect::<Result<Uploads<'_>>>()?;
                stream.upload_list(&mut list.route(route))
            })
        }
    })
}

/// Makes all `count` copies of `copies`, from the stream's device to host memory, pageable or
/// page-locked. Returns when all data for memory that is named by its address has arrived; memory
/// of a pool is then written as page-locked memory. The ticket says when the rest has arrived;
/// `pinlane_buffer_read` waits for it. Does not block if all destinations are buffers or `pinned`.
/// Ordered as `pinlane_upload_batch`; destinations must not overlap. `options` and `ticket` may be
/// NULL; `copies` may be NULL if `count` is 0.
///
/// Statuses: as for `pinlane_upload_batch`.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements.
/// - Host memory named by its address is writable, and no other code accesses it until the call
///   returns.
/// - `pinned` memory is not freed before the call returns, and not accessed until the copies are
///   complete.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copies are complete.
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_batch(
    stream: *const pinlane_stream,
    copies: *const pinlane_copy,
    count: usize,
    options: *const pinlane_batch_options,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_download_batch", stream, |stream| {
        // SAFETY: the caller's precondition on `options`.
        let route = unsafe { chosen_route(options) }?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs("copies", copies, count) }?;
        // SAFETY: the caller's preconditions on the memory that the copies name.
        unsafe {
            Sides::new(copies, Direction::Down)?.down(stream, |pairs| {
                let list = pairs.collect::<Result<Downloads<'_>>>()?;
                stream.download_list(&mut list.route(route))
            })
        }
    })
}

/// Called when a copy has arrived, with `user`, the number of the copy, and its `bytes` bytes at
/// `data`, which may be read until the function returns. It returns 0 to be called for further
/// copies.
///
/// It runs on the thread that made the call. It must not unwind (by a C++ exception or otherwise),
/// and must not call pinlane.
pub type pinlane_landed = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        number: usize,
        data: *const c_void,
        bytes: usize,
    ) -> i32,
>;

/// As `pinlane_download_batch`, and calls `landed` for each copy as soon as it has arrived, while
/// others are in flight. Blocks until all have arrived, even if `landed` asked not to be called
/// again.
///
/// Copies to pageable memory arrive in order, and so do copies to page-locked memory, which come
/// first.
///
/// Statuses: as for `pinlane_upload_batch`; `INVALID_VALUE` if `landed` is NULL. If the call fails,
/// the copies that `landed` was called for have arrived nevertheless.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements.
/// - Host memory named by its address is writable. Until the call returns, no other code accesses
///   or frees it or `pinned` memory; `landed` may read the data that it is called with.
/// - Device memory named by its address is memory of the stream's device.
/// - `landed` may be called with `user`, and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_batch_each(
    stream: *const pinlane_stream,
    copies: *const pinlane_copy,
    count: usize,
    landed: pinlane_landed,
    user: *mut c_void,
) -> pinlane_status {
    boundary("pinlane_download_batch_each", || {
        let stream = handle::get(stream)?;
        let landed = pointer::function("landed", landed)?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs("copies", copies, count) }?;
        let mut wanted = true;
        let tell = |number: usize, data: &[u8]| {
            // SAFETY: the caller's precondition on `landed`; the data may be read until it returns.
            let tell = || unsafe { landed(user, number, data.as_ptr().cast(), data.len()) };
            wanted = wanted && theirs(tell) == 0;
        };
        // SAFETY: the caller's preconditions on the memory that the copies name.
        unsafe {
            Sides::new(copies, Direction::Down)?.down(&stream, |pairs| {
                let mut list = pairs.collect::<Result<Downloads<'_>>>()?;
                stream.download_list_each(&mut list, tell)
            })
        }
    })
}

/// Makes all `count` copies of `copies`, from device memory to device memory: of one device or,
/// between buffers, of two; `stream` belongs to one of them. Does not block. Ordered as
/// `pinlane_upload_batch`. No destination may overlap another one or a source. `ticket` may be
/// NULL; `copies` may be NULL if `count` is 0.
///
/// Statuses: as for `pinlane_upload_batch`.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements.
/// - Memory named by its address is memory of the stream's device, and stays allocated until the
///   copies are complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_copy_batch(
    stream: *const pinlane_stream,
    copies: *const pinlane_device_copy,
    count: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_copy_batch", stream, |stream| {
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs("copies", copies, count) }?;
        check_spare("copies", copies.iter().map(|copy| copy.reserved))?;
        let sources = Places::new("copy", copies.iter().map(pinlane_device_copy::source))?;
        let destinations =
            Places::new("copy", copies.iter().map(pinlane_device_copy::destination))?;
        if sources.shares_buffers_with(&destinations) {
            return Err(same_buffer());
        }
        let read = sources.shared()?;
        let mut written = destinations.exclusive()?;
        destinations.check_apart()?;
        // SAFETY: the caller's precondition on the memory that the copies name.
        let (from, mut to) = unsafe { (sources.lent(stream)?, destinations.lent(stream)?) };
        let written = destinations.written(&mut written, &mut to)?;
        let pairs = sources.read(&read, &from).zip(written);
        let copies = pairs.map(|(src, dst)| Ok(DeviceCopy::new(src?, dst)));
        stream.copy_batch(copies.collect::<Result<Vec<_>>>()?)
    })
}
