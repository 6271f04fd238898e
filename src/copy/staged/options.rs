//! The options for staging pageable memory.

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

    /// The most page-locked memory in bytes for large copies. Small copies take up to half as much
    /// in addition.
    #[must_use]
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// The size of a slot in bytes: the largest portion that the copy engine gets at once.
    #[must_use]
    pub fn slot_bytes(mut self, bytes: usize) -> Self {
        self.slot_bytes = bytes;
        self
    }

    /// The first portion of a short upload, in bytes. A longer upload begins with 1/32 of its
    /// bytes. Portions grow to 1/8 of the copy, and to at most a slot.
    #[must_use]
    pub fn first_bytes(mut self, bytes: usize) -> Self {
        self.first_bytes = bytes;
        self
    }

    /// The bytes that a thread copies at a time.
    #[must_use]
    pub fn unit_bytes(mut self, bytes: usize) -> Self {
        self.unit_bytes = bytes;
        self
    }

    /// Copies of at most this many bytes go through one block of page-locked memory, without the
    /// team.
    #[must_use]
    pub fn direct_bytes(mut self, bytes: usize) -> Self {
        self.direct_bytes = bytes;
        self
    }

    /// Uploads of at most this many bytes are written to their slots past the cache, which measured
    /// faster. Longer ones are written through the cache, and use about five slots in turns.
    #[must_use]
    pub fn streaming_bytes(mut self, bytes: usize) -> Self {
        self.streaming_bytes = bytes;
        self
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
