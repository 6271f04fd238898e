//! Work of other libraries on tracked buffers, ordered as the crate's own work.

use std::ffi::c_void;

use crate::driver::Driver;
use crate::error::Result;
use crate::memory::{Operand, Tracked, TrackedMut};
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::timeline::Fencing;

impl Stream {
    /// Lets `launch` enqueue foreign work (a kernel, cuBLAS, NCCL, ...) on this stream: `launch`
    /// gets the `cudaStream_t`; the work is ordered after conflicting uses of the buffers on any
    /// stream, and later uses, by the host too, are ordered after it. Does not block, unless
    /// `launch` does.
    ///
    /// If the work is on the stream already, call it with a `launch` that does nothing: it then
    /// records the work in the buffers. The caller must have ordered that work.
    ///
    /// If `launch` panics, the uses are recorded and the panic continues.
    ///
    /// # Safety
    ///
    /// * All work that `launch` enqueues is enqueued on the stream that it is given, or ordered
    ///   into it before `launch` returns.
    /// * The work reads only buffers named in `reads` or `writes`, writes only those in `writes`,
    ///   and stays inside them.
    /// * `launch` neither captures nor destroys the stream.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload); an `Err` means that `launch` was not called, unless it is
    /// an error of the runtime.
    pub unsafe fn foreign<R>(
        &self,
        reads: &[&dyn Tracked],
        writes: &mut [&mut dyn TrackedMut],
        launch: impl FnOnce(*mut c_void) -> R,
    ) -> Result<(R, Ticket)> {
        let reading = reads.iter().map(|buffer| buffer.reading());
        let writing = writes.iter_mut().map(|buffer| buffer.writing());
        let operands: Vec<Operand<'_>> = reading.chain(writing).collect();
        let handle = self.as_raw();
        let mut value = None;
        let launch = |_: &dyn Driver, _| {
            value = Some(launch(handle));
            Ok(())
        };
        let door = self.door("Stream::foreign");
        let ticket = door.ordered(&operands, Fencing::Own, launch, String::new)?;
        Ok((value.expect("launched"), ticket))
    }

    /// The first half of [`foreign`](Self::foreign): later work of this stream waits, on the
    /// device, for every use that conflicts.
    #[cfg(feature = "capi")]
    pub(crate) fn begin_foreign(
        &self,
        operation: &'static str,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        self.door(operation).wait_for_conflicts(operands)?;
        // Other code enqueues the work through the handle.
        self.timeline.expose();
        Ok(())
    }

    /// The second half: records the uses, and returns a ticket for the work.
    #[cfg(feature = "capi")]
    pub(crate) fn end_foreign(
        &self,
        operation: &'static str,
        operands: &[Operand<'_>],
    ) -> (bool, Result<Ticket>) {
        let mut recorded = false;
        let noted = |_| recorded = true;
        let ticket = self.door(operation).portion(operands, |_, _| Ok(()), String::new, noted);
        (recorded, ticket)
    }

    /// Makes later work of this stream wait, on the device, for every pending use of `buffer`.
    pub(crate) fn acquire(&self, buffer: &mut impl TrackedMut) -> Result<()> {
        self.door("Stream::acquire").wait_for_conflicts(&[buffer.writing()]).map(drop)
    }

    /// Records all work that is on this stream now as a use of `buffer`.
    pub(crate) fn record_use(&self, buffer: &mut impl TrackedMut) -> Result<()> {
        let door = self.door("Stream::record_use");
        door.nothing()?;
        let operands = [buffer.writing()];
        door.check_driver(operands[0].context)?;
        door.record(&operands).map(drop)
    }
}
