//! Files whose ranges go to a device or into page-locked memory.

use std::ffi::{c_char, c_void};

use super::batch::{Place, Places};
use super::memory::{device_memory, range};
use super::{
    Out, boundary, check_flags, check_spare, freeing, handle, handle_type, layout, pinlane_buffer,
    pinlane_device, pinlane_device_buffer, pinlane_status, pinlane_stream, pinlane_ticket, pointer,
};
use crate::file::FileReader;

/// A file that is open for reading. Any thread may use it, even several at once.
pub enum pinlane_file {}

handle_type!(pinlane_file: FileReader, "file", table 7, shared: true);

/// The file is read past the system's page cache (`O_DIRECT`): for files larger than memory, or
/// read once.
pub const PINLANE_FILE_DIRECT: u32 = 1;

/// One range of a file, and its destination. Set all members that you do not use to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_file_range {
    /// The offset of the range in the file, in bytes.
    pub offset: u64,
    /// Its length.
    pub bytes: usize,
    /// The destination in the caller's own device memory. NULL if it is `device_buffer`, or if
    /// there are no bytes.
    pub dst: *mut c_void,
    /// The device buffer that is the destination, or NULL.
    pub device_buffer: *mut pinlane_device_buffer,
    /// The offset of the destination in `device_buffer`, in bytes.
    pub device_offset: usize,
    /// Must be 0.
    pub reserved: u64,
}

layout!(pinlane_file_range: 48; dst 16, device_offset 32, reserved 40);

/// Opens the regular file at `path`, which ends with a NUL, and writes it to `file`. The caller
/// frees it with `pinlane_file_free`. `flags` is 0 or `PINLANE_FILE_DIRECT`. Blocks as opening a
/// file does.
///
/// If another program writes to the file during a read, the read may return old or new bytes. If it
/// truncates the file, a read beyond the end returns a status. There are no other effects.
///
/// Statuses: `IO` if the file cannot be opened or is not a regular file; `UNSUPPORTED` if the file
/// system does not support `O_DIRECT`; `FORKED_PROCESS`; `INVALID_VALUE` if `path` or `file` is
/// NULL, or for unknown flags.
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
    // SAFETY: the caller's precondition on `file`.
    unsafe { Out::new("file", file) }.create("pinlane_file_open", || {
        check_flags(flags, PINLANE_FILE_DIRECT)?;
        // SAFETY: the caller's precondition on `path`.
        let path = unsafe { pointer::path("path", path) }?;
        let direct = flags & PINLANE_FILE_DIRECT != 0;
        if direct { FileReader::open_direct(path) } else { FileReader::open(path) }
    })
}

/// Opens the regular file at `path`, which ends with a NUL, for uploads again and again: maps it,
/// and page-locks it where it lies in the page cache, for all devices of the process. Uploads of it
/// then return at once, and no thread of the host copies a byte. `pinlane_file_read` reads it as
/// that of `pinlane_file_open`. The caller frees `file` with `pinlane_file_free`, which blocks
/// until no upload reads the file.
///
/// Blocks while the system reads the file and page-locks it: 50 to 70 ms a GiB for a file that is
/// in the page cache. If the device cannot page-lock memory that is mapped for reading only,
/// uploads read the file by way of slots.
///
/// If another program writes to the file, an upload may copy old or new bytes. If it truncates the
/// file, an upload of what is gone returns a status, and what is written there later is not seen. A
/// `memfd` with the seals `F_SEAL_SHRINK` and `F_SEAL_WRITE` cannot be written or truncated: open
/// it by its path in `/proc/self/fd`, when it has its seals.
///
/// Statuses: as for `pinlane_file_open`; `INVALID_HANDLE`; `OUT_OF_HOST_MEMORY`, and others of
/// `pinlane_buffer_register_read_only`, if the file cannot be page-locked.
///
/// # Safety
///
/// - `path` is NULL or points to a string that ends with a NUL.
/// - `file` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_file_open_mapped(
    device: *const pinlane_device,
    path: *const c_char,
    file: *mut *mut pinlane_file,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `file`.
    unsafe { Out::new("file", file) }.create("pinlane_file_open_mapped", || {
        let device = handle::get(device)?;
        // SAFETY: the caller's precondition on `path`.
        FileReader::open_mapped(&device, unsafe { pointer::path("path", path) }?)
    })
}

/// Writes the current size of the file, in bytes, to `bytes`.
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
    // SAFETY: the caller's precondition on `bytes`.
    unsafe { Out::new("bytes", bytes) }.give("pinlane_file_size", || handle::get(file)?.bytes())
}

/// Reads `bytes` of the file, from `offset` on, into `buffer`, from `buffer_offset` on. Uses
/// several threads. Blocks until no device use of that part of the buffer is pending, and until
/// everything is read.
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
    boundary("pinlane_file_read", || {
        let file = handle::get(file)?;
        let mut buffer = handle::get_mut(buffer)?;
        file.read_into(offset, buffer.writable()?.slice_mut(range(buffer_offset, bytes)?)?)
    })
}

/// Frees the handle and closes the file; NULL is a no-op. For a file of `pinlane_file_open_mapped`
/// it blocks until no upload reads it.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a file.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_file_free(file: *mut pinlane_file) -> pinlane_status {
    freeing("pinlane_file_free", || handle::free(file))
}

/// Copies `bytes` of the file, from `offset` on, to the caller's own device memory. Blocks until
/// they are read, or not at all if the file is page-locked (`pinlane_file_open_mapped`); the ticket
/// says when they have arrived. Ordered as `pinlane_upload_slice`.
/// `device_pointer` may be NULL if `bytes` is 0; `ticket` may be NULL.
///
/// Statuses: as for `pinlane_upload_slice`; `OUT_OF_RANGE` for a range that the file does not have:
/// nothing was enqueued. `IO` if the file ends early or cannot be read: the contents of the
/// destination are unspecified.
///
/// # Safety
///
/// - `device_pointer` is device memory of the stream's device, of at least `bytes`, and stays
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
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_file", stream, |stream| {
        let file = handle::get(file)?;
        // SAFETY: the caller's precondition on `device_pointer`.
        let mut device = unsafe { device_memory(stream, device_pointer, bytes) }?;
        stream.upload_file(&file, offset, &mut device)
    })
}

/// As `pinlane_upload_file`, to `destination` from `destination_offset` on. Also ordered after
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
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_device_buffer_upload_file", stream, |stream| {
        let file = handle::get(file)?;
        let mut destination = handle::get_mut(destination)?;
        let part = destination.slice_mut(range(destination_offset, bytes)?)?;
        stream.upload_file(&file, offset, part)
    })
}

/// Copies `count` ranges of the file to device memory, as one job, so the device does not wait
/// between them. Fastest in the order of the file. Destinations must not overlap. Blocks and is
/// ordered as `pinlane_upload_file`; the ticket is for all ranges. `ranges` may be NULL if `count`
/// is 0; `ticket` may be NULL.
///
/// Statuses: as for `pinlane_device_buffer_upload_file`; `INVALID_VALUE` if destinations overlap, a
/// pointer is NULL, or a destination is named twice.
///
/// # Safety
///
/// - `ranges` is NULL or points to an array of `count` elements.
/// - Device memory named by its address is memory of the stream's device, and stays allocated until
///   the copies are complete.
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_upload_file_ranges(
    stream: *const pinlane_stream,
    file: *const pinlane_file,
    ranges: *const pinlane_file_range,
    count: usize,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `ticket`.
    unsafe { Out::ticket(ticket) }.enqueue("pinlane_upload_file_ranges", stream, |stream| {
        let file = handle::get(file)?;
        // SAFETY: the caller's precondition on `ranges`.
        let ranges = unsafe { pointer::inputs("ranges", ranges, count) }?;
        check_spare("ranges", ranges.iter().map(|range| range.reserved))?;
        let places = ranges.iter().map(|range| {
            Place::new(range.dst, range.device_buffer, range.device_offset, range.bytes)
        });
        let devices = Places::new("range", places)?;
        let mut tracked = devices.exclusive()?;
        devices.check_apart()?;
        // SAFETY: the caller's precondition on device memory.
        let mut lent = unsafe { devices.lent(stream) }?;
        let parts = devices.written(&mut tracked, &mut lent)?;
        stream.upload_file_ranges(&file, ranges.iter().map(|range| range.offset).zip(parts))
    })
}
