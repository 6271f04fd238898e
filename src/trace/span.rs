//! Spans, and the tracks that they belong to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::launch::{Describe, Launch};
use crate::driver::Ordinal;

/// An interval of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The thread or stream that did it.
    pub track: Track,
    /// The kind of work.
    pub kind: Kind,
    /// The call that caused it, such as `Stream::upload`.
    pub name: &'static str,
    /// How many bytes it moved; 0 if it moved none, or if the number is not known.
    pub bytes: usize,
    /// When it began, counted from the start of the recording.
    pub start: Duration,
    /// When it ended, counted from the same moment.
    pub end: Duration,
    /// What the device did, if it launched a graph.
    pub launch: Option<Arc<Launch>>,
}

/// What a span shows of a call.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) name: &'static str,
    /// 0 if it moves none.
    pub(crate) bytes: usize,
    /// If it launches a graph.
    pub(crate) launch: Option<Describe<'a>>,
}

impl Work<'_> {
    pub(crate) fn new(name: &'static str, bytes: usize) -> Self {
        Work { name, bytes, launch: None }
    }
}

/// A thread or a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// A thread of the host.
    OfThread {
        /// Unique in the process, in the order of the threads' first spans.
        number: usize,
        /// Its name; empty if it has none.
        name: String,
    },
    /// A stream of a device.
    OfStream {
        /// The device.
        device: Ordinal,
        /// Unique in the process, in the order of the streams' creation.
        number: u64,
    },
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Track::OfThread { number, name } if name.is_empty() => write!(f, "thread {number}"),
            Track::OfThread { name, .. } => f.write_str(name),
            Track::OfStream { device, number } => write!(f, "device {device}, stream {number}"),
        }
    }
}

/// The kind of work of a span.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The device worked: a copy, a kernel, a fill, work of another library.
    OnDevice,
    /// The host enqueued work.
    Enqueue,
    /// The host waited for a device.
    Wait,
    /// The host copied between a slot and pageable memory or a file.
    Stage,
    /// The host page-locked memory.
    PageLock,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] =
        [Kind::OnDevice, Kind::Enqueue, Kind::Wait, Kind::Stage, Kind::PageLock];

    /// Its name in the output.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::OnDevice => "device",
            Kind::Enqueue => "enqueue",
            Kind::Wait => "wait",
            Kind::Stage => "stage",
            Kind::PageLock => "page-lock",
        }
    }
}
