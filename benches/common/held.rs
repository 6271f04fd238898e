//! Device time, by the method of nvbandwidth. A kernel blocks the streams until all work is
//! enqueued. So no figure contains the time that the host takes to enqueue.
//!
//! ```text
//!   first    [ busy kernel ][start][ work ..... ]--------[end]
//!   others                     \-->[ work ........ ][join]-^
//! ```
//!
//! If the work was enqueued too late, the measurement is discarded, and the kernel runs longer from
//! then on.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use pinlane::driver::{Driver, DriverResult, Poll, RawEvent, RawStream};
use pinlane::{Device, Result, Stream};

use super::bare::Bare;

const LONGEST: Duration = Duration::from_secs(5);

pub struct Held {
    driver: Arc<dyn Driver>,
    device: i32,
    start: RawEvent,
    end: RawEvent,
    join: RawEvent,
    /// How long the kernel runs. `None` on the emulated device, where kernels take no time and the
    /// host executes the work as it enqueues it.
    hold: Option<Cell<Duration>>,
}

impl Held {
    pub fn new(device: &Device, bare: &Bare) -> Self {
        let driver = bare.driver();
        let ordinal = device.ordinal();
        let event = |timing| ok(driver.event_create(ordinal, timing));
        Held {
            device: ordinal,
            start: event(true),
            end: event(true),
            join: event(false),
            hold: (!bare.is_emulated()).then(|| Cell::new(Duration::from_micros(200))),
            driver,
        }
    }

    /// Seconds of device time that `work` takes. `work` enqueues on `streams`, which belong to the
    /// device, and on no others. They are idle afterwards.
    pub fn seconds(
        &self,
        streams: &[&Stream],
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<f64> {
        loop {
            let (time, in_time) = self.once(streams, &mut work)?;
            match &self.hold {
                Some(hold) if !in_time && hold.get() < LONGEST => hold.set(hold.get() * 2),
                _ => return Ok(time),
            }
        }
    }

    /// One measurement, and whether all the work was enqueued before any of it could run.
    fn once(
        &self,
        streams: &[&Stream],
        work: &mut impl FnMut() -> Result<()>,
    ) -> Result<(f64, bool)> {
        let driver = &self.driver;
        let raw: Vec<_> = streams.iter().map(|stream| self.raw(stream)).collect();
        let (&first, others) = raw.split_first().expect("work on no stream takes no time");
        if let Some(hold) = &self.hold {
            streams[0].busy(hold.get())?;
        }
        // SAFETY: the events are live until `self` is dropped, and the streams are borrowed. All
        // belong to one device.
        unsafe {
            ok(driver.event_record(self.start, first));
            for &other in others {
                ok(driver.stream_wait_event(other, self.start));
            }
        }
        work()?;
        // SAFETY: as above. A wait that is enqueued is not changed when its event is recorded
        // again.
        unsafe {
            let in_time = ok(driver.event_query(self.start)) == Poll::NotReady;
            for &other in others {
                ok(driver.event_record(self.join, other));
                ok(driver.stream_wait_event(first, self.join));
            }
            ok(driver.event_record(self.end, first));
            ok(driver.event_synchronize(self.end));
            let milliseconds = ok(driver.event_elapsed(self.start, self.end));
            Ok((f64::from(milliseconds) / 1e3, in_time))
        }
    }

    fn raw(&self, stream: &Stream) -> RawStream {
        RawStream { device: self.device, handle: stream.as_raw().addr() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for event in [self.start, self.end, self.join] {
            // SAFETY: the event was created by this driver, and is no longer used.
            let _ = unsafe { self.driver.event_destroy(event) };
        }
    }
}

fn ok<T>(result: DriverResult<T>) -> T {
    result.unwrap_or_else(|code| panic!("the device takes the time: {code:?}"))
}
