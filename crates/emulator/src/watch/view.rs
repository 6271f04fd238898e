//! A block of host memory that is mapped twice.
//!
//! ```text
//!   the program's view   open, read-only or closed, page by page
//!   the storage          always open: what operations use
//! ```

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

pub(super) const PAGE: usize = 4096;

/// What the program may do to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    All,
    Read,
    None,
}

/// The two mappings. Dropping it leaves them: somebody may hold a pointer into the block.
#[derive(Debug)]
pub(super) struct View {
    program: NonNull<u8>,
    storage: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointers are mappings of the process, which no thread owns.
unsafe impl Send for View {}

impl View {
    /// Maps at least `bytes` of zeroed memory twice; more than 0.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the name ends with a NUL.
        let file = unsafe { libc::memfd_create(c"pinlane-host".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the file was just opened.
        let grown = unsafe { libc::ftruncate(file, bytes as libc::off_t) } == 0;
        let map = || {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the kernel chooses an address that is free.
            let at = unsafe {
                libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file, 0)
            };
            if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast::<u8>()) }
        };
        let storage = if grown { map() } else { None };
        let program = storage.and_then(|_| map());
        let error = io::Error::last_os_error();
        // SAFETY: just opened, and nobody else's. The mappings keep the memory.
        unsafe { libc::close(file) };
        match (program, storage) {
            (Some(program), Some(storage)) => Ok(View { program, storage, bytes }),
            (_, storage) => {
                if let Some(storage) = storage {
                    // SAFETY: just mapped, and nobody has a pointer into it.
                    unsafe { libc::munmap(storage.as_ptr().cast(), bytes) };
                }
                Err(error)
            }
        }
    }

    /// Where the program's view begins.
    pub(super) fn program(&self) -> NonNull<u8> {
        self.program
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the storage of an address of the program's lies.
    pub(super) fn storage_of(&self, address: usize) -> *mut u8 {
        self.storage.as_ptr().wrapping_add(address.wrapping_sub(self.start()))
    }

    pub(super) fn start(&self) -> usize {
        self.program.as_ptr().addr()
    }

    /// Says what the program may do to the pages that have a byte of the range of addresses.
    pub(super) fn protect(&self, range: Range<usize>, access: Access) {
        let start = range.start.max(self.start()) / PAGE * PAGE;
        let end = range.end.next_multiple_of(PAGE).min(self.start() + self.bytes);
        if start >= end {
            return;
        }
        let protection = match access {
            Access::All => libc::PROT_READ | libc::PROT_WRITE,
            Access::Read => libc::PROT_READ,
            Access::None => libc::PROT_NONE,
        };
        let at = self.program.as_ptr().with_addr(start);
        // SAFETY: the pages are of this mapping. Who accesses them meanwhile faults, and the
        // handler of such faults makes the access good.
        let done = unsafe { libc::mprotect(at.cast(), end - start, protection) };
        // The system may have no room for more mappings. Then less is seen, and nothing is wrong:
        // as long as pages can be opened, which needs no more mappings than there are.
        debug_assert!(done == 0 || access != Access::All, "pages cannot be opened");
    }

    /// Unmaps the block.
    ///
    /// # Safety
    ///
    /// * Nobody uses a pointer into it any more.
    pub(super) unsafe fn unmap(self) {
        // SAFETY: both are mappings of this length; nobody uses them: promised by the caller.
        unsafe {
            libc::munmap(self.program.as_ptr().cast(), self.bytes);
            libc::munmap(self.storage.as_ptr().cast(), self.bytes);
        }
    }
}

/// Opens the pages of a view that is left behind. False if they are not there: a pool's are not in
/// a forked child.
pub(super) fn open_all(start: usize, bytes: usize) -> bool {
    let at = std::ptr::without_provenance_mut(start);
    // SAFETY: the mapping is a view's, or is not there: who unmaps a view has it forgotten first.
    unsafe { libc::mprotect(at, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_views_show_the_same_bytes() {
        let view = View::new(PAGE + 1).unwrap();
        assert_eq!(view.bytes(), 2 * PAGE);
        let last = view.start() + PAGE;
        // SAFETY: inside the storage, which is this test's own.
        unsafe { view.storage_of(last).write(42) };
        view.protect(last..last + 1, Access::Read);
        // SAFETY: inside the program's view, which may be read.
        assert_eq!(unsafe { view.program().add(PAGE).read() }, 42);
        // SAFETY: no pointer into it is used any more.
        unsafe { view.unmap() };
    }
}
