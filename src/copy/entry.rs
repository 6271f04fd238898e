//! One entry of a copy: a range of host memory or of a file, and a range on the device.

use std::marker::PhantomData;
use std::ops::Range;

use super::staged::simd::{self, Stores};
use crate::error::Result;
use crate::memory::hazard::{Access, Hazards};
use crate::memory::{DeviceBytes, PinnedBytes};

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the host to the device.
    Up,
    /// From the device to the host.
    Down,
}

/// One of the two sides of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Device,
}

impl Direction {
    /// What a copy does to one of its sides.
    #[inline]
    pub(crate) fn access(self, side: Side) -> Access {
        match (self, side) {
            (Direction::Up, Side::Device) | (Direction::Down, Side::Host) => Access::Write,
            (Direction::Up, Side::Host) | (Direction::Down, Side::Device) => Access::Read,
        }
    }

    /// Maps (host, device) to (source, destination), and back.
    #[inline]
    pub(crate) fn pair<T>(self, host: T, device: T) -> (T, T) {
        match self {
            Direction::Up => (host, device),
            Direction::Down => (device, host),
        }
    }
}

/// The longest item of the moving kernel in bytes. One warp moves an item, so a longer one is cut.
pub(crate) const PIECE: usize = 16 << 10;

/// What an upload can read instead of host memory. [`FileReader`](crate::file::FileReader) is one.
pub(crate) trait Source: Sync {
    /// Whether it is read in whole blocks of [`BLOCK`] bytes.
    fn is_in_blocks(&self) -> bool;

    /// Fills `into` with the bytes from `offset` on, with these stores if it can choose. Blocks.
    fn fill(
        &self,
        operation: &'static str,
        offset: u64,
        into: &mut [u8],
        stores: Stores,
    ) -> Result<()>;
}

/// The block size of a source that is read in blocks: a multiple of every common disk's block size.
pub(crate) const BLOCK: usize = 4096;

/// What a download can write instead of host memory. Rows of a table are one.
pub(crate) trait Sink: Sync {
    /// Takes the bytes from `offset` on, and writes them with these stores.
    ///
    /// # Safety
    ///
    /// * During the call no other code reads or writes the bytes at these offsets.
    unsafe fn drain(&self, offset: u64, bytes: &[u8], stores: Stores);
}

/// A source or sink that takes the place of host memory.
pub(crate) enum Far<'a> {
    /// The bytes of a source from here on.
    Source(&'a dyn Source, u64),
    /// All of a sink.
    Sink(&'a dyn Sink),
}

/// A range on the device, and as many bytes of host memory (pageable or page-locked), of a source
/// or of a sink.
///
/// `'a` is how long the host memory is borrowed: shared by an entry of an upload, exclusively by an
/// entry of a download.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// The first byte of the host memory; null for a source or sink.
    host: *mut u8,
    pub(super) pinned: Option<PinnedBytes<'a>>,
    far: Option<&'a Far<'a>>,
    pub(crate) device: DeviceBytes<'a>,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: an entry is a borrowed range of bytes, borrowed regions and a borrowed source or sink,
// which are `Sync`.
unsafe impl Send for Entry<'_> {}
// SAFETY: as above; the methods that touch the host memory state their preconditions.
unsafe impl Sync for Entry<'_> {}

impl<'a> Entry<'a> {
    /// For an upload of pageable memory. Both sides have the same length.
    pub(crate) fn from_host(host: &'a [u8], device: DeviceBytes<'a>) -> Self {
        debug_assert_eq!(host.len(), device.len());
        Self::of(host.as_ptr(), None, device)
    }

    /// For an upload from a source, or a download to a sink, of as many bytes as `device` has.
    pub(crate) fn far(far: &'a Far<'a>, device: DeviceBytes<'a>) -> Self {
        Entry { far: Some(far), ..Self::of(std::ptr::null(), None, device) }
    }

    /// `host` is the address of as many bytes as `device` has: in `pinned` or, without a block, of
    /// pageable memory that is borrowed for `'a`, exclusively if it is for a download.
    #[inline]
    pub(crate) fn of(
        host: *const u8,
        pinned: Option<PinnedBytes<'a>>,
        device: DeviceBytes<'a>,
    ) -> Self {
        Entry { host: host.cast_mut(), pinned, far: None, device, borrow: PhantomData }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.device.len()
    }

    /// Whether the page-locked entry needs several items of the kernel: it is longer than
    /// [`PIECE`], or it lies in several registrations.
    #[inline]
    pub(super) fn has_pieces(&self) -> bool {
        let bytes = self.bytes();
        bytes > PIECE || self.pinned.is_some_and(|it| it.crosses_seam(self.host, bytes))
    }

    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Whether its host side is memory, and no source or sink.
    pub(super) fn is_memory(&self) -> bool {
        self.far.is_none()
    }

    #[inline]
    pub(super) fn host(&self) -> *mut u8 {
        self.host
    }

    /// The buffer on that side, if it is tracked. Reads nothing of it.
    #[inline(always)]
    pub(super) fn buffer(&self, side: Side) -> Option<&'a Hazards> {
        match side {
            Side::Device => Some(self.device.hazards()),
            Side::Host => self.pinned.as_ref().map(PinnedBytes::hazards),
        }
    }

    /// The entry's range of the bytes of that buffer.
    #[inline(always)]
    pub(super) fn range(&self, side: Side) -> Option<Range<usize>> {
        match side {
            Side::Device => Some(self.device.range()),
            Side::Host => self.pinned.as_ref().map(|it| it.range(self.host, self.bytes())),
        }
    }

    /// The address of its first byte.
    #[inline(always)]
    pub(super) fn address(&self, side: Side) -> usize {
        match side {
            Side::Device => self.device.ptr() as usize,
            Side::Host => self.host.addr(),
        }
    }

    /// The offset of its bytes in a source that is read in blocks.
    pub(super) fn in_blocks(&self) -> Option<u64> {
        match self.far {
            Some(&Far::Source(source, start)) if source.is_in_blocks() => Some(start),
            _ => None,
        }
    }

    /// The host memory of a download.
    ///
    /// # Safety
    ///
    /// * The bytes have arrived, and no code writes to them while they are read.
    pub(crate) unsafe fn landed(&self) -> &[u8] {
        // SAFETY: the borrowed range is initialised, and not written, by the precondition.
        unsafe { std::slice::from_raw_parts(self.host, self.bytes()) }
    }

    /// Whether `next` begins where this one ends, in one block of page-locked memory. The caller
    /// knows that they follow each other on the device.
    pub(super) fn is_followed_by(&self, next: &Entry<'_>) -> bool {
        let (Some(ours), Some(theirs)) = (&self.pinned, &next.pinned) else { return false };
        self.host.wrapping_add(self.bytes()) == next.host && ours.is_same_block(theirs)
    }

    /// Begins to fetch the first bytes of its memory, which will be read.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        if self.is_memory() {
            simd::prefetch(self.host, self.bytes());
        }
    }

    /// Begins to fetch the first bytes of its memory, which will be written by these stores.
    #[inline(always)]
    pub(super) fn fetch_to_write(&self, stores: Stores) {
        if self.is_memory() {
            simd::prefetch_to_write(self.host, self.bytes(), stores);
        }
    }

    /// Copies `bytes` bytes from `at` on to `slot`. Fails if a source cannot be read.
    ///
    /// # Safety
    ///
    /// * The entry is one of an upload, of pageable memory or a source; `at + bytes` is not beyond
    ///   its end.
    /// * `slot .. slot + bytes` is initialised memory that no other code touches during the call.
    #[inline]
    pub(super) unsafe fn fill(
        &self,
        operation: &'static str,
        at: usize,
        slot: *mut u8,
        bytes: usize,
        stores: Stores,
    ) -> Result<()> {
        if let Some(&Far::Source(source, start)) = self.far {
            // SAFETY: initialised and exclusive, by the precondition.
            let slot = unsafe { std::slice::from_raw_parts_mut(slot, bytes) };
            return source.fill(operation, start + at as u64, slot, stores);
        }
        // SAFETY: the preconditions, and no source.
        unsafe { self.put(at, slot, bytes, stores) };
        Ok(())
    }

    /// Copies `bytes` bytes of memory from `at` on to `slot`.
    ///
    /// # Safety
    ///
    /// * The entry is one of an upload, of pageable memory; `at + bytes` is not beyond its end.
    /// * `slot .. slot + bytes` is writable memory that no other code touches during the call.
    #[inline]
    pub(super) unsafe fn put(&self, at: usize, slot: *mut u8, bytes: usize, stores: Stores) {
        // SAFETY: the source is readable, because it lies in the borrowed slice; the slot is
        // writable and exclusive, by the precondition; they do not overlap, because slots are never
        // lent to callers.
        unsafe { simd::copy(slot, self.host.add(at), bytes, stores) };
    }

    /// Copies `bytes` bytes from `slot` to the host memory, or the sink, from `at` on.
    ///
    /// # Safety
    ///
    /// * The entry is one of a download, to pageable memory or a sink; `at + bytes` is not beyond
    ///   its end.
    /// * During the call no other thread accesses these bytes of it, and no code writes to `slot ..
    ///   slot + bytes`.
    #[inline]
    pub(super) unsafe fn drain(&self, at: usize, slot: *const u8, bytes: usize, stores: Stores) {
        if let Some(&Far::Sink(sink)) = self.far {
            // SAFETY: initialised, and not written, by the precondition.
            let slot = unsafe { std::slice::from_raw_parts(slot, bytes) };
            // SAFETY: no other thread has these bytes of the entry, by the precondition.
            return unsafe { sink.drain(at as u64, slot, stores) };
        }
        // SAFETY: writable, because it lies in the exclusively borrowed slice; the rest as in
        // `fill`.
        unsafe { simd::copy(self.host.add(at), slot, bytes, stores) };
    }
}
