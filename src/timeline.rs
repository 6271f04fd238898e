//! A stream as the crate sees it: a handle, and positions on it that can be waited for.
//!
//! Every asynchronous operation is *fenced*: an event is recorded right behind it, and the operation
//! gets the next **position** of its stream. "Who uses this buffer?" is then answered by a pair
//! (stream, position), which is small, is never overwritten by another stream (soundness rule 6), and
//! stays meaningful when the event has long been used again.
//!
//! ```text
//!   position      0      1      2      3      4      5
//!   stream     [copy e][copy e][fill e][copy e][copy e]...      e: event record
//!   retired ----------------^  every position below is complete
//! ```
//!
//! # Invariants
//!
//! * **Covers.** A fence's `covers` is how many positions had been recorded *before its own record
//!   began*. A stream is FIFO, so when the fence's event is complete, so are all those positions and
//!   its own. Two threads may fence at once; nothing is assumed about who records first, and so a
//!   position says nothing about the one before it, unless it covers it.
//! * **Retired.** `retired` only grows, and is stored (release) after the query or wait that proved it.
//! * **No driver call under the lock.** The mutex guards the list of marks and is held for a few
//!   instructions.
//! * **Events are not recycled under a waiter.** A mark's event is shared by `Arc`; it is recorded
//!   again only when nobody else holds it.
//!
//! Any thread may submit, poll and wait at any time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

use crate::context::Context;
use crate::driver::{Capture, Driver, DriverResult, Poll, RawEvent, RawStream};
use crate::error::{CudaCode, Error, ErrorKind, Result};
use crate::process::on_ordinary_thread;
use crate::sync::{Mutex, MutexGuard};

/// How many marks may be pending before somebody looks which are complete. A look costs as much as a
/// copy (`cudaEventQuery` of a completed event takes 1.3 us), so it is worth waiting for many.
const SWEEP_ABOVE: usize = 256;

/// Where a stream's handle comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Created, and destroyed, by this crate.
    Owned,
    /// The caller's own, or the legacy default stream.
    Foreign,
    /// The per-thread default stream of this thread: the handle names another stream on any other.
    PerThread(ThreadId),
}

pub(crate) struct Timeline {
    context: Arc<Context>,
    raw: RawStream,
    origin: Origin,
    /// Somebody else has the handle, and so the stream may be captured.
    exposed: AtomicBool,
    retired: AtomicU64,
    recorded: AtomicU64,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    /// The position of the front of `pending`.
    first: u64,
    pending: VecDeque<Mark>,
    idle: VecDeque<Arc<Event>>,
    /// How many submissions have passed since the last look.
    since_sweep: usize,
}

struct Mark {
    covers: u64,
    done: bool,
    /// `None` if recording failed: then only the whole stream can be waited for.
    event: Option<Arc<Event>>,
}

/// A position, and the positions below it that are complete whenever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) position: u64,
    /// All positions below this one are covered.
    pub(crate) covers: u64,
}

impl Fence {
    /// The one of two fences of a stream whose completion implies the other's, if there is one.
    pub(crate) fn covering(self, other: Fence) -> Option<Fence> {
        if other.position == self.position || other.position < self.covers {
            Some(self)
        } else if self.position < other.covers {
            Some(other)
        } else {
            None
        }
    }
}

/// What became of a submission that reached the driver.
#[must_use]
pub(crate) struct Submission<R> {
    /// To be recorded as a use of every buffer named, whatever the results below say: a call that
    /// fails may still have enqueued something.
    pub(crate) fence: Fence,
    /// What the enqueuing call gave.
    pub(crate) value: DriverResult<R>,
    /// `Err` if the operation was enqueued but could be neither fenced nor waited for.
    pub(crate) fenced: Result<()>,
}

impl Timeline {
    pub(crate) fn new(context: Arc<Context>, raw: RawStream, origin: Origin) -> Arc<Self> {
        Arc::new(Timeline {
            context,
            raw,
            origin,
            exposed: AtomicBool::new(origin != Origin::Owned),
            retired: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            marks: Mutex::default(),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.raw
    }

    /// Remembers that the handle is known outside this crate.
    pub(crate) fn expose(&self) {
        self.exposed.store(true, Ordering::Relaxed);
    }

    /// Whether nobody outside this crate can enqueue on the stream, or capture it.
    pub(crate) fn is_private(&self) -> bool {
        !self.exposed.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock()
    }

    /// The driver, if work may be enqueued here by this thread: not in a forked child, not on another
    /// thread's default stream, not while the stream is captured (soundness rules 11 and 14).
    pub(crate) fn open(&self, operation: &'static str) -> Result<&dyn Driver> {
        let driver = self.context.driver(operation)?;
        self.check_thread(operation)?;
        if !self.is_private() {
            // SAFETY: the stream is live: owned ones until drop, foreign ones by the contract of
            // whoever lent them.
            match unsafe { driver.stream_capture(self.raw) } {
                Ok(Capture::None) => {}
                Ok(Capture::Active | Capture::Invalidated) => {
                    return Err(Error::new(
                        ErrorKind::StreamCapturing,
                        operation,
                        "the stream is being captured into a graph, which would copy from recycled \
                         pool memory at every replay",
                        "end the capture first, or use a stream that is not part of it",
                    ));
                }
                Err(code) => {
                    return Err(self.context.error(
                        code,
                        "cudaStreamIsCapturing",
                        "asking whether the stream is captured",
                    ));
                }
            }
        }
        Ok(driver)
    }

    fn check_thread(&self, operation: &'static str) -> Result<()> {
        match self.origin {
            Origin::PerThread(owner) if owner != std::thread::current().id() => Err(Error::new(
                ErrorKind::WrongThread,
                operation,
                "the per-thread default stream was opened by another thread",
                "call Device::per_thread_stream() on the thread that uses it",
            )),
            _ => Ok(()),
        }
    }

    /// Runs `enqueue` and fences what it enqueued. `Err` means that nothing was enqueued.
    pub(crate) fn submit<R>(
        &self,
        operation: &'static str,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<R>,
    ) -> Result<Submission<R>> {
        self.submit_to(self.open(operation)?, operation, enqueue)
    }

    /// As [`submit`](Self::submit), on a stream that the caller has just [opened](Self::open).
    pub(crate) fn submit_to<R>(
        &self,
        driver: &dyn Driver,
        operation: &'static str,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<R>,
    ) -> Result<Submission<R>> {
        // The event is taken before anything is enqueued, so that running out of events cannot leave
        // an operation without one (soundness rule 7).
        let event = self.take_event(driver)?;
        let value = enqueue(driver, self.raw);
        let covers = self.recorded.load(Ordering::Acquire);
        // SAFETY: the event is live and of this stream's device (`take_event`); the stream is live.
        let (mark, fenced) = match unsafe { driver.event_record(event.raw, self.raw) } {
            Ok(()) => (Mark { covers, done: false, event: Some(event) }, Ok(())),
            // SAFETY: the stream is live.
            Err(record) => match unsafe { driver.stream_synchronize(self.raw) } {
                Ok(()) => (Mark { covers, done: true, event: None }, Ok(())),
                Err(_) => (
                    Mark { covers, done: false, event: None },
                    Err(self.context.error(
                        record,
                        "cudaEventRecord",
                        format_args!("{operation}: the copy was enqueued but cannot be tracked"),
                    )),
                ),
            },
        };
        let (position, sweep) = self.push(mark);
        if sweep {
            self.sweep(driver);
        }
        Ok(Submission { fence: Fence { position, covers }, value, fenced })
    }

    fn take_event(&self, driver: &dyn Driver) -> Result<Arc<Event>> {
        {
            let mut marks = self.lock();
            // The one used last is the likeliest to be in a cache. One that somebody still waits on goes
            // to the other end.
            for _ in 0..marks.idle.len().min(4) {
                match marks.idle.pop_back() {
                    Some(event) if Arc::strong_count(&event) == 1 => return Ok(event),
                    Some(event) => marks.idle.push_front(event),
                    None => break,
                }
            }
        }
        match driver.event_create(self.raw.device, false) {
            Ok(raw) => Ok(Arc::new(Event { context: self.context.clone(), raw })),
            Err(code) => Err(self.context.error(
                code,
                "cudaEventCreateWithFlags",
                "creating the event that tracks a copy",
            )),
        }
    }

    /// Gives `mark` the next position. Also says whether it is time to look for completed ones.
    fn push(&self, mark: Mark) -> (u64, bool) {
        let mut marks = self.lock();
        let position = marks.first + marks.pending.len() as u64;
        let done = mark.done;
        marks.pending.push_back(mark);
        self.recorded.store(position + 1, Ordering::Release);
        if done {
            self.complete(&mut marks, position);
        }
        marks.since_sweep += 1;
        let sweep = marks.since_sweep > marks.pending.len().max(SWEEP_ABOVE) / 2;
        if sweep {
            marks.since_sweep = 0;
        }
        (position, sweep)
    }

    /// Notes that `position` is complete, and with it all that its mark covers.
    fn complete(&self, marks: &mut Marks, position: u64) {
        let Some(index) = position.checked_sub(marks.first) else { return };
        let Some(mark) = marks.pending.get_mut(index as usize) else { return };
        mark.done = true;
        let covered = mark.covers;
        while marks.pending.front().is_some_and(|front| marks.first < covered || front.done) {
            if let Some(event) = marks.pending.pop_front().and_then(|mark| mark.event) {
                marks.idle.push_back(event);
            }
            marks.first += 1;
        }
        self.retired.store(marks.first, Ordering::Release);
    }

    /// Whether `position` is known to be complete. Asks nobody.
    #[inline]
    pub(crate) fn is_retired(&self, position: u64) -> bool {
        position < self.retired.load(Ordering::Acquire)
    }

    /// What there is to wait for at `position`; `None` if it is complete.
    fn mark(&self, position: u64) -> Option<Tracker> {
        if self.is_retired(position) {
            return None;
        }
        let marks = self.lock();
        let index = position.checked_sub(marks.first)?;
        let mark = &marks.pending[index as usize];
        if mark.done {
            return None;
        }
        Some(mark.event.clone().map_or(Tracker::Stream, Tracker::Event))
    }

    /// Whether `position` is complete. Does not block; three answers: done, pending, failed.
    pub(crate) fn poll(&self, position: u64) -> Result<Poll> {
        let driver = self.context.driver("Ticket::is_done")?;
        let (call, answer) = match self.mark(position) {
            None => return Ok(Poll::Done),
            Some(Tracker::Event(event)) => {
                // SAFETY: an `Event` is live as long as it exists.
                ("cudaEventQuery", unsafe { driver.event_query(event.raw) })
            }
            Some(Tracker::Stream) => {
                self.check_thread("Ticket::is_done")?;
                // SAFETY: the stream is live.
                ("cudaStreamQuery", unsafe { driver.stream_query(self.raw) })
            }
        };
        match answer {
            Ok(Poll::Done) => self.complete(&mut self.lock(), position),
            Ok(Poll::NotReady) | Err(CudaCode::NOT_READY) => return Ok(Poll::NotReady),
            Err(code) => {
                return Err(self.context.error(
                    code,
                    call,
                    "asking whether an operation is complete",
                ));
            }
        }
        Ok(Poll::Done)
    }

    /// Blocks until `position` is complete.
    pub(crate) fn wait(&self, position: u64) -> Result<()> {
        let driver = self.context.driver("Ticket::wait")?;
        let (call, answer) = match self.mark(position) {
            None => return Ok(()),
            Some(Tracker::Event(event)) => {
                // SAFETY: an `Event` is live as long as it exists.
                ("cudaEventSynchronize", unsafe { driver.event_synchronize(event.raw) })
            }
            Some(Tracker::Stream) => {
                self.check_thread("Ticket::wait")?;
                // SAFETY: the stream is live.
                ("cudaStreamSynchronize", unsafe { driver.stream_synchronize(self.raw) })
            }
        };
        match answer {
            Ok(()) => {
                self.complete(&mut self.lock(), position);
                Ok(())
            }
            Err(code) => Err(self.context.error(code, call, "waiting for an operation")),
        }
    }

    /// Makes later work of this stream wait, on the device, for `position` of `producer`.
    pub(crate) fn wait_for(&self, producer: &Timeline, position: u64) -> Result<()> {
        if std::ptr::eq(self, producer) {
            return Ok(());
        }
        match producer.mark(position) {
            None => Ok(()),
            Some(Tracker::Event(event)) => {
                let driver = self.context.driver("cudaStreamWaitEvent")?;
                // SAFETY: the stream and the event are live.
                unsafe { driver.stream_wait_event(self.raw, event.raw) }.map_err(|code| {
                    self.context.error(code, "cudaStreamWaitEvent", "ordering two streams")
                })
            }
            // There is no event to wait on; the host waits instead.
            Some(Tracker::Stream) => producer.wait(position),
        }
    }

    /// Blocks until everything submitted before the call is complete.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let driver = self.context.driver("Stream::synchronize")?;
        self.check_thread("Stream::synchronize")?;
        let recorded = self.recorded.load(Ordering::Acquire);
        // SAFETY: the stream is live.
        unsafe { driver.stream_synchronize(self.raw) }.map_err(|code| {
            self.context.error(code, "cudaStreamSynchronize", "waiting for the stream")
        })?;
        if let Some(last) = recorded.checked_sub(1) {
            let mut marks = self.lock();
            if let Some(index) = last.checked_sub(marks.first) {
                // All positions below `recorded` had been recorded before the wait began.
                marks.pending[index as usize].covers = recorded;
                self.complete(&mut marks, last);
            }
        }
        Ok(())
    }

    /// Retires the older half of the pending marks if it is complete, with one query. Errors are left for
    /// whoever waits.
    ///
    /// The next sweep comes after half as many submissions as are pending, and after `SWEEP_ABOVE / 2` at
    /// least: that many share the cost, and the list holds at most a few times what is really pending.
    fn sweep(&self, driver: &dyn Driver) {
        let middle = {
            let marks = self.lock();
            if marks.pending.is_empty() {
                return;
            }
            marks.first + marks.pending.len() as u64 / 2
        };
        if let Some(Tracker::Event(event)) = self.mark(middle) {
            // SAFETY: an `Event` is live as long as it exists.
            if unsafe { driver.event_query(event.raw) } == Ok(Poll::Done) {
                self.complete(&mut self.lock(), middle);
            }
        }
    }
}

enum Tracker {
    Event(Arc<Event>),
    Stream,
}

impl Drop for Timeline {
    fn drop(&mut self) {
        let (context, raw, owned) = (self.context.clone(), self.raw, self.origin == Origin::Owned);
        let marks = std::mem::take(self.marks.get_mut());
        on_ordinary_thread(move || {
            // Here, so that one thread releases all events if it takes a thread at all.
            drop(marks);
            if let Some(driver) = context.releaser().filter(|_| owned) {
                // SAFETY: the stream came from `stream_create`, and this was its last owner. Work
                // still enqueued drains (cudaStreamDestroy). A failure leaks the handle.
                let _ = unsafe { driver.stream_destroy(raw) };
            }
        });
    }
}

/// An owned event of the stream's device, without timing.
struct Event {
    context: Arc<Context>,
    raw: RawEvent,
}

impl Drop for Event {
    fn drop(&mut self) {
        let (context, raw) = (self.context.clone(), self.raw);
        on_ordinary_thread(move || {
            if let Some(driver) = context.releaser() {
                // SAFETY: the event came from `event_create`, and this was its last owner; waits
                // bound to it stay valid (cudaEventDestroy). A failure leaks the handle.
                let _ = unsafe { driver.event_destroy(raw) };
            }
        });
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use super::*;
    use crate::device::{Device, create_stream};
    use crate::driver::StreamFlags;

    fn timeline() -> Arc<Timeline> {
        let device = Device::emulated().expect("it always opens");
        create_stream(device.context(), StreamFlags::default()).expect("no faults")
    }

    /// Two threads fence at once: neither covers the other, and the one with the later position may
    /// well be the first to be complete.
    #[test]
    fn a_position_is_retired_with_those_that_cover_it_only() {
        let timeline = timeline();
        for position in 0..2 {
            let mark = Mark { covers: 0, done: false, event: None };
            assert_eq!(timeline.push(mark).0, position);
        }
        timeline.complete(&mut timeline.lock(), 1);
        assert!(!timeline.is_retired(0) && !timeline.is_retired(1));
        assert!(timeline.mark(0).is_some(), "still to be waited for");
        assert!(timeline.mark(1).is_none());

        // Behind both: when it is complete, so are they.
        assert_eq!(timeline.push(Mark { covers: 2, done: false, event: None }).0, 2);
        timeline.complete(&mut timeline.lock(), 2);
        assert!((0..3).all(|position| timeline.is_retired(position)));
    }

    #[test]
    fn a_fence_stands_for_another_if_it_covers_it() {
        let fence = |position, covers| Fence { position, covers };
        assert_eq!(fence(3, 3).covering(fence(2, 0)), Some(fence(3, 3)));
        assert_eq!(fence(2, 0).covering(fence(3, 3)), Some(fence(3, 3)));
        assert_eq!(fence(3, 2).covering(fence(2, 2)), None);
        assert_eq!(fence(2, 2).covering(fence(3, 2)), None);
        assert_eq!(fence(2, 1).covering(fence(2, 1)), Some(fence(2, 1)));
    }
}
