//! Calls of the C library whose buffers lie in memory that is in use.
//!
//! Pages that an operation uses are closed to the program. A load that comes too early faults, and
//! is made good; a system call fails, with `EFAULT`. So the library replaces the functions that
//! programs give such buffers to ([`mod@calls`]). Each then calls the function that it replaces
//! ([`real`]):
//!
//! ```text
//!   is a buffer in watched memory?    no: the real call (as nearly always)
//!   its pages are opened
//!   the real call                     may block: nothing is locked
//!   the bytes that it has really used are said to the race checker; the pages are closed
//! ```
//!
//! The destination of a copy in pageable or registered memory has no closed pages. Calls look for
//! such destinations in the same way, and report the use to the race checker.
//!
//! For the same reason it replaces `sigaction` ([`actions`]).
//!
//! # Invariants
//!
//! * A call whose buffers lie elsewhere takes no lock, allocates nothing and changes no error
//!   number: it may come from a handler of signals, from a child that was forked, and before the
//!   constructors of the library have run. It may also come from the library itself, which writes
//!   its reports by these calls while the machine is locked.
//! * Nothing is to be dropped in the frames below the real call: a thread that is cancelled there
//!   leaves them without running their code. Its pages then stay open.
//!
//! A call of a stand-in for a kernel, which runs while the machine is locked, is a use by the
//! kernel, and has its pages opened.
//!
//! Two limits: a handler of signals that interrupts a call of CUDA, and itself uses a buffer in
//! watched memory, waits for a lock that its own thread holds. And system calls without a function
//! here, those of io_uring among them, fail on closed pages.

mod actions;
mod calls;
mod real;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_int, c_void, iovec, msghdr};
use pinlane_base::sanitizer::ours;
use pinlane_emulator::Emulator;

use crate::boundary;
use crate::machine::{self, Process};

/// The most buffers of one call; more are an error.
const MOST: usize = 1024;

/// What a call does to its buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Reads,
    Writes,
}

/// The buffers of one call, in the order in which it uses them.
#[derive(Clone, Copy)]
enum Buffers {
    One(iovec),
    List(*const iovec, usize),
}

impl Buffers {
    fn one(start: *const c_void, bytes: usize) -> Self {
        Buffers::One(iovec { iov_base: start.cast_mut(), iov_len: bytes })
    }

    /// A list as `readv` gets it. One that the call is to refuse is empty.
    fn list(first: *const iovec, count: c_int) -> Self {
        let count = usize::try_from(count).ok().filter(|&count| count <= MOST);
        Buffers::List(first, if first.is_null() { 0 } else { count.unwrap_or(0) })
    }

    /// Those of a message; NULL has none.
    ///
    /// # Safety
    ///
    /// * The message is valid or NULL.
    unsafe fn of(message: *const msghdr) -> Self {
        if message.is_null() {
            return Buffers::one(message.cast(), 0);
        }
        // SAFETY: promised by the caller.
        let (first, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen) };
        Buffers::list(first, c_int::try_from(count).unwrap_or(-1))
    }

    /// Their addresses.
    ///
    /// # Safety
    ///
    /// * A list is as long as it says.
    unsafe fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        let count = match self {
            Buffers::One(_) => 1,
            Buffers::List(_, count) => count,
        };
        (0..count).map(move |at| {
            let buffer = match self {
                Buffers::One(buffer) => buffer,
                // SAFETY: there are that many: promised by the caller.
                Buffers::List(first, _) => unsafe { first.add(at).read() },
            };
            let start = buffer.iov_base.addr();
            start..start.saturating_add(buffer.iov_len)
        })
    }
}

/// Makes a call, and says what it does. `used` tells from its result how many bytes it has used.
///
/// # Safety
///
/// * The buffers are those of the call; a list is as long as it says.
#[inline]
unsafe fn around<R: Copy>(
    way: Way,
    buffers: Buffers,
    used: impl FnOnce(R) -> usize,
    call: impl FnOnce() -> R,
) -> R {
    let Some(Process { gpu, .. }) = machine::built() else { return call() };
    if boundary::is_in_kernel() {
        // SAFETY: promised by the caller.
        let ranges = unsafe { buffers.ranges() };
        let writes = matches!(way, Way::Writes);
        ranges.for_each(|range| Emulator::stand_in_calls(&range, writes));
        return call();
    }
    // SAFETY: promised by the caller.
    if unsafe { must_be_said(buffers) } {
        // SAFETY: as above.
        return unsafe { said(gpu, way, buffers, used, call) };
    }
    call()
}

/// Whether a buffer lies in watched memory.
///
/// # Safety
///
/// * As for [`around`].
unsafe fn must_be_said(buffers: Buffers) -> bool {
    // SAFETY: promised by the caller.
    let mut ranges = unsafe { buffers.ranges() };
    ranges.any(|range| Emulator::must_be_said(&range))
}

#[cold]
unsafe fn said<R: Copy>(
    gpu: &Emulator,
    way: Way,
    buffers: Buffers,
    used: impl FnOnce(R) -> usize,
    call: impl FnOnce() -> R,
) -> R {
    // SAFETY: promised by the caller of `around`.
    let watched = || unsafe { buffers.ranges() }.filter(Emulator::must_be_said);
    with_error_kept(|| watched().for_each(|range| gpu.call_begins(range)));
    let result = call();
    let mut left = used(result);
    // SAFETY: as above.
    let all = unsafe { buffers.ranges() };
    with_error_kept(|| {
        for range in all {
            let used = left.min(range.len());
            left -= used;
            if Emulator::must_be_said(&range) {
                gpu.call_ends(range, used, way == Way::Writes);
            }
        }
    });
    result
}

/// Works without a trace: the error number stays, and a panic ends here.
fn with_error_kept(work: impl FnOnce()) {
    // SAFETY: where the thread keeps its error number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let error = unsafe { *place };
    let _ = catch_unwind(AssertUnwindSafe(|| ours(work)));
    // SAFETY: as above.
    unsafe { *place = error };
}
