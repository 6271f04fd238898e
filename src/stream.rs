//! Streams: queues of device work. Their copies are in [`copy`](crate::copy) and above it.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pinlane_base::setters;

use crate::device::{Device, DeviceInner, adopt_stream, create_stream};
use crate::driver::{Driver, DriverResult, RawEvent, RawStream, StreamFlags};
use crate::error::{Error, ErrorKind, Result};
use crate::process::call_host_function;
use crate::sync::{Mutex, sanitizer};
use crate::ticket::Ticket;
use crate::timeline::{Fencing, Timeline};
use crate::trace::Work;

/// A queue of device work, executed in order. Cheap to clone; all clones are the same stream.
///
/// Streams are independent of each other. If a buffer is used on several, the crate orders the
/// uses. Dropping the last clone returns at once; work already enqueued is executed.
#[derive(Clone)]
pub struct Stream {
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) device: Arc<DeviceInner>,
}

/// How a stream behaves; see [`Device::stream_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    priority: i32,
    blocking: bool,
}

impl StreamOptions {
    /// The default: non-blocking, of priority 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

setters! {
    impl StreamOptions {
        /// Of kernels that wait for room on the device, those with lower numbers run first. Copies
        /// by the copy engine have no priority. Clamped to the device's range
        /// (`cudaDeviceGetStreamPriorityRange`).
        pub fn priority(priority: i32) => priority;

        /// Whether this stream and the legacy default stream wait for each other; without this they
        /// do not (`cudaStreamNonBlocking`).
        pub fn blocking(blocking: bool) => blocking;
    }
}

impl Device {
    /// A new stream: non-blocking, of default priority.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ForkedProcess`], or what `cudaStreamCreateWithPriority` reports.
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::new())
    }

    /// A new stream with options.
    ///
    /// # Errors
    ///
    /// As for [`stream`](Self::stream).
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        let flags = StreamFlags { blocking: options.blocking, priority: options.priority };
        Ok(self.stream_of(create_stream(self.context(), flags)?))
    }

    /// The legacy default stream of the device (`cudaStreamLegacy`, the handle 0).
    #[must_use]
    pub fn legacy_stream(&self) -> Stream {
        self.stream_of(adopt_stream(self.context(), RawStream::LEGACY, None))
    }

    /// The calling thread's default stream (`cudaStreamPerThread`). Only this thread can enqueue
    /// work on it. On another thread the handle names another stream, and calls fail with
    /// [`ErrorKind::WrongThread`].
    #[must_use]
    pub fn per_thread_stream(&self) -> Stream {
        self.stream_of(adopt_stream(self.context(), RawStream::PER_THREAD, None))
    }

    /// Borrows a `cudaStream_t` that other code owns. 0 and 1 are the legacy default stream, 2 is
    /// the calling thread's default stream.
    ///
    /// # Safety
    ///
    /// * `raw` is a stream of this device and of the CUDA runtime that this crate uses.
    /// * It is not destroyed before the returned stream and its clones are dropped, and the work
    ///   that they enqueued is complete.
    /// * No capture of it begins while a call with the returned stream is enqueuing work.
    #[must_use]
    pub unsafe fn borrow_stream(&self, raw: *mut c_void) -> Stream {
        self.stream_of(adopt_stream(self.context(), handle_of(raw), None))
    }

    /// As [`borrow_stream`](Self::borrow_stream), and keeps `owner` for as long as the stream is
    /// needed: until the last clone and the last ticket are dropped, and no buffer has to wait for
    /// work of the stream. `owner` drops on the thread that drops the last of these. Inside a host
    /// function, and on a thread of this crate that others depend on, it is passed to another
    /// thread, which may drop it a little later. In a forked child it is leaked.
    ///
    /// # Safety
    ///
    /// * `raw` is a stream of this device and of the CUDA runtime that this crate uses.
    /// * It is not destroyed before `owner` is dropped.
    /// * No capture of it begins while a call with the returned stream is enqueuing work.
    #[must_use]
    pub unsafe fn borrow_stream_of<O>(&self, owner: O, raw: *mut c_void) -> Stream
    where
        O: Send + Sync + 'static,
    {
        let owner = Some(Box::new(owner) as Box<dyn Send + Sync>);
        self.stream_of(adopt_stream(self.context(), handle_of(raw), owner))
    }

    fn stream_of(&self, timeline: Arc<Timeline>) -> Stream {
        Stream { timeline, device: Arc::clone(&self.inner) }
    }
}

/// The seam's handle of a caller's stream.
fn handle_of(raw: *mut c_void) -> usize {
    match raw.addr() {
        0 => RawStream::LEGACY,
        handle => handle,
    }
}

impl Stream {
    /// The device that the stream belongs to.
    #[must_use]
    pub fn device(&self) -> Device {
        Device { inner: Arc::clone(&self.device) }
    }

    /// The number of the device that the stream belongs to.
    #[must_use]
    pub fn device_ordinal(&self) -> i32 {
        self.timeline.raw().device
    }

    /// The `cudaStream_t`, for foreign code. This crate does not see work that other code enqueues
    /// there: report it with [`foreign`](Self::foreign) if it uses this crate's buffers.
    ///
    /// Foreign code that captures the stream begins while no call of this crate is enqueuing work
    /// there: only a call that begins later can refuse ([`ErrorKind::StreamCapturing`]).
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.timeline.expose();
        std::ptr::without_provenance_mut(self.timeline.raw().handle)
    }

    /// Blocks until everything enqueued on the stream before the call is complete
    /// (`cudaStreamSynchronize`).
    ///
    /// # Errors
    ///
    /// The error of the work or of the device; [`ErrorKind::ForkedProcess`].
    pub fn synchronize(&self) -> Result<()> {
        self.timeline.synchronize("Stream::synchronize")
    }

    /// A ticket for everything enqueued on the stream so far. Does not block.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StreamCapturing`], [`ErrorKind::ForkedProcess`], or what `cudaEventRecord`
    /// reports.
    pub fn record(&self) -> Result<Ticket> {
        const OPERATION: &str = "Stream::record";
        let driver = self.timeline.open(OPERATION)?;
        let submission =
            self.timeline.submit_to(driver, OPERATION, Fencing::Recorded, |_, _| ())?;
        submission.fenced?;
        Ok(Ticket::new(self.timeline.clone(), submission.fence.position))
    }

    /// Makes later work of this stream wait, on the device, for the operation of `ticket`. Does not
    /// block. Not needed for buffers: their uses are always ordered.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongDevice`] if the ticket comes from another driver;
    /// [`ErrorKind::StreamCapturing`], [`ErrorKind::ForkedProcess`].
    pub fn wait_for(&self, ticket: &Ticket) -> Result<()> {
        self.timeline.open("Stream::wait_for")?;
        let Some((producer, position)) = ticket.at() else { return Ok(()) };
        self.timeline.context().check_driver("Stream::wait_for", producer.context(), "ticket")?;
        self.timeline.wait_for(producer, position, "Stream::wait_for")
    }

    /// Makes later work of this stream wait, on the device, for the work that `event`, a
    /// `cudaEvent_t` of the caller, captured when it was last recorded. Does not block.
    ///
    /// # Safety
    ///
    /// * `event` is a live event of the CUDA runtime that this crate uses, of any device.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StreamCapturing`], [`ErrorKind::ForkedProcess`], or what `cudaStreamWaitEvent`
    /// reports.
    pub unsafe fn wait_event(&self, event: *mut c_void) -> Result<()> {
        // From now on work that this crate does not see may hold up the stream, as if it were
        // enqueued there.
        self.timeline.expose();
        self.with_event("cudaStreamWaitEvent", event, |driver, stream, event| {
            // SAFETY: the stream is live, and so is the event, by the precondition.
            unsafe { driver.stream_wait_event(stream, event) }
        })
    }

    /// Captures everything enqueued on this stream so far in `event`, a `cudaEvent_t` of the
    /// caller: a wait for the event waits for that work. Does not block.
    ///
    /// # Safety
    ///
    /// * `event` is a live event of the CUDA runtime that this crate uses, of this stream's device.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StreamCapturing`], [`ErrorKind::ForkedProcess`], or what `cudaEventRecord`
    /// reports, also for an event of another device.
    pub unsafe fn record_event(&self, event: *mut c_void) -> Result<()> {
        self.with_event("cudaEventRecord", event, |driver, stream, event| {
            // SAFETY: the stream is live, and so is the event, by the precondition.
            unsafe { driver.event_record(event, stream) }
        })
    }

    fn with_event(
        &self,
        call: &'static str,
        event: *mut c_void,
        work: impl FnOnce(&dyn Driver, RawStream, RawEvent) -> DriverResult<()>,
    ) -> Result<()> {
        let stream = self.timeline.raw();
        let event = RawEvent { device: stream.device, handle: event.addr() };
        work(self.timeline.open(call)?, stream, event)
            .map_err(|code| self.timeline.context().error(code, call, "with the caller's event"))
    }

    /// Calls `function` on a thread of the CUDA runtime after all earlier work of the stream is
    /// complete. Later work of the stream waits for it. Does not block.
    ///
    /// `function` must not wait for device work: CUDA calls are forbidden there, and this crate's
    /// calls fail with [`ErrorKind::Unsupported`]. Dropping buffers in it is fine. A panic in it is
    /// caught and discarded. After a device error the function may never be called, and its
    /// captured values leak.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::StreamCapturing`], [`ErrorKind::ForkedProcess`], or what `cudaLaunchHostFunc`
    /// reports. After an error the function has been dropped, and is not called.
    pub fn launch_host<F>(&self, function: F) -> Result<Ticket>
    where
        F: FnOnce() + Send + 'static,
    {
        let slot = Arc::new(Slot::new(Some(function)));
        let submission = self.timeline.submit("Stream::launch_host", |driver, raw| {
            sanitizer::release(sanitizer::of(&*slot));
            let data = Arc::into_raw(Arc::clone(&slot)).cast_mut().cast::<c_void>();
            self.timeline.shown(Work::new("Stream::launch_host", 0), || {
                // SAFETY: the stream is live (`submit`). `call_once` accepts `data` once, on any
                // thread since the closure is `Send + 'static`, does not unwind, and makes no
                // driver call: the thread is marked, and `Context::driver` refuses.
                unsafe { driver.launch_host(raw, call_once::<F>, data) }
            })
        })?;
        let launched = submission.value.map_err(|code| {
            self.timeline.context().error(code, "cudaLaunchHostFunc", "enqueuing a host function")
        });
        if let Err(error) = launched.and(submission.fenced)
            // The function may be enqueued nevertheless: the error may come from earlier work, or
            // from the fence. So the function is taken back, and the call's reference to the slot
            // may leak (soundness rule 8). If it has been called already, it was not refused.
            && let Some(function) = take(&slot)
        {
            drop(function);
            return Err(error);
        }
        Ok(Ticket::new(self.timeline.clone(), submission.fence.position))
    }

    /// Keeps the stream busy for about `duration` of device time, at most 10 s: a kernel of one
    /// thread that spins and touches no memory, for tests and benchmarks of overlap. Does not
    /// block.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidValue`] above 10 s; [`ErrorKind::StreamCapturing`],
    /// [`ErrorKind::ForkedProcess`].
    pub fn busy(&self, duration: Duration) -> Result<Ticket> {
        let door = self.door("Stream::busy");
        if duration > Duration::from_secs(10) {
            let what = format!("{duration:?} is longer than 10 s");
            let remedy = "call it with at most 10 s, several times if need be";
            return Err(Error::new(ErrorKind::InvalidValue, door.operation, what, remedy));
        }
        // SAFETY: the stream is live (`ordered`).
        let spin =
            |driver: &dyn Driver, raw| unsafe { driver.busy(raw, duration.as_nanos() as u64) };
        let describe = || "launching a kernel that spins".to_owned();
        door.ordered(&[], Fencing::Own, spin, describe)
    }
}

/// A host function, until the call takes it, or `launch_host` if the call was refused.
type Slot<F> = Mutex<Option<F>>;

fn take<F>(slot: &Slot<F>) -> Option<F> {
    slot.lock().take()
}

/// # Safety
///
/// * `data` came from `Arc::into_raw` of an `Arc<Slot<F>>` and is passed here once.
unsafe extern "C" fn call_once<F: FnOnce() + Send>(data: *mut c_void) {
    // SAFETY: by the precondition the pointer is one reference to the slot, which is passed on
    // here.
    let slot = unsafe { Arc::from_raw(data.cast_const().cast::<Slot<F>>()) };
    let Some(function) = take(&slot) else { return };
    sanitizer::acquire(sanitizer::of(&*slot));
    call_host_function(function);
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.timeline.raw();
        f.debug_struct("Stream")
            .field("device", &raw.device)
            .field("handle", &format_args!("{:#x}", raw.handle))
            .finish()
    }
}
