//! The branches of a capture: streams whose work runs at the same time, except where it shares a
//! buffer.
//!
//! # Invariants
//!
//! * **Only the first stream is captured.** A branch is drawn in by a wait for an event that the
//!   first stream has recorded at the beginning, so it depends on nothing.
//! * **Work that conflicts is ordered.** Before an operation is captured, its branch waits for the
//!   latest conflicting operation of every other branch. Earlier ones come before that: a branch
//!   runs its own work in order.
//! * **An event covers all of an operation.** It is recorded when the next one is captured: in C
//!   foreign work is enqueued after the call that names its buffers. As long as there is one branch
//!   none is needed. So an operation may have no event, but a later one of its branch has one.
//! * **A graph has all branches.** The first stream waits for all others before the capture ends.

use std::sync::Arc;

use super::buffer::Use;
use crate::device::create_stream;
use crate::driver::{Driver, DriverResult, StreamFlags};
use crate::error::Result;
use crate::memory::hazard::Access;
use crate::timeline::{Event, Timeline};

pub(super) struct Branches {
    /// The first is the captured stream.
    all: Vec<Branch>,
    current: usize,
    past: Vec<Past>,
    /// Recorded before any work. `None` if other code has begun the capture.
    begun: Option<Arc<Event>>,
}

struct Branch {
    number: u32,
    stream: Arc<Timeline>,
    /// How much of the past of each other branch it has waited for.
    waited: Vec<usize>,
}

/// An operation that was captured.
struct Past {
    branch: usize,
    uses: Vec<Use>,
    done: Option<Arc<Event>>,
}

impl Past {
    fn conflicts(&self, uses: &[Use]) -> bool {
        let conflict = |ours: &Use, theirs: &Use| {
            ours.index == theirs.index
                && (ours.access == Access::Write || theirs.access == Access::Write)
                && ours.range.start < theirs.range.end
                && theirs.range.start < ours.range.end
        };
        uses.iter().any(|ours| self.uses.iter().any(|theirs| conflict(ours, theirs)))
    }
}

impl Branches {
    /// Of one stream, which is captured.
    pub(super) fn new(stream: Arc<Timeline>) -> Self {
        let first = Branch { number: 0, stream, waited: Vec::new() };
        Branches { all: vec![first], current: 0, past: Vec::new(), begun: None }
    }

    /// The capture of the stream has begun.
    pub(super) fn begin(&mut self, driver: &dyn Driver) -> DriverResult<()> {
        self.begun = Some(record(driver, self.first())?);
        Ok(())
    }

    /// The captured stream.
    pub(super) fn first(&self) -> &Arc<Timeline> {
        &self.all[0].stream
    }

    /// The stream of the branch that work is captured on.
    pub(super) fn current(&self) -> &Arc<Timeline> {
        &self.all[self.current].stream
    }

    /// The number of that branch.
    pub(super) fn number(&self) -> u32 {
        self.all[self.current].number
    }

    /// Work is captured on that branch from now on. The inner error is CUDA's refusal to draw a new
    /// stream in.
    pub(super) fn switch(&mut self, driver: &dyn Driver, number: u32) -> Result<DriverResult<()>> {
        if let Some(known) = self.all.iter().position(|branch| branch.number == number) {
            self.current = known;
            return Ok(Ok(()));
        }
        let stream = create_stream(self.first().context(), StreamFlags::default())?;
        let begun = self.begun.as_ref().expect("this crate has begun the capture");
        // SAFETY: the stream and the event are live.
        let drawn = unsafe { driver.stream_wait_event(stream.raw(), begun.raw) };
        self.current = self.all.len();
        self.all.push(Branch { number, stream, waited: Vec::new() });
        Ok(drawn)
    }

    /// The branch waits for what conflicts with work that is about to be captured on it.
    pub(super) fn wait_for_conflicts(
        &mut self,
        driver: &dyn Driver,
        uses: &[Use],
    ) -> DriverResult<()> {
        let (current, count) = (self.current, self.all.len());
        if count == 1 {
            return Ok(());
        }
        if let Some(last) = self.past.last_mut() {
            last.done = Some(record(driver, &self.all[last.branch].stream)?);
        }
        let Branch { stream, waited, .. } = &mut self.all[current];
        waited.resize(count, 0);
        for other in (0..count).filter(|&other| other != current) {
            let is_its = |&(_, past): &(usize, &Past)| past.branch == other;
            let mut new = self.past.iter().enumerate().skip(waited[other]).filter(is_its);
            let mut latest = new.clone().rev();
            let Some((at, _)) = latest.find(|(_, past)| past.conflicts(uses)) else { continue };
            let covers = |(covering, past): (usize, &Past)| {
                past.done.clone().filter(|_| covering >= at).map(|done| (covering, done))
            };
            let (covering, done) = new.find_map(covers).expect("a later one has an event");
            // SAFETY: the stream and the event are live.
            unsafe { driver.stream_wait_event(stream.raw(), done.raw) }?;
            waited[other] = covering + 1;
        }
        Ok(())
    }

    /// Work is being captured on the branch.
    pub(super) fn note(&mut self, uses: Vec<Use>) {
        self.past.push(Past { branch: self.current, uses, done: None });
    }

    /// The captured stream waits for all branches.
    pub(super) fn join(&self, driver: &dyn Driver) -> DriverResult<()> {
        self.all[1..].iter().try_for_each(|branch| {
            let end = record(driver, &branch.stream)?;
            // SAFETY: the stream and the event are live.
            unsafe { driver.stream_wait_event(self.first().raw(), end.raw) }
        })
    }
}

/// A new event, recorded on a stream that is being captured.
fn record(driver: &dyn Driver, stream: &Timeline) -> DriverResult<Arc<Event>> {
    let event = Event::create(stream.context(), driver)?;
    // SAFETY: the event is live and of this stream's device; the stream is live.
    unsafe { driver.event_record(event.raw, stream.raw()) }?;
    Ok(event)
}
