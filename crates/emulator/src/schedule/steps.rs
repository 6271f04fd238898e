//! Streams whose operations take a while.
//!
//! Each operation of a slow stream takes a number of steps more than it would. A step is a call on
//! the machine, of whatever thread. So a query sees the operation pending for a while, in every
//! mode, and other streams get ahead; a wait lets the steps pass.

use crate::machine::Machine;
use crate::operation::{Action, Operation, Position};
use crate::words::slots::Key;

/// How slow a stream is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slow {
    /// The steps that each operation takes.
    each: u32,
    /// Those that the first operation still takes.
    left: u32,
}

impl Slow {
    pub(crate) fn is_slow(self) -> bool {
        self.each > 0
    }

    /// Whether the first operation still takes a while.
    pub(super) fn holds(self) -> bool {
        self.left > 0
    }

    /// The next operation is the first one.
    pub(crate) fn begin(&mut self) {
        self.left = self.each;
    }
}

impl Machine {
    pub(crate) fn make_slow(&mut self, key: Key, steps: u32) {
        let stream = self.streams.get_mut(key).expect("resolved by the caller");
        stream.slow = Slow { each: steps, left: steps };
        self.slow_streams = self.streams.values().filter(|stream| stream.slow.is_slow()).count();
        // The host thread waits for what comes before host functions, which may be slow now.
        self.wake_for_functions();
        self.wake(key);
        self.settle();
        self.changed = true;
    }

    /// Time passes.
    pub(crate) fn pass_steps(&mut self, steps: u32) {
        let mut arrived = Vec::new();
        for &key in &self.backlog {
            if let Some(stream) = self.streams.get_mut(key).filter(|stream| stream.slow.holds()) {
                stream.slow.left = stream.slow.left.saturating_sub(steps);
                if !stream.slow.holds() {
                    arrived.push(key);
                }
            }
        }
        if !arrived.is_empty() {
            arrived.into_iter().for_each(|key| self.wake(key));
            self.settle();
            self.changed = true;
            self.host_work = true;
        }
    }

    /// Lets time pass until the stream's first operation is not held up any more.
    pub(super) fn pass_steps_of(&mut self, key: Key) {
        let left = self.streams.get(key).map_or(0, |stream| stream.slow.left);
        self.pass_steps(left);
    }

    /// Host functions are waited for by the host thread.
    fn wake_for_functions(&mut self) {
        let is_function =
            |operation: &Operation| matches!(operation.action, Action::HostFunction(_));
        for &key in &self.backlog {
            let Some(stream) = self.streams.get(key) else { continue };
            if stream.queue.iter().any(is_function) {
                self.host_targets.push(Position { stream: key, count: stream.enqueued });
            }
        }
        self.host_work = true;
    }
}
