//! What holds while memory of pinlane is lent to cuda-core: its stream is not captured afterwards,
//! whatever the closure did.

use std::cell::Cell;
use std::ptr::null_mut;

use cuda_core::sys::{self, CUstreamCaptureStatus_enum_CU_STREAM_CAPTURE_STATUS_NONE as NONE};
use cuda_core::{IntoResult as _, Stream};
use pinlane::Ticket;

use crate::{Error, Result};

/// A closure that gets memory, to use it on a stream.
pub(crate) struct Lending<'a> {
    stream: &'a Stream,
    /// What the closure has left behind.
    wrong: Cell<Option<Error>>,
}

impl<'a> Lending<'a> {
    pub(crate) fn new(stream: &'a Stream) -> Self {
        Lending { stream, wrong: Cell::new(None) }
    }

    /// Calls the closure. The stream is not captured afterwards, also if the closure panics.
    pub(crate) fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Ends<'l, 'a>(&'l Lending<'a>);
        impl Drop for Ends<'_, '_> {
            fn drop(&mut self) {
                self.0.wrong.set(end_capture(self.0.stream).err());
            }
        }
        let _ends = Ends(self);
        work()
    }

    /// What came of it.
    pub(crate) fn outcome<R>(self, done: pinlane::Result<(R, Ticket)>) -> Result<R> {
        self.wrong.take().map_or(Ok(()), Err)?;
        Ok(done?.0)
    }
}

/// Whether the stream is being captured. Leaves what cuda-core has noted in its context to
/// cuda-core's own calls.
pub(crate) fn is_captured(stream: &Stream) -> Result<bool> {
    let mut status = NONE;
    // SAFETY: a live stream, whose context is current.
    unsafe {
        sys::cuCtxSetCurrent(stream.context().cu_ctx()).result()?;
        sys::cuStreamIsCapturing(stream.cu_stream(), &mut status).result()?;
    }
    Ok(status != NONE)
}

/// Ends a capture of the stream, which is an error.
fn end_capture(stream: &Stream) -> Result<()> {
    if !is_captured(stream)? {
        return Ok(());
    }
    let mut graph = null_mut();
    // SAFETY: a live stream. The graph is of the capture that ends here, and only here.
    unsafe {
        let ended = sys::cuStreamEndCapture(stream.cu_stream(), &mut graph).result();
        if ended.is_ok() && !graph.is_null() {
            let _ = sys::cuGraphDestroy(graph);
        }
    }
    Err(Error::Captured)
}
