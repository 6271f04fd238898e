//! A stream as the crate sees it: a handle, and positions on it that can be waited for.
//!
//! Every asynchronous operation gets the next **position** of its stream. A use of a buffer is a
//! pair (stream, position). It is small, no other stream overwrites it (soundness rule 6), and it
//! stays valid when its event is recorded again for other work.
//!
//! An operation is *fenced*: an event is recorded right after it. Recording an event costs a good
//! part of what a small copy costs, so small copies on a [sealed](Exposure) stream share one: they
//! form a *group*, and the eighth brings the event. Copies on a blocking stream form no groups:
//! work of the legacy stream could come between two of them, and the first would then count as
//! pending until that work is done.
//!
//! ```text
//!   position      0      1      2      3      4      5      6
//!   stream     [copy e][copy][copy][copy e][fill e][copy][copy]...      e: event record
//!   retired ------------^                                 `-- the open group
//!                       every position below is complete
//! ```
//!
//! # Invariants
//!
//! * **Covers.** A mark's `covers` is how many positions had been pushed *before its own event was
//!   recorded*, or, in a group, before its operation was enqueued. A position is pushed only after
//!   its enqueue has returned. A stream is FIFO, so when the event, or the operation, is complete,
//!   all those positions are. Two threads may submit at once, in any order: a position says nothing
//!   about the one before it, unless it covers it.
//! * **Every pending position can be waited for.** By the first of these that exists: its own
//!   event; the next event that covers it; on a private stream with nothing after the position, the
//!   stream; a new event, which the waiter records at once, as a position without an operation; the
//!   whole stream (soundness rule 7).
//! * **A group is small.** Between a position and its event lie at most seven small copies, and
//!   those that other threads enqueue at the same moment. Anything that may take longer, another
//!   operation or a wait for another stream, closes the open group first.
//! * **No event joins a capture.** Only on a private stream is an event recorded without asking
//!   whether the stream is captured. [`expose`](Timeline::expose) closes the open group before it
//!   gives the handle out. That can fail (in a host function, or if the record fails). Then the
//!   group's event is recorded later, and only counts if the stream was not capturing before and
//!   after; otherwise the event is dropped without a query. So it is with an event of
//!   [`Fencing::Recorded`]. During other calls with an exposed stream no capture begins: that is
//!   the promise of the code that has the handle. But a call that waits asks again afterwards.
//! * **Retired.** `retired` only grows. It is stored (release) after the query or wait that proved
//!   it.
//! * **No driver call under the lock.** It guards the list of marks, for a few instructions at a
//!   time.
//! * **Events are not recycled under a waiter.** A mark's event is shared by `Arc`; it is recorded
//!   again only when there is no other owner.
//!
//! Any thread may submit, poll and wait at any time.

mod advance;
mod event;
mod marks;
mod merged;
mod small_copy;
mod submit;
#[cfg(all(test, feature = "emulated"))]
mod tests;
mod wait;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

use crate::context::Context;
use crate::driver::{Capture, Driver, RawStream};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::process::on_ordinary_thread;
use crate::sync::{CachePadded, Combiner, Mutex, SpinGuard, SpinLock, sanitizer};
use crate::trace::{Kind, Recorder, Work, nvtx_range};
use crate::wakers;
pub(crate) use event::Event;
pub(crate) use marks::Fence;
use marks::{Mark, Marks};
pub(crate) use small_copy::SmallCopy;
pub(crate) use submit::{Fencing, is_small};

/// Where a stream's handle comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This crate creates and destroys it. A blocking stream waits for the legacy default stream.
    Owned { blocking: bool },
    /// The caller's own, or the legacy default stream.
    Foreign,
    /// The per-thread default stream of this thread. On another thread the handle names another
    /// stream.
    PerThread(ThreadId),
}

/// What may hold up work on a stream, besides what this crate enqueues there. In ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exposure {
    /// Nothing.
    Sealed,
    /// Work that others enqueue on the stream: code outside this crate has the handle.
    Shared,
    /// Also work of other streams. A blocking stream and the per-thread default stream wait
    /// implicitly for the legacy stream, and the legacy stream for them. A borrowed stream may be
    /// one of these.
    Bound,
}

pub(crate) struct Timeline {
    context: Arc<Context>,
    raw: RawStream,
    origin: Origin,
    /// What keeps a stream of the caller alive.
    owner: Option<Box<dyn Send + Sync>>,
    /// Code outside this crate has the handle, and may capture the stream.
    exposed: AtomicBool,
    marks: SpinLock<Marks<Arc<Event>>>,
    /// The position whose event a thread waits for in the driver.
    waits_for: CachePadded<AtomicU64>,
    /// Where threads that enqueue small copies at the same moment meet.
    combiner: CachePadded<Combiner<SmallCopy, small_copy::Enqueued>>,
    /// Copies of what the marks say, for readers without the lock: the first pending position, the
    /// next one, and how many may have no event. [`publish`](Self::publish) stores them under the
    /// lock.
    retired: AtomicU64,
    recorded: AtomicU64,
    open: AtomicU64,
    /// The position at which it is time to look for completed ones.
    next_sweep: AtomicU64,
    /// The last search for completed positions found none.
    is_stuck: AtomicBool,
    /// Unique among all streams of the process, past ones included.
    id: u64,
    /// Equal to the next position if all pending work is copies that are running.
    moving: AtomicU64,
    /// One more than the next position at the moment when this stream was last made to wait for
    /// another stream.
    waited: AtomicU64,
    /// Fences of other streams, by the stream's `id`, that later work here is known to wait for.
    after: Mutex<VecDeque<(u64, Fence)>>,
}

/// The position that no thread waits for.
const NOBODY: u64 = u64::MAX;

/// How many positions may be pending before a submission looks which of them are complete.
const SWEEP_ABOVE: u64 = 256;

impl Timeline {
    pub(crate) fn new(
        context: Arc<Context>,
        raw: RawStream,
        origin: Origin,
        owner: Option<Box<dyn Send + Sync>>,
    ) -> Arc<Self> {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        if matches!(origin, Origin::Owned { .. }) {
            context.live_streams.fetch_add(1, Ordering::Relaxed);
        }
        Arc::new(Timeline {
            id: STREAMS.fetch_add(1, Ordering::Relaxed),
            after: Mutex::default(),
            context,
            raw,
            origin,
            owner,
            exposed: AtomicBool::new(!matches!(origin, Origin::Owned { .. })),
            marks: SpinLock::default(),
            waits_for: CachePadded(AtomicU64::new(NOBODY)),
            combiner: CachePadded(Combiner::default()),
            retired: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            open: AtomicU64::new(0),
            next_sweep: AtomicU64::new(SWEEP_ABOVE / 2),
            is_stuck: AtomicBool::new(false),
            moving: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.raw
    }

    /// Unique among all streams of the process, and larger than the ids of older streams.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether this crate has created the stream, and destroys it.
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self.origin, Origin::Owned { .. })
    }

    /// Notes that code outside this crate will have the handle. Called before the handle is given
    /// out.
    pub(crate) fn expose(&self) {
        if !self.is_private() || self.exposed.swap(true, Ordering::AcqRel) {
            return;
        }
        // In a forked child the lock may be held by a thread that exists only in the parent.
        if self.context.driver("Stream::as_raw").is_err() {
            return;
        }
        // A small copy pushed before this look is seen here. One pushed later sees that the stream
        // is exposed, and closes the group itself.
        let open = !self.lock().open().is_empty();
        if open {
            self.close_group("Stream::as_raw");
        }
    }

    /// Whether only this crate can enqueue on the stream, or capture it.
    pub(crate) fn is_private(&self) -> bool {
        !self.exposed.load(Ordering::Acquire)
    }

    /// What may hold up the stream's work. It may grow at any moment, by [`expose`](Self::expose).
    #[inline]
    pub(crate) fn exposure(&self) -> Exposure {
        match self.origin {
            Origin::Owned { blocking: false } if self.is_private() => Exposure::Sealed,
            Origin::Owned { blocking: false } => Exposure::Shared,
            _ => Exposure::Bound,
        }
    }

    fn lock(&self) -> SpinGuard<'_, Marks<Arc<Event>>> {
        self.marks.lock()
    }

    #[inline]
    fn publish(&self, marks: &Marks<Arc<Event>>) {
        let open = marks.open();
        self.open.store(open.end.saturating_sub(open.start), Ordering::Relaxed);
        self.recorded.store(marks.end(), Ordering::Release);
        self.retired.store(marks.first(), Ordering::Release);
    }

    /// The driver, if work may be enqueued here by this thread: not in a forked child, not on
    /// another thread's default stream, not while the stream is captured (soundness rules 11 and
    /// 14).
    #[inline]
    pub(crate) fn open(&self, operation: &'static str) -> Result<&dyn Driver> {
        let driver = self.context.driver(operation)?;
        if self.is_private() { Ok(driver) } else { self.open_exposed(driver, operation) }
    }

    #[inline(never)]
    fn open_exposed<'d>(
        &self,
        driver: &'d dyn Driver,
        operation: &'static str,
    ) -> Result<&'d dyn Driver> {
        self.check_thread(operation)?;
        // Code outside this crate has the handle, so the stream may be captured. SAFETY: the stream
        // is live: owned ones until drop, foreign ones by the contract of their owner.
        match unsafe { driver.stream_capture(self.raw) } {
            Ok(Capture::None) => Ok(driver),
            Ok(Capture::Active | Capture::Invalidated) => Err(Error::new(
                ErrorKind::StreamCapturing,
                operation,
                "the stream is being captured into a graph, which would copy from recycled pool \
                 memory at every replay",
                "end the capture first, or use a stream that is not part of it",
            )),
            Err(code) => {
                let asking = "asking whether the stream is captured";
                Err(self.context.error(code, "cudaStreamIsCapturing", asking))
            }
        }
    }

    /// Whether only one thread can enqueue here.
    pub(crate) fn is_of_one_thread(&self) -> bool {
        matches!(self.origin, Origin::PerThread(_))
    }

    fn check_thread(&self, operation: &'static str) -> Result<()> {
        match self.origin {
            Origin::PerThread(owner) if owner != std::thread::current().id() => {
                let what = "the per-thread default stream was opened by another thread";
                let remedy = Remedy::OpenOnItsThread;
                Err(Error::new(ErrorKind::WrongThread, operation, what, remedy))
            }
            _ => Ok(()),
        }
    }

    /// Calls `enqueue`, which enqueues work here; a recording shows it.
    #[inline]
    pub(crate) fn shown<R>(&self, work: Work<'_>, enqueue: impl FnOnce() -> R) -> R {
        match self.context.recording.get() {
            None => {
                let _enqueuing = nvtx_range(Kind::Enqueue, || work);
                enqueue()
            }
            Some(recorder) => self.shown_by(&recorder, work, enqueue),
        }
    }

    #[cold]
    fn shown_by<R>(&self, recorder: &Recorder, work: Work<'_>, enqueue: impl FnOnce() -> R) -> R {
        let _enqueuing = self.context.recording.begin(Kind::Enqueue, work.name, || work.bytes);
        let driver = self.context.shared_driver();
        let is_captured = || self.open(work.name).is_err();
        // SAFETY: the stream is live: owned ones until drop, foreign ones by the contract of
        // their owner.
        unsafe { recorder.around(driver, (self.raw, self.id), work, enqueue, is_captured) }
    }

    /// How many positions have been pushed.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Acquire)
    }

    /// Whether all pending work is copies that are running right now, and later work waits for no
    /// other stream. Always false for a stream that is not sealed.
    pub(crate) fn is_moving(&self) -> bool {
        let recorded = self.recorded();
        self.exposure() == Exposure::Sealed
            && self.waited.load(Ordering::Relaxed) <= recorded
            && (self.retired.load(Ordering::Acquire) == recorded
                || self.moving.load(Ordering::Relaxed) == recorded)
    }

    /// Notes that all positions below `below` are complete, or are copies that follow only
    /// complete positions and other copies.
    pub(crate) fn note_moving(&self, below: u64) {
        self.moving.store(below, Ordering::Relaxed);
    }

    #[inline]
    fn push(&self, mark: Mark<Arc<Event>>) -> u64 {
        let mut marks = self.lock();
        let position = marks.push(mark);
        self.publish(&marks);
        position
    }

    /// Notes that `position` is complete, and with it all that its mark covers.
    fn complete(&self, position: u64) {
        sanitizer::release(sanitizer::of(self));
        let mut marks = self.lock();
        marks.complete(position);
        self.publish(&marks);
    }

    /// Notes that all positions below `below` are complete.
    fn retire(&self, below: u64) {
        sanitizer::release(sanitizer::of(self));
        let mut marks = self.lock();
        marks.retire(below);
        self.publish(&marks);
    }

    /// Whether `position` and all below it are known to be complete. Takes no lock and makes no
    /// driver call.
    #[inline]
    pub(crate) fn is_retired(&self, position: u64) -> bool {
        let is_retired = position < self.retired.load(Ordering::Acquire);
        if is_retired {
            sanitizer::acquire(sanitizer::of(self));
        }
        is_retired
    }

    /// Whether `position` is known to be complete. Takes a short lock if not all below it are;
    /// makes no driver call.
    pub(crate) fn is_complete(&self, position: u64) -> bool {
        self.is_retired(position) || self.lock().is_done(position)
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        let raw = self.raw;
        let is_owned = self.is_owned();
        let end = move |(context, marks, owner): (Arc<Context>, Marks<Arc<Event>>, _)| {
            // The events drop here, so that at most one extra thread destroys them all.
            drop(marks);
            let Some(driver) = context.releaser() else { return std::mem::forget(owner) };
            if let Some(owner) = owner {
                wakers::call_here_or_run(move || drop::<Box<dyn Send + Sync>>(owner));
            }
            if is_owned {
                // SAFETY: the stream came from `stream_create`, and this was its last owner. Work
                // still enqueued drains (cudaStreamDestroy). A failure leaks the handle.
                let _ = unsafe { driver.stream_destroy(raw) };
                context.live_streams.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let owned = (self.context.clone(), std::mem::take(self.marks.get_mut()), self.owner.take());
        // Without a thread the handles leak, as after a failure, and the stream still counts.
        on_ordinary_thread(owned, end, |_| {});
    }
}
