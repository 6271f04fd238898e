//! The pool's errors: which memory is missing, what holds it, and what to do.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use super::books::stats::{Brief, Stats, in_units};
use super::classes::Size;
use super::keeper::grow::NotLocked;
use super::keeper::limits::Limits;
use crate::context::Context;
use crate::error::{CudaCode, Error, ErrorKind, Found, Remedy};

#[cold]
pub(super) fn too_large(operation: &'static str, bytes: usize) -> Error {
    let what = format!("{bytes} bytes do not fit in an address space");
    Error::invalid(operation, what, "ask for less")
}

#[cold]
pub(super) fn bad_alignment(operation: &'static str, align: usize) -> Error {
    let what = format!("an alignment of {align} bytes");
    Error::invalid(operation, what, "ask for a power of two up to 2 MiB")
}

#[cold]
pub(super) fn not_ready(operation: &'static str, size: Size) -> Error {
    let what =
        Found::Numbers(|[bytes, _]| format!("no block of {bytes} bytes is free"), [size.bytes, 0]);
    Error::new(ErrorKind::NotReady, operation, what, Remedy::AllocThatWaits)
}

#[cold]
pub(super) fn exhausted(operation: &'static str, size: Size, stats: &Stats) -> Error {
    let what = format!("a block of {} bytes does not fit in the budget: {stats}", size.bytes);
    Error::new(ErrorKind::BudgetExhausted, operation, what, Remedy::MakeRoom)
}

/// No memory can serve the request, whatever is dropped.
#[cold]
pub(super) fn unserved(operation: &'static str, size: Size, stats: &Stats) -> Error {
    if size.bytes > stats.max_bytes {
        return exhausted(operation, size, stats);
    }
    let what = format!("no block of {} bytes can become free: {stats}", size.bytes);
    Error::new(ErrorKind::BudgetExhausted, operation, what, Remedy::MakeNewPool)
}

#[cold]
pub(super) fn timed_out(operation: &'static str, size: Size, pool: Brief) -> Error {
    /// The message. It is formatted only on demand.
    struct NoBlockInTime(usize, Brief);

    impl Display for NoBlockInTime {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            write!(f, "no block of {} bytes became free in time: {}", self.0, self.1)
        }
    }

    let what = Found::Later(Arc::new(NoBlockInTime(size.bytes, pool)));
    Error::new(ErrorKind::TimedOut, operation, what, Remedy::MakeRoomSooner)
}

#[cold]
pub(super) fn no_keeper(operation: &'static str, why: &dyn Display) -> Error {
    let what = format!("the thread that page-locks memory could not be started: {why}");
    Error::new(ErrorKind::Unsupported, operation, what, "raise the limit on threads")
}

#[cold]
pub(super) fn not_page_locked(
    context: &Context,
    failure: NotLocked,
    operation: &'static str,
    bytes: usize,
) -> Error {
    let no_memory = |found: &str| {
        let what =
            format!("the system has no {bytes} bytes to page-lock{found} ({})", Limits::current());
        let remedy = "lower the pool's max_bytes, raise the memory limit, or free memory elsewhere";
        Error::new(ErrorKind::OutOfHostMemory, operation, what, remedy)
    };
    match failure {
        NotLocked::Refused(error) => error,
        NotLocked::NoMemory(Some(available)) => {
            no_memory(&format!(": {} are available", in_units(available)))
        }
        NotLocked::NoMemory(None)
        | NotLocked::Full(_)
        | NotLocked::Runtime(_, CudaCode::MEMORY_ALLOCATION) => no_memory(""),
        NotLocked::Runtime(call, code) => {
            context.error(code, call, format_args!("page-locking {bytes} bytes"))
        }
    }
}
