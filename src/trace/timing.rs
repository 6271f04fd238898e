//! Events that tell when the device came to them.

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
        // SAFETY: the event is live and of the stream's device; the stream is live: promised by the
        // caller.
        unsafe { driver.event_record(raw, stream) }?;
        Ok(moment)
    }

    /// A moment of a device that does nothing else for us, which has come when this returns.
    pub(super) fn now(driver: &Arc<dyn Driver>, like: RawStream) -> DriverResult<Self> {
        let stream = driver.stream_create(like.device, StreamFlags::default())?;
        // SAFETY: the stream has just been made.
        let moment = unsafe { Self::record(driver, stream) }.and_then(|moment| {
            moment.wait()?;
            Ok(moment)
        });
        // SAFETY: the stream came from `stream_create`, and nobody else knows it. What is on it
        // drains (cudaStreamDestroy). A failure leaks the handle.
        let _ = unsafe { driver.stream_destroy(stream) };
        moment
    }

    /// Blocks until the device has come to it.
    pub(super) fn wait(&self) -> DriverResult<()> {
        // SAFETY: the event is live as long as `self`.
        unsafe { self.driver.event_synchronize(self.raw) }
    }

    /// The time from `base` to this moment. Both have come.
    pub(super) fn since(&self, base: &Moment) -> DriverResult<Duration> {
        // SAFETY: both events are live as long as their owners, and of one device.
        let milliseconds = unsafe { self.driver.event_elapsed(base.raw, self.raw) }?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }

    pub(super) fn device(&self) -> Ordinal {
        self.raw.device
    }

    /// Whether it is one of that stream's device.
    pub(super) fn is_of(&self, driver: &Arc<dyn Driver>, stream: RawStream) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.driver), Arc::as_ptr(driver))
            && self.raw.device == stream.device
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let (driver, process, raw) = (Arc::clone(&self.driver), self.process, self.raw);
        on_ordinary_thread(move || {
            if process.is_current() {
                // SAFETY: the event came from `event_create`, and this was its owner. A failure
                // leaks the handle.
                let _ = unsafe { driver.event_destroy(raw) };
            }
        });
    }
}
