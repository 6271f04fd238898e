//! What a thread sanitizer of the program learns from the machine: a host function is ordered after
//! the thread that has launched it, and before each thread that learns that it is complete. It is
//! the race checker's order. What devices do is left out: they are no threads, and races with them
//! are found by [`races`](super::races).
//!
//! # Invariant
//!
//! * One thread calls all host functions. So what comes after one of them comes after those that
//!   were called before it.

use super::machine::Machine;
use super::operation::Action;
use super::races::{Agent, Knowledge};
use super::words::slots::Key;
use pinlane_base::sanitizer::{Tag, acquire, is_there, release};

/// The most functions that are kept apart. Older ones count as known to all threads.
const MOST: usize = 1024;

impl Machine {
    /// The calling thread gives an operation to a stream.
    #[inline]
    pub(super) fn tell_enqueued(&self, stream: Agent, action: &Action) {
        if is_there() && matches!(action, Action::HostFunction(_)) {
            release(self.tags.launches.part(stream as usize));
        }
    }

    /// The calling thread is about to call a host function of the stream.
    pub(super) fn tell_called(&self, key: Key) {
        if let Some(stream) = self.streams.get(key) {
            acquire(self.tags.launches.part(stream.agent as usize));
        }
    }

    /// The calling thread comes back from a host function, which knew that.
    pub(super) fn tell_returned(&mut self, known: &Knowledge) {
        if is_there() {
            let tag = Tag::new();
            release(tag.part(0));
            self.tags.returned.push_front((known.at(), tag));
            self.tags.returned.truncate(MOST);
        }
    }

    /// The calling thread has learned of this.
    #[inline]
    pub(super) fn tell_known(&self, known: &Knowledge) {
        if is_there() {
            let returned = &self.tags.returned;
            let oldest = returned.back().filter(|_| returned.len() == MOST);
            let last = returned.iter().find(|(at, _)| known.knows(*at)).or(oldest);
            last.inspect(|(_, tag)| acquire(tag.part(0)));
        }
    }
}
