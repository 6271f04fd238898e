//! The ways in which a batch can be copied, for programs that choose one themselves.

use crate::capi::pointer::{self, check_flags, layout, unknown};
use crate::error::Result;
use crate::transfer::Path;

/// pinlane chooses the way.
pub const PINLANE_PATH_NONE: i32 = 0;
/// One `cudaMemcpyAsync` for each run of adjacent copies. Best for long copies.
pub const PINLANE_PATH_COPIES: i32 = 1;
/// One `cudaMemcpyBatchAsync` for many copies, if the driver has it (CUDA 12.8). Not on the legacy
/// default stream.
pub const PINLANE_PATH_BATCH: i32 = 2;
/// The copies cross packed together, in one copy; a kernel packs or unpacks them. For pageable
/// memory.
pub const PINLANE_PATH_PACKED: i32 = 3;
/// A kernel fetches the bytes from page-locked memory over the bus. Not for downloads.
pub const PINLANE_PATH_PULL: i32 = 4;

/// Options of a batch. Initialise with `PINLANE_BATCH_OPTIONS_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_batch_options {
    /// `sizeof(pinlane_batch_options)`.
    pub size: usize,
    /// `PINLANE_PATH_NONE`: pinlane chooses the way that should be fastest. Or another of
    /// `PINLANE_PATH_*`.
    pub path: i32,
    /// Must be 0.
    pub flags: u32,
}

layout!(pinlane_batch_options: 16; path 8, flags 12);

/// The path that the options force.
///
/// # Safety
///
/// * `options` is NULL, misaligned (an error), or points to a struct that is as large as its `size`
///   says.
pub(super) unsafe fn forced_path(options: *const pinlane_batch_options) -> Result<Option<Path>> {
    // SAFETY: the same precondition.
    let Some(options) = unsafe { pointer::options(options) }? else { return Ok(None) };
    check_flags(options.flags, 0)?;
    Ok(Some(match options.path {
        PINLANE_PATH_NONE => return Ok(None),
        PINLANE_PATH_COPIES => Path::Copies,
        PINLANE_PATH_BATCH => Path::Batch,
        PINLANE_PATH_PACKED => Path::Packed,
        PINLANE_PATH_PULL => Path::Pull,
        path => return Err(unknown("path", path, "use one of PINLANE_PATH_*")),
    }))
}
