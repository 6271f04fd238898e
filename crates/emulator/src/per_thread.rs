//! The per-thread default streams of a device (rule 11).
//!
//! A stream is made when its thread first names it, and destroyed when the thread has ended and the
//! stream has drained. Nothing reports the end of a thread. So whenever the number of streams has
//! doubled, those of ended threads are looked for: a program that starts a thread for each request
//! has at most a few more streams than threads.

use std::collections::HashMap;
use std::sync::Weak;

use super::words::slots::Key;
use super::words::thread::{alive, this_thread};

/// The number of streams at which those of ended threads are first looked for.
const FEW: usize = 16;

#[derive(Debug, Default)]
pub(super) struct PerThread {
    streams: HashMap<u64, Owned>,
    /// How many there were after the last look.
    left: usize,
}

#[derive(Debug)]
struct Owned {
    stream: Key,
    thread: Weak<()>,
}

impl PerThread {
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn contains(&self, stream: Key) -> bool {
        self.streams.values().any(|owned| owned.stream == stream)
    }

    /// Whether it is the stream of a thread that has ended.
    pub(super) fn is_of_ended_thread(&self, stream: Key) -> bool {
        let owner = self.streams.values().find(|owned| owned.stream == stream);
        owner.is_some_and(|owned| owned.thread.strong_count() == 0)
    }

    /// The calling thread's stream, if it has one.
    pub(super) fn find(&self) -> Option<Key> {
        self.streams.get(&this_thread()).map(|owned| owned.stream)
    }

    /// Whether it is time to look for the streams of threads that have ended.
    pub(super) fn is_crowded(&self) -> bool {
        self.streams.len() >= FEW + 2 * self.left
    }

    pub(super) fn insert(&mut self, stream: Key) {
        self.streams.insert(this_thread(), Owned { stream, thread: alive() });
    }

    /// Takes out the streams of threads that have ended, but for those that are `busy`.
    pub(super) fn take_orphans(&mut self, busy: impl Fn(Key) -> bool) -> Vec<Key> {
        let is_orphan = |owned: &Owned| owned.thread.strong_count() == 0 && !busy(owned.stream);
        let orphans = self.streams.extract_if(|_, owned| is_orphan(owned));
        let orphans = orphans.map(|(_, owned)| owned.stream).collect();
        self.left = self.streams.len();
        orphans
    }
}
