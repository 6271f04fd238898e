//! The route of a batch, for programs that choose it.

use crate::batch::Route;
use crate::capi::{Result, check_flags, growing, layout, unknown};

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
pub(super) unsafe fn chosen_route(options: *const pinlane_batch_options) -> Result<Option<Route>> {
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
