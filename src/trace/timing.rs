//! Events with timing.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Driver, DriverResult, Ordinal, RawEvent, RawStream, StreamFlags};
use crate::process::{Process, on_ordinary_thread};

/// An event with timing that has been recorded on a stream; destroyed with its owner.
pub(super) struct Moment {
    driver: Arc<dyn Driver>,
    process: Process,
    raw: RawEvent,
}

impl Moment {
    /// Records a new event.
    ///
    /// # Safety
    ///
    /// * `stream` is a live stream of `driver`.
    pub(super) unsafe fn record(driver: &Arc<dyn Driver>, stream: RawStream) -> DriverResult<Self> {
        let raw = driver.event_create(stream.device, true)?;
        let moment = Moment { driver: Arc::clone(driver), process: Process::current(), raw };
        // SAFETY: the event was just created, on the stream's device; the stream is live: the
        // caller's precondition.
        unsafe { driver.event_record(raw, stream) }?;
        Ok(moment)
    }

    /// A moment on a new stream of the device. Blocks until it is complete.
    pub(super) fn now(driver: &Arc<dyn Driver>, like: RawStream) -> DriverResult<Self> {
        let stream = driver.stream_create(like.device, StreamFlags::default())?;
        // SAFETY: the stream has just been made.
        let moment = unsafe { Self::record(driver, stream) }.and_then(|moment| {
            moment.wait()?;
            Ok(moment)
        });
        // SAFETY: the stream came from `stream_create`, and is not used afterwards. Its work drains
        // (cudaStreamDestroy). A failure leaks the handle.
        let _ = unsafe { driver.stream_destroy(stream) };
        moment
    }

    /// Blocks until the event is complete.
    pub(super) fn wait(&self) -> DriverResult<()> {
        // SAFETY: the event is live as long as `self`.
        unsafe { self.driver.event_synchronize(self.raw) }
    }

    /// The time from `base`, a moment of the same device, to this one. Both are complete.
    pub(super) fn since(&self, base: &Moment) -> DriverResult<Duration> {
        // SAFETY: both events are live as long as their owners. A `Clock` is used only for streams
        // of its device (`is_of`), so both are of one device.
        let milliseconds = unsafe { self.driver.event_elapsed(base.raw, self.raw) }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    pub(super) fn device(&self) -> Ordinal {
        self.raw.device
    }

    /// Whether it belongs to the stream's device.
    pub(super) fn is_of(&self, driver: &Arc<dyn Driver>, stream: RawStream) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.driver), Arc::as_ptr(driver))
            && self.raw.device == stream.device
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let (process, raw) = (self.process, self.raw);
        let destroy = move |driver: Arc<dyn Driver>| {
            if process.is_current() {
                // SAFETY: the event came from `event_create`, and this, its only owner, does not
                // use it afterwards. A failure leaks the handle.
                let _ = unsafe { driver.event_destroy(raw) };
            }
        };
        // Without a thread the handle leaks, as after a failure.
        on_ordinary_thread(Arc::clone(&self.driver), destroy, |_| {});
    }
}
