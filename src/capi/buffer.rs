//! Buffers in page-locked memory.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::handle::{self, Handle};
use super::pointer::Out;
use super::pool::pinlane_pool;
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;
use super::table::Table;
use crate::error::Result;
use crate::memory::{Lent, PinnedBuf};
use crate::pool::PinnedPool;

/// A buffer in page-locked memory, from a pool, or of the caller's own memory. Any thread may use
/// it, one at a time: a call that conflicts with another thread's at the same moment gets
/// `PINLANE_STATUS_BUSY`.
pub struct pinlane_buffer {
    _opaque: [u8; 0],
}

/// What a handle of a buffer stands for.
pub struct HostBuffer {
    pub(super) buffer: PinnedBuf<u8>,
    /// How memory that the caller lends is given back.
    pub(super) lent: Option<Lent>,
}

impl HostBuffer {
    /// The handle's notes are the size, with a mark if the memory is lent, and the address.
    #[inline(always)]
    pub(super) fn into_handle(self) -> *mut pinlane_buffer {
        let size = self.buffer.len() | if self.lent.is_some() { LENT } else { 0 };
        let address = self.buffer.as_ptr().expose_provenance();
        handle::create_noted(self, [size, address])
    }
}

/// No buffer is that large.
const LENT: usize = 1 << (usize::BITS - 1);

impl Deref for HostBuffer {
    type Target = PinnedBuf<u8>;

    #[inline]
    fn deref(&self) -> &PinnedBuf<u8> {
        &self.buffer
    }
}

impl DerefMut for HostBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut PinnedBuf<u8> {
        &mut self.buffer
    }
}

impl Handle for pinlane_buffer {
    type Object = HostBuffer;
    const NAME: &'static str = "buffer";
    fn table() -> &'static Table<Self::Object> {
        static TABLE: Table<HostBuffer> = Table::new(5, false);
        &TABLE
    }
}

/// # Safety
///
/// * `buffer` is NULL, misaligned (both are errors), or valid for writing until the call returns.
unsafe fn allocate(
    operation: &'static str,
    pool: *const pinlane_pool,
    buffer: *mut *mut pinlane_buffer,
    how: impl FnOnce(&PinnedPool) -> Result<PinnedBuf<u8>>,
) -> pinlane_status {
    boundary(|| {
        let pool = handle::get(operation, pool)?;
        // SAFETY: the same precondition.
        let out = unsafe { Out::new(operation, "buffer", buffer) }?;
        out.set(HostBuffer { buffer: how(&pool)?, lent: None }.into_handle());
        Ok(())
    })
}

/// Allocates `bytes` of page-locked memory, aligned to 256 at least, and writes the buffer to
/// `buffer`, which the caller frees with `pinlane_buffer_free`. The contents are unspecified.
/// Blocks while it page-locks new memory, and, when the budget is spent, until the device is done
/// with a freed buffer.
///
/// Statuses: `INVALID_HANDLE`, `BUDGET_EXHAUSTED`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`;
/// `INVALID_VALUE` if `buffer` is NULL or the size overflows.
///
/// # Safety
///
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_alloc(
    pool: *const pinlane_pool,
    bytes: usize,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { allocate("pinlane_buffer_alloc", pool, buffer, |pool| pool.alloc(bytes)) }
}

/// As `pinlane_buffer_alloc`, with all bytes zero.
///
/// # Safety
///
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_alloc_zeroed(
    pool: *const pinlane_pool,
    bytes: usize,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `buffer`.
    unsafe {
        allocate("pinlane_buffer_alloc_zeroed", pool, buffer, |pool| pool.alloc_zeroed(bytes))
    }
}

/// As `pinlane_buffer_alloc`, with the first byte at a multiple of `alignment`: a power of two, at
/// most 2 MiB. Status `INVALID_VALUE` for another.
///
/// # Safety
///
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_alloc_aligned(
    pool: *const pinlane_pool,
    bytes: usize,
    alignment: usize,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    const OPERATION: &str = "pinlane_buffer_alloc_aligned";
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { allocate(OPERATION, pool, buffer, |pool| pool.alloc_aligned(bytes, alignment)) }
}

/// As `pinlane_buffer_alloc`, but waits for whatever may make room, buffers that others free
/// included, for at most `microseconds`, and does not block longer. Requests are served in the
/// order in which they came. Status `TIMED_OUT`; `BUDGET_EXHAUSTED` only if the request is larger
/// than the budget.
///
/// # Safety
///
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_alloc_timeout(
    pool: *const pinlane_pool,
    bytes: usize,
    microseconds: u64,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    const OPERATION: &str = "pinlane_buffer_alloc_timeout";
    let timeout = Duration::from_micros(microseconds);
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { allocate(OPERATION, pool, buffer, |pool| pool.alloc_timeout(bytes, timeout)) }
}

/// As `pinlane_buffer_alloc`, but only from memory that is page-locked already: does not grow and
/// does not wait. Status `NOT_READY` if there is none of that size.
///
/// # Safety
///
/// - `buffer` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_try_alloc(
    pool: *const pinlane_pool,
    bytes: usize,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { allocate("pinlane_buffer_try_alloc", pool, buffer, |pool| pool.try_alloc(bytes)) }
}

/// Gets an address of a buffer, by `access`, into an output.
///
/// # Safety
///
/// * `data` is NULL, misaligned (both are errors), or valid for writing until the call returns.
unsafe fn address<P>(
    operation: &'static str,
    buffer: *const pinlane_buffer,
    data: *mut P,
    access: impl FnOnce(&HostBuffer) -> Result<P>,
) -> pinlane_status {
    boundary(|| {
        let buffer = handle::get(operation, buffer)?;
        // SAFETY: the same precondition.
        let out = unsafe { Out::new(operation, "data", data) }?;
        out.set(access(&buffer)?);
        Ok(())
    })
}

/// As [`address`], for who needs the buffer alone.
///
/// # Safety
///
/// * As for [`address`].
unsafe fn address_mut(
    operation: &'static str,
    buffer: *const pinlane_buffer,
    data: *mut *mut c_void,
    access: impl FnOnce(&mut HostBuffer) -> Result<&mut [u8]>,
) -> pinlane_status {
    boundary(|| {
        let mut buffer = handle::get_mut(operation, buffer)?;
        // SAFETY: the same precondition.
        let out = unsafe { Out::new(operation, "data", data) }?;
        out.set(access(&mut buffer)?.as_mut_ptr().cast());
        Ok(())
    })
}

/// Writes the address of the bytes to `data`, to be read. Blocks until every pending device write
/// to the buffer is complete. The bytes may be read until the next call that lets the device write
/// the buffer, or that frees it.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`, or the error of a copy that failed;
/// `INVALID_VALUE` if `data` is NULL.
///
/// # Safety
///
/// - `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_read(
    buffer: *const pinlane_buffer,
    data: *mut *const c_void,
) -> pinlane_status {
    const OPERATION: &str = "pinlane_buffer_read";
    // SAFETY: the caller's precondition on `data`.
    unsafe { address(OPERATION, buffer, data, |buffer| Ok(buffer.read()?.as_ptr().cast())) }
}

/// Writes the address of the bytes to `data`, to be written. Blocks until every pending device use
/// of the buffer is complete. The bytes may be written until the next call that lets the device use
/// the buffer, or that frees it.
///
/// Statuses: as for `pinlane_buffer_read`.
///
/// # Safety
///
/// - `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_write(
    buffer: *mut pinlane_buffer,
    data: *mut *mut c_void,
) -> pinlane_status {
    const OPERATION: &str = "pinlane_buffer_write";
    // SAFETY: the caller's precondition on `data`.
    unsafe { address_mut(OPERATION, buffer, data, |buffer| buffer.write()) }
}

/// As `pinlane_buffer_read`, but does not block: status `NOT_READY` where that would wait.
///
/// # Safety
///
/// - `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_try_read(
    buffer: *const pinlane_buffer,
    data: *mut *const c_void,
) -> pinlane_status {
    const OPERATION: &str = "pinlane_buffer_try_read";
    // SAFETY: the caller's precondition on `data`.
    unsafe { address(OPERATION, buffer, data, |buffer| Ok(buffer.try_read()?.as_ptr().cast())) }
}

/// As `pinlane_buffer_write`, but does not block: status `NOT_READY` where that would wait.
///
/// # Safety
///
/// - `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_try_write(
    buffer: *mut pinlane_buffer,
    data: *mut *mut c_void,
) -> pinlane_status {
    const OPERATION: &str = "pinlane_buffer_try_write";
    // SAFETY: the caller's precondition on `data`.
    unsafe { address_mut(OPERATION, buffer, data, |buffer| buffer.try_write()) }
}

/// Writes the address of the bytes to `data` without waiting, whoever uses the buffer, for the
/// caller's own CUDA calls. Tell the buffer of them with `pinlane_foreign_begin` or
/// `pinlane_buffer_record_use`; do not access the bytes on the host through this address.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `data` is NULL.
///
/// # Safety
///
/// - `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_address(
    buffer: *const pinlane_buffer,
    data: *mut *mut c_void,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_buffer_address";
        let [_, address] = handle::notes(OPERATION, buffer)?;
        // SAFETY: the caller's precondition on `data`.
        let out = unsafe { Out::new(OPERATION, "data", data) }?;
        out.set(std::ptr::with_exposed_provenance_mut(address));
        Ok(())
    })
}

/// Writes the buffer's size in bytes to `bytes`, whoever uses the buffer.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `bytes` is NULL.
///
/// # Safety
///
/// - `bytes` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_size(
    buffer: *const pinlane_buffer,
    bytes: *mut usize,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_buffer_size";
        let [size, _] = handle::notes(OPERATION, buffer)?;
        // SAFETY: the caller's precondition on `bytes`.
        unsafe { Out::new(OPERATION, "bytes", bytes) }?.set(size & !LENT);
        Ok(())
    })
}

/// Makes later work of `stream` wait, on the device, for every pending use of the buffer, so that
/// the caller's own work on it may be enqueued there. Does not block.
///
/// Statuses: as for `pinlane_buffer_record_use`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_buffer_acquire(
    buffer: *mut pinlane_buffer,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_buffer_acquire";
        let mut buffer = handle::get_mut(OPERATION, buffer)?;
        let stream = handle::get(OPERATION, stream)?;
        stream.acquire(&mut buffer.buffer)
    })
}

/// Tells the buffer that the caller's own CUDA calls on `stream` use it, for reading or writing:
/// whatever is on the stream now counts as a use, and everything later waits for it. Call it after
/// enqueuing that work, which `pinlane_buffer_acquire` ordered. For a `cudaStream_t`, borrow it
/// once with `pinlane_stream_borrow`. Does not block.
///
/// With `BUSY` the use is not recorded: call again. Where several threads use a buffer, call
/// `pinlane_foreign_begin` instead, which keeps it from before the work is enqueued.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_buffer_record_use(
    buffer: *mut pinlane_buffer,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_buffer_record_use";
        let mut buffer = handle::get_mut(OPERATION, buffer)?;
        let stream = handle::get(OPERATION, stream)?;
        stream.record_use(&mut buffer.buffer)
    })
}

/// Frees the buffer; NULL is a no-op. Returns at once, even in the middle of a copy: the memory is
/// used again only when the device is done with it. Only a buffer of the caller's own memory, from
/// `pinlane_buffer_register`, is waited for: when it is freed, the memory is the caller's again.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a buffer. For memory of the
/// caller's own also `BUSY` while another thread's call uses it, `UNSUPPORTED` inside a host
/// function (also one that `cudaLaunchHostFunc` runs), and what the CUDA runtime reports when it is
/// to wait for the device or to unregister the memory. The buffer is then as it was: the memory is
/// still lent and page-locked, and the call may be made again. After `DEVICE_LOST` copies that were
/// enqueued before may still run: keep the memory until the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_buffer_free(buffer: *mut pinlane_buffer) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_buffer_free";
        if buffer.is_null() || handle::check_process(OPERATION).is_err() {
            return Ok(());
        }
        let [size, _] = handle::notes(OPERATION, buffer)?;
        if size & LENT == 0 {
            return handle::free(OPERATION, buffer);
        }
        let buffer = handle::get_mut(OPERATION, buffer)?;
        // Until this has succeeded the buffer is as it was, and can be freed again.
        buffer.lent.as_ref().map_or(Ok(()), |lent| lent.end(OPERATION))?;
        buffer.remove();
        Ok(())
    })
}
