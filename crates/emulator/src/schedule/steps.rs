//! Streams whose operations take a while.
//!
//! Each operation of a slow stream takes a number of steps more than it would. A step is a call on
//! the machine, of whatever thread. So who polls sees the operation pending for a while, in every
//! mode, and other streams get ahead; who waits lets the steps pass.

use super::Slow;
use crate::machine::Machine;
use crate::operation::{Action, Position};
use crate::words::slots::Key;

impl Machine {
    pub(crate) fn make_slow(&mut self, key: Key, steps: u32) {
        let stream = self.streams.get_mut(key).expect("resolved by the caller");
        stream.slow = Slow { each: steps, left: steps };
        self.slow_streams = self.streams.values().filter(|stream| stream.slow.is_slow()).count();
        // The host thread waits for what host functions are behind of, which may be slow now.
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

    /// Lets so much time pass that the stream's first operation is not held up any more.
    pub(super) fn pass_steps_of(&mut self, key: Key) {
        let left = self.streams.get(key).map_or(0, |stream| stream.slow.left);
        self.pass_steps(left);
    }

    /// Host functions are waited for by the host thread.
    fn wake_for_functions(&mut self) {
        let is_function = |operation: &&crate::operation::Operation| {
            matches!(operation.action, Action::HostFunction(_))
        };
        let mut targets = Vec::new();
        for &key in &self.backlog {
            let Some(stream) = self.streams.get(key) else { continue };
            if stream.queue.iter().any(|operation| is_function(&operation)) {
                targets.push(Position { stream: key, count: stream.enqueued });
            }
        }
        self.host_targets.extend(targets);
        self.host_work = true;
    }
}
