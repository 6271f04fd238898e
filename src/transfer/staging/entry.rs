//! What is copied: a range of ordinary memory and one on a device.

use std::marker::PhantomData;

use super::layout::{Entries, Place};
use crate::memory::DeviceBytes;
use crate::transfer::simd::{self, Stores};

/// The bytes `host .. host + device.len()` of ordinary memory, and as many on the device.
///
/// `'a` is for how long the host memory is borrowed: shared by an entry of an upload, exclusively by one of a
/// download.
#[derive(Clone, Copy)]
pub(in crate::transfer) struct Entry<'a> {
    host: *mut u8,
    pub(in crate::transfer) device: DeviceBytes<'a>,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: an entry is a borrowed slice of bytes and a borrowed region, which is `Sync`.
unsafe impl Send for Entry<'_> {}
// SAFETY: as above; what is done through a shared entry says who may do it.
unsafe impl Sync for Entry<'_> {}

impl<'a> Entry<'a> {
    /// For an upload. Both have the same length.
    pub(in crate::transfer) fn from_host(host: &'a [u8], device: DeviceBytes<'a>) -> Self {
        debug_assert_eq!(host.len(), device.len());
        Entry { host: host.as_ptr().cast_mut(), device, borrow: PhantomData }
    }

    /// For a download. Both have the same length.
    pub(in crate::transfer) fn to_host(host: &'a mut [u8], device: DeviceBytes<'a>) -> Self {
        debug_assert_eq!(host.len(), device.len());
        Entry { host: host.as_mut_ptr(), device, borrow: PhantomData }
    }

    /// The bytes of host memory, to read.
    ///
    /// # Safety
    ///
    /// * The entry is one of an upload; or of a download that is over.
    pub(in crate::transfer) unsafe fn bytes(&self) -> &'a [u8] {
        // SAFETY: a borrowed slice (`from_host`, `to_host`), which nobody writes: the precondition.
        unsafe { std::slice::from_raw_parts(self.host, self.device.len()) }
    }

    /// Copies `bytes` bytes from `at` on to `slot`.
    ///
    /// # Safety
    ///
    /// * The entry is one of an upload; `at + bytes` is not beyond its end.
    /// * `slot .. slot + bytes` is memory that nobody else touches meanwhile.
    pub(super) unsafe fn fill(&self, at: usize, slot: *mut u8, bytes: usize, stores: Stores) {
        // SAFETY: readable, since it lies in the borrowed slice; writable and nobody else's, by the
        // precondition; they do not overlap, since a slot is not lent to anybody.
        unsafe { simd::copy(slot, self.host.add(at), bytes, stores) };
    }

    /// Copies `bytes` bytes from `slot` to `at` on.
    ///
    /// # Safety
    ///
    /// * The entry is one of a download; `at + bytes` is not beyond its end.
    /// * No other thread writes to these bytes of it, and `slot .. slot + bytes` is memory that nobody
    ///   writes, meanwhile.
    pub(super) unsafe fn drain(&self, at: usize, slot: *const u8, bytes: usize, stores: Stores) {
        // SAFETY: writable, since it lies in the exclusively borrowed slice; the rest as in `fill`.
        unsafe { simd::copy(self.host.add(at), slot, bytes, stores) };
    }
}

impl Entries for [Entry<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn device(&self, entry: usize) -> Place {
        let device = &self[entry].device;
        Place { home: device.home(), address: device.ptr(), bytes: device.len() }
    }
}
