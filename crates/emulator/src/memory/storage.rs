//! Where an allocation of device memory has its bytes.

use crate::memory::arena::Arena;
use crate::words::rng;
use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;

/// How much of a large allocation in an arena is poisoned, at either end: the rest is left to the
/// system, which gives pages only as they are written.
const POISONED: usize = 16 << 20;

/// The bytes of an allocation; absent until it is reached in stream order.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Words, so that an address and the host address of its byte are equal modulo 8.
    Owned(Vec<u64>),
    /// In an arena: where, and whether the allocation has been reached.
    Mapped { at: *mut u8, present: bool },
}

// SAFETY: what the pointer names belongs to one allocation alone, as a vector's memory does.
unsafe impl Send for Storage {}

impl Default for Storage {
    fn default() -> Self {
        Storage::Owned(Vec::new())
    }
}

impl Storage {
    /// Room for an allocation at `address`.
    pub(crate) fn new(arena: Option<&Arena>, address: u64, bytes: usize) -> DriverResult<Self> {
        if let Some(arena) = arena {
            return Ok(Storage::Mapped { at: arena.storage_of(address), present: false });
        }
        let mut words = Vec::new();
        let room = words.try_reserve_exact(bytes.div_ceil(8));
        room.map_err(|_| CudaCode::MEMORY_ALLOCATION)?;
        Ok(Storage::Owned(words))
    }

    pub(crate) fn is_present(&self) -> bool {
        match self {
            Storage::Owned(words) => !words.is_empty(),
            Storage::Mapped { present, .. } => *present,
        }
    }

    /// The bytes are gone, until the allocation is reached again.
    pub(crate) fn vanish(&mut self) {
        match self {
            Storage::Owned(words) => words.clear(),
            Storage::Mapped { present, .. } => *present = false,
        }
    }

    /// What lies in an arena can be used, as it is.
    pub(crate) fn appear(&mut self) {
        if let Storage::Mapped { present, .. } = self {
            *present = true;
        }
    }

    /// The allocation is reached: its bytes are there, and hold `poison`.
    pub(crate) fn commit(&mut self, bytes: usize, poison: u64) {
        match self {
            Storage::Owned(words) => words.resize(bytes.div_ceil(8), poison),
            Storage::Mapped { .. } => {
                self.appear();
                let contents = self.contents_mut(bytes);
                let (first, rest) = contents.split_at_mut(bytes.min(POISONED));
                rng::fill_word(first, poison);
                let last = rest.len().saturating_sub(POISONED);
                rng::fill_word(&mut rest[last..], poison);
            }
        }
    }

    pub(crate) fn contents(&self, bytes: usize) -> &[u8] {
        match self {
            Storage::Owned(words) => &bytemuck::cast_slice(words)[..bytes],
            // SAFETY: the arena has room for the whole allocation, whose bytes are this one's
            // alone; it outlives all allocations in it. Two reservations that show the same backing
            // are never borrowed together (`DeviceMemory::copy`).
            &Storage::Mapped { at, .. } => unsafe { std::slice::from_raw_parts(at, bytes) },
        }
    }

    pub(crate) fn contents_mut(&mut self, bytes: usize) -> &mut [u8] {
        match self {
            Storage::Owned(words) => &mut bytemuck::cast_slice_mut(words)[..bytes],
            // SAFETY: as in `contents`; `self` is borrowed mutably.
            &mut Storage::Mapped { at, .. } => unsafe { std::slice::from_raw_parts_mut(at, bytes) },
        }
    }
}
