//! Device memory at addresses that are the process's own.
//!
//! Programs that call CUDA directly hand device pointers to stand-ins for their kernels, which
//! dereference them. So one file in memory is mapped twice:
//!
//! ```text
//!   the program's view   no access, but while a stand-in runs   device addresses lie here
//!   the storage          readable and writable                  what operations use
//! ```
//!
//! The host faults on a device address, as it does with a GPU. The file is sparse, and as long as
//! the address range.

use std::io;

use crate::memory::area::{self, Area, OPEN};

pub(crate) const PAGE: u64 = area::PAGE as u64;

/// The two views, and their file.
#[derive(Debug)]
pub(crate) struct Arena {
    area: Area,
    file: i32,
}

impl Arena {
    /// Maps `bytes` of address space twice, and leaves the process as much. It takes memory only as
    /// far as it is used.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        if bytes as u64 > longest_file() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (area, file) = Area::new(c"pinlane-device", bytes, libc::PROT_NONE, false)?;
        let arena = Arena { area, file };
        let spare = area::map(bytes, libc::PROT_NONE, file);
        let spare = spare.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: just mapped, and there is no pointer into it.
        unsafe { libc::munmap(spare.as_ptr().cast(), bytes) };
        Ok(arena)
    }

    /// The address at which the program's view begins.
    pub(crate) fn base(&self) -> u64 {
        self.area.start() as u64
    }

    /// Where the storage of an address of the view lies.
    pub(crate) fn storage_of(&self, address: u64) -> *mut u8 {
        self.area.storage_of(address as usize)
    }

    /// Gives the memory of a range back to the system, page by page; its contents are lost.
    pub(crate) fn discard(&self, address: u64, bytes: usize) {
        let start = (address - self.base()).next_multiple_of(PAGE);
        let end = (address - self.base() + bytes as u64) & !(PAGE - 1);
        if start < end {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let (start, len) = (start as libc::off_t, (end - start) as libc::off_t);
            // A failure costs memory, nothing else.
            // SAFETY: the file is the arena's own.
            unsafe { libc::fallocate(self.file, mode, start, len) };
        }
    }

    /// The file, and where in it the storage of an address lies.
    pub(crate) fn place_of(&self, address: u64) -> (i32, u64) {
        (self.file, address - self.base())
    }

    /// Maps pages of another arena's file in the place of this one's, from an address at the start
    /// of a page on. `None` maps this arena's own again.
    pub(crate) fn map_pages(
        &self,
        address: u64,
        bytes: usize,
        other: Option<(i32, u64)>,
    ) -> io::Result<()> {
        let (file, offset) = other.unwrap_or_else(|| self.place_of(address));
        let from = (address - self.base()) as usize;
        let all = self.area.bytes;
        assert!(from <= all && bytes <= all - from, "inside the arena");
        let view = self.area.program().as_ptr().wrapping_add(from);
        for (at, protection) in [(view, libc::PROT_NONE), (self.storage_of(address), OPEN)] {
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: the range is the arena's own, and no allocation lies in it.
            let mapped =
                unsafe { libc::mmap(at.cast(), bytes, protection, flags, file, offset as i64) };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Runs `work` while the program's view can be dereferenced.
    pub(crate) fn opened(&self, work: impl FnOnce()) {
        self.protect(OPEN);
        work();
        self.close();
    }

    /// The view, which is closed, for a stand-in to run on.
    pub(crate) fn area(&self) -> Area {
        self.area
    }

    /// Closes all pages that a stand-in has opened.
    pub(crate) fn close(&self) {
        self.protect(libc::PROT_NONE);
    }

    fn protect(&self, protection: i32) {
        let done = self.area.protect(self.area.start()..self.area.end(), protection);
        assert!(done, "cannot change the access to device memory");
    }
}

/// How long a file may be (`ulimit -f`): a longer one would end the process by a signal.
fn longest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it fills the struct, or leaves it as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: both mappings and the file are the arena's own; the program uses no pointer into
        // the memory of a machine that is gone.
        unsafe {
            self.area.unmap();
            libc::close(self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_views_show_the_same_bytes() {
        let arena = Arena::new(1 << 40).unwrap();
        let address = arena.base() + (1 << 39);
        let stored = arena.storage_of(address);
        // SAFETY: inside the storage, which no other code uses.
        unsafe { stored.write(42) };
        let view = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: inside the view, while it is open.
        arena.opened(|| assert_eq!(unsafe { view.read_volatile() }, 42));
        arena.discard(address & !(PAGE - 1), 4096);
        // SAFETY: as above.
        assert_eq!(unsafe { stored.read_volatile() }, 0, "given back to the system");
    }
}
