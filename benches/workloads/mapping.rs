//! A new file whose bytes are memory of this process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;

pub struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// A file of `bytes` bytes, all zero. The system finds memory for each page when it is written,
    /// and kills the process if there is none: the caller has checked that there is enough.
    pub fn create(path: &Path, bytes: usize) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(bytes as u64)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file, at an address that the system chooses.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range was just mapped. This is a hint, and may be refused.
        unsafe { libc::madvise(at, bytes, libc::MADV_HUGEPAGE) };
        Ok(Mapping { at: NonNull::new(at.cast()).expect("mapped memory"), bytes })
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this many bytes, which are the file's, and is borrowed
        // exclusively. The file is new, and no other program opens it.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `create`, and is no longer borrowed.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
