//! What is copied: a range of host memory or of a file, and one on a device.

use std::marker::PhantomData;
use std::ops::Range;

use super::file::FileReader;
use super::simd::{self, Stores};
use crate::error::Result;
use crate::memory::hazard::Hazards;
use crate::memory::{DeviceBytes, PinnedBytes};

/// One of the two sides of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Device,
}

/// The bytes `host .. host + device.len()` of host memory, ordinary or page-locked, and as many on
/// the device; or as many of a file.
///
/// `'a` is for how long the host memory is borrowed: shared by an entry of an upload, exclusively
/// by one of a download.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    host: *mut u8,
    pub(super) pinned: Option<PinnedBytes<'a>>,
    /// The file, and where its bytes begin; there is then no host memory.
    file: Option<(&'a FileReader, u64)>,
    pub(super) device: DeviceBytes<'a>,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: an entry is a borrowed range of bytes, borrowed regions and a borrowed reader, which are
// `Sync`.
unsafe impl Send for Entry<'_> {}
// SAFETY: as above; what is done through a shared entry says who may do it.
unsafe impl Sync for Entry<'_> {}

impl<'a> Entry<'a> {
    /// For an upload. Both have the same length.
    pub(super) fn from_host(host: &'a [u8], device: DeviceBytes<'a>) -> Self {
        debug_assert_eq!(host.len(), device.len());
        Self::new(host.as_ptr().cast_mut(), device)
    }

    /// For a download. Both have the same length.
    pub(super) fn to_host(host: &'a mut [u8], device: DeviceBytes<'a>) -> Self {
        debug_assert_eq!(host.len(), device.len());
        Self::new(host.as_mut_ptr(), device)
    }

    fn new(host: *mut u8, device: DeviceBytes<'a>) -> Self {
        Entry { host, pinned: None, file: None, device, borrow: PhantomData }
    }

    /// For an upload: the bytes of `file` from `offset` on.
    pub(super) fn from_file(file: &'a FileReader, offset: u64, device: DeviceBytes<'a>) -> Self {
        Entry { file: Some((file, offset)), ..Self::new(std::ptr::null_mut(), device) }
    }

    /// `host` is the address of as many bytes in `pinned` as `device` has.
    pub(super) fn pinned(
        host: *const u8,
        pinned: PinnedBytes<'a>,
        device: DeviceBytes<'a>,
    ) -> Self {
        Entry { pinned: Some(pinned), ..Self::new(host.cast_mut(), device) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.device.len()
    }

    pub(super) fn host(&self) -> *mut u8 {
        self.host
    }

    /// The buffer on that side, if it is tracked, and which of its bytes the entry names.
    #[inline]
    pub(super) fn buffer(&self, side: Side) -> Option<(&'a Hazards, Range<usize>)> {
        match side {
            Side::Device => Some((self.device.hazards(), self.device.range())),
            Side::Host => {
                let pinned = self.pinned?;
                Some((pinned.hazards(), pinned.range(self.host, self.bytes())))
            }
        }
    }

    /// Where its bytes begin in a file that is read in blocks.
    pub(super) fn in_blocks(&self) -> Option<u64> {
        self.file.filter(|(file, _)| file.is_direct()).map(|(_, start)| start)
    }

    /// The host memory of a download.
    ///
    /// # Safety
    ///
    /// * The bytes have arrived, and nobody writes to them while they are read.
    pub(super) unsafe fn landed(&self) -> &[u8] {
        // SAFETY: the borrowed range, initialised, which nobody writes: the precondition.
        unsafe { std::slice::from_raw_parts(self.host, self.bytes()) }
    }

    /// Whether `next` begins where this one ends, in one block of page-locked memory. They are
    /// known to follow each other on the device.
    pub(super) fn is_followed_by(&self, next: &Entry<'_>) -> bool {
        let (Some(ours), Some(theirs)) = (&self.pinned, &next.pinned) else { return false };
        self.host.wrapping_add(self.bytes()) == next.host && ours.is_same_block(theirs)
    }

    /// Copies `bytes` bytes from `at` on to `slot`. Fails where a file cannot be read.
    ///
    /// # Safety
    ///
    /// * The entry is one of an upload, of ordinary memory or a file; `at + bytes` is not beyond
    ///   its end.
    /// * `slot .. slot + bytes` is initialised memory that nobody else touches meanwhile.
    pub(super) unsafe fn fill(
        &self,
        operation: &'static str,
        at: usize,
        slot: *mut u8,
        bytes: usize,
        stores: Stores,
    ) -> Result<()> {
        if let Some((file, start)) = self.file {
            // SAFETY: initialised and nobody else's, by the precondition.
            let slot = unsafe { std::slice::from_raw_parts_mut(slot, bytes) };
            return file.fill(operation, start + at as u64, slot);
        }
        // SAFETY: readable, since it lies in the borrowed slice; writable and nobody else's, by the
        // precondition; they do not overlap, since a slot is not lent to anybody.
        unsafe { simd::copy(slot, self.host.add(at), bytes, stores) };
        Ok(())
    }

    /// Copies `bytes` bytes from `slot` to `at` on.
    ///
    /// # Safety
    ///
    /// * The entry is one of a download, to ordinary memory; `at + bytes` is not beyond its end.
    /// * No other thread writes to these bytes of it, and `slot .. slot + bytes` is memory that
    ///   nobody writes, meanwhile.
    pub(super) unsafe fn drain(&self, at: usize, slot: *const u8, bytes: usize, stores: Stores) {
        // SAFETY: writable, since it lies in the exclusively borrowed slice; the rest as in `fill`.
        unsafe { simd::copy(self.host.add(at), slot, bytes, stores) };
    }
}

/// The entries of a copy, or some of them.
#[derive(Clone, Copy)]
pub(super) struct List<'e, 'a> {
    entries: &'e [Entry<'a>],
    chosen: Option<&'e [u32]>,
}

impl<'e, 'a> List<'e, 'a> {
    pub(super) fn all(entries: &'e [Entry<'a>]) -> Self {
        List { entries, chosen: None }
    }

    /// Those with these numbers.
    pub(super) fn of(entries: &'e [Entry<'a>], chosen: &'e [u32]) -> Self {
        List { entries, chosen: Some(chosen) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.chosen.map_or(self.entries.len(), <[u32]>::len)
    }

    /// The number of the `n`th among all entries.
    #[inline]
    pub(super) fn number(&self, n: usize) -> usize {
        self.chosen.map_or(n, |chosen| chosen[n] as usize)
    }

    #[inline]
    pub(super) fn get(&self, n: usize) -> &'e Entry<'a> {
        &self.entries[self.number(n)]
    }

    /// The entries in `part`, if they follow each other in memory.
    #[inline]
    pub(super) fn slice(&self, part: Range<usize>) -> Option<&'e [Entry<'a>]> {
        if self.chosen.is_none() { Some(&self.entries[part]) } else { None }
    }
}
