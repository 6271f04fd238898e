//! Which work of a capture its first stream has waited for (rule 32).
//!
//! Each stream knows how much of what every stream has captured comes before its next operation:
//! its own, and what the events say that it has waited for.

use std::collections::HashMap;

use super::words::slots::Key;

/// How many operations of each stream; a stream without any is missing.
type Known = HashMap<Key, usize>;

/// The streams of a capture, and the events that they have recorded.
#[derive(Debug, Default)]
pub(super) struct Forks {
    captured: Known,
    streams: HashMap<Key, Known>,
    events: HashMap<Key, Known>,
}

impl Forks {
    /// A stream captures an operation.
    pub(super) fn captures(&mut self, stream: Key) {
        let count = self.captured.entry(stream).or_default();
        *count += 1;
        self.streams.entry(stream).or_default().insert(stream, *count);
    }

    /// A stream records an event.
    pub(super) fn records(&mut self, stream: Key, event: Key) {
        let known = self.streams.get(&stream).cloned().unwrap_or_default();
        self.events.insert(event, known);
    }

    /// A stream waits for an event.
    pub(super) fn waits(&mut self, stream: Key, event: Key) {
        let Some(told) = self.events.get(&event) else { return };
        let known = self.streams.entry(stream).or_default();
        for (&of, &count) in told {
            let mine = known.entry(of).or_default();
            *mine = count.max(*mine);
        }
    }

    /// Whether a stream has waited for all that was captured.
    pub(super) fn is_joined(&self, stream: Key) -> bool {
        let known = self.streams.get(&stream);
        let knows = |of| known.and_then(|known| known.get(of)).copied().unwrap_or(0);
        self.captured.iter().all(|(of, &count)| knows(of) == count)
    }
}
