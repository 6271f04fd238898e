//! The batches as a `Stream` of the crate `futures-core`.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};

use super::batch::DeviceBatch;
use super::batches::Batches;
use crate::error::Result;

/// The batches of a pipeline as a `Stream`, from [`Batches::into_stream`].
///
/// Its items and their order are those of [`Batches`] as an iterator, and so are the panics. While
/// no batch is ready, a poll returns at once, and the waker of the last poll is called when there
/// is one, or at the end. Dropping it ends the workers, as for [`Batches`].
#[derive(Debug)]
pub struct BatchStream(Batches);

impl Batches {
    /// The same as a `Stream`, for the combinators of `futures` or `tokio-stream`. `Batches` itself
    /// is none: `next` would have two meanings where `Iterator` and `StreamExt` are in scope.
    #[must_use]
    pub fn into_stream(self) -> BatchStream {
        BatchStream(self)
    }
}

impl Stream for BatchStream {
    type Item = Result<DeviceBatch>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(task)
    }
}

impl FusedStream for BatchStream {
    fn is_terminated(&self) -> bool {
        self.0.ended
    }
}
