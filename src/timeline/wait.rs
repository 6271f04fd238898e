//! Queries positions, and waits for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::event::Event;
use super::marks::Fence;
use super::{NOBODY, Timeline};
use crate::driver::{Driver, Poll};
use crate::error::{CudaCode, Result};
use crate::sync::{sanitizer, spin};
use crate::trace::Kind;

/// How many other streams a stream remembers having waited for. Forgetting one costs another wait.
const REMEMBERED: usize = 8;

/// How often a thread looks whether another one has waited enough.
const PATIENCE: u32 = 1000;

/// Of the thread that waits in the driver. Dropping it lets another one do so.
struct Turn<'t>(&'t Timeline);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.waits_for.store(NOBODY, Ordering::Release);
    }
}

/// What to wait for at a pending position.
enum Target {
    /// This event, which belongs to this fence.
    Event(Fence, Arc<Event>),
    /// The stream. When it is idle, everything pushed below this position is complete.
    Stream(u64),
}

impl Timeline {
    /// What to wait for at `position`; `None` if it is complete. `host` says that the host
    /// waits, which may also wait for the stream.
    fn target(&self, position: u64, operation: &'static str, host: bool) -> Result<Option<Target>> {
        if self.is_retired(position) {
            return Ok(None);
        }
        {
            let marks = self.lock();
            if marks.is_done(position) {
                sanitizer::acquire(sanitizer::of(self));
                return Ok(None);
            }
            if let Some((fence, event)) = marks.event_for(position) {
                return Ok(Some(Target::Event(fence, event)));
            }
            // Nothing comes after it, so waiting for the stream is enough and needs no event. Only
            // calls of this crate that other threads make at this moment could prolong that wait.
            if host && self.is_private() && position + 1 == marks.end() {
                return Ok(Some(Target::Stream(marks.end())));
            }
        }
        if let Some((fence, event)) = self.fence(self.open(operation)?, operation) {
            return Ok(Some(Target::Event(fence, event)));
        }
        // A captured stream must not be queried either.
        self.open(operation)?;
        Ok(Some(Target::Stream(self.recorded.load(Ordering::Acquire))))
    }

    /// Notes that what `target` names is complete.
    fn reached(&self, target: &Target) {
        match *target {
            Target::Event(fence, _) => self.complete(fence.position),
            Target::Stream(below) => self.retire(below),
        }
    }

    /// Whether `position` is complete. Does not block; three answers: done, pending, failed.
    pub(crate) fn poll(&self, position: u64) -> Result<Poll> {
        let driver = self.context.driver("Ticket::is_done")?;
        let Some(target) = self.target(position, "Ticket::is_done", false)? else {
            return Ok(Poll::Done);
        };
        let (call, answer) = match &target {
            Target::Event(_, event) => {
                // SAFETY: an `Event` is live as long as it exists.
                ("cudaEventQuery", unsafe { driver.event_query(event.raw) })
            }
            Target::Stream(_) => {
                // SAFETY: the stream is live.
                ("cudaStreamQuery", unsafe { driver.stream_query(self.raw) })
            }
        };
        match answer {
            Ok(Poll::Done) => {
                self.reached(&target);
                Ok(Poll::Done)
            }
            Ok(Poll::NotReady) | Err(CudaCode::NOT_READY) => Ok(Poll::NotReady),
            Err(code) => {
                Err(self.context.error(code, call, "asking whether an operation is complete"))
            }
        }
    }

    /// Blocks until `position` is complete. `operation` is the call that waits.
    pub(crate) fn wait(&self, position: u64, operation: &'static str) -> Result<()> {
        let driver = self.context.driver(operation)?;
        let Some(target) = self.target(position, operation, true)? else { return Ok(()) };
        let _waiting = self.shows_wait(operation);
        let (call, answer) = match &target {
            Target::Event(fence, event) => {
                let turn = self.turn_to_wait(driver, fence.position);
                if self.is_retired(position) {
                    return Ok(());
                }
                // SAFETY: an `Event` is live as long as it exists.
                let answer = unsafe { driver.event_synchronize(event.raw) };
                if answer.is_ok() {
                    self.reached(&target);
                }
                drop(turn);
                ("cudaEventSynchronize", answer)
            }
            Target::Stream(_) => {
                // SAFETY: the stream is live.
                let answer = unsafe { driver.stream_synchronize(self.raw) };
                if answer.is_ok() {
                    self.reached(&target);
                }
                ("cudaStreamSynchronize", answer)
            }
        };
        answer.map_err(|code| self.context.error(code, call, "waiting for an operation"))
    }

    /// Threads that wait for one stream hold up each other in the driver, and those that enqueue: a
    /// copy and its wait take 16 threads a fifth longer (H200). So one waits there, for the event
    /// of `position`, and others first wait for that thread, unless its event is a later one. They
    /// do so for some ten microseconds, and then wait in the driver too.
    fn turn_to_wait(&self, driver: &dyn Driver, position: u64) -> Option<Turn<'_>> {
        let mut tries = 0;
        loop {
            let free = self.waits_for.compare_exchange(
                NOBODY,
                position,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match free {
                Ok(_) => return Some(Turn(self)),
                Err(other) if other > position || driver.tells_callers_apart() => return None,
                Err(_) => {}
            }
            while self.waits_for.load(Ordering::Relaxed) != NOBODY {
                if self.is_retired(position) || tries == PATIENCE {
                    return None;
                }
                tries += 1;
                spin(&mut 0);
            }
        }
    }

    /// As [`wait`](Self::wait), and tries every way to find out: the event, the stream, and
    /// repeated queries. An error never counts as completion: copies that were enqueued before
    /// continue when a device is lost, and when the driver unloads (docs/soundness.md, "A lost
    /// device").
    pub(crate) fn finish(&self, position: u64, operation: &'static str) -> Result<()> {
        const PAUSE: Duration = Duration::from_micros(100);
        let Err(first) = self.wait(position, operation) else { return Ok(()) };
        if self.open(operation).and_then(|_| self.synchronize(operation)).is_ok() {
            return Ok(());
        }
        loop {
            match self.poll(position) {
                Ok(Poll::Done) => return Ok(()),
                Ok(Poll::NotReady) => std::thread::sleep(PAUSE),
                Err(_) => return Err(first),
            }
        }
    }

    /// Makes later work of this stream wait, on the device, for `position` of `producer`. Does not
    /// repeat a wait that is known to exist. If the host must wait, errors name `operation`. The
    /// stream is then still open for the caller's work.
    pub(crate) fn wait_for(
        &self,
        producer: &Timeline,
        position: u64,
        operation: &'static str,
    ) -> Result<()> {
        if std::ptr::eq(self, producer) || self.is_after(producer, position) {
            return Ok(());
        }
        const CALL: &str = "cudaStreamWaitEvent";
        match producer.target(position, CALL, false)? {
            None => Ok(()),
            Some(Target::Event(fence, event)) => {
                let driver = self.context.driver(CALL)?;
                if self.open.load(Ordering::Relaxed) > 0 {
                    self.close_group(CALL);
                }
                // SAFETY: the stream and the event are live.
                unsafe { driver.stream_wait_event(self.raw, event.raw) }
                    .map_err(|code| self.context.error(code, CALL, "ordering two streams"))?;
                self.waited.store(self.recorded() + 1, Ordering::Relaxed);
                self.remember(producer, fence);
                Ok(())
            }
            // Without an event the host waits. Meanwhile other code may have begun to capture this
            // stream, which the caller had found open.
            Some(Target::Stream(_)) => {
                producer.wait(position, operation)?;
                self.open(operation).map(drop)
            }
        }
    }

    /// Whether later work here is known to be ordered after `position` of `producer`.
    fn is_after(&self, producer: &Timeline, position: u64) -> bool {
        let after = self.after.lock();
        after.iter().any(|(id, fence)| *id == producer.id && fence.implies(position))
    }

    /// Later work here is ordered after `fence` of `producer`: this stream, which is FIFO, waits
    /// for it.
    fn remember(&self, producer: &Timeline, fence: Fence) {
        let mut after = self.after.lock();
        after.retain(|(id, _)| *id != producer.id);
        if after.len() == REMEMBERED {
            after.pop_front();
        }
        after.push_back((producer.id, fence));
    }

    /// Recordings show that a thread waits for the stream until the result is dropped.
    pub(crate) fn shows_wait(&self, operation: &'static str) -> Option<impl Drop + use<>> {
        self.context.recording.begin(Kind::Wait, operation, || 0)
    }

    /// Blocks until everything submitted before the call is complete.
    pub(crate) fn synchronize(&self, operation: &'static str) -> Result<()> {
        let driver = self.context.driver(operation)?;
        self.check_thread(operation)?;
        let recorded = self.recorded.load(Ordering::Acquire);
        let _waiting = self.shows_wait(operation);
        // SAFETY: the stream is live.
        unsafe { driver.stream_synchronize(self.raw) }.map_err(|code| {
            self.context.error(code, "cudaStreamSynchronize", "waiting for the stream")
        })?;
        self.retire(recorded);
        Ok(())
    }
}
