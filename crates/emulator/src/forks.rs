//! Which work of a capture its first stream has waited for (rule 32), and which nodes the next one
//! of each stream depends on.
//!
//! Each stream knows how much of what every stream has captured comes before its next operation:
//! its own, and what the events say that it has waited for.

use std::collections::HashMap;

use super::words::slots::Key;

/// What comes before something.
#[derive(Clone, Debug, Default)]
struct Before {
    /// How many operations of each stream; a stream without any is missing.
    known: HashMap<Key, usize>,
    /// The numbers of the nodes that it directly depends on.
    nodes: Vec<u64>,
}

/// The streams of a capture, and the events that they have recorded.
#[derive(Debug)]
pub(super) struct Forks {
    /// Those that have captured something, in the order of their first node, after the first stream
    /// of the capture.
    branches: Vec<Key>,
    captured: HashMap<Key, usize>,
    streams: HashMap<Key, Before>,
    events: HashMap<Key, Before>,
}

impl Forks {
    pub(super) fn new(origin: Key) -> Self {
        Forks {
            branches: vec![origin],
            captured: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
        }
    }

    /// The number of a stream that captures a node; 0 is the capture's first stream.
    pub(super) fn branch(&mut self, stream: Key) -> usize {
        let known = self.branches.iter().position(|&branch| branch == stream);
        known.unwrap_or_else(|| {
            self.branches.push(stream);
            self.branches.len() - 1
        })
    }

    /// A stream captures an operation, as the node of that number.
    pub(super) fn captures(&mut self, stream: Key, node: u64) {
        let count = self.captured.entry(stream).or_default();
        *count += 1;
        let before = self.streams.entry(stream).or_default();
        before.known.insert(stream, *count);
        before.nodes = vec![node];
    }

    /// A stream records an event.
    pub(super) fn records(&mut self, stream: Key, event: Key) {
        let before = self.streams.get(&stream).cloned().unwrap_or_default();
        self.events.insert(event, before);
    }

    /// A stream waits for an event.
    pub(super) fn waits(&mut self, stream: Key, event: Key) {
        let Some(told) = self.events.get(&event) else { return };
        let before = self.streams.entry(stream).or_default();
        for (&of, &count) in &told.known {
            let mine = before.known.entry(of).or_default();
            *mine = count.max(*mine);
        }
        let new = told.nodes.iter().filter(|node| !before.nodes.contains(node));
        let new: Vec<u64> = new.copied().collect();
        before.nodes.extend(new);
    }

    /// The numbers of the nodes that the next one of a stream depends on.
    pub(super) fn before_next(&self, stream: Key) -> &[u64] {
        self.streams.get(&stream).map_or(&[], |before| &before.nodes)
    }

    /// Whether a stream has waited for all that was captured.
    pub(super) fn is_joined(&self, stream: Key) -> bool {
        let before = self.streams.get(&stream);
        let knows = |of| before.and_then(|before| before.known.get(of)).copied().unwrap_or(0);
        self.captured.iter().all(|(of, &count)| knows(of) == count)
    }
}
