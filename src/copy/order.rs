//! The one way to enqueue work on a stream.
//!
//! Every operation takes the same steps: check that the stream is open; make it wait, on the
//! device, for conflicting uses on other streams; enqueue the work and fence it; record the use in
//! every buffer that the work names.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::context::Context;
use crate::driver::{Driver, DriverResult, RawStream};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::memory::hazard::{Access, Use};
use crate::memory::{Operand, counted};
use crate::ticket::Ticket;
use crate::timeline::{Fence, Fencing, Timeline};
use crate::trace::{Describe, Work};

/// A stream, and the public call that enqueues work there, for errors and recordings.
#[derive(Clone, Copy)]
pub(crate) struct Door<'s> {
    pub(crate) stream: &'s Arc<Timeline>,
    pub(crate) operation: &'static str,
    /// How many bytes the work moves, for recordings; 0 if that is not known.
    bytes: usize,
    /// What it consists of, if it launches a graph; for recordings.
    launch: Option<Describe<'s>>,
}

impl<'s> Door<'s> {
    pub(crate) fn new(stream: &'s Arc<Timeline>, operation: &'static str) -> Self {
        Door { stream, operation, bytes: 0, launch: None }
    }

    /// For work that moves `bytes` bytes.
    pub(crate) fn moving(self, bytes: usize) -> Self {
        Door { bytes, ..self }
    }

    /// For the launch of a graph.
    pub(crate) fn launching(self, launch: Describe<'s>) -> Self {
        Door { launch: Some(launch), ..self }
    }

    /// The outcome of an operation on no bytes: the stream must accept work, but gets none.
    pub(crate) fn nothing(self) -> Result<Ticket> {
        self.stream.open(self.operation)?;
        Ok(Ticket::done())
    }

    /// Enqueues work, ordered after every conflicting use of `operands`, and records it there.
    #[inline]
    pub(crate) fn ordered(
        self,
        operands: &[Operand<'_>],
        fencing: Fencing,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()>,
        describe: impl FnOnce() -> String,
    ) -> Result<Ticket> {
        let driver = self.wait_for_conflicts(operands)?;
        let ticket = self.submit(driver, operands, fencing, enqueue, describe, |_| {})?;
        // The work waited for the conflicting uses, so its writes replace them in the lists.
        let covers =
            |operand: &&Operand<'_>| operand.access == Access::Write && operand.rows.is_none();
        for operand in operands.iter().filter(covers) {
            operand.hazards.supersede(self.stream, &operand.range);
        }
        Ok(ticket)
    }

    /// Makes later work of the stream wait, on the device, for every use that conflicts with
    /// `operands`. The stream is then open for that work.
    #[inline]
    pub(crate) fn wait_for_conflicts(self, operands: &[Operand<'_>]) -> Result<&'s dyn Driver> {
        let driver = self.stream.open(self.operation)?;
        for operand in operands {
            self.check_driver(operand.context)?;
            if operand.hazards.is_used_elsewhere(self.stream) {
                self.wait_for_others(operand)?;
            }
        }
        Ok(driver)
    }

    #[inline(never)]
    fn wait_for_others(self, operand: &Operand<'_>) -> Result<()> {
        let Operand { hazards, ref range, rows, access, .. } = *operand;
        let earlier = hazards.conflicts(range, rows, access, self.stream);
        for Use { stream, fence, .. } in earlier.iter() {
            self.stream.wait_for(stream, fence.position, self.operation)?;
        }
        Ok(())
    }

    /// Enqueues a part of a larger operation, whose conflicts the stream waits for already, and
    /// records it as a use of `operands`; `noted` gets the fence, to record it elsewhere.
    pub(crate) fn portion(
        self,
        operands: &[Operand<'_>],
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()>,
        describe: impl FnOnce() -> String,
        noted: impl FnOnce(Fence),
    ) -> Result<Ticket> {
        let driver = self.stream.open(self.operation)?;
        self.submit(driver, operands, Fencing::Own, enqueue, describe, noted)
    }

    /// Counts whatever is on the stream now as a use of `operands`.
    pub(crate) fn record(self, operands: &[Operand<'_>]) -> Result<Ticket> {
        let driver = self.stream.open(self.operation)?;
        self.submit(driver, operands, Fencing::Recorded, |_, _| Ok(()), String::new, |_| {})
    }

    /// Enqueues work on the stream, which has just been opened, and records it.
    ///
    /// If the stream refuses the work, nothing was enqueued. Once `enqueue` has been called, the
    /// uses are recorded and `noted` is called, even after an error or a panic: it may have
    /// enqueued something.
    #[inline]
    fn submit(
        self,
        driver: &dyn Driver,
        operands: &[Operand<'_>],
        fencing: Fencing,
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()>,
        describe: impl FnOnce() -> String,
        noted: impl FnOnce(Fence),
    ) -> Result<Ticket> {
        let Door { stream, operation, bytes, launch } = self;
        let enqueue = |driver: &dyn Driver, raw| {
            let work = Work { name: operation, bytes, launch };
            let enqueue = || stream.shown(work, || enqueue(driver, raw));
            catch_unwind(AssertUnwindSafe(enqueue))
        };
        let submission = match fencing {
            Fencing::Merged(copy) => stream.submit_merged(driver, operation, copy, enqueue)?,
            Fencing::Own | Fencing::Recorded | Fencing::Shared => {
                stream.submit_to(driver, operation, fencing, enqueue)?
            }
        };
        for operand in operands {
            operand.note(stream, submission.fence);
        }
        noted(submission.fence);
        let enqueued = submission.value.unwrap_or_else(|panic| resume_unwind(panic));
        enqueued.map_err(|code| stream.context().error(code, operation, describe()))?;
        submission.fenced?;
        Ok(Ticket::new(Arc::clone(stream), submission.fence.position))
    }

    /// Checks that both sides have the same number of elements.
    #[inline]
    pub(crate) fn check_lengths<T>(self, src: usize, dst: usize) -> Result<()> {
        if src == dst { Ok(()) } else { Err(self.other_lengths::<T>(src, dst)) }
    }

    #[cold]
    fn other_lengths<T>(self, src: usize, dst: usize) -> Error {
        let what = format!("the source has {}, the destination {dst}", counted::<T>(src));
        Error::new(ErrorKind::LengthMismatch, self.operation, what, Remedy::ViewsOfEqualLength)
    }

    /// Checks that the buffer belongs to the stream's driver.
    #[inline]
    pub(crate) fn check_driver(self, theirs: &Context) -> Result<()> {
        self.stream.context().check_driver(self.operation, theirs, "buffer")
    }

    /// Checks that the stream belongs to one of the devices that the work touches.
    pub(crate) fn check_device(self, buffers: &[&Context]) -> Result<()> {
        let ours = self.stream.context().ordinal();
        for context in buffers {
            self.check_driver(context)?;
        }
        if buffers.iter().any(|context| context.ordinal() == ours) {
            return Ok(());
        }
        let devices: Vec<_> = buffers.iter().map(|context| context.ordinal()).collect();
        let what = format!("a stream of device {ours} with memory of {devices:?}");
        let remedy = "use a stream of the device that holds the buffer";
        Err(Error::new(ErrorKind::WrongDevice, self.operation, what, remedy))
    }
}
