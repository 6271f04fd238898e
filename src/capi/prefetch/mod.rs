//! Batches that other threads pull from the caller's producer and copy ahead.
//!
//! ```text
//!   producer.rs   the caller's functions, as an iterator of host batches
//!   failure.rs    what one of them returned when it failed
//!   options.rs    structs of options and counters
//!   mod.rs        the pipeline's handle, and the consumer's calls
//!   batch.rs      what a device batch consists of; its handle is that of a device buffer
//! ```
//!
//! # Invariants
//!
//! * One call at a time has the consumer's end; others get `BUSY`.
//! * When `pinlane_prefetch_free` returns, no function of the producer is called any more. The same
//!   holds when `pinlane_prefetch_create` fails.

mod batch;
mod failure;
mod options;
mod producer;

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::failure::Failure;
pub use self::options::{pinlane_prefetch_options, pinlane_prefetch_progress};
pub use self::producer::pinlane_producer;
use self::producer::{Calls, Source};
use super::device_buffer::DeviceBuffer;
use super::request::User;
use super::table::{Counted, Inside};
use super::{
    Error, ErrorKind, Out, Result, freeing, growing, handle, handle_type, pinlane_device_buffer,
    pinlane_pool, pinlane_request, pinlane_status, pinlane_stream, pointer, refused,
};
use crate::prefetch::{Batches, Core, DeviceBatch, Prefetch, Progress};
use crate::process::in_host_function;
use crate::sync::Mutex;
use crate::sync::sanitizer::{self, theirs};

/// A pipeline: threads of pinlane pull batches from a producer and copy them to a device, ahead of
/// their use. Any thread may use it; one at a time requests batches.
pub enum pinlane_prefetch {}

handle_type!(pinlane_prefetch: Pipeline, "prefetch", table 10, shared: false);

/// The object of a pipeline's handle.
pub struct Pipeline {
    /// `None` while a call has it.
    batches: Mutex<Option<Batches>>,
    core: Arc<Core>,
    progress: Progress,
    calls: Arc<Calls>,
}

impl Pipeline {
    /// # Safety
    ///
    /// * As for [`Source::new`].
    unsafe fn start(
        pool: *const pinlane_pool,
        stream: *const pinlane_stream,
        producer: pinlane_producer,
        options: pinlane_prefetch_options,
    ) -> Result<Self> {
        let (pool, stream) = (handle::get(pool)?, handle::get(stream)?);
        let calls = Arc::new(Calls::default());
        // SAFETY: the same precondition.
        let source = unsafe { Source::new(producer, calls.clone()) }?;
        let prefetch = options.apply(Prefetch::new(source, &pool, &stream))?;
        // After an error some workers may have started.
        let batches = prefetch.start().inspect_err(|_| calls.wait_for_last())?;
        let (core, progress) = (batches.core(), batches.progress());
        Ok(Pipeline { batches: Mutex::new(Some(batches)), core, progress, calls })
    }

    /// Ends the pipeline, and waits until no function of the producer is called any more.
    fn end(&self) -> Result<()> {
        if self.calls.is_calling_thread() || in_host_function() {
            let what = "it would wait for the function that it was called from";
            let remedy = "free a prefetch outside of its producer, and of host functions";
            return Err(refused(ErrorKind::Unsupported, what, remedy));
        }
        self.core.stop();
        self.calls.wait_for_last();
        Ok(())
    }
}

/// The consumer's end, which a call owns until it drops this.
struct Taken<O: Deref<Target = Pipeline>> {
    from: O,
    batches: Option<Batches>,
}

impl<O: Deref<Target = Pipeline>> Taken<O> {
    fn new(from: O) -> Result<Self> {
        let batches = from.batches.lock().take();
        match batches {
            Some(_) => Ok(Taken { from, batches }),
            None => Err(refused(
                ErrorKind::Busy,
                "another call asks this prefetch for a batch",
                "ask for one batch at a time",
            )),
        }
    }

    fn batches(&mut self) -> &mut Batches {
        self.batches.as_mut().expect("there until drop")
    }

    /// Converts the pipeline's result to the result of the consumer's call.
    fn answer(&self, next: Option<Result<DeviceBatch>>) -> Result<DeviceBuffer> {
        sanitizer::acquire(sanitizer::of(&*self.from.calls));
        match next {
            Some(batch) => batch.map(DeviceBuffer::Batch),
            None if self.from.core.is_stopped() => Err(freed()),
            None => Err(ended()),
        }
    }
}

impl<O: Deref<Target = Pipeline>> Drop for Taken<O> {
    fn drop(&mut self) {
        *self.from.batches.lock() = self.batches.take();
    }
}

fn ended() -> Error {
    refused(ErrorKind::End, "there are no more batches", "end the loop")
}

#[cold]
fn freed() -> Error {
    refused(ErrorKind::Cancelled, "the prefetch was freed during the call", "end the loop")
}

/// Starts threads that pull batches from `producer` and copy them to the device of `stream`, for
/// work on that stream. Writes the pipeline to `prefetch`. The caller frees it with
/// `pinlane_prefetch_free`. `options` may be NULL: the defaults. Does not wait for the first batch.
///
/// Batches that are filled, and those of a few KiB, go through blocks of `pool`, two for each
/// thread. Larger slices of pageable memory are copied as by `pinlane_upload_slice`.
///
/// Statuses: `INVALID_HANDLE`, `STREAM_CAPTURING`, `WRONG_THREAD`, `FORKED_PROCESS`, `CUDA`,
/// `WRONG_DEVICE` if the pool and the stream belong to different emulated machines, or one of them
/// to a GPU; `UNSUPPORTED` if no thread can be started; `INVALID_VALUE` if `producer`, its `next`
/// or its `describe`, or `prefetch` is NULL, for a depth or number of workers out of range, or for
/// structs of an unknown size or flag. After an error no function of the producer is called any
/// more; some may have been called.
///
/// # Safety
///
/// - `producer` is NULL or points to an initialised struct whose `size` member is right. Its
///   functions may be called as it says, on any thread, until `pinlane_prefetch_free` returns `OK`.
///   They do not unwind. They write what it says.
/// - `options` is NULL or points to an initialised struct whose `size` member is right.
/// - `prefetch` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_prefetch_create(
    pool: *const pinlane_pool,
    stream: *const pinlane_stream,
    producer: *const pinlane_producer,
    options: *const pinlane_prefetch_options,
    prefetch: *mut *mut pinlane_prefetch,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `prefetch`.
    unsafe { Out::new("prefetch", prefetch) }.create("pinlane_prefetch_create", || {
        // SAFETY: the caller's precondition on `producer`.
        let producer = unsafe { growing::sized("producer", producer) }?;
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { growing::options(options) }?;
        // SAFETY: the caller's precondition on the functions.
        unsafe { Pipeline::start(pool, stream, producer, options) }
    })
}

/// Writes the next batch to `batch`: a buffer in the memory of the device. The caller frees it with
/// `pinlane_device_buffer_free`, and finds its slices with `pinlane_device_batch_slice`. Blocks
/// until the copy of the batch is enqueued, and makes the stream wait, on the device, until it is
/// complete.
///
/// All work on the stream is ordered after the copy, including work that pinlane does not know of.
/// Work on other streams is ordered if it uses the buffer, as with any buffer. Freeing the buffer
/// does not wait: its memory is reused for a later batch, after all work that is on the stream by
/// then.
///
/// A failure takes the place of its batch, and the next call returns the next batch. Status
/// `PRODUCER` if the producer failed, `END` if there are no more batches, `CANCELLED` if another
/// thread frees the prefetch during the call.
///
/// Statuses: `INVALID_HANDLE`, `BUSY` while another call waits for a batch, `FORKED_PROCESS`,
/// `OUT_OF_DEVICE_MEMORY`, `BUDGET_EXHAUSTED`, `OUT_OF_HOST_MEMORY`, `DEVICE_LOST`, `CUDA`;
/// `INVALID_VALUE` if `batch` is NULL, or two slices of a batch have one name. `STREAM_CAPTURING`,
/// `WRONG_THREAD`, `UNSUPPORTED` inside a host function: the batch is kept for the next call.
///
/// # Safety
///
/// - `batch` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_prefetch_next(
    prefetch: *const pinlane_prefetch,
    batch: *mut *mut pinlane_device_buffer,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `batch`.
    unsafe { next("pinlane_prefetch_next", prefetch, batch, Batches::next) }
}

/// As `pinlane_prefetch_next`, but blocks for at most `microseconds`. Status `TIMED_OUT` if no
/// batch is ready then; the batch stays for a later call.
///
/// # Safety
///
/// - `batch` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_prefetch_next_timeout(
    prefetch: *const pinlane_prefetch,
    microseconds: u64,
    batch: *mut *mut pinlane_device_buffer,
) -> pinlane_status {
    let how = |batches: &mut Batches| batches.next_timeout(Duration::from_micros(microseconds));
    // SAFETY: the caller's precondition on `batch`.
    unsafe { next("pinlane_prefetch_next_timeout", prefetch, batch, how) }
}

/// # Safety
///
/// * `batch` is NULL, misaligned (both are errors), or valid for writing until the call returns.
unsafe fn next(
    function: &'static str,
    prefetch: *const pinlane_prefetch,
    batch: *mut *mut pinlane_device_buffer,
    how: impl FnOnce(&mut Batches) -> Option<Result<DeviceBatch>>,
) -> pinlane_status {
    // SAFETY: the same precondition.
    unsafe { Out::new("batch", batch) }.give(function, || {
        let mut taken = Taken::new(handle::get(prefetch)?)?;
        let next = how(taken.batches());
        taken.answer(next).map(DeviceBuffer::into_handle)
    })
}

/// Gets `user` and the batch of `pinlane_prefetch_next_async`. The function owns the batch, and
/// frees it with `pinlane_device_buffer_free`. If `status` is not `OK`, the batch is NULL, and
/// `pinlane_last_error()` returns the message.
///
/// It runs on a thread of pinlane. It may call pinlane, and may block: other callbacks run on other
/// threads. It must not unwind (by a C++ exception or otherwise).
pub type pinlane_prefetched = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        status: pinlane_status,
        batch: *mut pinlane_device_buffer,
    ),
>;

/// As `pinlane_prefetch_next`, but passes the batch to `prefetched`, with `user`, when its copy is
/// enqueued. Does not block. Until then other calls for a batch get `BUSY`. `request`, which can
/// withdraw the call, may be NULL. After a withdrawal the batch stays for a later call.
///
/// If this call succeeds, `prefetched` is called exactly once, perhaps before this call returns. If
/// it fails, `prefetched` is never called. `prefetched` gets the statuses of
/// `pinlane_prefetch_next`, and `CANCELLED`.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` if `prefetched` is NULL;
/// `UNSUPPORTED` inside a host function.
///
/// # Safety
///
/// - `prefetched` may be called with `user`, on any thread, and does not unwind.
/// - `request` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_prefetch_next_async(
    prefetch: *const pinlane_prefetch,
    prefetched: pinlane_prefetched,
    user: *mut c_void,
    request: *mut *mut pinlane_request,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `request`.
    unsafe { Out::new("request", request) }.start("pinlane_prefetch_next_async", || {
        let prefetch: Counted<Inside<_>> = handle::get_counted(prefetch)?;
        let prefetched = pointer::function("prefetched", prefetched)?;
        if in_host_function() {
            let remedy = "ask for a batch outside of host functions";
            return Err(refused(ErrorKind::Unsupported, "a batch cannot be had here", remedy));
        }
        let mut taken = Taken::new(prefetch)?;
        let future = async move {
            let next = taken.batches().next_async().await;
            taken.answer(next)
        };
        let user = User(user);
        let call = move |status, batch: Option<_>| {
            let batch = batch.map_or(std::ptr::null_mut(), DeviceBuffer::into_handle);
            // SAFETY: the caller's precondition on `prefetched`.
            theirs(|| unsafe { prefetched(user.get(), status, batch) });
        };
        Ok((future, call))
    })
}

/// Writes the pipeline's counters to `progress`, whose `size` member must be set. Any thread may
/// call this at any time. Each counter is read separately, so while the pipeline runs they may not
/// match each other. Does not block.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `progress` is NULL or its size is unknown.
///
/// # Safety
///
/// - `progress` is NULL or points to a struct whose `size` member is set and right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_prefetch_get_progress(
    prefetch: *const pinlane_prefetch,
    progress: *mut pinlane_prefetch_progress,
) -> pinlane_status {
    let read = || Ok((&handle::get(prefetch)?.progress).into());
    // SAFETY: the caller's precondition on `progress`.
    unsafe { growing::give_sized("pinlane_prefetch_get_progress", "progress", progress, read) }
}

/// Ends the pipeline and frees the handle; NULL is a no-op. Blocks until the producer's functions
/// that are being called have returned, and every batch that was begun is released: then none is
/// called any more. Running copies are finished first, and may wait for work on the stream. Batches
/// that the consumer has stay valid. A call on another thread that waits for a batch returns
/// `CANCELLED`.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a prefetch; `UNSUPPORTED` inside
/// a function of the prefetch's own producer, or inside a host function: nothing has happened.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_prefetch_free(prefetch: *mut pinlane_prefetch) -> pinlane_status {
    freeing("pinlane_prefetch_free", || {
        if prefetch.is_null() || handle::check_process().is_err() {
            return Ok(());
        }
        handle::get(prefetch)?.end()?;
        handle::free(prefetch)
    })
}
