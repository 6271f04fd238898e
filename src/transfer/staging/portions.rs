//! In which portions a copy is made, and with which stores.
//!
//! A portion should be long, for a copy engine pauses for a microsecond or two between two; and the first should be
//! short, for the device is idle until it is there, and the last, for somebody waits for it. A device seems to
//! read what a core has just written, and still has in a cache of its own, more slowly than memory (docs/measured):
//! either it is written past the caches, or it is given to the device later.

use super::Staging;
use crate::transfer::path::Path;
use crate::transfer::simd::Stores;

/// The most filled slots that are kept back: as much as eight cores' private caches hold.
const HOLD: usize = 2;
/// One more is kept back after so many slots, so that the device is not idle at the start.
const HOLD_AFTER: usize = 4;

/// Which stores are best for that many bytes of ordinary memory.
pub(super) fn stores_to_memory(bytes: usize) -> Stores {
    if bytes >= 1 << 20 { Stores::Streaming } else { Stores::Cached }
}

impl Staging {
    /// The portion of an upload of `bytes` that comes after `done` bytes, with `left` to go.
    pub(super) fn upload_portion(
        &self,
        path: Path,
        bytes: usize,
        done: usize,
        left: usize,
    ) -> usize {
        let Staging { slot_bytes, first_bytes, .. } = *self;
        // Doubling: as much as all before. Halving: what is left when the last byte has been copied is short.
        let mut ramp = first_bytes.max(done);
        let mut end = left / 2;
        if path.has_items() {
            // A kernel takes a few microseconds to begin and to end.
            ramp = ramp.max(bytes / 3);
            end = left;
        }
        let end = end.max(2 * first_bytes).next_multiple_of(4096);
        ramp.min(end).min(slot_bytes)
    }

    /// The portion of a download of `bytes` that comes after `done` bytes, with `left` to go.
    pub(super) fn download_portion(
        &self,
        path: Path,
        bytes: usize,
        done: usize,
        left: usize,
    ) -> usize {
        let Staging { slot_bytes, first_bytes, .. } = *self;
        if path.has_items() {
            return (bytes / 4).max(first_bytes).next_multiple_of(4096).min(slot_bytes);
        }
        let even = (bytes / 16).max(8 * first_bytes).next_multiple_of(4096);
        let end = (left / 4).max(first_bytes).next_multiple_of(4096);
        first_bytes.max(done).min(even).min(end).min(slot_bytes)
    }

    /// The bytes of a unit, so that a portion is work for everybody.
    pub(super) fn unit(&self, piece: usize, threads: usize) -> usize {
        (piece / (2 * threads)).next_multiple_of(4096).clamp(8 << 10, self.unit_bytes.max(8 << 10))
    }

    /// How an upload of `bytes` is written to its slots.
    pub(super) fn stores_to_slot(&self, bytes: usize) -> Stores {
        if bytes <= self.streaming_bytes { Stores::Streaming } else { Stores::Cached }
    }

    /// How many filled slots an upload keeps back, after `done` bytes.
    pub(super) fn hold(&self, bytes: usize, done: usize) -> usize {
        if bytes <= self.streaming_bytes || done == bytes {
            return 0;
        }
        HOLD.min(done / (HOLD_AFTER * self.slot_bytes))
    }
}
