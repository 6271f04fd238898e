//! Events for the `tracing` crate, with that feature; `events.md` lists them for users. Losses are
//! also reported to the process's listener ([`notice`](crate::notice)).
//!
//! A subscriber is user code: it is called without locks, and its panics end here. It may wait for
//! memory from the pool. So neither a thread that others depend on nor one that delivers an outcome
//! to another calls it: the [helpers](crate::wakers) do. A call reports its own results on its own
//! thread, when it holds nothing that others wait for.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables, unused_macros))]

use std::time::Duration;

#[cfg(feature = "tracing")]
use tracing::level_filters::LevelFilter;

use super::books::stats::Fallbacks;
use crate::error::Error;
use crate::notice;
#[cfg(feature = "tracing")]
use crate::{process::call_user, wakers};

/// `tracing::event!` with the pool's target; expands to nothing without the feature. `here` reports
/// on this thread, `elsewhere` on a helper. Without either it reports here unless others
/// depend on this thread.
macro_rules! event {
    (here, $level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        call_user(|| {
            tracing::event!(target: "pinlane::pool", tracing::Level::$level, $($event)*);
        })
    };
    (elsewhere, $level:ident, $($event:tt)*) => {
        // Without a subscriber, no helper starts.
        #[cfg(feature = "tracing")]
        if tracing::Level::$level <= LevelFilter::current() {
            wakers::run(move || {
                tracing::event!(target: "pinlane::pool", tracing::Level::$level, $($event)*);
            });
        }
    };
    ($level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        if wakers::serves_others() {
            event!(elsewhere, $level, $($event)*);
        } else {
            event!(here, $level, $($event)*);
        }
    };
}

/// Memory was page-locked.
pub(super) fn grew(bytes: usize, block_bytes: usize, took: Duration, fallbacks: Fallbacks) {
    let Fallbacks { not_registered, in_parts, small_pages, other_node } = fallbacks;
    event!(
        elsewhere,
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
    event!(elsewhere, DEBUG, block_bytes, micros = time.as_micros() as u64, "waited for room");
}

/// The calling request ended without a block: the budget is spent, the time is over, or the system
/// has no memory.
pub(super) fn failed(block_bytes: usize, error: &Error) {
    event!(here, WARN, block_bytes, %error, "no block");
}

/// As [`failed`], of the request of another thread or task.
pub(super) fn failed_elsewhere(block_bytes: usize, error: &Error) {
    #[cfg(feature = "tracing")]
    let error = error.clone();
    event!(elsewhere, WARN, block_bytes, %error, "no block");
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

/// It cannot be known whether the device is done with a block.
pub(super) fn quarantined(bytes: usize) {
    event!(ERROR, bytes, "quarantined: the device cannot say if it is done");
    notice::quarantined(bytes, "of a pool's page-locked memory");
}
