//! The caller's own work on buffers, from before it is enqueued until it is recorded.
//!
//! ```text
//!   begin    the buffers are borrowed, and the stream waits for their pending uses
//!            the caller enqueues
//!   end      the uses are recorded, then the buffers are given back
//! ```
//!
//! # Invariants
//!
//! * Between begin and end nobody else gets the buffers in a conflicting way, so that nobody can do
//!   what the use, once recorded, would have had to be ordered with.
//! * A buffer is given back when its use is recorded, or known to be complete; otherwise it stays
//!   borrowed for ever.

use super::buffer::{HostBuffer, pinlane_buffer};
use super::device_buffer::pinlane_device_buffer;
use super::handle::{self, Handle};
use super::pointer::{self, Out};
use super::status::{boundary, pinlane_status};
use super::stream::pinlane_stream;
use super::table::{Alone, Shared, Table};
use super::ticket::{TicketOut, pinlane_ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::sealed::{Sealed, SealedMut};
use crate::memory::{DeviceBuf, Operand};
use crate::stream::Stream;
use crate::ticket::Ticket;

/// The caller's own work that is being enqueued; ended by `pinlane_foreign_end`.
pub struct pinlane_foreign {
    _opaque: [u8; 0],
}

impl Handle for pinlane_foreign {
    type Object = Foreign;
    const NAME: &'static str = "foreign work";
    fn table() -> &'static Table<Foreign> {
        static TABLE: Table<Foreign> = Table::new(8, false);
        &TABLE
    }
}

/// The work may read and write the buffer.
pub const PINLANE_ACCESS_WRITE: i32 = 0;
/// The work only reads the buffer. Any number of threads and streams may do so at once.
pub const PINLANE_ACCESS_READ: i32 = 1;

/// A buffer that the caller's own work uses. Set all members that you do not use to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_use {
    /// The buffer in page-locked memory, or NULL.
    pub buffer: *mut pinlane_buffer,
    /// The buffer in device memory, or NULL; one of the two is set.
    pub device_buffer: *mut pinlane_device_buffer,
    /// `PINLANE_ACCESS_WRITE` or `PINLANE_ACCESS_READ`.
    pub access: i32,
    /// Must be 0.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u64,
}

const _: () = {
    assert!(size_of::<pinlane_use>() == 32);
    assert!(std::mem::offset_of!(pinlane_use, access) == 16);
    assert!(std::mem::offset_of!(pinlane_use, reserved) == 24);
};

pub struct Foreign {
    stream: Stream,
    held: Vec<Held>,
}

enum Held {
    Reads(Shared<HostBuffer>),
    Writes(Alone<HostBuffer>),
    ReadsOnDevice(Shared<DeviceBuf<u8>>),
    WritesOnDevice(Alone<DeviceBuf<u8>>),
}

impl Held {
    fn new(operation: &'static str, named: &pinlane_use) -> Result<Self> {
        let (host, device) = (named.buffer, named.device_buffer);
        Ok(match (host.is_null(), named.access == PINLANE_ACCESS_READ) {
            (false, true) => Held::Reads(handle::get(operation, host)?.counted()),
            (false, false) => Held::Writes(handle::get_mut(operation, host)?),
            (true, true) => Held::ReadsOnDevice(handle::get(operation, device)?.counted()),
            (true, false) => Held::WritesOnDevice(handle::get_mut(operation, device)?),
        })
    }

    fn operand(&mut self) -> Operand<'_> {
        match self {
            Held::Reads(buffer) => buffer.buffer.reading(),
            Held::Writes(buffer) => buffer.buffer.writing(),
            Held::ReadsOnDevice(buffer) => buffer.reading(),
            Held::WritesOnDevice(buffer) => buffer.writing(),
        }
    }
}

impl Foreign {
    fn begin(operation: &'static str, stream: &Stream, uses: &[pinlane_use]) -> Result<Self> {
        let uses = each_once(operation, uses)?;
        let held = uses.iter().map(|named| Held::new(operation, named));
        let mut held: Vec<Held> = held.collect::<Result<_>>()?;
        let operands: Vec<Operand<'_>> = held.iter_mut().map(Held::operand).collect();
        stream.begin_foreign(operation, &operands)?;
        Ok(Foreign { stream: stream.clone(), held })
    }

    /// Called once. Where the uses cannot be recorded, the stream is waited for.
    fn end(&mut self, operation: &'static str) -> Result<Ticket> {
        let operands: Vec<Operand<'_>> = self.held.iter_mut().map(Held::operand).collect();
        let (recorded, ticket) = self.stream.end_foreign(operation, &operands);
        if !recorded && self.stream.synchronize().is_err() {
            std::mem::forget(std::mem::take(&mut self.held));
        }
        ticket
    }
}

/// The buffers that are named, each once: written if any of its names says so.
fn each_once(operation: &'static str, uses: &[pinlane_use]) -> Result<Vec<pinlane_use>> {
    for (number, named) in uses.iter().enumerate() {
        let one = named.buffer.is_null() != named.device_buffer.is_null();
        let access = matches!(named.access, PINLANE_ACCESS_WRITE | PINLANE_ACCESS_READ);
        if !one || !access || named.flags != 0 || named.reserved != 0 {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                operation,
                format!("use {number} is not one buffer, to be read or written"),
                "set buffer or device_buffer, access to PINLANE_ACCESS_*, and all else to 0",
            ));
        }
    }
    let mut uses = uses.to_vec();
    // Writing comes first.
    uses.sort_unstable_by_key(|named| (named.buffer, named.device_buffer, named.access));
    uses.dedup_by_key(|named| (named.buffer, named.device_buffer));
    Ok(uses)
}

/// Begins to enqueue the caller's own work (a kernel, cuBLAS, NCCL, ...), which uses the `count`
/// buffers of `uses`, on `stream`: makes the stream wait for every pending use that conflicts, and
/// writes what ends it to `foreign`. Enqueue on the stream's `cudaStream_t`, or order into it, all
/// of that work, and call `pinlane_foreign_end`. Does not block. `uses` may be NULL if `count` is
/// 0.
///
/// The buffers are borrowed meanwhile: other calls that conflict get `BUSY`, on this thread too; a
/// buffer that is freed meanwhile is freed at the end. So a use is never lost. What is not ended
/// keeps them borrowed.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `WRONG_DEVICE`, `STREAM_CAPTURING`, `FORKED_PROCESS`,
/// `WRONG_THREAD`, `CUDA`; `INVALID_VALUE` if a pointer is NULL, or a use names no buffer, two, or
/// an unknown access or flag.
///
/// # Safety
///
/// - `uses` is NULL or points to an array of `count` elements.
/// - `foreign` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_foreign_begin(
    stream: *const pinlane_stream,
    uses: *const pinlane_use,
    count: usize,
    foreign: *mut *mut pinlane_foreign,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_foreign_begin";
        let stream = handle::get(OPERATION, stream)?;
        // SAFETY: the caller's precondition on `foreign`.
        let out = unsafe { Out::new(OPERATION, "foreign", foreign) }?;
        // SAFETY: the caller's precondition on `uses`.
        let uses = unsafe { pointer::inputs(OPERATION, "uses", uses, count) }?;
        out.set(handle::create(Foreign::begin(OPERATION, &stream, uses)?));
        Ok(())
    })
}

/// Ends what `pinlane_foreign_begin` began: what is on the stream now counts as a use of the
/// buffers, and everything later waits for it. Frees the handle; NULL is a no-op. Any thread may
/// call it. Does not block, unless the uses cannot be recorded: then it waits for the stream, and
/// if that fails too, the buffers stay borrowed for ever. `ticket`, for the work, may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `BUSY` if two threads end it at once, `FORKED_PROCESS`;
/// `INVALID_VALUE` if `ticket` is misaligned: it has not ended. `STREAM_CAPTURING`, `WRONG_THREAD`,
/// `CUDA`, `DEVICE_LOST`: it has.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_foreign_end(
    foreign: *mut pinlane_foreign,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    boundary(|| {
        const OPERATION: &str = "pinlane_foreign_end";
        if foreign.is_null() {
            return Ok(());
        }
        let mut foreign = handle::get_mut(OPERATION, foreign)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { TicketOut::new(OPERATION, ticket) }?;
        let ended = foreign.end(OPERATION);
        foreign.remove();
        out.set(ended?);
        Ok(())
    })
}
