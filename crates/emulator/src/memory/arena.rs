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
//! The host faults on a device address, as it does beside a GPU. The file is sparse, and as long as
//! all the addresses that there are.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use crate::memory::area::Area;

pub(crate) const PAGE: u64 = 4096;

/// The two views.
#[derive(Debug)]
pub(crate) struct Arena {
    view: NonNull<u8>,
    storage: NonNull<u8>,
    bytes: usize,
    file: i32,
}

// SAFETY: the pointers are mappings of the process, which no thread owns.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps `bytes` of address space twice, and leaves the process as much. It takes memory only as
    /// far as it is used.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        if bytes as u64 > longest_file() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // SAFETY: the name ends with a NUL.
        let file = unsafe { libc::memfd_create(c"pinlane-device".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let map = |protection| {
            // SAFETY: the kernel chooses an address that is free.
            let at = unsafe {
                let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
                libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0)
            };
            if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast::<u8>()) }
        };
        // SAFETY: the file was just opened.
        let grown = unsafe { libc::ftruncate(file, bytes as libc::off_t) } == 0;
        let storage = if grown { map(libc::PROT_READ | libc::PROT_WRITE) } else { None };
        let view = storage.and_then(|_| map(libc::PROT_NONE));
        let spare = view.and_then(|_| map(libc::PROT_NONE));
        let error = io::Error::last_os_error();
        let unmap = |at: NonNull<u8>| {
            // SAFETY: just mapped, and nobody has a pointer into it.
            unsafe { libc::munmap(at.as_ptr().cast(), bytes) };
        };
        if let (Some(view), Some(storage), Some(spare)) = (view, storage, spare) {
            unmap(spare);
            return Ok(Arena { view, storage, bytes, file });
        }
        [view, storage].into_iter().flatten().for_each(unmap);
        // SAFETY: just opened, and nobody else's.
        unsafe { libc::close(file) };
        Err(error)
    }

    /// The address at which the program's view begins.
    pub(crate) fn base(&self) -> u64 {
        self.view.as_ptr().addr() as u64
    }

    /// Where the storage of an address of the view lies.
    pub(crate) fn storage_of(&self, address: u64) -> *mut u8 {
        self.storage.as_ptr().wrapping_add((address - self.base()) as usize)
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
        assert!(from <= self.bytes && bytes <= self.bytes - from, "inside the arena");
        let views =
            [(self.view, libc::PROT_NONE), (self.storage, libc::PROT_READ | libc::PROT_WRITE)];
        for (start, protection) in views {
            let at = start.as_ptr().wrapping_add(from).cast();
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: the range is the arena's own, and no allocation lies in it.
            let mapped =
                unsafe { libc::mmap(at, bytes, protection, flags, file, offset as libc::off_t) };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Runs `work` while the program's view can be dereferenced.
    pub(crate) fn opened(&self, work: impl FnOnce()) {
        self.protect(libc::PROT_READ | libc::PROT_WRITE);
        work();
        self.close();
    }

    /// The view, which is closed, for a stand-in to run on.
    pub(crate) fn area(&self) -> Area {
        let start = self.view.as_ptr().addr();
        Area { start, bytes: self.bytes, storage: self.storage.as_ptr(), of_host: false }
    }

    /// Closes all pages that a stand-in has opened.
    pub(crate) fn close(&self) {
        self.protect(libc::PROT_NONE);
    }

    fn protect(&self, protection: i32) {
        let at = self.view.as_ptr().cast::<c_void>();
        // SAFETY: the mapping is the arena's own, and nothing of Rust lies in it.
        let done = unsafe { libc::mprotect(at, self.bytes, protection) };
        assert_eq!(done, 0, "cannot change the access to device memory");
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
        // SAFETY: both mappings and the file are the arena's own; who frees a machine has no
        // pointer into its memory that it uses.
        unsafe {
            libc::munmap(self.view.as_ptr().cast(), self.bytes);
            libc::munmap(self.storage.as_ptr().cast(), self.bytes);
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
        // SAFETY: inside the storage, which nobody else uses.
        unsafe { stored.write(42) };
        let view = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: inside the view, while it is open.
        arena.opened(|| assert_eq!(unsafe { view.read_volatile() }, 42));
        arena.discard(address & !(PAGE - 1), 4096);
        // SAFETY: as above.
        assert_eq!(unsafe { stored.read_volatile() }, 0, "given back to the system");
    }
}
