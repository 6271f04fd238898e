//! Enqueues work, and records the events that show when it is complete.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::event::Event;
use super::marks::{Fence, Mark};
use super::small_copy::SmallCopy;
use super::{Exposure, Timeline};
use crate::driver::{Driver, RawStream};
use crate::error::Result;

/// How many small copies share an event. An H100's host records one in 0.15 to 0.4 us, and enqueues
/// a copy of 4 KiB in 1.2 us.
pub(super) const GROUP: u64 = 8;

/// The largest copy that joins a group: a few microseconds of bus time.
const SMALL: usize = 64 << 10;

/// Which event shows that an operation is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fencing {
    /// One of its own, right after it.
    Own,
    /// As `Own`, for work that is on the stream already. Threads that other code does not see
    /// record it, such as workers and deleters, so other code may begin a capture at any moment.
    Recorded,
    /// One that it shares with the small copies around it, if the stream is sealed.
    Shared,
    /// As `Shared`. With those that other threads enqueue at the same moment, the copy is one
    /// batch.
    Merged(SmallCopy),
}

impl Fencing {
    pub(crate) fn of_copy(bytes: usize) -> Self {
        if is_small(bytes) { Fencing::Shared } else { Fencing::Own }
    }
}

/// Whether a copy may share an event with others.
pub(crate) fn is_small(bytes: usize) -> bool {
    bytes <= SMALL
}

/// What became of a submission that reached the driver.
#[must_use]
pub(crate) struct Submission<R> {
    /// The caller records it as a use of every buffer of the operation, even if the results below
    /// are errors: a call that fails may have enqueued something.
    pub(crate) fence: Fence,
    /// The result of the enqueuing call.
    pub(crate) value: R,
    /// `Err` if the operation was enqueued but could be neither fenced nor waited for.
    pub(crate) fenced: Result<()>,
}

impl Timeline {
    /// Runs `enqueue` and fences what it enqueued. `Err` means that nothing was enqueued.
    pub(crate) fn submit<R>(
        &self,
        operation: &'static str,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> R,
    ) -> Result<Submission<R>> {
        self.submit_to(self.open(operation)?, operation, Fencing::Own, enqueue)
    }

    /// As [`submit`](Self::submit), on a stream that the caller has just [opened](Self::open).
    #[inline]
    pub(crate) fn submit_to<R>(
        &self,
        driver: &dyn Driver,
        operation: &'static str,
        fencing: Fencing,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> R,
    ) -> Result<Submission<R>> {
        let shares = matches!(fencing, Fencing::Shared | Fencing::Merged(_));
        let shared = shares && self.exposure() == Exposure::Sealed;
        if shared && self.open.load(Ordering::Relaxed) < GROUP - 1 {
            Ok(self.submit_grouped(driver, operation, enqueue))
        } else {
            if !shared && self.open.load(Ordering::Relaxed) > 0 {
                self.close_group(operation);
            }
            let recorded = matches!(fencing, Fencing::Recorded).then_some(operation);
            self.submit_fenced(driver, recorded, enqueue)
        }
    }

    /// Makes a small copy part of the open group.
    #[inline]
    fn submit_grouped<R>(
        &self,
        driver: &dyn Driver,
        operation: &'static str,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> R,
    ) -> Submission<R> {
        let covers = self.recorded.load(Ordering::Acquire);
        let value = enqueue(driver, self.raw);
        let position = self.push(Mark { covers, done: false, event: None });
        if !self.is_private() {
            self.close_group(operation);
        }
        self.sweep_sometimes(driver, position);
        Submission { fence: Fence { position, covers }, value, fenced: Ok(()) }
    }

    /// Called when `position` has been pushed.
    #[inline]
    pub(super) fn sweep_sometimes(&self, driver: &dyn Driver, position: u64) {
        // Two threads may sweep at once; that is cheaper than a read-modify-write.
        if position >= self.next_sweep.load(Ordering::Relaxed) {
            self.sweep(driver, position);
        }
    }

    /// `recorded` names the operation if it is [`Fencing::Recorded`].
    fn submit_fenced<R>(
        &self,
        driver: &dyn Driver,
        recorded: Option<&'static str>,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> R,
    ) -> Result<Submission<R>> {
        // Before the enqueue: a lack of events must not leave an operation without one (soundness
        // rule 7).
        let event = self.take_event(driver)?;
        let value = enqueue(driver, self.raw);
        let covers = self.recorded.load(Ordering::Acquire);
        // SAFETY: the event is live and of this stream's device (`take_event`); the stream is live.
        let (mark, fenced) = match unsafe { driver.event_record(event.raw, self.raw) } {
            Ok(()) => match recorded.map_or(Ok(()), |operation| self.open(operation).map(drop)) {
                Ok(()) => (Mark { covers, done: false, event: Some(event) }, Ok(())),
                // The event may be part of a capture: a query would invalidate it, and a stream
                // that waits for it would be captured too.
                Err(error) => (Mark { covers, done: false, event: None }, Err(error)),
            },
            // SAFETY: the stream is live.
            Err(record) => match unsafe { driver.stream_synchronize(self.raw) } {
                Ok(()) => (Mark { covers, done: true, event: None }, Ok(())),
                Err(_) => {
                    let what = "the operation was enqueued but cannot be tracked";
                    let error = self.context.error(record, "cudaEventRecord", what);
                    (Mark { covers, done: false, event: None }, Err(error))
                }
            },
        };
        let position = self.push(mark);
        self.sweep_sometimes(driver, position);
        Ok(Submission { fence: Fence { position, covers }, value, fenced })
    }

    fn take_event(&self, driver: &dyn Driver) -> Result<Arc<Event>> {
        {
            let idle = &mut self.lock().idle;
            // The last one used is the likeliest to be cached. An event that still has a waiter
            // goes to the other end.
            for _ in 0..idle.len().min(4) {
                match idle.pop_back() {
                    Some(event) if Arc::strong_count(&event) == 1 => return Ok(event),
                    Some(event) => idle.push_front(event),
                    None => break,
                }
            }
        }
        Event::create(&self.context, driver).map_err(|code| {
            let what = "creating the event that tracks an operation";
            self.context.error(code, "cudaEventCreateWithFlags", what)
        })
    }

    /// Gives the open group its event. If that fails, a later event covers the group.
    #[cold]
    pub(super) fn close_group(&self, operation: &'static str) {
        if let Ok(driver) = self.open(operation)
            && let Some((covers, event)) = self.record_after_all(driver, operation)
        {
            self.push(Mark { covers, done: false, event: Some(event) });
        }
    }

    /// Records an event after all that has been pushed: a position of its own, for no operation.
    /// The caller has just [opened](Self::open) the stream.
    pub(super) fn fence(
        &self,
        driver: &dyn Driver,
        operation: &'static str,
    ) -> Option<(Fence, Arc<Event>)> {
        let (covers, event) = self.record_after_all(driver, operation)?;
        let position = self.push(Mark { covers, done: false, event: Some(event.clone()) });
        Some((Fence { position, covers }, event))
    }

    /// Records an event that covers all that has been pushed: the positions below the first of the
    /// two. The caller has just [opened](Self::open) the stream, and pushes the event.
    fn record_after_all(
        &self,
        driver: &dyn Driver,
        operation: &'static str,
    ) -> Option<(u64, Arc<Event>)> {
        let event = self.take_event(driver).ok()?;
        let covers = self.recorded.load(Ordering::Acquire);
        // SAFETY: the event is live and of this stream's device (`take_event`); the stream is live.
        unsafe { driver.event_record(event.raw, self.raw) }.ok()?;
        // Since the caller opened the stream, other code may have got its handle and begun a
        // capture. A query of an event recorded in a capture invalidates it.
        self.open(operation).ok()?;
        Some((covers, event))
    }
}
