//! The caller's own work on buffers, from before it is enqueued until its use is recorded.
//!
//! ```text
//!   begin    the buffers are borrowed, and the stream waits for their pending uses
//!            the caller enqueues
//!   end      the uses are recorded, then the buffers are given back
//! ```
//!
//! # Invariants
//!
//! * Between begin and end, no other call can use the buffers in a conflicting way. So no operation
//!   can miss the order with a use that is recorded only at the end.
//! * A buffer is given back when its use is recorded or known to be complete. Otherwise it stays
//!   borrowed forever.

use super::table::{Alone, Counted, Inside};
use super::{
    Out, Result, freeing, handle, handle_type, invalid, layout, pinlane_buffer,
    pinlane_device_buffer, pinlane_status, pinlane_stream, pinlane_ticket, pointer,
};
use crate::memory::Operand;
use crate::memory::sealed::{Sealed, SealedMut};
use crate::stream::Stream;
use crate::ticket::Ticket;

/// The caller's own work while it is being enqueued. `pinlane_foreign_end` ends it.
pub enum pinlane_foreign {}

handle_type!(pinlane_foreign: Foreign, "foreign work", table 8, shared: false);

/// The work may read and write the buffer.
pub const PINLANE_ACCESS_WRITE: i32 = 0;
/// The work only reads the buffer. Any number of threads and streams may do so at once.
pub const PINLANE_ACCESS_READ: i32 = 1;

/// A buffer that the caller's own work uses, and its access. One array lists both the buffers that
/// the work reads and those that it writes. Set all members that you do not use to 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_use {
    /// The buffer in page-locked memory, or NULL.
    pub buffer: *mut pinlane_buffer,
    /// The buffer in device memory, or NULL. Exactly one of the two is set.
    pub device_buffer: *mut pinlane_device_buffer,
    /// `PINLANE_ACCESS_WRITE` or `PINLANE_ACCESS_READ`.
    pub access: i32,
    /// Must be 0.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u64,
}

layout!(pinlane_use: 32; access 16, reserved 24);

/// The caller's work between begin and end.
pub struct Foreign {
    stream: Stream,
    work: Work,
}

enum Work {
    Uses(Vec<Held>),
    Launch(Box<dyn Launch>),
}

/// A launch of a graph that other code enqueues.
pub(super) trait Launch: Send + Sync {
    /// Records it. False if that failed.
    fn end(&mut self, stream: &Stream) -> (bool, Result<Ticket>);
}

enum Held {
    Reads(Counted<Inside<pinlane_buffer>>),
    Writes(Counted<Alone<pinlane_buffer>>),
    ReadsOnDevice(Counted<Inside<pinlane_device_buffer>>),
    WritesOnDevice(Counted<Alone<pinlane_device_buffer>>),
}

impl Held {
    fn new(named: &pinlane_use) -> Result<Self> {
        let (host, device) = (named.buffer, named.device_buffer);
        Ok(match (host.is_null(), named.access == PINLANE_ACCESS_READ) {
            (false, true) => Held::Reads(handle::get_counted(host)?),
            (false, false) => {
                let mut buffer: Counted<Alone<_>> = handle::get_counted(host)?;
                buffer.writable()?;
                Held::Writes(buffer)
            }
            (true, true) => Held::ReadsOnDevice(handle::get_counted(device)?),
            (true, false) => Held::WritesOnDevice(handle::get_counted(device)?),
        })
    }

    fn operand(&mut self) -> Operand<'_> {
        match self {
            Held::Reads(buffer) => buffer.buffer().reading(),
            Held::Writes(buffer) => buffer.tracked().writing(),
            Held::ReadsOnDevice(buffer) => buffer.reading(),
            Held::WritesOnDevice(buffer) => buffer.writing(),
        }
    }
}

impl Foreign {
    fn begin(stream: &Stream, uses: &[pinlane_use]) -> Result<Self> {
        let uses = each_once(uses)?;
        let mut held: Vec<Held> = uses.iter().map(Held::new).collect::<Result<_>>()?;
        let operands: Vec<Operand<'_>> = held.iter_mut().map(Held::operand).collect();
        stream.begin_foreign("pinlane_foreign_begin", &operands)?;
        Ok(Foreign { stream: stream.clone(), work: Work::Uses(held) })
    }

    /// The work is a launch, which has begun.
    pub(super) fn of_launch(stream: &Stream, launch: Box<dyn Launch>) -> Self {
        Foreign { stream: stream.clone(), work: Work::Launch(launch) }
    }

    /// Ends the work. Called once. If the uses cannot be recorded, waits for the stream; if that
    /// fails too, the buffers are never given back.
    fn end(&mut self) -> Result<Ticket> {
        let (recorded, ticket) = match &mut self.work {
            Work::Uses(held) => {
                let operands: Vec<Operand<'_>> = held.iter_mut().map(Held::operand).collect();
                self.stream.end_foreign("pinlane_foreign_end", &operands)
            }
            Work::Launch(launch) => launch.end(&self.stream),
        };
        if !recorded && self.stream.synchronize().is_err() {
            std::mem::forget(std::mem::replace(&mut self.work, Work::Uses(Vec::new())));
        }
        ticket
    }
}

/// Each buffer of `uses` once, as written if one of its uses writes it.
pub(super) fn each_once(uses: &[pinlane_use]) -> Result<Vec<pinlane_use>> {
    for (number, named) in uses.iter().enumerate() {
        let one = named.buffer.is_null() != named.device_buffer.is_null();
        let access = matches!(named.access, PINLANE_ACCESS_WRITE | PINLANE_ACCESS_READ);
        if !one || !access || named.flags != 0 || named.reserved != 0 {
            return Err(invalid(
                format!("use {number} does not name one buffer and how it is used"),
                "set buffer or device_buffer, access to PINLANE_ACCESS_*, and all else to 0",
            ));
        }
    }
    let mut uses = uses.to_vec();
    // Writes sort before reads, so a write is kept.
    uses.sort_unstable_by_key(|named| (named.buffer, named.device_buffer, named.access));
    uses.dedup_by_key(|named| (named.buffer, named.device_buffer));
    Ok(uses)
}

/// Begins the caller's own work (a kernel, cuBLAS, NCCL, ...) on `stream`, which uses the `count`
/// buffers of `uses`: makes the stream wait for every pending use that conflicts, and writes a
/// handle for `pinlane_foreign_end` to `foreign`. Enqueue all of the work on the stream's
/// `cudaStream_t`, or order it into that, then call `pinlane_foreign_end`. Does not block. `uses`
/// may be NULL if `count` is 0.
///
/// Until then the buffers are borrowed: other calls that conflict get `BUSY`, on this thread too.
/// Work that only reads a buffer does not conflict with other readers: name buffers that it does
/// not write with `PINLANE_ACCESS_READ`, and any number of threads can launch work on shared
/// weights at once. A buffer that is freed before the end is kept until the end. So a use is never
/// lost. Work that is never ended keeps its buffers borrowed.
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
    // SAFETY: the caller's precondition on `foreign`.
    unsafe { Out::new("foreign", foreign) }.create("pinlane_foreign_begin", || {
        let stream = handle::get(stream)?;
        // SAFETY: the caller's precondition on `uses`.
        Foreign::begin(&stream, unsafe { pointer::inputs("uses", uses, count) }?)
    })
}

/// Ends what `pinlane_foreign_begin` began: everything on the stream now counts as a use of the
/// buffers, and later uses wait for it. Frees the handle; NULL is a no-op. Any thread may call it.
/// Does not block, unless the uses cannot be recorded: then it waits for the stream, and if that
/// fails too, the buffers stay borrowed forever. `ticket`, for the work, may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `BUSY` if two threads end it at once, `FORKED_PROCESS`,
/// `INVALID_VALUE` if `ticket` is misaligned: the work has not ended. `STREAM_CAPTURING`,
/// `WRONG_THREAD`, `CUDA`, `DEVICE_LOST`: it has ended.
///
/// # Safety
///
/// - `ticket` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_foreign_end(
    foreign: *mut pinlane_foreign,
    ticket: *mut *mut pinlane_ticket,
) -> pinlane_status {
    freeing("pinlane_foreign_end", || {
        if foreign.is_null() {
            return Ok(());
        }
        let mut foreign = handle::get_mut(foreign)?;
        // SAFETY: the caller's precondition on `ticket`.
        let out = unsafe { Out::new("ticket", ticket) }.optional()?;
        let ended = foreign.end();
        foreign.remove();
        let ticket = ended?;
        out.set_with(|| handle::create(ticket));
        Ok(())
    })
}
