//! Events for the `tracing` crate, where that feature is on. Emitted with nothing locked.

use std::time::Duration;

use super::grow::Fallbacks;
use crate::memory::block::BlockRef;

const TARGET: &str = "pinlane::pool";

/// Memory was page-locked.
pub(super) fn grew(bytes: usize, block_bytes: usize, took: Duration, fallbacks: Fallbacks) {
    #[cfg(feature = "tracing")]
    {
        let micros = took.as_micros() as u64;
        let Fallbacks { not_registered, small_pages, other_node } = fallbacks;
        tracing::debug!(
            target: TARGET, bytes, block_bytes, micros, not_registered, small_pages, other_node,
            "page-locked"
        );
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (TARGET, bytes, block_bytes, took, fallbacks);
}

/// Memory was given back to the system, or should have been.
pub(super) fn released(bytes: usize, lost: usize) {
    #[cfg(feature = "tracing")]
    {
        if bytes > 0 {
            tracing::debug!(target: TARGET, bytes, "given back");
        }
        if lost > 0 {
            tracing::error!(target: TARGET, bytes = lost, "could not be given back, and is lost");
        }
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (bytes, lost);
}

/// The device cannot say whether it is done with these blocks.
pub(super) fn quarantined(blocks: &[BlockRef]) {
    #[cfg(feature = "tracing")]
    for block in blocks {
        let bytes = block.bytes();
        tracing::error!(target: TARGET, bytes, "quarantined: the device cannot say if it is done");
    }
    #[cfg(not(feature = "tracing"))]
    let _ = blocks;
}
