//! Reads files directly into page-locked memory, and copies them on to the device.
//!
//! ```text
//!   page cache --pread, several threads--> slots of the ring --> device   Stream::upload_file
//!   disk       --O_DIRECT----------------> slots of the ring --> device   FileReader::open_direct
//!   page cache --mapped, page-locked-----------------> device   FileReader::open_mapped
//!   any        --several threads---------> PinnedBuf                      FileReader::read_into
//! ```
//!
//! A range of a file is a source of the staged upload, as a slice of pageable memory is: a unit of
//! work reads instead of copying. So file data is never in pageable memory of this process, and
//! many ranges are one job that keeps the device busy from the first byte to the last.
//!
//! # Invariants
//!
//! * Ranges are checked against the file's length, and devices against the stream's, before
//!   anything is enqueued.
//! * Other programs may change a file at any time. The host accesses no mapping of a file: if a
//!   mapped file is truncated, SIGBUS kills the process. A read finds the early end and returns an
//!   error, and pages that the device reads are page-locked.
//! * An error names the file and the byte where it happened.

mod copy;
mod mapped;
mod read;

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::panic::RefUnwindSafe;
use std::path::{Path, PathBuf};

use pinlane_base::system::{self as libc, FileExt};

use self::read::{AlignedMemory, Stop};
use crate::copy::entry::Source;
use crate::copy::staged::simd::Stores;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::memory::PinnedBuf;

/// A file whose ranges go to a device ([`Stream::upload_file`](crate::Stream::upload_file)) or into
/// page-locked memory ([`read_into`](Self::read_into)), read by several threads at once.
///
/// ```
/// use pinlane::Device;
/// use pinlane::file::FileReader;
///
/// # let path = std::env::temp_dir().join(format!("pinlane-doc-{}", std::process::id()));
/// # std::fs::write(&path, [7; 10_000])?;
/// let device = Device::open_or_emulated()?;
/// let stream = device.stream()?;
/// let file = FileReader::open(&path)?;
/// let mut weights = device.alloc::<f32>(1000)?;
/// let mut biases = device.alloc::<f32>(100)?;
/// stream.upload_file_ranges(&file, [(8, &mut weights), (4008, &mut biases)])?; // one job
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Elements have the same layout in the file as in memory. If another process writes to the file
/// during the call, the bytes may be old or new. If it truncates a range, the call returns an
/// error. There are no other effects.
///
/// Only regular files: pipes and devices, including block devices, have no length that could be
/// checked.
#[derive(Debug)]
pub struct FileReader {
    path: PathBuf,
    file: File,
    /// Whether `file` is read past the page cache.
    direct: bool,
    /// The file as it was when it was opened, for the device only.
    mapped: Option<PinnedBuf<u8>>,
}

/// A panic leaves nothing half done: nothing here changes.
impl RefUnwindSafe for FileReader {}

/// Opens a regular file to read, without blocking. Refuses other files with
/// [`io::ErrorKind::InvalidInput`], usually before it opens them: opening a device file may already
/// have an effect on the device.
#[cfg(target_os = "linux")]
pub(super) fn open_regular(path: &Path, flags: i32) -> io::Result<File> {
    use std::fs::{Metadata, OpenOptions};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    let regular = |metadata: Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    };
    regular(std::fs::metadata(path)?)?;
    // A pipe may replace the file at this moment, and would block until there is a writer.
    let opened = OpenOptions::new().read(true).custom_flags(flags | libc::O_NONBLOCK).open(path)?;
    regular(opened.metadata()?)?;
    // The file system decides what the flag means for a regular file, so it is cleared.
    // SAFETY: the descriptor is open, and the calls read and write its flags only.
    let cleared = unsafe {
        let now = libc::fcntl(opened.as_raw_fd(), libc::F_GETFL);
        now >= 0 && libc::fcntl(opened.as_raw_fd(), libc::F_SETFL, now & !libc::O_NONBLOCK) >= 0
    };
    if cleared { Ok(opened) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open_regular(_: &Path, _: i32) -> io::Result<File> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "pinlane reads files on Linux only"))
}

impl FileReader {
    /// Opens a regular file to read through the system's page cache: fastest for files that have
    /// been read or written recently, and a good choice for most others.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be opened, or is not a regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_page_cached("FileReader::open", path.as_ref())
    }

    /// Opens a regular file to read past the page cache (`O_DIRECT`), directly from the disk into
    /// page-locked memory: for files that are larger than memory, or read once. Ranges may begin
    /// and end anywhere: partial blocks, and ranges of few blocks, go through a temporary buffer.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open); [`ErrorKind::Unsupported`] if the file system does not support
    /// it.
    pub fn open_direct(path: impl AsRef<Path>) -> Result<Self> {
        const OPERATION: &str = "FileReader::open_direct";
        let path = path.as_ref();
        // Opened this way first, to report errors of the file itself.
        Self::open_page_cached(OPERATION, path)?;
        let refused = |cause: &dyn Display| {
            let what = format!("{}: its file system refuses O_DIRECT: {cause}", path.display());
            Error::new(ErrorKind::Unsupported, OPERATION, what, Remedy::ReadThroughPageCache)
        };
        let file = open_regular(path, libc::O_DIRECT).map_err(|error| refused(&error))?;
        let reader = FileReader { path: path.into(), file, direct: true, mapped: None };
        // Some file systems refuse only the first read.
        let mut block = AlignedMemory::new(1);
        match read::once(&reader.file, block.bytes_mut(), 0) {
            Ok(_) => Ok(reader),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(refused(&error)),
            Err(error) => Err(reader.failed(OPERATION, Stop::Failed(0, error))),
        }
    }

    /// Opens a regular file that is uploaded again and again: maps it, and page-locks it where it
    /// lies in the page cache, for all devices of the process. Uploads then return at once, no
    /// thread of the host copies a byte, and the device reads at the speed of page-locked memory.
    /// [`read_into`](Self::read_into) reads the file as [`open`](Self::open) does.
    ///
    /// Blocks while the system reads the file and page-locks it: 50 to 70 ms a GiB for a file that
    /// is in the page cache. So it pays for many uploads of the same bytes, or if the cores of the
    /// host have other work, or copy more slowly than the link: uploads of [`open`](Self::open)
    /// take 0.3 core-seconds a GB. The file stays in memory until the reader is dropped, which
    /// blocks until no upload reads it.
    ///
    /// If this device cannot page-lock what is mapped for reading only
    /// ([`Device::register_read_only`]), uploads read the file by way of slots;
    /// [`is_mapped`](Self::is_mapped) says so.
    ///
    /// If another program writes to the file, an upload may copy old or new bytes. If it truncates
    /// the file, an upload of what is gone is an error
    /// ([`OutOfRange`](crate::ErrorKind::OutOfRange)): each upload asks the system for the length
    /// first. What is written there later is not seen: open the file again. An emulated device
    /// reads by the host: if the file is truncated during the copy, SIGBUS ends the process.
    ///
    /// A `memfd` that has the seals `F_SEAL_SHRINK` and `F_SEAL_WRITE` cannot be truncated or
    /// written at all. Open it by its path in `/proc/self/fd`, when it has its seals.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), and of the system if it refuses the mapping;
    /// [`OutOfHostMemory`](crate::ErrorKind::OutOfHostMemory) if it cannot be page-locked, or
    /// another error of [`Device::register_read_only`].
    pub fn open_mapped(device: &Device, path: impl AsRef<Path>) -> Result<Self> {
        const OPERATION: &str = "FileReader::open_mapped";
        Self::open_page_cached(OPERATION, path.as_ref())?.mapped_for(OPERATION, device)
    }

    fn open_page_cached(operation: &'static str, path: &Path) -> Result<Self> {
        let file = open_regular(path, 0).map_err(|error| {
            // Errors of the system have a number; that one comes from `open_regular`.
            let remedy = match error.raw_os_error() {
                None if error.kind() == io::ErrorKind::InvalidInput => "name a file on a disk",
                _ => "check the path and the permission to read it",
            };
            let what = format!("{}: {error}", path.display());
            Error::new(ErrorKind::Io, operation, what, remedy)
        })?;
        Ok(FileReader { path: path.into(), file, direct: false, mapped: None })
    }

    /// The path, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is read past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The current length of the file, in bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`].
    pub fn bytes(&self) -> Result<u64> {
        self.length("FileReader::bytes")
    }

    fn length(&self, operation: &'static str) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|error| self.failed(operation, Stop::Failed(0, error)))?.len())
    }

    /// Refuses a range that does not lie in a file of `length` bytes.
    fn check_range(
        &self,
        operation: &'static str,
        offset: u64,
        bytes: usize,
        length: u64,
    ) -> Result<()> {
        if offset.checked_add(bytes as u64).is_some_and(|end| end <= length) {
            return Ok(());
        }
        let path = self.path.display();
        let what =
            format!("{path}: {bytes} bytes from byte {offset} on, in a file of {length} bytes");
        let remedy = "keep ranges inside the file; if it was longer before, it has been truncated";
        Err(Error::new(ErrorKind::OutOfRange, operation, what, remedy))
    }

    #[cold]
    fn failed(&self, operation: &'static str, stop: Stop) -> Error {
        let path = self.path.display();
        let (context, remedy) = match stop {
            Stop::End(at) => (
                format!("{path}: ends at byte {at}, before the end of a range that is being read"),
                "the file was truncated during the read: read it again once it is complete",
            ),
            Stop::Failed(at, error) => (
                format!("{path}: reading at byte {at}: {error}"),
                "see the system's log for errors of the disk or the mount",
            ),
        };
        Error::new(ErrorKind::Io, operation, context, remedy)
    }
}

impl Source for FileReader {
    fn is_in_blocks(&self) -> bool {
        self.direct
    }

    fn fill(&self, operation: &'static str, offset: u64, into: &mut [u8], _: Stores) -> Result<()> {
        let read = |into: &mut [u8], offset| self.file.read_at(into, offset);
        let done = if self.direct {
            let length = || self.file.metadata().map(|metadata| metadata.len());
            read::direct(read, length, into, offset)
        } else {
            read::plain(read, into, offset)
        };
        done.map_err(|stop| self.failed(operation, stop))
    }
}
