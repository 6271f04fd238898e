//! Memory that is mapped twice.
//!
//! ```text
//!   the program's view   its pages are open, read-only or closed
//!   the storage          always readable and writable: what operations use
//! ```

use std::ffi::{CStr, c_int};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

pub(crate) const PAGE: usize = 4096;
pub(crate) const OPEN: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A file in memory that is mapped twice, and perhaps used by a stand-in for a kernel. A copy names
/// the same two mappings, and to drop it leaves them: the program may hold a pointer into them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    view: NonNull<u8>,
    storage: NonNull<u8>,
    pub(crate) bytes: usize,
    /// Whether it is the host's: the program's threads may use it too.
    pub(crate) of_host: bool,
}

// SAFETY: the pointers are mappings of the process, which no thread owns.
unsafe impl Send for Area {}

/// Maps a file at an address of the system's choice.
pub(crate) fn map(bytes: usize, protection: c_int, file: c_int) -> Option<NonNull<u8>> {
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: a new mapping replaces none.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
    if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast()) }
}

impl Area {
    /// Makes a file of `bytes` zeroed bytes, and maps it; the program's view with this protection.
    /// Gives the file too, which the caller closes.
    pub(crate) fn new(
        name: &CStr,
        bytes: usize,
        protection: c_int,
        of_host: bool,
    ) -> io::Result<(Self, c_int)> {
        // SAFETY: the name ends with a NUL.
        let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the file was just opened.
        let grown = unsafe { libc::ftruncate(file, bytes as libc::off_t) } == 0;
        let storage = if grown { map(bytes, OPEN, file) } else { None };
        let view = storage.and_then(|_| map(bytes, protection, file));
        let error = io::Error::last_os_error();
        if let (Some(view), Some(storage)) = (view, storage) {
            return Ok((Area { view, storage, bytes, of_host }, file));
        }
        // SAFETY: just mapped and opened here, and not used yet.
        unsafe {
            storage.map(|at| libc::munmap(at.as_ptr().cast(), bytes));
            libc::close(file);
        }
        Err(error)
    }

    /// Where the program's view begins.
    pub(crate) fn program(&self) -> NonNull<u8> {
        self.view
    }

    pub(crate) fn start(&self) -> usize {
        self.view.as_ptr().addr()
    }

    pub(crate) fn end(&self) -> usize {
        self.start() + self.bytes
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start()) < self.bytes
    }

    /// Where the storage of an address of the view lies.
    pub(crate) fn storage_of(&self, address: usize) -> *mut u8 {
        self.storage.as_ptr().wrapping_add(address.wrapping_sub(self.start()))
    }

    /// Says what the program may do to the pages that have a byte of the range. False if the system
    /// has no room for more mappings.
    pub(crate) fn protect(&self, range: Range<usize>, protection: c_int) -> bool {
        let start = range.start.max(self.start()) / PAGE * PAGE;
        let end = range.end.next_multiple_of(PAGE).min(self.end());
        let at = self.view.as_ptr().with_addr(start);
        // SAFETY: the pages are of this mapping, or there are none. An access to closed pages
        // faults. On memory of a device, the access is an error of the program; elsewhere the
        // handler of faults opens the page.
        start >= end || unsafe { libc::mprotect(at.cast(), end - start, protection) == 0 }
    }

    /// Unmaps both.
    ///
    /// # Safety
    ///
    /// * No pointer into them is used any more.
    pub(crate) unsafe fn unmap(self) {
        // SAFETY: both are mappings of this length, and not in use: promised by the caller.
        unsafe {
            libc::munmap(self.view.as_ptr().cast(), self.bytes);
            libc::munmap(self.storage.as_ptr().cast(), self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_views_show_the_same_bytes() {
        let (area, file) = Area::new(c"pinlane-test", 2 * PAGE, OPEN, true).unwrap();
        let last = area.start() + PAGE;
        // SAFETY: inside the storage, which is this test's own.
        unsafe { area.storage_of(last).write(42) };
        assert!(area.protect(last..last + 1, libc::PROT_READ));
        // SAFETY: inside the program's view, which may be read.
        assert_eq!(unsafe { area.program().add(PAGE).read() }, 42);
        // SAFETY: no pointer into it is used any more, nor is the file.
        unsafe {
            area.unmap();
            libc::close(file);
        }
    }
}
