//! The options for staging pageable memory, and the portions and stores that follow from them.
//!
//! Portions should be long, because a copy engine pauses for a microsecond or two between two of
//! them. The first should be short, because the device is idle until it is filled. So should the
//! last, where the device copies as fast as threads do, because the caller waits for it. No caller
//! waits for data that is copied ahead of its use, so there all portions are long.
//!
//! A device seems to read data that a core has just written, and that is still in the core's own
//! cache, more slowly than memory (docs/measured). So short copies are written past the caches.
//! Long ones are not, because that takes memory bandwidth which reading the source needs: they use
//! [few slots](IN_FLIGHT) in turns, which stay in the caches that the cores share. A device also
//! writes more slowly to lines that are in the cache of a core that has just read them. So short
//! downloads use [several slots](LANDING) in turns.

use pinlane_base::setters;

use super::simd::Stores;
use super::team::Workload;
use crate::copy::route::Route;
use crate::error::{Error, Result};

/// The page-locked memory through which copies of pageable memory go: how much, and in which
/// portions. One for each device; see [`Device::set_staging`](crate::Device::set_staging).
#[derive(Clone, Debug)]
pub struct Staging {
    pub(super) ring_bytes: usize,
    pub(super) slot_bytes: usize,
    pub(super) first_bytes: usize,
    pub(super) unit_bytes: usize,
    pub(super) direct_bytes: usize,
    pub(super) streaming_bytes: usize,
}

impl Default for Staging {
    fn default() -> Self {
        Self::new()
    }
}

impl Staging {
    /// The default: 8 slots of 4 MiB. They are page-locked one by one, on demand. A copy of 32 MiB
    /// or more page-locks all of them, on another thread, and so does
    /// [`Device::warm_up`](crate::Device::warm_up).
    #[must_use]
    pub fn new() -> Self {
        Staging {
            ring_bytes: 32 << 20,
            slot_bytes: 4 << 20,
            first_bytes: 256 << 10,
            streaming_bytes: 64 << 20,
            unit_bytes: 256 << 10,
            direct_bytes: 64 << 10,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let Staging { ring_bytes, slot_bytes, first_bytes, unit_bytes, .. } = *self;
        let sound = slot_bytes >= 4096
            && ring_bytes / slot_bytes >= 2
            && ring_bytes / slot_bytes <= 4096
            && ring_bytes <= 1 << 40
            && (1024..=slot_bytes).contains(&first_bytes)
            && unit_bytes >= 1024;
        if sound {
            return Ok(());
        }
        Err(Error::invalid(
            "Device::set_staging",
            format!(
                "a ring of {ring_bytes} bytes, slots of {slot_bytes}, a first portion of \
                 {first_bytes}, units of {unit_bytes}"
            ),
            "make a slot at least 4096 bytes long, the ring 2 to 4096 slots and at most 1 TiB, a \
             unit at least 1024 bytes, and the first portion 1024 bytes up to a slot",
        ))
    }
}

setters! {
    impl Staging {
        /// The most page-locked memory in bytes for large copies. Small copies take up to half as
        /// much in addition.
        pub fn ring_bytes(bytes: usize) => ring_bytes;

        /// The size of a slot in bytes: the largest portion that the copy engine gets at once.
        pub fn slot_bytes(bytes: usize) => slot_bytes;

        /// The first portion of a short upload, in bytes. Of few slices, each portion is twice as
        /// long as the one before, up to a slot. Other uploads begin with at least 1/32 of their
        /// bytes, and their portions grow to 1/8 of the copy, and to at most a slot.
        pub fn first_bytes(bytes: usize) => first_bytes;

        /// The most bytes that a thread copies at a time. For lists and long slices, less than
        /// 8 KiB counts as 8 KiB.
        pub fn unit_bytes(bytes: usize) => unit_bytes;

        /// Copies of at most this many bytes go through one block of page-locked memory, without
        /// the team.
        pub fn direct_bytes(bytes: usize) => direct_bytes;

        /// Uploads of at most this many bytes are written to their slots past the cache, which
        /// measured faster. Longer ones are written through the cache, and use about five slots in
        /// turns.
        pub fn streaming_bytes(bytes: usize) => streaming_bytes;
    }
}

/// How a download is cut. All are numbers of bytes, and multiples of those above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cuts {
    /// What a thread copies at a time.
    pub(super) chunk: usize,
    /// What the device copies at a time.
    pub(super) portion: usize,
    /// What goes through a slot before it is used again.
    pub(super) slot: usize,
}

/// How many portions of a copy that is written through the caches may be in flight: before another
/// slot is opened, the oldest is waited for. With more, slots leave the caches before they are used
/// again.
pub(super) const IN_FLIGHT: usize = 4;

/// How many slots downloads of few slices use in turns, at least, if they fill a good part of one:
/// when one is used again, its lines have left the cores' own caches. Longer downloads use twice as
/// many as they fill.
pub(super) const LANDING: usize = 4;

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
            // A kernel takes a few microseconds to begin and to end. So the last is not short.
            let least = 4 * first_bytes;
            let least = if left < least + 2 * first_bytes { left } else { least };
            (first_bytes.max(bytes / 8).max(3 * done), least)
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

    /// How many items of a slot one thread writes, of smaller slots in proportion. To share so few
    /// takes longer.
    pub(super) fn items_of_one(&self) -> usize {
        (self.slot_bytes >> 11).min(2048)
    }

    /// How a download of few slices is cut that is not long: in few portions, because each takes
    /// microseconds to enqueue, and in chunks for all threads. Chunks of few slots are short: where
    /// a slot's lines are still in the caches of cores, the device then writes to those of several
    /// cores at once. Portions of about a MB are slow where there are only four of them.
    pub(super) fn cuts(&self, bytes: usize, threads: usize) -> Cuts {
        let Staging { slot_bytes, first_bytes, unit_bytes, .. } = *self;
        let portion = (bytes / 4).min(2 * first_bytes).max(bytes / 8);
        let portion = portion.clamp(first_bytes / 2, 4 * first_bytes).min(slot_bytes).min(bytes);
        let most = if bytes < 2 * slot_bytes { 16 << 10 } else { 64 << 10 };
        let fair = (portion / threads).next_multiple_of(4096).clamp(8 << 10, most);
        let chunk = fair.min(unit_bytes).min(slot_bytes);
        let portion = (portion / chunk).max(1) * chunk;
        Cuts { chunk, portion, slot: slot_bytes / portion * portion }
    }

    /// What a thread copies at a time of an upload of few slices that is not long.
    pub(super) fn chunk(&self) -> usize {
        (32 << 10).min(self.unit_bytes).min(self.slot_bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fill_portions_and_portions_fill_slots() {
        let small = Staging::new().slot_bytes(5000).ring_bytes(20_000).first_bytes(1024);
        let odd = Staging::new().slot_bytes(70_001).first_bytes(9000).unit_bytes(1024);
        for options in [Staging::new(), small.unit_bytes(3000), odd] {
            options.check().expect("sound options");
            for power in 0..25 {
                for (bytes, threads) in [(1 << power, 1), ((3 << power) + 1, 8), (5 << power, 64)] {
                    let cuts @ Cuts { chunk, portion, slot } = options.cuts(bytes, threads);
                    assert!(chunk > 0 && portion % chunk == 0 && slot % portion == 0, "{cuts:?}");
                    assert!(slot > 0 && slot <= options.slot_bytes, "{cuts:?}");
                    assert!(chunk <= options.unit_bytes, "{cuts:?}");
                }
            }
        }
    }
}
