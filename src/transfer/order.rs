//! The one way by which work on tracked buffers reaches a stream.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::context::Context;
use crate::driver::{Driver, DriverResult, RawStream};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Operand;
use crate::memory::hazard::Access;
use crate::stream::Stream;
use crate::ticket::Ticket;
use crate::timeline::{Fence, Fencing};

/// Enqueues work on `stream`, ordered after every conflicting use of `operands`, and records it
/// there.
pub(super) fn ordered<R>(
    stream: &Stream,
    operation: &'static str,
    operands: &[Operand<'_>],
    enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<R>,
    describe: impl FnOnce() -> String,
) -> Result<(R, Ticket)> {
    let driver = wait_for_conflicts(stream, operation, operands)?;
    let done = enqueue_and_record(stream, driver, operation, operands, enqueue, describe);
    supersede(stream, operands, &done);
    done
}

/// As [`ordered`], for a copy of `bytes` that is all that `enqueue` enqueues: small ones share
/// events.
pub(super) fn ordered_copy(
    stream: &Stream,
    operation: &'static str,
    operands: &[Operand<'_>],
    bytes: usize,
    enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()>,
    describe: impl FnOnce() -> String,
) -> Result<Ticket> {
    let driver = wait_for_conflicts(stream, operation, operands)?;
    let fencing = Fencing::of_copy(bytes);
    let done = submit_and_record(stream, driver, operation, operands, fencing, enqueue, describe);
    supersede(stream, operands, &done);
    done.map(|((), ticket)| ticket)
}

/// What has been enqueued waited for the conflicts of `operands`; where it writes, it stands for
/// them.
#[inline]
fn supersede<R>(stream: &Stream, operands: &[Operand<'_>], done: &Result<R>) {
    if done.is_ok() {
        for operand in operands.iter().filter(|operand| operand.access == Access::Write) {
            operand.hazards.supersede(&stream.timeline, &operand.range);
        }
    }
}

/// Makes later work of `stream` wait, on the device, for every use that conflicts with `operands`.
/// The stream is then open for that work.
pub(super) fn wait_for_conflicts<'s>(
    stream: &'s Stream,
    operation: &'static str,
    operands: &[Operand<'_>],
) -> Result<&'s dyn Driver> {
    let timeline = &stream.timeline;
    let driver = timeline.open(operation)?;
    for operand in operands {
        check_driver(operation, timeline.context(), operand.context)?;
        if !operand.hazards.is_used_elsewhere(timeline) {
            continue;
        }
        for earlier in operand.hazards.conflicts(&operand.range, operand.access, timeline) {
            timeline.wait_for(&earlier.stream, earlier.fence.position)?;
        }
    }
    Ok(driver)
}

/// Enqueues work on `stream`, which has just been opened, and records it as a use of `operands`.
pub(super) fn enqueue_and_record<R>(
    stream: &Stream,
    driver: &dyn Driver,
    operation: &'static str,
    operands: &[Operand<'_>],
    enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<R>,
    describe: impl FnOnce() -> String,
) -> Result<(R, Ticket)> {
    submit_and_record(stream, driver, operation, operands, Fencing::Own, enqueue, describe)
}

/// Enqueues a part of a larger operation, whose conflicts the stream waits for already, and records
/// it as a use of `operands`; `noted` is told of the fence, to record it elsewhere.
pub(super) fn portion(
    stream: &Stream,
    operation: &'static str,
    operands: &[Operand<'_>],
    enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()>,
    describe: impl FnOnce() -> String,
    noted: impl FnOnce(Fence),
) -> Result<Ticket> {
    let driver = stream.timeline.open(operation)?;
    let work = Work { stream, driver, operation, fencing: Fencing::Own };
    let done = work.submit(operands, enqueue, describe, noted);
    done.map(|((), ticket)| ticket)
}

#[inline]
fn submit_and_record<R>(
    stream: &Stream,
    driver: &dyn Driver,
    operation: &'static str,
    operands: &[Operand<'_>],
    fencing: Fencing,
    enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<R>,
    describe: impl FnOnce() -> String,
) -> Result<(R, Ticket)> {
    let work = Work { stream, driver, operation, fencing };
    work.submit(operands, enqueue, describe, |_| {})
}

/// Where work goes, and how it is fenced.
struct Work<'a> {
    stream: &'a Stream,
    driver: &'a dyn Driver,
    operation: &'static str,
    fencing: Fencing,
}

impl Work<'_> {
    /// An `Err` of the stream's means that nothing was enqueued. Once `enqueue` has been called the
    /// uses are recorded, and `noted` is told, whatever it gave and even if it panicked: it may
    /// have enqueued something.
    #[inline]
    fn submit<R>(
        self,
        operands: &[Operand<'_>],
        enqueue: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<R>,
        describe: impl FnOnce() -> String,
        noted: impl FnOnce(Fence),
    ) -> Result<(R, Ticket)> {
        let Work { stream, driver, operation, fencing } = self;
        let timeline = &stream.timeline;
        let submission = timeline.submit_to(driver, operation, fencing, |driver, raw| {
            Ok(catch_unwind(AssertUnwindSafe(|| enqueue(driver, raw))))
        })?;
        for operand in operands {
            operand.hazards.note(timeline, submission.fence, &operand.range, operand.access);
        }
        noted(submission.fence);
        let value = match submission.value {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(code) => Err(code),
        };
        let value = value.map_err(|code| timeline.context().error(code, operation, describe()))?;
        submission.fenced?;
        Ok((value, Ticket::new(Arc::clone(timeline), submission.fence.position)))
    }
}

/// Objects of two drivers know nothing of each other's streams and memory.
pub(super) fn check_driver(
    operation: &'static str,
    ours: &Context,
    theirs: &Context,
) -> Result<()> {
    if ours.same_driver(theirs) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::WrongDevice,
        operation,
        "the buffer belongs to another driver than the stream",
        "use devices of one emulator, or GPUs only",
    ))
}

/// The stream must belong to one of the devices that the work touches.
pub(super) fn check_device(
    operation: &'static str,
    stream: &Stream,
    buffers: &[&Context],
) -> Result<()> {
    for context in buffers {
        check_driver(operation, stream.timeline.context(), context)?;
    }
    if buffers.iter().any(|context| context.ordinal() == stream.device_ordinal()) {
        return Ok(());
    }
    let devices: Vec<_> = buffers.iter().map(|context| context.ordinal()).collect();
    Err(Error::new(
        ErrorKind::WrongDevice,
        operation,
        format!("a stream of device {} with memory of {devices:?}", stream.device_ordinal()),
        "use a stream of the device that holds the buffer",
    ))
}

/// Both sides must have the same number of elements.
pub(super) fn check_lengths(operation: &'static str, src: usize, dst: usize) -> Result<()> {
    if src == dst {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::LengthMismatch,
        operation,
        format!("the source has {src} elements, the destination {dst}"),
        "copy between views of equal length: buffer.slice(range), buffer.slice_mut(range)",
    ))
}
