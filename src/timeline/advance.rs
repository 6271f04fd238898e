//! Finds out how far a stream has got, with few queries.
//!
//! A query of a completed event costs as much as a small copy (`cudaEventQuery` on an H100's host:
//! 1.25 us; of a pending one, 0.13 us), so `advance` does not query position by position. It begins
//! at the newest, or at the oldest if the last look found nothing complete. Completion along a
//! stream is monotone, except between events recorded at the same moment. A wrong guess costs a
//! query, never a wrong answer: only what a completed event covers is retired.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::event::Event;
use super::{Marks, SWEEP_ABOVE, Timeline};
use crate::driver::{Driver, DriverResult, Poll};
use crate::error::{CudaCode, Result};

/// What failed, for errors.
const ASKING: &str = "asking how far a stream is";

/// A step back that is longer than any queue.
const TO_THE_OLDEST: u64 = u64::MAX;

impl Timeline {
    /// Retires what is complete. Does not block. If all is complete, that costs one query.
    /// Otherwise the number of queries is logarithmic in the number of pending positions: the
    /// search goes back from the newest event, in steps that grow, to a completed one, then
    /// bisects. If the last search found nothing complete, this one asks about the oldest event
    /// first: a stream that is still stuck costs one query, one that is not costs one more.
    ///
    /// If all events are complete, it looks at the open group. On a private stream it records an
    /// event for the group and queries it. An exposed stream may be captured at any moment: there
    /// it records an event for the next call, and makes a query that a capture allows, which shows
    /// whether the device is lost. It queries the stream itself only if it can get no event. In a
    /// host function or a forked child, where no call is allowed, it does nothing.
    ///
    /// # Errors
    ///
    /// What `cudaEventQuery`, `cudaStreamQuery` or `cudaStreamIsCapturing` reports.
    pub(crate) fn advance(&self) -> Result<()> {
        // Positions that other threads submit from now on are ignored, so the loop ends.
        let newest = self.recorded.load(Ordering::Acquire);
        if self.retired.load(Ordering::Acquire) >= newest {
            return Ok(());
        }
        const OPERATION: &str = "PinnedPool::alloc";
        let Ok(driver) = self.context.driver(OPERATION) else { return Ok(()) };
        let was_stuck = self.is_stuck.load(Ordering::Relaxed);
        // What is still to be found complete lies below `limit`.
        let (mut limit, mut found) = (newest, false);
        let mut back = Some(if was_stuck { TO_THE_OLDEST } else { 1 });
        loop {
            let event = self.event_near(|marks| {
                let middle = marks.first().midpoint(limit);
                (back.map_or(middle, |back: u64| limit.saturating_sub(back)), limit)
            });
            let Some((position, event)) = event else { break };
            match ask(driver, &event) {
                Ok(Poll::Done) => {
                    self.complete(position);
                    found = true;
                    back = back.filter(|&back| back == TO_THE_OLDEST).map(|_| 1);
                }
                Ok(Poll::NotReady) => {
                    limit = position;
                    back = back.map(|back| back.saturating_mul(4));
                }
                Err(code) => return Err(self.context.error(code, "cudaEventQuery", ASKING)),
            }
        }
        let all_complete = limit == newest;
        self.is_stuck.store(!all_complete && !found, Ordering::Relaxed);
        let open = self.lock().open();
        if !all_complete || open.is_empty() {
            return Ok(());
        }
        if self.is_private() {
            self.poll(open.end - 1)?;
            return Ok(());
        }
        // SAFETY: the stream is live; `cudaStreamIsCapturing` is allowed in a capture.
        unsafe { driver.stream_capture(self.raw) }
            .map_err(|code| self.context.error(code, "cudaStreamIsCapturing", ASKING))?;
        if let Ok(driver) = self.open(OPERATION)
            && self.fence(driver, OPERATION).is_none()
            && self.open(OPERATION).is_ok()
        {
            self.ask_stream(driver)?;
        }
        Ok(())
    }

    /// Queries the stream itself, because no event could be recorded. The stream is not being
    /// captured.
    fn ask_stream(&self, driver: &dyn Driver) -> Result<()> {
        let recorded = self.recorded.load(Ordering::Acquire);
        // SAFETY: the stream is live.
        match unsafe { driver.stream_query(self.raw) } {
            Ok(Poll::Done) => self.retire(recorded),
            Ok(Poll::NotReady) | Err(CudaCode::NOT_READY) => {}
            Err(code) => return Err(self.context.error(code, "cudaStreamQuery", ASKING)),
        }
        Ok(())
    }

    /// Finds out whether `position` is complete, by at most one query. Records nothing. Without an
    /// event it queries the stream, and only if that is private. Ignores errors: a later wait
    /// reports them.
    pub(crate) fn look(&self, position: u64) {
        let Ok(driver) = self.context.driver("Timeline::look") else { return };
        let (event, end) = {
            let marks = self.lock();
            if marks.is_done(position) {
                return;
            }
            (marks.event_for(position), marks.end())
        };
        match event {
            Some((fence, event)) if ask(driver, &event) == Ok(Poll::Done) => {
                self.complete(fence.position);
            }
            // SAFETY: the stream is live.
            None if self.is_private()
                && unsafe { driver.stream_query(self.raw) } == Ok(Poll::Done) =>
            {
                self.retire(end);
            }
            _ => {}
        }
    }

    /// Retires the older half of the pending positions, if that is complete, with one query.
    /// Ignores errors: a later wait reports them.
    ///
    /// The next sweep comes after half as many submissions as are pending, but at least
    /// `SWEEP_ABOVE / 2`. So many submissions share its cost, and the list is at most a few times
    /// as long as what is really pending.
    #[cold]
    pub(super) fn sweep(&self, driver: &dyn Driver, position: u64) {
        let pending = position.saturating_sub(self.retired.load(Ordering::Relaxed));
        self.next_sweep.store(position + pending.max(SWEEP_ABOVE) / 2, Ordering::Relaxed);
        let middle = |marks: &Marks<Arc<Event>>| (marks.first().midpoint(marks.end()), u64::MAX);
        if let Some((middle, event)) = self.event_near(middle)
            && ask(driver, &event) == Ok(Poll::Done)
        {
            self.complete(middle);
        }
    }

    /// Calls [`Marks::event_near`] with the position and the limit that `wanted` returns.
    fn event_near(
        &self,
        wanted: impl FnOnce(&Marks<Arc<Event>>) -> (u64, u64),
    ) -> Option<(u64, Arc<Event>)> {
        let marks = self.lock();
        let (wanted, limit) = wanted(&marks);
        marks.event_near(wanted, limit)
    }
}

fn ask(driver: &dyn Driver, event: &Event) -> DriverResult<Poll> {
    // SAFETY: an `Event` is live as long as it exists.
    match unsafe { driver.event_query(event.raw) } {
        Err(CudaCode::NOT_READY) => Ok(Poll::NotReady),
        answer => answer,
    }
}
