//! Memory that a stand-in for a kernel runs on.

use std::ffi::c_void;
use std::ops::Range;

/// Memory that a stand-in may use: a view whose pages are closed when it starts.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// Where the bytes of the first address are, always readable and writable.
    pub(crate) storage: *mut u8,
    /// Whether it is the host's: the program's threads may use it too.
    pub(crate) of_host: bool,
}

// SAFETY: the pointer is to a mapping of the process, which no thread owns.
unsafe impl Send for Area {}

impl Area {
    pub(crate) fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }

    pub(crate) fn end(&self) -> usize {
        self.start + self.bytes
    }

    pub(crate) fn protect(&self, pages: Range<usize>, protection: i32) -> bool {
        let at: *mut c_void = std::ptr::without_provenance_mut(pages.start);
        // SAFETY: the pages are of a mapping that outlives the observation; who accesses them
        // faults, and the access is made good.
        unsafe { libc::mprotect(at, pages.len(), protection) == 0 }
    }
}
