//! The notes of a running recording.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::launch::Launch;
use super::nvtx;
use super::span::{Kind, Span, Track, Work};
use super::timing::Moment;
use crate::driver::{Driver, RawStream};
use crate::error::{Error, ErrorKind, Result};
use crate::process::{Process, in_host_function, on_ordinary_thread, thread};
use crate::sync::Mutex;

/// A recording holds at most this many spans.
const MOST: usize = 1 << 20;

/// The launches of a recording have at most this many operations in all. Each is a line of about a
/// hundred letters in the output.
const MOST_OPERATIONS: usize = 1 << 18;

/// The recorder of a device, if it is recorded.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    on: AtomicBool,
    recorder: Mutex<Option<Arc<Recorder>>>,
}

impl Switch {
    /// The recorder, if the device is recorded.
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<Recorder>> {
        if self.on.load(Ordering::Relaxed) { self.look() } else { None }
    }

    #[cold]
    fn look(&self) -> Option<Arc<Recorder>> {
        let mut recorder = self.recorder.lock();
        if recorder.as_ref().is_none_or(|recorder| recorder.is_ended()) {
            self.on.store(false, Ordering::Relaxed);
            *recorder = None;
        }
        recorder.clone()
    }

    /// Records from now on. False if another recording is running.
    pub(crate) fn set(&self, new: &Arc<Recorder>) -> bool {
        let mut recorder = self.recorder.lock();
        if recorder.as_ref().is_some_and(|old| !old.is_ended() && !Arc::ptr_eq(old, new)) {
            return false;
        }
        *recorder = Some(Arc::clone(new));
        self.on.store(true, Ordering::Relaxed);
        true
    }

    /// Begins a span, which ends when the result is dropped: in the recording, if there is one, and
    /// as an NVTX range, if a tool listens. Counts the bytes only if they are needed.
    #[inline]
    pub(crate) fn begin(
        &self,
        kind: Kind,
        name: &'static str,
        bytes: impl FnOnce() -> usize,
    ) -> Option<Begun> {
        let Some(recorder) = self.get() else {
            let range = nvtx::range(kind, || Work::new(name, bytes()))?;
            return Some(Begun { noted: None, _range: Some(range) });
        };
        let work = Work::new(name, bytes());
        let _range = nvtx::range(kind, || work);
        let start = recorder.begun.elapsed();
        Some(Begun { noted: Some(Noted { recorder, kind, work, start }), _range })
    }
}

/// A span of the calling thread. It ends when this is dropped.
pub(crate) struct Begun {
    noted: Option<Noted>,
    _range: Option<nvtx::Range>,
}

struct Noted {
    recorder: Arc<Recorder>,
    kind: Kind,
    work: Work<'static>,
    start: Duration,
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Some(Noted { recorder, kind, work, start }) = self.noted.take() else { return };
        let Work { name, bytes, .. } = work;
        let end = recorder.begun.elapsed();
        let track = this_thread();
        recorder.note(Span { track, kind, name, bytes, start, end, launch: None });
    }
}

pub(crate) struct Recorder {
    begun: Instant,
    process: Process,
    ended: AtomicBool,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    spans: Vec<Span>,
    /// Work on streams. Its times are read when the recording stops.
    pending: Vec<Pending>,
    clocks: Vec<Arc<Clock>>,
    missing: usize,
    /// How many operations the launches have.
    operations: usize,
}

impl Notes {
    fn is_full(&self) -> bool {
        self.spans.len() + self.pending.len() >= MOST
    }

    /// The launch without the operations for which there is no room.
    fn cut(&mut self, launch: Arc<Launch>) -> Arc<Launch> {
        let listed = launch.operations.len().min(MOST_OPERATIONS - self.operations);
        self.operations += listed;
        match launch.operations.len() - listed {
            0 => launch,
            _ => Arc::new(launch.first(listed)),
        }
    }
}

/// Work of a stream, between two moments.
struct Pending {
    clock: Arc<Clock>,
    stream: u64,
    name: &'static str,
    bytes: usize,
    launch: Option<Arc<Launch>>,
    start: Moment,
    end: Moment,
}

/// Relates a device's clock to the host's: the event `base` completed at the time `at` of the
/// recording.
struct Clock {
    base: Moment,
    at: Duration,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            begun: Instant::now(),
            process: Process::current(),
            ended: AtomicBool::new(false),
            notes: Mutex::default(),
        }
    }
}

impl Recorder {
    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Ends the recording, and drops the notes. In a forked child, where a thread of the parent may
    /// hold the lock, the notes leak.
    pub(super) fn forget(&self) {
        self.end();
        if self.process.is_current() {
            let notes = std::mem::take(&mut *self.notes.lock());
            // All events at once, so that at most one extra thread destroys them. Without one their
            // handles leak, as after a failure.
            on_ordinary_thread(notes, drop, |_| {});
        }
    }

    /// Fails in a forked child of the process that began the recording.
    pub(crate) fn check_process(&self, operation: &'static str) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        let what = "this process was forked after the recording began";
        let remedy = "stop the recording in the parent, and begin another one here";
        Err(Error::new(ErrorKind::ForkedProcess, operation, what, remedy))
    }

    fn note(&self, span: Span) {
        let mut notes = self.notes.lock();
        if notes.is_full() {
            notes.missing += 1;
        } else if !self.is_ended() {
            notes.spans.push(span);
        }
    }

    /// Calls `enqueue`, and records when the device runs the work that it enqueues on `raw`, the
    /// stream with the number `stream`. Calls `is_captured` last. Waits for nothing before
    /// `enqueue`: the caller has found the stream open, and other code could begin to capture it.
    ///
    /// # Safety
    ///
    /// * `raw` is a live stream of `driver`.
    pub(crate) unsafe fn around<R>(
        &self,
        driver: &Arc<dyn Driver>,
        (raw, stream): (RawStream, u64),
        work: Work<'_>,
        enqueue: impl FnOnce() -> R,
        is_captured: impl FnOnce() -> bool,
    ) -> R {
        let clock = self.known_clock(driver, raw);
        // SAFETY: `raw` is a live stream of `driver`: the caller's precondition.
        let moment = || unsafe { Moment::record(driver, raw) }.ok();
        let start = clock.as_ref().and_then(|_| moment());
        let value = enqueue();
        let end = start.as_ref().and_then(|_| moment());
        if clock.is_none() {
            self.make_clock(driver, raw);
        }
        // An event recorded in a capture must not be queried: that would invalidate the capture.
        let known = if is_captured() { None } else { clock.zip(start).zip(end) };
        let Work { name, bytes, launch } = work;
        let launch = launch.map(|describe| describe());
        let mut notes = self.notes.lock();
        match known {
            Some(((clock, start), end)) if !notes.is_full() && !self.is_ended() => {
                let launch = launch.map(|launch| notes.cut(launch));
                notes.pending.push(Pending { clock, stream, name, bytes, launch, start, end });
            }
            _ => notes.missing += 1,
        }
        value
    }

    /// The clock of the stream's device, if there is one.
    fn known_clock(&self, driver: &Arc<dyn Driver>, raw: RawStream) -> Option<Arc<Clock>> {
        let notes = self.notes.lock();
        notes.clocks.iter().find(|clock| clock.base.is_of(driver, raw)).cloned()
    }

    /// Makes the clock of the stream's device, unless there is one. Blocks. Without a clock, if it
    /// fails, spans are missing.
    pub(crate) fn make_clock(&self, driver: &Arc<dyn Driver>, raw: RawStream) {
        if self.known_clock(driver, raw).is_some() {
            return;
        }
        let Ok(base) = Moment::now(driver, raw) else { return };
        let clock = Arc::new(Clock { base, at: self.begun.elapsed() });
        let mut notes = self.notes.lock();
        let is_known = notes.clocks.iter().any(|clock| clock.base.is_of(driver, raw));
        // After the end the notes are not used.
        if !is_known && !self.is_ended() {
            notes.clocks.push(clock);
        }
    }

    /// Blocks until all recorded work is complete. Returns the spans in the order of their starts,
    /// and how many are missing.
    pub(super) fn stop(&self) -> Result<(Vec<Span>, usize)> {
        const OPERATION: &str = "Recording::stop";
        self.check_process(OPERATION)?;
        if in_host_function() {
            let what = "called from inside a host function, where CUDA calls are forbidden";
            let remedy = "stop the recording on another thread";
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, what, remedy));
        }
        self.end();
        let Notes { mut spans, pending, clocks, mut missing, .. } =
            std::mem::take(&mut *self.notes.lock());
        for work in &pending {
            match work.span() {
                Some(span) => spans.push(span),
                None => missing += 1,
            }
        }
        // Without the lock: this destroys events.
        drop((pending, clocks));
        spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
        Ok((spans, missing))
    }
}

impl Pending {
    /// Blocks until the work is complete. `None` if the device cannot tell.
    fn span(&self) -> Option<Span> {
        self.end.wait().ok()?;
        let Clock { base, at } = &*self.clock;
        let time = |moment: &Moment| Some(*at + moment.since(base).ok()?);
        let (start, end) = (time(&self.start)?, time(&self.end)?);
        let track = Track::OfStream { device: self.start.device(), number: self.stream };
        let (kind, end) = (Kind::OnDevice, end.max(start));
        let Pending { name, bytes, ref launch, .. } = *self;
        let launch = launch.clone();
        Some(Span { track, kind, name, bytes, start, end, launch })
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("ended", &self.is_ended()).finish_non_exhaustive()
    }
}

fn this_thread() -> Track {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    let number = NUMBER.with(|number| {
        let known = number.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        number.set(Some(known));
        known
    });
    Track::OfThread { number, name: thread::name() }
}

#[cfg(test)]
mod tests {
    use super::super::launch::{Action, Operation, Total};
    use super::*;

    #[test]
    fn launches_without_room_keep_their_totals() {
        let (action, bytes) = (Action::Fill, 1);
        let operation = Operation { action, branch: 0, bytes, operands: Vec::new() };
        let totals = vec![Total { action, count: 5, bytes: 5 }];
        let launch = Launch { operations: vec![operation; 3], left_out: 2, totals };
        let launch = Arc::new(launch);
        let mut notes = Notes { operations: MOST_OPERATIONS - 4, ..Notes::default() };
        let mut listed = || {
            let cut = notes.cut(Arc::clone(&launch));
            assert_eq!(cut.totals, launch.totals);
            (cut.operations.len(), cut.left_out)
        };
        assert_eq!([listed(), listed(), listed()], [(3, 2), (1, 4), (0, 5)]);
    }
}
