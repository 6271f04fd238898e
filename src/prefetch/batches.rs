//! The consumer's end of a pipeline.

use std::fmt;
use std::future::poll_fn;
use std::iter::FusedIterator;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::batch::DeviceBatch;
use super::core::{Core, Head, Outcome};
use super::progress::Progress;
use super::recycler::Recycler;
use crate::error::{Error, ErrorKind, Result};
use crate::stream::Stream;

const NEXT: &str = "Batches::next";

/// Batches on the device, made ahead by other threads: an iterator, and its asynchronous form.
///
/// [`next`](Iterator::next) blocks until the copy of the next batch is enqueued, and makes the
/// stream wait, on the device, until it is complete. A failure takes the place of its batch:
///
/// * An error of the producer or of a copy is an `Err`; the next call gives the next batch. Errors
///   of the producer are of the kind [`Producer`](crate::ErrorKind::Producer), with the producer's
///   own error as their source.
/// * An error of the runtime when the stream is made to wait is an `Err` too. But if the stream
///   cannot be used at the moment (it is being captured, it belongs to another thread, or the call
///   is inside a host function), the batch is kept for the next call.
/// * A panic in the producer, or in a batch's own code, continues in the call that would have
///   given the batch. The iteration has then ended.
///
/// Dropping it ends the workers, each as soon as it returns from the producer or from a copy,
/// without waiting for them. A worker whose producer never returns keeps running. Device batches
/// stay valid.
pub struct Batches {
    pub(super) core: Arc<Core>,
    pub(super) recycler: Arc<Recycler>,
    pub(super) stream: Stream,
    pub(super) progress: Progress,
    pub(super) ended: bool,
}

impl Batches {
    /// What ends the pipeline, even while another thread waits for a batch.
    #[cfg(feature = "capi")]
    pub(crate) fn core(&self) -> Arc<Core> {
        self.core.clone()
    }

    /// The counters. Clones stay valid on their own.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// As [`next`](Iterator::next), but blocks for no longer than `timeout`. After that the item is
    /// an error of the kind [`TimedOut`](crate::ErrorKind::TimedOut), and the batch stays for a
    /// later call.
    ///
    /// # Panics
    ///
    /// With the panic of the producer, in its place.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Result<DeviceBatch>> {
        self.next_by(Instant::now().checked_add(timeout))
    }

    /// As [`next`](Iterator::next), for an asynchronous task: waiting for the workers does not
    /// block. Dropping the future loses nothing.
    pub fn next_async(&mut self) -> impl Future<Output = Option<Result<DeviceBatch>>> + Send {
        poll_fn(|task| self.poll_next(task))
    }

    /// As [`next_async`](Self::next_async), for implementors of streams. With the feature
    /// `futures`, `into_stream` makes one.
    ///
    /// # Panics
    ///
    /// With the panic of the producer, in its place.
    pub fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<DeviceBatch>>> {
        match self.begin() {
            Ok(true) => match self.core.poll(task.waker()) {
                Head::Pending => Poll::Pending,
                head => Poll::Ready(self.finish(head)),
            },
            Ok(false) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn next_by(&mut self, deadline: Option<Instant>) -> Option<Result<DeviceBatch>> {
        match self.begin() {
            Ok(true) => match self.core.wait(deadline) {
                Head::Pending => Some(Err(timed_out())),
                head => self.finish(head),
            },
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Whether the iteration continues. In a forked child, where the lock may be held forever, it
    /// ends. Also records dropped batches that other threads could not record.
    fn begin(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let process = self.stream.timeline.context().check_process(NEXT);
        self.ended = process.is_err();
        process?;
        self.recycler.record_rest();
        Ok(true)
    }

    fn finish(&mut self, head: Head) -> Option<Result<DeviceBatch>> {
        let Head::Ready(ticket) = head else {
            self.ended = true;
            return None;
        };
        let ordered = ticket.map_or(Ok(()), |ticket| self.stream.wait_for(&ticket));
        if ordered.as_ref().is_err_and(is_callers_doing) {
            return ordered.err().map(Err);
        }
        match self.core.take()? {
            Outcome::Batch(copied) => Some(ordered.map(|()| {
                self.progress.count_yielded();
                DeviceBatch::new(copied, &self.recycler)
            })),
            Outcome::Failed(error) => Some(Err(error)),
            Outcome::Panicked(payload) => {
                self.ended = true;
                self.core.stop();
                resume_unwind(payload)
            }
        }
    }
}

fn timed_out() -> Error {
    Error::new(ErrorKind::TimedOut, NEXT, "no batch is ready", "call again, or with more time")
}

/// Whether the call may succeed later, or on another thread.
fn is_callers_doing(error: &Error) -> bool {
    use ErrorKind::{StreamCapturing, Unsupported, WrongThread};
    matches!(error.kind(), StreamCapturing | Unsupported | WrongThread)
}

impl Iterator for Batches {
    type Item = Result<DeviceBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_by(None)
    }
}

impl FusedIterator for Batches {}

impl Drop for Batches {
    fn drop(&mut self) {
        if self.stream.timeline.context().is_current() {
            self.recycler.close();
            self.core.stop();
        }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("stream", &self.stream)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
