//! Chooses the portions of a copy, and the stores.
//!
//! Portions should be long, because a copy engine pauses for a microsecond or two between two of
//! them. The first should be short, because the device is idle until it is filled, and so should
//! the last, because the caller waits for it. No caller waits for data that is copied ahead of its
//! use, so there all portions are long.
//!
//! A device seems to read data that a core has just written, and that is still in the core's own
//! cache, more slowly than memory (docs/measured). So short copies are written past the caches.
//! Long ones are not, because that takes memory bandwidth which reading the source needs: they use
//! [few slots](IN_FLIGHT) in turns, which stay in the caches that the cores share.

use super::options::Staging;
use super::simd::Stores;
use super::team::Workload;
use crate::copy::route::Route;

/// How many portions of a copy that is written through the caches may be in flight: before another
/// slot is opened, the oldest is waited for. With more, slots leave the caches before they are used
/// again.
pub(super) const IN_FLIGHT: usize = 4;

/// The best stores for that many bytes of pageable memory.
pub(super) fn stores_to_memory(bytes: usize) -> Stores {
    if bytes >= 1 << 20 { Stores::Streaming } else { Stores::Cached }
}

impl Staging {
    /// The portion of an upload of `bytes` that comes after `done` bytes, with `left` to go.
    pub(super) fn upload_portion(
        &self,
        (route, workload): (Route, Workload),
        bytes: usize,
        done: usize,
        left: usize,
    ) -> usize {
        let Staging { slot_bytes, first_bytes, .. } = *self;
        if workload == Workload::Ahead {
            return slot_bytes;
        }
        // Doubling: as much as all portions before. Halving: little is left to do after the last
        // byte was copied.
        let (ramp, least) = if route == Route::Kernel {
            // A kernel takes a few microseconds to begin and to end.
            (first_bytes.max(bytes / 8).max(3 * done), 4 * first_bytes)
        } else {
            let first = first_bytes.max(bytes / 32);
            (first.max(done).min((bytes / 8).max(4 * first_bytes)), 2 * first_bytes)
        };
        let end = (left / 2).max(least);
        ramp.min(end).next_multiple_of(4096).min(slot_bytes)
    }

    /// The next portion of a download of `bytes`, with `left` to go.
    pub(super) fn download_portion(&self, route: Route, bytes: usize, left: usize) -> usize {
        let Staging { slot_bytes, first_bytes, .. } = *self;
        // Few portions, because each is waited for. But the last of a long copy is short, because
        // it is unpacked after the device is done.
        let even = bytes / if route == Route::Kernel { 2 } else { 4 };
        let is_long = bytes >= 8 * slot_bytes;
        let end = if is_long { (left / 2).max(4 * first_bytes) } else { left };
        even.max(first_bytes).min(end).next_multiple_of(4096).min(slot_bytes)
    }

    /// The bytes of a unit, so that a portion is work for all threads.
    pub(super) fn unit(&self, piece: usize, threads: usize) -> usize {
        (piece / (2 * threads)).next_multiple_of(4096).clamp(8 << 10, self.unit_bytes.max(8 << 10))
    }

    /// How an upload of `bytes` is written to its slots.
    pub(super) fn stores_to_slot(&self, workload: Workload, bytes: usize) -> Stores {
        let is_long = bytes > self.streaming_bytes || workload == Workload::Ahead;
        if is_long { Stores::Cached } else { Stores::Streaming }
    }
}
