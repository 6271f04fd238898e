//! Timelines: the crate's work on a device and on the host, with times.
//!
//! A [`Recording`] notes the copies and other work of all streams, timed by the device's own clock,
//! and what host threads do for them: enqueue, wait, copy to and from page-locked slots, page-lock.
//! When it stops, it becomes a [`Trace`], which can be written as JSON for Perfetto and
//! chrome://tracing, or drawn as SVG.
//!
//! ```
//! use pinlane::trace::Recording;
//! use pinlane::Device;
//!
//! let device = Device::open_or_emulated()?;
//! let recording = Recording::new();
//! device.record(&recording)?;
//! let stream = device.stream()?;
//! let mut gpu = device.alloc::<u8>(1 << 20)?;
//! stream.upload_slice(&vec![1; 1 << 20], &mut gpu)?.wait()?;
//! let trace = recording.stop()?;
//! let path = std::env::temp_dir().join(format!("pinlane-doc-{}.json", std::process::id()));
//! std::fs::write(&path, trace.to_json())?; // for ui.perfetto.dev
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A device that is not recorded pays one branch for each call. While it is recorded, each
//! operation on a stream is enclosed by two events with timing, so copies of several threads do not
//! become one batch. Recording an event takes about a microsecond of the host. Times have a
//! resolution of half a microsecond (`cudaEventElapsedTime`). They come as a `float`, so beyond
//! 16 s they have seven digits.
//!
//! # Graphs
//!
//! A launch of a [graph](crate::graph) is one span, whose [`launch`](Span::launch) says what it
//! consists of: each captured operation with its branch, its bytes, and its buffers as they are
//! bound in this launch. CUDA has no times of single operations, so the span has none either. The
//! JSON has the same as arguments of the span: totals for each action, such as `upload.bytes`, and
//! a line for each of the first operations. A launch that is not recorded pays nothing for this.
//! The lines end after 100 operations of a launch, and after 2^18 of a recording. Then `left_out`
//! says how many follow; the totals have all of them.
//!
//! # NVTX
//!
//! With the feature `nvtx`, tools such as Nsight Systems see the work of host threads, recorded or
//! not, as NVTX ranges in the domain `pinlane`. A range's message is its call, such as
//! `Stream::upload`. Its payload is the number of bytes, or 0. Its category is one of:
//!
//! * `enqueue`: a copy, a fill, a checksum, an allocation on the device, or work of another library
//!   ([`Stream::foreign`](crate::Stream::foreign)) is enqueued;
//! * `wait`: a thread waits for a device;
//! * `stage`: a thread copies between a page-locked slot and pageable memory or a file;
//! * `page-lock`: memory is page-locked, when a pool grows.
//!
//! A tool's library is found in the same way as by NVTX: it is loaded already, or the environment
//! variable `NVTX_INJECTION64_PATH`, which Nsight Systems sets, has its path. The feature needs
//! neither a toolkit nor a C compiler. Without a tool a call pays one branch.
//!
//! The [events](crate::pool#events) of pools for the crate `tracing` are a separate feature.
//!
//! # Invariants
//!
//! * Recording changes no result and no order. Only [`stop`](Recording::stop) waits for its events.
//!   To relate a device's clock to the host's, the beginning waits for one event, on a stream of
//!   its own; in a host function that is left to the first recorded work, after its call.
//! * An event that may be part of a capture is never queried.
//! * No driver call is made under the lock.

mod chrome;
mod launch;
#[cfg(all(feature = "nvtx", target_os = "linux"))]
mod nvtx;
#[cfg(not(all(feature = "nvtx", target_os = "linux")))]
#[path = "no_nvtx.rs"]
mod nvtx;
mod recorder;
mod span;
mod svg;
mod timing;

use std::sync::Arc;

pub(crate) use self::launch::Describe;
pub use self::launch::{Action, Launch, Operand, Operation, Total};
pub(crate) use self::nvtx::range as nvtx_range;
pub(crate) use self::recorder::{Recorder, Switch};
pub(crate) use self::span::Work;
pub use self::span::{Kind, Span, Track};
use crate::error::{Refused, Result};

/// Records the work on devices: on each from [`Device::record`](crate::Device::record) on, until
/// the recording is [stopped](Self::stop) or dropped.
#[derive(Debug, Default)]
pub struct Recording {
    pub(crate) recorder: Arc<Recorder>,
}

impl Recording {
    /// A recording without devices. Its clock starts now.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the recording, and returns its trace. Blocks until all recorded work is complete.
    ///
    /// # Errors
    ///
    /// Every error gives the recording back, and it continues:
    ///
    /// * [`Unsupported`](crate::ErrorKind::Unsupported) inside a host function;
    /// * [`ForkedProcess`](crate::ErrorKind::ForkedProcess).
    pub fn stop(self) -> Result<Trace, Refused<Self>> {
        self.finish().map_err(|error| Refused { value: self, error })
    }

    /// As [`stop`](Self::stop), without taking the recording.
    pub(crate) fn finish(&self) -> Result<Trace> {
        let (spans, missing) = self.recorder.stop()?;
        Ok(Trace { spans, missing })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.recorder.forget();
    }
}

/// The result of a [`Recording`].
#[derive(Clone, Debug)]
pub struct Trace {
    spans: Vec<Span>,
    missing: usize,
}

impl Trace {
    /// All spans, in the order of their starts.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// How many spans are missing: spans of operations whose times are unknown (the device was
    /// lost, or the stream was being captured), and spans beyond the first 2^20.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// JSON in Chrome's trace event format, one track for each thread and each stream. Perfetto
    /// (ui.perfetto.dev) and chrome://tracing open it. Times are in microseconds. A launch of a
    /// graph has [arguments](crate::trace#graphs) that say what it consists of.
    #[must_use]
    pub fn to_json(&self) -> String {
        chrome::write(&self.spans, self.missing)
    }

    /// A drawing, one row for each thread and each stream, for light and dark pages.
    #[must_use]
    pub fn to_svg(&self) -> String {
        svg::draw(&self.spans)
    }
}
