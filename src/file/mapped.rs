//! A file that is mapped and page-locked once, and read by the device from there.
//!
//! ```text
//!   page cache --mapped, page-locked--> device        FileReader::open_mapped
//! ```
//!
//! # Invariants
//!
//! * The host never accesses the mapping: other programs may change or truncate the file at any
//!   time. Only copies by the device read it, and pages that are page-locked stay where they are.
//! * The mapping is unmapped when it has been unregistered: its [`PinnedBuf`] owns it.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use pinlane_base::system as libc;

use super::{FileReader, Stop};
use crate::copy::direct::{self, Lists};
use crate::copy::entry::{Direction, Entry};
use crate::copy::order::Door;
use crate::copy::route::Between;
use crate::copy::staged::Engine;
use crate::copy::transfer::Transfer;
use crate::device::Device;
use crate::error::{ErrorKind, Result};
use crate::memory::{DeviceBytes, PinnedBuf, PinnedSlice};
use crate::ticket::Ticket;

/// A shared mapping of a file for reading only, unmapped by its drop.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first bytes of the file, at least one.
    #[cfg(target_os = "linux")]
    fn new(file: &File, bytes: usize) -> io::Result<Self> {
        use std::os::fd::AsRawFd;

        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the system chooses, of a file that is open.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0)
        };
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        start.map(|start| Mapping { start, bytes }).ok_or_else(io::Error::last_os_error)
    }

    #[cfg(not(target_os = "linux"))]
    fn new(_: &File, _: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more: it has been unregistered, or never was
        // registered.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl FileReader {
    /// Maps the file and page-locks it where it lies in the page cache, or keeps it as it is if no
    /// memory that is mapped for reading only can be page-locked here.
    pub(super) fn mapped_for(mut self, operation: &'static str, device: &Device) -> Result<Self> {
        let length = self.length(operation)?;
        let Some(bytes) = usize::try_from(length).ok().filter(|&bytes| bytes > 0) else {
            return Ok(self);
        };
        let mapping = Mapping::new(&self.file, bytes);
        let mapping = mapping.map_err(|error| self.failed(operation, Stop::Failed(0, error)))?;
        let memory = NonNull::slice_from_raw_parts(mapping.start, bytes);
        // SAFETY: mapped until the mapping drops. Nothing reads the buffer on the host but
        // `mapped_slice`, whose caller promises that it may, and no operation writes to it: it is
        // given out as a source only.
        match unsafe { PinnedBuf::register_source(operation, device.context(), mapping, memory) } {
            Ok(buffer) => self.mapped = Some(buffer),
            Err(refused) if refused.error.kind() == ErrorKind::Unsupported => {}
            Err(refused) => return Err(refused.error),
        }
        Ok(self)
    }

    /// Whether uploads read the page-locked mapping of [`open_mapped`](Self::open_mapped). If not,
    /// they read the file into page-locked memory.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// The page-locked mapping of [`open_mapped`](Self::open_mapped), as a source of batches and
    /// strided copies; `None` if the file [is not mapped](Self::is_mapped).
    ///
    /// # Safety
    ///
    /// While the view, or a slice of it or of its bytes, exists:
    ///
    /// * No program writes to the file.
    /// * No program truncates it: an access to bytes that are gone ends the process (SIGBUS).
    #[must_use]
    pub unsafe fn mapped_slice(&self) -> Option<PinnedSlice<'_, u8>> {
        self.mapped.as_ref().map(PinnedBuf::as_slice)
    }
}

/// Copies ranges of a mapping to the device. Each lies in the mapping, and none is empty.
pub(super) fn upload(
    door: Door<'_>,
    engine: &Engine,
    mapped: &PinnedBuf<u8>,
    ranges: &[(u64, DeviceBytes<'_>)],
) -> Result<Ticket> {
    let pinned = mapped.as_slice().bytes();
    let at = |offset| mapped.as_ptr().wrapping_add(offset as usize);
    if let &[(offset, dst)] = ranges {
        return direct::enqueue_one(door, Direction::Up, (at(offset), pinned), dst);
    }
    let entry = |&(offset, dst): &(u64, _)| Entry::of(at(offset), Some(pinned), dst);
    let entries: Vec<_> = ranges.iter().map(entry).collect();
    let transfer = Transfer::new(door, Direction::Up, &entries)?;
    let group = transfer.survey.group;
    let route = engine.abilities(door)?.choose(door.stream, Between::PageLocked, group);
    let pool = &engine.lists;
    let portions = direct::enqueue(&transfer, route, usize::MAX, pool, &mut Lists::default())?;
    Ok(portions.into_iter().next_back().expect("ranges that are not empty").1)
}
