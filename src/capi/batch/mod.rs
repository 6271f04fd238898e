//! Many copies by one call.
//!
//! ```text
//!   pinlane_upload_batch(stream, copies, count, ...)
//!     copies           what C says: addresses, or buffers and offsets
//!     side             each buffer looked up and borrowed once, written ones cut into parts
//!     lend             items of the Rust interface, for the time of the call
//!       Stream::upload_batch
//! ```

mod copies;
mod lend;
mod side;

use std::ffi::c_void;

pub use self::copies::{pinlane_copy, pinlane_device_copy};
pub(super) use self::lend::{downloads, uploads};
pub(super) use self::side::{Place, Side};
use super::device::{check_flags, sized_input};
use super::handle;
use super::plan::forced_path;
use super::pointer;
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;
use super::ticket::{TicketOut, pinlane_ticket};
use crate::error::Result;
use crate::transfer::Path;

/// Options of a batch. Initialise with `PINLANE_BATCH_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_batch_options {
    /// `sizeof(pinlane_batch_options)`.
    pub size: usize,
    /// `PINLANE_PATH_NONE`, so that the fastest way is taken, or one of `PINLANE_PATH_*`.
    pub path: i32,
    /// Must be 0.
    pub flags: u32,
}

const _: () = {
    assert!(size_of::<pinlane_batch_options>() == 16);
    assert!(std::mem::offset_of!(pinlane_batch_options, path) == 8);
    assert!(std::mem::offset_of!(pinlane_batch_options, flags) == 12);
};

/// The path that the options force.
///
/// # Safety
///
/// * `options` is NULL, misaligned (an error), or points to a struct that is as large as its `size`
///   says.
unsafe fn path_of(
    operation: &'static str,
    options: *const pinlane_batch_options,
) -> Result<Option<Path>> {
    if options.is_null() {
        return Ok(None);
    }
    // SAFETY: the same precondition.
    let options = unsafe { sized_input(operation, options) }?;
    check_flags(operation, options.flags, 0)?;
    forced_path(operation, options.path)
}

/// Makes all `count` copies of `copies`, from host memory, ordinary or page-locked, to the stream's
/// device. Returns when ordinary memory may be reused; the ticket says when all has arrived.
/// Ordered on `stream`, and after conflicting uses of the buffers on other streams; the copies are
/// unordered among themselves, so that their destinations must not overlap. `options` may be NULL:
/// the way that should be fastest; `copies` may be NULL if `count` is 0; `ticket` may be NULL.
///
/// With page-locked sources only, the call does not block; with ordinary ones it does, as
/// `pinlane_upload_slice`.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`,
/// `FORKED_PROCESS`, `WRONG_THREAD`, `OUT_OF_HOST_MEMORY`; `INVALID_VALUE` if destinations overlap,
/// a pointer is NULL, or a side is named twice, or for options of an unknown size, path or flag;
/// `UNSUPPORTED` if that path is not possible for these copies: nothing was enqueued. `CUDA`,
/// `DEVICE_LOST`: the contents of all destinations are unspecified.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements.
/// - Host memory that is named by its address is readable, and nobody writes it until the call
///   returns.
/// - Device memory that is named by its address is memory of the stream's device, and stays
///   allocated until the copies are complete.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_upload_batch";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `options`.
        let path = unsafe { path_of(OPERATION, options) }?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs(OPERATION, "copies", copies, count) }?;
        // SAFETY: the caller's preconditions on the memory that the copies name.
        let done = unsafe {
            uploads(OPERATION, &stream, copies, |items| match path {
                None => stream.upload_batch(items),
                Some(path) => stream.upload_batch_by(path, items),
            })
        };
        out.set(done?);
        Ok(())
    })
}

/// Makes all `count` copies of `copies`, from the stream's device to host memory, ordinary or
/// page-locked. Returns when all that goes to ordinary memory has arrived; the ticket says when the
/// rest has, and `pinlane_buffer_read` waits for it. Does not block if there are page-locked
/// destinations only. Ordered as `pinlane_upload_batch`; destinations must not overlap. `options`
/// and `ticket` may be NULL; `copies` may be NULL if `count` is 0.
///
/// Statuses: as for `pinlane_upload_batch`.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements.
/// - Host memory that is named by its address is writable, and nobody else accesses it until the
///   call returns.
/// - Device memory that is named by its address is memory of the stream's device, and stays
///   allocated until the copies are complete.
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
    boundary(|| {
        const OPERATION: &str = "pinlane_download_batch";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `options`.
        let path = unsafe { path_of(OPERATION, options) }?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs(OPERATION, "copies", copies, count) }?;
        // SAFETY: the caller's preconditions on the memory that the copies name.
        let done = unsafe {
            downloads(OPERATION, &stream, copies, |items| match path {
                None => stream.download_batch(items),
                Some(path) => stream.download_batch_by(path, items),
            })
        };
        out.set(done?);
        Ok(())
    })
}

/// Told of a copy that has landed: `user` as it was given, the number of the copy, and its `bytes`
/// bytes at `data`, which may be read until the function returns. It returns 0 to be told of the
/// next, too.
///
/// It is called on the thread that made the call, must not unwind (by a C++ exception or
/// otherwise), and must not call pinlane.
pub type pinlane_landed = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        number: usize,
        data: *const c_void,
        bytes: usize,
    ) -> i32,
>;

/// As `pinlane_download_batch`, and calls `landed` for every copy as it lands, while others are
/// still on their way. Blocks until all have landed, also when `landed` has asked to be told no
/// more.
///
/// Copies to one kind of memory land in their order; those to page-locked memory come first.
///
/// Statuses: as for `pinlane_upload_batch`; `INVALID_VALUE` if `landed` is NULL. Copies that
/// `landed` was called for have landed all the same.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements.
/// - Host memory that is named by its address is writable, and nobody else accesses it until the
///   call returns, but `landed` as it is told.
/// - Device memory that is named by its address is memory of the stream's device.
/// - `landed` may be called with `user`, and does not unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_download_batch_each(
    stream: *const pinlane_stream,
    copies: *const pinlane_copy,
    count: usize,
    landed: pinlane_landed,
    user: *mut c_void,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_download_batch_each";
        let stream = handle::get(OPERATION, stream)?;
        let landed = landed.ok_or_else(|| pointer::null(OPERATION, "landed"))?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs(OPERATION, "copies", copies, count) }?;
        let mut wanted = true;
        let tell = |number: usize, data: &[u8]| {
            // SAFETY: the caller's precondition on `landed`; the data may be read until it returns.
            wanted =
                wanted && unsafe { landed(user, number, data.as_ptr().cast(), data.len()) } == 0;
        };
        // SAFETY: the caller's preconditions on the memory that the copies name.
        unsafe {
            downloads(OPERATION, &stream, copies, |items| stream.download_batch_each(items, tell))
        }
    })
}

/// Makes all `count` copies of `copies`, between device memory and device memory: of one device,
/// or, between buffers, of two, one of which `stream` belongs to. Does not block. Ordered as
/// `pinlane_upload_batch`; no destination may overlap another one or a source. `ticket` may be
/// NULL; `copies` may be NULL if `count` is 0.
///
/// Statuses: as for `pinlane_upload_batch`.
///
/// # Safety
///
/// - `copies` is NULL or points to an array of `count` elements.
/// - Memory that is named by its address is memory of the stream's device, and stays allocated
///   until the copies are complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_copy_batch(
    stream: *const pinlane_stream,
    copies: *const pinlane_device_copy,
    count: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_copy_batch";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `copies`.
        let copies = unsafe { pointer::inputs(OPERATION, "copies", copies, count) }?;
        // SAFETY: the caller's precondition on the memory that the copies name.
        let done = unsafe {
            lend::device_copies(OPERATION, &stream, copies, |items| stream.copy_batch(items))
        };
        out.set(done?);
        Ok(())
    })
}
