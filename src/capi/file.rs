//! Files whose ranges go to a device or into page-locked memory.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;

use super::batch::{Place, Side};
use super::buffer::pinlane_buffer;
use super::device::check_flags;
use super::device_buffer::pinlane_device_buffer;
use super::handle::{self, Handle};
use super::pointer::{self, Out};
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;
use super::table::Table;
use super::ticket::{TicketOut, pinlane_ticket};
use super::transfer::{borrowed, range};
use crate::error::Result;
use crate::memory::{DeviceBuf, DeviceSliceMut};
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::transfer::{FileReader, check_disjoint};

/// A file that is open for reading. Any thread may use it, also several at once.
pub struct pinlane_file {
    _opaque: [u8; 0],
}

impl Handle for pinlane_file {
    type Object = FileReader;
    const NAME: &'static str = "file";
    fn table() -> &'static Table<FileReader> {
        static TABLE: Table<FileReader> = Table::new(7, true);
        &TABLE
    }
}

/// The file is read past the system's page cache (`O_DIRECT`): for files that are larger than
/// memory, or read once.
pub const PINLANE_FILE_DIRECT: u32 = 1;

/// One range of a file, and where it goes. Set all members that you do not use to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_file_range {
    /// Where in the file the range begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: usize,
    /// The caller's own device memory; NULL if it goes to `device_buffer`, or if there are no
    /// bytes.
    pub dst: *mut c_void,
    /// The buffer in device memory that it goes to, or NULL.
    pub device_buffer: *mut pinlane_device_buffer,
    /// Where in `device_buffer` it goes.
    pub device_offset: usize,
}

const _: () = {
    assert!(size_of::<pinlane_file_range>() == 40);
    assert!(std::mem::offset_of!(pinlane_file_range, dst) == 16);
    assert!(std::mem::offset_of!(pinlane_file_range, device_offset) == 32);
};

/// Opens the regular file at `path`, which ends with a NUL, and writes it to `file`, which the
/// caller frees with `pinlane_file_free`. `flags` is 0 or `PINLANE_FILE_DIRECT`. Blocks as opening
/// a file does.
///
/// A file that is written meanwhile may give old or new bytes, a range that is cut off a status,
/// and neither anything worse.
///
/// Statuses: `IO` if the file cannot be opened or is none; `UNSUPPORTED` where the file system has
/// no `O_DIRECT`; `FORKED_PROCESS`; `INVALID_VALUE` if `path` or `file` is NULL, or for unknown
/// flags.
///
/// # Safety
///
/// - `path` is NULL or points to a string that ends with a NUL.
/// - `file` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_file_open(
    path: *const c_char,
    flags: u32,
    file: *mut *mut pinlane_file,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_file_open";
        handle::check_process(OPERATION)?;
        // SAFETY: the caller's precondition on `file`.
        let out = unsafe { Out::new(OPERATION, "file", file) }?;
        check_flags(OPERATION, flags, PINLANE_FILE_DIRECT)?;
        if path.is_null() {
            return Err(pointer::null(OPERATION, "path"));
        }
        // SAFETY: the caller's precondition on `path`, which is not NULL.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
        let direct = flags & PINLANE_FILE_DIRECT != 0;
        let opened = if direct { FileReader::open_direct(path) } else { FileReader::open(path) }?;
        out.set(handle::create(opened));
        Ok(())
    })
}

/// Writes how long the file is at present, in bytes, to `bytes`.
///
/// Statuses: `INVALID_HANDLE`, `IO`; `INVALID_VALUE` if `bytes` is NULL.
///
/// # Safety
///
/// - `bytes` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_file_size(
    file: *const pinlane_file,
    bytes: *mut u64,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_file_size";
        let file = handle::get(OPERATION, file)?;
        // SAFETY: the caller's precondition on `bytes`.
        let out = unsafe { Out::new(OPERATION, "bytes", bytes) }?;
        out.set(file.bytes()?);
        Ok(())
    })
}

/// Fills `bytes` of `buffer`, from `buffer_offset` on, with those of the file from `offset` on.
/// Blocks until the device has no use of them pending, and until all is read, by several threads.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`, `OUT_OF_RANGE` for a range that the file
/// or the buffer does not have: nothing was read. `IO` if the file ends early or cannot be read:
/// the contents of the buffer are unspecified.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_file_read(
    file: *const pinlane_file,
    offset: u64,
    buffer: *mut pinlane_buffer,
    buffer_offset: usize,
    bytes: usize,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_file_read";
        let file = handle::get(OPERATION, file)?;
        let mut buffer = handle::get_mut(OPERATION, buffer)?;
        file.read_into(offset, buffer.slice_mut(range(OPERATION, buffer_offset, bytes)?)?)
    })
}

/// Frees the handle and closes the file; NULL is a no-op.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a file.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_file_free(file: *mut pinlane_file) -> pinlane_status {
    boundary(|| handle::free("pinlane_file_free", file))
}

/// Copies `bytes` of the file, from `offset` on, to the caller's own device memory. Blocks until
/// they have been read; the ticket says when they have arrived. Ordered as `pinlane_upload_slice`.
/// `device_pointer` may be NULL if `bytes` is 0; `ticket` may be NULL.
///
/// Statuses: as for `pinlane_upload_slice`; `OUT_OF_RANGE` for a range that the file does not have:
/// nothing was enqueued. `IO` if the file ends early or cannot be read: the contents of the
/// destination are unspecified.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of `bytes` at least, and stays
///   allocated until the copy is complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_file(
    stream: *const pinlane_stream,
    file: *const pinlane_file,
    offset: u64,
    device_pointer: *mut c_void,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_upload_file";
        let stream = handle::get(OPERATION, stream)?;
        let file = handle::get(OPERATION, file)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let mut device = unsafe { borrowed(OPERATION, &stream, device_pointer, bytes) }?;
        out.set(stream.upload_file(&file, offset, &mut device)?);
        Ok(())
    })
}

/// As `pinlane_upload_file`, to `destination` from `destination_offset` on; also ordered after
/// conflicting uses of the buffer on other streams.
///
/// Statuses: as for `pinlane_upload_file`; `BUSY`, `WRONG_DEVICE`.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_device_buffer_upload_file(
    stream: *const pinlane_stream,
    file: *const pinlane_file,
    offset: u64,
    destination: *mut pinlane_device_buffer,
    destination_offset: usize,
    bytes: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_device_buffer_upload_file";
        let stream = handle::get(OPERATION, stream)?;
        let file = handle::get(OPERATION, file)?;
        let mut destination = handle::get_mut(OPERATION, destination)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        let part = destination.slice_mut(range(OPERATION, destination_offset, bytes)?)?;
        out.set(stream.upload_file(&file, offset, part)?);
        Ok(())
    })
}

/// Copies `count` ranges of the file to device memory. They are one job: the device need not wait
/// between them. Best in the order of the file; destinations must not overlap. Blocks and is
/// ordered as `pinlane_upload_file`; the ticket is for all of them. `ranges` may be NULL if `count`
/// is 0; `ticket` may be NULL.
///
/// Statuses: as for `pinlane_device_buffer_upload_file`; `INVALID_VALUE` if destinations overlap, a
/// pointer is NULL, or a destination is named twice.
///
/// # Safety
///
/// - `ranges` is NULL or points to an array of `count` elements.
/// - Device memory that is named by its address is memory of the stream's device, and stays
///   allocated until the copies are complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_file_ranges(
    stream: *const pinlane_stream,
    file: *const pinlane_file,
    ranges: *const pinlane_file_range,
    count: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_upload_file_ranges";
        let stream = handle::get(OPERATION, stream)?;
        let file = handle::get(OPERATION, file)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        // SAFETY: the caller's precondition on `ranges`.
        let ranges = unsafe { pointer::inputs(OPERATION, "ranges", ranges, count) }?;
        // SAFETY: the caller's precondition on the memory that the ranges name.
        out.set(unsafe { upload_ranges(OPERATION, &stream, &file, ranges) }?);
        Ok(())
    })
}

/// # Safety
///
/// * Device memory that is named by its address is of the stream's device, and valid until retired.
unsafe fn upload_ranges(
    operation: &'static str,
    stream: &Stream,
    file: &FileReader,
    ranges: &[pinlane_file_range],
) -> Result<Ticket> {
    let place = |range: &pinlane_file_range| Place {
        address: range.dst,
        buffer: range.device_buffer,
        offset: range.device_offset,
        bytes: range.bytes,
    };
    let devices = Side::new(operation, ranges.iter().map(place))?;
    let mut tracked = devices.exclusive()?;
    check_disjoint(operation, devices.addresses(&tracked))?;
    // SAFETY: the same precondition.
    let mut lent = unsafe { devices.lent(stream) };
    let mut lent = lent.iter_mut();
    let parts = devices.cut(&mut tracked, DeviceBuf::as_slice_mut)?;
    let parts = parts.into_iter().map(|part: Option<DeviceSliceMut<'_, u8>>| {
        let part = part.or_else(|| lent.next().map(DeviceBuf::as_slice_mut));
        part.expect("a destination is lent, or a part of a buffer")
    });
    stream.upload_file_ranges(file, ranges.iter().map(|range| range.offset).zip(parts))
}
