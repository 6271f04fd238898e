//! Events for the `tracing` crate, with that feature; `events.md` lists them for users. Losses are
//! also told to the process's listener ([`notice`](crate::notice)).
//!
//! A subscriber is user code: it is called with nothing locked, and its panics end here. It may
//! look at the pool, but must not wait for memory from it: it may run on the thread that provides
//! it.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::time::Duration;

use super::stats::Fallbacks;
use crate::error::Error;
use crate::notice;

/// `tracing::event!` with the pool's target; nothing without the feature.
macro_rules! event {
    ($level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        crate::process::call_user(|| {
            tracing::event!(target: "pinlane::pool", tracing::Level::$level, $($event)*);
        })
    };
}

/// Memory was page-locked.
pub(super) fn grew(bytes: usize, block_bytes: usize, took: Duration, fallbacks: Fallbacks) {
    let Fallbacks { not_registered, in_parts, small_pages, other_node } = fallbacks;
    event!(
        DEBUG,
        bytes,
        block_bytes,
        micros = took.as_micros() as u64,
        not_registered,
        in_parts,
        small_pages,
        other_node,
        "page-locked"
    );
}

/// A request waited for room in the budget, and got its block.
pub(super) fn waited(block_bytes: usize, time: Duration) {
    event!(DEBUG, block_bytes, micros = time.as_micros() as u64, "waited for room");
}

/// A request ended without a block: the budget is spent, the time is over, or the system has no
/// memory.
pub(super) fn failed(block_bytes: usize, error: &Error) {
    event!(WARN, block_bytes, %error, "no block");
}

/// Memory was given back to the system, or the system did not take it.
pub(super) fn released(bytes: usize, lost: usize) {
    if bytes > 0 {
        event!(DEBUG, bytes, "given back");
    }
    if lost > 0 {
        event!(ERROR, bytes = lost, "could not be given back, and is lost");
        notice::not_released(lost);
    }
}

/// Nobody can say whether the device is done with a block.
pub(super) fn quarantined(bytes: usize) {
    event!(ERROR, bytes, "quarantined: the device cannot say if it is done");
    notice::quarantined(bytes, "of a pool's page-locked memory");
}
