//! When operations run.
//!
//! All modes share one notion of *ready*: the first operation of a queue whose waits are complete,
//! on a stream that is not stalled and not inside a host function. They differ in who runs it:
//!
//! * eager: [`pump`](Machine::pump) runs everything that is ready, after each change;
//! * all others: [`pass`](Machine::pass), after each call, and [`drive`](Machine::drive), in a
//!   wait, run what [`pick`](Machine::pick) says; in a wait, that is in the end what it needs.
//!
//! ```text
//!   mod       how far a call or a wait gets      drawn   what the seed picks
//!   next      what runs next                     pct     priorities
//!   policy    how that is decided                path    every order in turn
//!   steps     operations that take a while       decision   runs as texts
//! ```
//!
//! Termination of `drive`: each step runs an operation or goes to a wait that was enqueued earlier,
//! and a stream is on the path at most once. Nothing is enqueued while it runs. `pass` runs
//! operations only.

mod decision;
mod drawn;
pub(crate) mod due;
pub(crate) mod execution;
pub(crate) mod host_thread;
mod next;
mod path;
mod pct;
mod policy;
mod steps;
mod stuck;

use crate::machine::Machine;
use crate::operation::{Action, Position};
use crate::words::rng::Rng;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Ordinal, Poll};

pub use decision::Replay;
pub(super) use drawn::About;
pub use execution::Execution;
pub(super) use path::Path;
pub(super) use policy::{Schedule, Standing};
pub(super) use steps::Slow;

/// How far a wait has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// Nothing more can be done before another thread does something.
    Blocked,
    /// The work will never complete: its device, or one that it waits for, is lost.
    Lost(CudaCode),
}

/// The state of a stream's first operation.
enum Front {
    Idle,
    Blocked,
    Waits(Position),
    /// It takes some steps more.
    Slow,
    Ready,
}

impl Machine {
    /// Works towards `target`. In a wait, time passes for slow streams.
    pub(super) fn drive(&mut self, target: Position, in_wait: bool) -> Progress {
        let mut path = vec![target];
        while let Some(&at) = path.last() {
            if self.is_complete(at) {
                path.pop();
                continue;
            }
            let stream = self.streams.get(at.stream).expect("incomplete, so it is there");
            if let Some(code) = self.devices[stream.device as usize].lost {
                return Progress::Lost(code);
            }
            match self.front(at.stream) {
                Front::Waits(position) => path.push(position),
                Front::Slow if in_wait => self.pass_steps_of(at.stream),
                Front::Idle | Front::Blocked | Front::Slow => return Progress::Blocked,
                Front::Ready => {
                    let next = match self.schedule.is_eager() {
                        true => at.stream,
                        false => self.pick(Some(at.stream)).expect("that one, if no other"),
                    };
                    self.step(next);
                }
            }
        }
        // A step may have lost the device of the target itself.
        let device = self.streams.get(target.stream).map(|stream| stream.device as usize);
        let lost = device.and_then(|device| self.devices[device].lost);
        lost.map_or(Progress::Done, Progress::Lost)
    }

    /// What a wait does while it holds the lock.
    pub(super) fn wait_step(&mut self, target: Position) -> Progress {
        if self.is_complete(target) { Progress::Done } else { self.drive(target, true) }
    }

    /// What a query answers. Unless the machine is eager, it says "not ready" for a while and then
    /// makes the progress that it needs, so a program that polls comes to an end.
    pub(super) fn poll(&mut self, target: Position, patience: &mut u8) -> DriverResult<Poll> {
        if self.is_complete(target) {
            return Ok(Poll::Done);
        }
        if !self.schedule.is_eager() {
            if *patience == 0 {
                *patience = 1 + self.denials(target);
            }
            *patience -= 1;
            if *patience > 0 {
                return Ok(Poll::NotReady);
            }
        }
        match self.drive(target, false) {
            Progress::Done => Ok(Poll::Done),
            Progress::Blocked => {
                self.functions_are_due();
                Ok(Poll::NotReady)
            }
            Progress::Lost(code) => {
                // It never comes back: the next query says the same.
                *patience = 1;
                Err(code)
            }
        }
    }

    /// How often queries for it say "not ready" first.
    fn denials(&mut self, target: Position) -> u8 {
        let stream = self.streams.get(target.stream).expect("incomplete, so it is there");
        let at = (target.count - stream.completed - 1) as usize;
        self.schedule.denials(stream.standing.name, stream.queue[at].number)
    }

    /// Something has changed: runs what may run now.
    pub(super) fn settle(&mut self) {
        if self.schedule.is_eager() {
            self.pump();
        } else {
            self.run_some();
        }
    }

    /// A call has been made. Operations that are ready may run now, unless the machine is eager.
    #[inline]
    pub(super) fn pass(&mut self) {
        if !self.schedule.is_eager() {
            self.run_some();
        }
    }

    fn run_some(&mut self) {
        while let Some(key) = self.pick(None) {
            self.step(key);
        }
    }

    /// A stream may have become ready.
    pub(super) fn wake(&mut self, key: Key) {
        if self.schedule.is_eager() {
            self.awake.insert(key);
        }
    }

    /// Removes a stream. What waited for it need not wait any more.
    pub(super) fn remove_stream(&mut self, key: Key) {
        let followers = self.streams.remove(key).map(|stream| stream.followers);
        self.awake.extend(followers.into_iter().flatten().map(|(_, follower)| follower));
    }

    /// Runs everything that is ready.
    fn pump(&mut self) {
        while let Some(key) = self.awake.pop_first() {
            while !self.follows(key) && matches!(self.front(key), Front::Ready) {
                self.step(key);
            }
        }
    }

    /// The streams that could run an operation, but are not awake.
    #[cfg(test)]
    pub(super) fn overslept(&self) -> Vec<Key> {
        let asleep = |key: &Key| !self.awake.contains(key);
        self.ready().filter(asleep).collect()
    }

    /// Whether the first operation of a stream waits for another, which then wakes the stream. Each
    /// of its waits is looked at once, and those that are complete leave it.
    fn follows(&mut self, key: Key) -> bool {
        let Some(stream) = self.streams.get_mut(key) else { return false };
        let Some(first) = stream.queue.front_mut() else { return false };
        let mut waits = std::mem::take(&mut first.waits);
        while waits.pop_if(|position| self.is_complete(*position)).is_some() {}
        let awaited = waits.last().copied();
        let stream = self.streams.get_mut(key).expect("just found");
        stream.queue.front_mut().expect("just found").waits = waits;
        let Some(Position { stream, count }) = awaited else { return false };
        let awaited = self.streams.get_mut(stream).expect("incomplete, so it is there");
        awaited.followers.insert((count, key));
        true
    }

    /// Time passes for a lost device: some of the work that was enqueued there runs.
    pub(super) fn drift(&mut self) {
        let is_lost = |key: &Key| {
            let stream = self.streams.get(*key);
            stream.is_some_and(|stream| self.devices[stream.device as usize].lost.is_some())
        };
        let adrift: Vec<Key> = self.backlog.iter().copied().filter(is_lost).collect();
        self.schedule.drifts += 1;
        for key in adrift {
            let runs = self.draw(key, About::Drift(self.schedule.drifts)).one_in(2);
            if runs && matches!(self.front(key), Front::Ready) {
                self.step(key);
            }
        }
    }

    /// The generator of one decision about the next operation that a stream is given.
    pub(super) fn draw(&self, key: Key, about: About) -> Rng {
        let stream = self.streams.get(key).expect("resolved by the caller");
        self.schedule.draw(stream.standing.name, stream.submitted + 1, about)
    }

    fn front(&self, key: Key) -> Front {
        let Some(stream) = self.streams.get(key) else { return Front::Idle };
        let Some(operation) = stream.queue.front() else { return Front::Idle };
        if stream.dispatched || stream.stalled && self.can_be_released(key, stream.device) {
            return Front::Blocked;
        }
        match operation.waits.iter().find(|&&position| !self.is_complete(position)) {
            Some(&position) => Front::Waits(position),
            None if stream.slow.holds() => Front::Slow,
            None => Front::Ready,
        }
    }

    /// Whether a call can still name a stream that is stalled. The default stream of a thread that
    /// has ended cannot be named.
    #[cold]
    fn can_be_released(&self, key: Key, device: Ordinal) -> bool {
        !self.devices[device as usize].per_thread.is_of_ended_thread(key)
    }

    /// Runs the first operation of a stream, which is ready.
    fn step(&mut self, key: Key) {
        let stream = self.streams.get_mut(key).expect("has a first operation");
        let operation = stream.queue.front_mut().expect("has a first operation");
        self.schedule.ran(&mut stream.standing, operation);
        if let Action::HostFunction(call) = operation.action {
            stream.dispatched = true;
            self.host_ready.push_back((key, call));
            self.host_work = true;
            return;
        }
        // The operation keeps its place in the queue until it is complete. An action that does
        // nothing stands in for its own.
        let (id, action) = (operation.id, std::mem::replace(&mut operation.action, Action::Join));
        let knowledge = operation.knowledge.take();
        // Findings about the operation name the call that enqueued it, not the one that waits for
        // it now.
        let waiting = self.races.exchange_called(operation.called);
        if self.claim(key, id, &action) && self.execute(key, &action, knowledge.as_ref()) {
            self.complete_first(key);
        }
        self.races.exchange_called(waiting);
    }

    /// The host thread is back from a function of this stream.
    pub(super) fn host_function_returned(&mut self, key: Key) {
        self.host_functions -= 1;
        self.host_calling = None;
        self.function_has_returned();
        self.host.take_back_lent();
        if let Some(known) = self.races.function_ends() {
            self.tell_returned(&known);
        }
        if self.streams.get_mut(key).is_some_and(|s| std::mem::take(&mut s.dispatched)) {
            self.complete_first(key);
            self.settle();
        }
    }

    pub(super) fn release(&mut self, key: Key) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.stalled = false;
        }
        self.wake(key);
        self.settle();
        self.changed = true;
        self.host_work = true;
    }

    fn complete_first(&mut self, key: Key) {
        let stream = self.streams.get_mut(key).expect("has a first operation");
        stream.queue.pop_front();
        stream.completed += 1;
        stream.slow.begin();
        while let Some(&(count, follower)) = stream.followers.first()
            && count <= stream.completed
        {
            stream.followers.pop_first();
            self.awake.insert(follower);
        }
        let (is_empty, is_destroyed) = (stream.queue.is_empty(), stream.destroyed);
        if is_empty {
            self.leave_backlog(key);
        } else {
            self.wake(key);
        }
        if is_empty && is_destroyed {
            self.remove_stream(key);
        }
        self.changed = true;
    }

    /// The last stream of the backlog takes the place of one whose queue is empty.
    fn leave_backlog(&mut self, key: Key) {
        let at = self.streams.get(key).expect("it is in the backlog").backlog_at;
        self.backlog.swap_remove(at);
        if let Some(&last) = self.backlog.get(at) {
            self.streams.get_mut(last).expect("it is in the backlog").backlog_at = at;
        }
    }
}
