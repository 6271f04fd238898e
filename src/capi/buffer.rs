//! Buffers in page-locked memory.

mod object;

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::time::Duration;

pub use self::object::{HostBuffer, Kept};
use super::memory::check_memory;
use super::request::User;
use super::status::refused;
use super::table::Caller;
use super::{
    Out, Result, boundary, freeing, handle, handle_type, invalid, pinlane_device, pinlane_pool,
    pinlane_request, pinlane_status, pinlane_stream, pointer,
};
use crate::error::{Error, ErrorKind};
use crate::memory::{PinnedBuf, Purpose};
use crate::pool::PinnedPool;
use crate::sync::sanitizer::theirs;

/// A buffer in page-locked memory, from a pool or of the caller's own memory. It tracks the device
/// work that uses it. Any thread may use it, one at a time: a call that conflicts with another
/// thread's at the same moment gets `PINLANE_STATUS_BUSY`.
pub enum pinlane_buffer {}

handle_type!(pinlane_buffer: HostBuffer, "buffer", table 5, shared: false);

impl HostBuffer {
    /// The handle of a buffer that owns its memory.
    #[inline(always)]
    pub(super) fn into_handle(object: ManuallyDrop<HostBuffer>) -> *mut pinlane_buffer {
        HostBuffer::into_marked(Caller::this(), object, 0)
    }

    /// The handle's notes are the address, and the size with a mark: [`LENT`] if the memory belongs
    /// to the caller, else 0.
    #[inline(always)]
    fn into_marked(
        caller: Caller,
        object: ManuallyDrop<HostBuffer>,
        mark: usize,
    ) -> *mut pinlane_buffer {
        let size = object.buffer().len() | mark;
        let address = object.buffer().as_ptr().expose_provenance();
        handle::create_noted_by(caller, object, [size, address])
    }

    /// Page-locks memory of the caller, in a call of that name.
    ///
    /// # Safety
    ///
    /// * `bytes` from `memory` on are as [`PinnedBuf::register_raw`] demands, until the handle has
    ///   been freed.
    unsafe fn lend(
        function: &'static str,
        device: *const pinlane_device,
        memory: *const c_void,
        bytes: usize,
        purpose: Purpose,
    ) -> Result<*mut pinlane_buffer> {
        let device = handle::get(device)?;
        let first = check_memory(memory, bytes)?;
        // SAFETY: the precondition. The buffer drops only after `lent` has given the memory back,
        // and no operation writes to one that is only read: `writable`.
        let (buffer, lent) =
            unsafe { PinnedBuf::register_raw(function, device.context(), first, bytes, purpose) }?;
        let object = HostBuffer::lent_for(purpose, buffer, lent);
        Ok(HostBuffer::into_marked(Caller::this(), ManuallyDrop::new(object), LENT))
    }
}

/// Why memory that is only read is not written.
#[cold]
fn only_read() -> Error {
    let what = "the buffer is only read: it was registered or imported as such";
    invalid(what, "write to another buffer, such as one of pinlane_buffer_alloc")
}

/// Why memory stays with a graph.
#[cold]
fn kept() -> Error {
    let what = "a graph that has lent the buffer has its address";
    refused(ErrorKind::Busy, what, "free the graph first, or give it another buffer")
}

/// The mark. No buffer is that large.
const LENT: usize = 1 << (usize::BITS - 1);

/// The address and the size of a buffer of either kind, from the notes of its handle.
pub(super) fn extent([size, address]: [usize; 2]) -> (u64, usize) {
    (address as u64, size & !LENT)
}

impl Out<*mut pinlane_buffer> {
    /// Runs the body of the exported function `function`, which allocates from `pool`.
    #[inline(always)]
    fn allocate(
        self,
        function: &'static str,
        pool: *const pinlane_pool,
        how: impl FnOnce(&PinnedPool) -> Result<PinnedBuf<u8>>,
    ) -> pinlane_status {
        self.give(function, || {
            let caller = handle::caller()?;
            let pool = handle::get_by(caller, pool)?;
            // `ManuallyDrop` leaks it after a panic, but avoids a copy through memory. So it comes
            // before the call leaves the pool, which may panic.
            let buffer = ManuallyDrop::new(HostBuffer::new(how(&pool)?));
            drop(pool);
            Ok(HostBuffer::into_marked(caller, buffer, 0))
        })
    }
}

/// Allocates `bytes` of page-locked memory, aligned to at least 256, and writes the buffer to
/// `buffer`. The caller frees it with `pinlane_buffer_free`. The contents are unspecified. Blocks
/// while it page-locks new memory and, when the budget is spent, until the device is done with a
/// freed buffer.
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
    unsafe { Out::new("buffer", buffer) }
        .allocate("pinlane_buffer_alloc", pool, |pool| pool.alloc(bytes))
}

/// Writes the pool that the buffer came from to `pool`. The caller frees it with
/// `pinlane_pool_free`.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `BUSY`; `INVALID_VALUE` if `pool` is NULL, the
/// memory is the caller's own, or all handles of the pool were freed.
///
/// # Safety
///
/// - `pool` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_pool(
    buffer: *const pinlane_buffer,
    pool: *mut *mut pinlane_pool,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `pool`.
    unsafe { Out::new("pool", pool) }.create("pinlane_buffer_pool", || {
        let buffer = handle::get(buffer)?;
        buffer.buffer().pool().ok_or_else(|| {
            let what = match buffer.lent() {
                Some(_) => "the buffer has memory of the program's own",
                None => "every handle of the buffer's pool was freed",
            };
            let remedy = "ask a buffer of pinlane_buffer_alloc, and keep a handle of its pool";
            invalid(what, remedy)
        })
    })
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
    unsafe { Out::new("buffer", buffer) }
        .allocate("pinlane_buffer_alloc_zeroed", pool, |pool| pool.alloc_zeroed(bytes))
}

/// As `pinlane_buffer_alloc`, with the first byte at a multiple of `alignment`: a power of two, at
/// most 2 MiB. Status `INVALID_VALUE` for any other alignment.
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
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }
        .allocate("pinlane_buffer_alloc_aligned", pool, |pool| pool.alloc_aligned(bytes, alignment))
}

/// As `pinlane_buffer_alloc`, but when the budget is spent it waits, for at most `microseconds`,
/// until there is room, even for buffers that other threads free. Requests are served in the order
/// in which they came. Status `TIMED_OUT`; `BUDGET_EXHAUSTED` only if the request is larger than
/// the budget, or than what is left of it beside quarantined memory.
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
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }.allocate("pinlane_buffer_alloc_timeout", pool, |pool| {
        pool.alloc_timeout(bytes, Duration::from_micros(microseconds))
    })
}

/// As `pinlane_buffer_alloc`, but only from memory that is page-locked already: it does not
/// page-lock memory and does not wait. Status `NOT_READY` if no block of that size is free.
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
    unsafe { Out::new("buffer", buffer) }
        .allocate("pinlane_buffer_try_alloc", pool, |pool| pool.try_alloc(bytes))
}

/// Gets `user` and the buffer of `pinlane_buffer_alloc_async`. The function owns the buffer, and
/// frees it with `pinlane_buffer_free`. If `status` is not `OK`, the buffer is NULL, and
/// `pinlane_last_error()` returns the message.
///
/// It runs on a thread of pinlane. It may call pinlane, and may block: other callbacks run on other
/// threads. It must not unwind (by a C++ exception or otherwise).
pub type pinlane_allocated = Option<
    unsafe extern "C" fn(user: *mut c_void, status: pinlane_status, buffer: *mut pinlane_buffer),
>;

/// Allocates as `pinlane_buffer_alloc_timeout` without a limit, and passes the buffer to
/// `allocated`, with `user`. Does not block. Requests are served in the order of the calls.
/// `request`, which can withdraw the call, may be NULL.
///
/// If this call succeeds, `allocated` is called exactly once, perhaps before this call returns. If
/// it fails, `allocated` is never called.
///
/// Statuses that `allocated` gets: `BUDGET_EXHAUSTED` if the request is larger than the budget, or
/// than what is left of it beside quarantined memory, `OUT_OF_HOST_MEMORY`, `CANCELLED`,
/// `INVALID_VALUE` if the size overflows.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`; `INVALID_VALUE` if `allocated` is NULL;
/// `UNSUPPORTED` if the request has to wait and this is a host function, or no thread can be
/// started.
///
/// # Safety
///
/// - `allocated` may be called with `user`, on any thread, and does not unwind.
/// - `request` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_alloc_async(
    pool: *const pinlane_pool,
    bytes: usize,
    allocated: pinlane_allocated,
    user: *mut c_void,
    request: *mut *mut pinlane_request,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `request`.
    unsafe { Out::new("request", request) }.start("pinlane_buffer_alloc_async", || {
        let future = handle::get(pool)?.alloc_async::<u8>(bytes);
        let allocated = pointer::function("allocated", allocated)?;
        let user = User(user);
        let call = move |status, buffer: Option<_>| {
            let buffer = buffer.map_or(std::ptr::null_mut(), |buffer| {
                let object = HostBuffer::new(buffer);
                HostBuffer::into_handle(ManuallyDrop::new(object))
            });
            // SAFETY: the caller's precondition on `allocated`.
            theirs(|| unsafe { allocated(user.get(), status, buffer) });
        };
        Ok((future, call))
    })
}

/// Page-locks `bytes` of the caller's own memory, from `memory` on, for all devices of the process
/// (`cudaHostRegister`), and writes a buffer of it to `buffer`. It works as a buffer from a pool.
/// Blocks for about as long as allocating page-locked memory of that size takes. `memory` may have
/// any alignment, and be NULL if `bytes` is 0.
///
/// The memory is lent until `pinlane_buffer_free` returns `PINLANE_STATUS_OK`. That call blocks
/// until the device is done with the memory, and unlocks its pages; then the caller may use and
/// free it.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_HOST_MEMORY`, `FORKED_PROCESS`, `UNSUPPORTED` inside a host
/// function; `INVALID_VALUE` if a part of the memory is page-locked already or cannot be
/// page-locked (a shared mapping of a file), if `memory` or `buffer` is NULL, or if the size
/// overflows.
///
/// # Safety
///
/// - `buffer` is NULL or points to a variable.
/// - `bytes` from `memory` on can be read and written until `pinlane_buffer_free` returns
///   `PINLANE_STATUS_OK`. Until then they are accessed only through the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_register(
    device: *const pinlane_device,
    memory: *mut c_void,
    bytes: usize,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    const FUNCTION: &str = "pinlane_buffer_register";
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }.give(FUNCTION, || {
        // SAFETY: the caller's second precondition. No code of this interface reads the bytes on
        // the host, so C need not have initialised them.
        unsafe { HostBuffer::lend(FUNCTION, device, memory, bytes, Purpose::Any) }
    })
}

/// Page-locks `bytes` of the caller's own memory, from `memory` on, as a source of uploads: memory
/// that nothing changes, which may be mapped for reading only, such as a file or a constant
/// (`cudaHostRegister` with `cudaHostRegisterReadOnly`). Otherwise as `pinlane_buffer_register`.
/// Each upload takes the bytes from there, and no thread of the host copies them. Calls that would
/// write to the buffer return `INVALID_VALUE`. `pinlane_buffer_read` waits for nothing.
///
/// A device without `cudaDevAttrHostRegisterReadOnlySupported` registers memory that is mapped
/// writable, and refuses other memory: upload that with `pinlane_upload_slice`.
///
/// Statuses: as for `pinlane_buffer_register`; `UNSUPPORTED` also for memory that is mapped for
/// reading only, on a device that cannot register it.
///
/// # Safety
///
/// - `buffer` is NULL or points to a variable.
/// - `bytes` from `memory` on can be read, and do not change, until `pinlane_buffer_free` returns
///   `PINLANE_STATUS_OK`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_register_read_only(
    device: *const pinlane_device,
    memory: *const c_void,
    bytes: usize,
    buffer: *mut *mut pinlane_buffer,
) -> pinlane_status {
    const FUNCTION: &str = "pinlane_buffer_register_read_only";
    // SAFETY: the caller's precondition on `buffer`.
    unsafe { Out::new("buffer", buffer) }.give(FUNCTION, || {
        // SAFETY: the caller's second precondition; as for `pinlane_buffer_register`.
        unsafe { HostBuffer::lend(FUNCTION, device, memory, bytes, Purpose::ToRead) }
    })
}

/// Writes the address of the bytes to `data`, for reading. Blocks until every pending device write
/// to the buffer is complete. The bytes may be read until the next call that lets the device write
/// to the buffer or that frees it.
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
    // SAFETY: the caller's precondition on `data`.
    unsafe { Out::new("data", data) }
        .give("pinlane_buffer_read", || Ok(handle::get(buffer)?.buffer().read()?.as_ptr().cast()))
}

/// Writes the address of the bytes to `data`, for writing. Blocks until every pending device use of
/// the buffer is complete. The bytes may be written until the next call that lets the device use
/// the buffer or that frees it.
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
    // SAFETY: the caller's precondition on `data`.
    unsafe { Out::new("data", data) }.give("pinlane_buffer_write", || {
        Ok(handle::get_mut(buffer)?.writable()?.write()?.as_mut_ptr().cast())
    })
}

/// As `pinlane_buffer_read`, but does not block: status `NOT_READY` if it would have to wait.
///
/// # Safety
///
/// - `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_try_read(
    buffer: *const pinlane_buffer,
    data: *mut *const c_void,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `data`.
    unsafe { Out::new("data", data) }.give("pinlane_buffer_try_read", || {
        Ok(handle::get(buffer)?.buffer().try_read()?.as_ptr().cast())
    })
}

/// As `pinlane_buffer_write`, but does not block: status `NOT_READY` if it would have to wait.
///
/// # Safety
///
/// - `data` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_buffer_try_write(
    buffer: *mut pinlane_buffer,
    data: *mut *mut c_void,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `data`.
    unsafe { Out::new("data", data) }.give("pinlane_buffer_try_write", || {
        Ok(handle::get_mut(buffer)?.writable()?.try_write()?.as_mut_ptr().cast())
    })
}

/// Writes the address of the bytes to `data`, for the caller's own CUDA calls, without waiting,
/// even while other calls use the buffer. Order the CUDA calls with `pinlane_foreign_begin` or
/// `pinlane_buffer_record_use`. The host must not access the bytes through this address.
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
    // SAFETY: the caller's precondition on `data`.
    unsafe { Out::new("data", data) }.give("pinlane_buffer_address", || {
        let [_, address] = handle::notes(buffer)?;
        Ok(std::ptr::with_exposed_provenance_mut(address))
    })
}

/// Writes the buffer's size in bytes to `bytes`, even while other calls use the buffer.
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
    // SAFETY: the caller's precondition on `bytes`.
    unsafe { Out::new("bytes", bytes) }
        .give("pinlane_buffer_size", || Ok(extent(handle::notes(buffer)?).1))
}

/// Makes later work of `stream` wait, on the device, for every pending use of the buffer. Then the
/// caller's own work on the buffer may be enqueued on the stream. Does not block.
///
/// Statuses: as for `pinlane_buffer_record_use`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_buffer_acquire(
    buffer: *mut pinlane_buffer,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary("pinlane_buffer_acquire", || {
        let mut buffer = handle::get_mut(buffer)?;
        handle::get(stream)?.acquire(buffer.tracked())
    })
}

/// Records that the caller's own CUDA calls on `stream` read or write the buffer. Everything on the
/// stream now counts as a use, and later uses wait for it. Call it after that work is enqueued;
/// call `pinlane_buffer_acquire` before. For a `cudaStream_t`, borrow it once with
/// `pinlane_stream_borrow`. Does not block.
///
/// With `BUSY` the use is not recorded: call again. If several threads use a buffer, call
/// `pinlane_foreign_begin` instead: it holds the buffer from before the work is enqueued.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_buffer_record_use(
    buffer: *mut pinlane_buffer,
    stream: *const pinlane_stream,
) -> pinlane_status {
    boundary("pinlane_buffer_record_use", || {
        let mut buffer = handle::get_mut(buffer)?;
        handle::get(stream)?.record_use(buffer.tracked())
    })
}

/// Frees the buffer; NULL is a no-op. Returns at once, even in the middle of a copy: the memory is
/// reused only when the device is done with it. A buffer of the caller's own memory, from
/// `pinlane_buffer_register`, is the exception: the call waits for the device, then the memory
/// belongs to the caller again.
///
/// The memory of a buffer that a graph holds, or has lent, stays until the graph is freed too.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a buffer. For the caller's own
/// memory also `BUSY` while another thread's call uses it, or a graph holds it or has lent it;
/// `UNSUPPORTED` inside a host function (also one that `cudaLaunchHostFunc` runs), and what the
/// CUDA runtime reports if it fails to wait for the device or to unregister the memory. The buffer
/// is then unchanged, the memory is still lent and page-locked, and the call may be repeated. After
/// `DEVICE_LOST`, copies that were enqueued before may still run: keep the memory until the process
/// ends.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_buffer_free(buffer: *mut pinlane_buffer) -> pinlane_status {
    freeing("pinlane_buffer_free", || {
        // SAFETY: the object is not used again.
        let drop = |object: &mut ManuallyDrop<HostBuffer>| unsafe { object.drop_inlined() };
        if handle::free_if(buffer, |size| size & LENT == 0, drop)? {
            return Ok(());
        }
        give_back(buffer)
    })
}

/// Frees a buffer of the caller's own memory.
#[cold]
fn give_back(buffer: *const pinlane_buffer) -> Result<()> {
    let buffer = handle::get_mut(buffer)?;
    buffer.check_free()?;
    // If this fails, the buffer is unchanged, and can be freed again.
    buffer.lent().map_or(Ok(()), |lent| lent.end("pinlane_buffer_free"))?;
    buffer.remove();
    Ok(())
}

#[cfg(test)]
mod tests;
