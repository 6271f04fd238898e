//! The per-thread default streams of a device (rule 11).
//!
//! A stream is made when its thread first names it, and destroyed when the thread has ended and the
//! stream has drained. Nobody is told when a thread ends, so a new stream looks for those of ended
//! threads, once in as many streams as there are: a program that starts a thread a request has at
//! most a few more streams than threads.

use std::collections::HashMap;
use std::sync::Weak;

use super::host_thread::{alive, this_thread};
use super::machine::{Machine, Stream};
use super::slots::Key;
use crate::driver::Ordinal;

/// So few are not worth a look.
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
}

impl Machine {
    /// The calling thread's default stream on a device.
    pub(super) fn per_thread(&mut self, device: Ordinal) -> Key {
        let PerThread { streams, left } = &self.devices[device as usize].per_thread;
        if let Some(owned) = streams.get(&this_thread()) {
            return owned.stream;
        }
        if streams.len() >= FEW + 2 * left {
            self.destroy_orphans(device);
        }
        let stream = self.streams.insert(Stream::new(device, true));
        let owned = Owned { stream, thread: alive() };
        self.devices[device as usize].per_thread.streams.insert(this_thread(), owned);
        stream
    }

    /// Destroys the drained streams of threads that have ended.
    fn destroy_orphans(&mut self, device: Ordinal) {
        let mut orphans = Vec::new();
        let live = &self.streams;
        let per_thread = &mut self.devices[device as usize].per_thread;
        per_thread.streams.retain(|_, owned| {
            let pending = live.get(owned.stream).is_some_and(|stream| !stream.queue.is_empty());
            let keep = pending || owned.thread.strong_count() > 0;
            if !keep {
                orphans.push(owned.stream);
            }
            keep
        });
        per_thread.left = per_thread.streams.len();
        orphans.into_iter().for_each(|stream| self.stream_destroy(stream));
    }
}
