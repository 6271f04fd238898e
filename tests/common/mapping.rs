//! A file that is mapped for reading only, as other code maps weights.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

use pinlane::memory::ReadOnlyBytes;

/// A shared mapping, unmapped by its drop. No other code has the file.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A mapping of a new file with these contents, which are not empty.
    pub fn new(contents: &[u8]) -> Self {
        // SAFETY: the name is a string; the descriptor that it gives is owned by nothing else.
        let mut file = unsafe {
            let number = libc::memfd_create(c"mapping".as_ptr(), libc::MFD_CLOEXEC);
            assert!(number >= 0, "{}", std::io::Error::last_os_error());
            File::from_raw_fd(number)
        };
        file.write_all(contents).unwrap();
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let (bytes, file) = (contents.len(), file.as_raw_fd());
        // SAFETY: a new mapping, at an address of the system's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapping { start: NonNull::new(start.cast()).unwrap(), bytes }
    }

    /// The same, to be registered.
    pub fn to_read(contents: &[u8]) -> ReadOnlyBytes<Self> {
        // SAFETY: the mapping stays where it is until its drop, and no code writes to the file.
        unsafe { ReadOnlyBytes::new(Self::new(contents)) }
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: mapped until the drop, and not written to.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
