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
    Error::invalid(
        operation,
        format!("{bytes} bytes do not fit in an address space"),
        "ask for less",
    )
}

#[cold]
pub(super) fn bad_alignment(operation: &'static str, align: usize) -> Error {
    Error::invalid(
        operation,
        format!("an alignment of {align} bytes"),
        "ask for a power of two up to 2 MiB",
    )
}

#[cold]
pub(super) fn not_ready(operation: &'static str, size: Size) -> Error {
    Error::new(
        ErrorKind::NotReady,
        operation,
        Found::Numbers(|[bytes, _]| format!("no block of {bytes} bytes is free"), [size.bytes, 0]),
        Remedy::AllocThatWaits,
    )
}

#[cold]
pub(super) fn exhausted(operation: &'static str, size: Size, stats: &Stats) -> Error {
    Error::new(
        ErrorKind::BudgetExhausted,
        operation,
        format!("a block of {} bytes does not fit in the budget: {stats}", size.bytes),
        Remedy::MakeRoom,
    )
}

#[cold]
pub(super) fn hopeless(operation: &'static str, size: Size, stats: &Stats) -> Error {
    Error::new(
        ErrorKind::BudgetExhausted,
        operation,
        format!("no block of {} bytes can become free: {stats}", size.bytes),
        Remedy::MakeNewPool,
    )
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

    Error::new(
        ErrorKind::TimedOut,
        operation,
        Found::Later(Arc::new(NoBlockInTime(size.bytes, pool))),
        Remedy::MakeRoomSooner,
    )
}

#[cold]
pub(super) fn no_keeper(operation: &'static str, why: &dyn Display) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        operation,
        format!("the thread that page-locks memory could not be started: {why}"),
        "raise the limit on threads",
    )
}

#[cold]
pub(super) fn not_page_locked(
    context: &Context,
    failure: NotLocked,
    operation: &'static str,
    bytes: usize,
) -> Error {
    let no_memory = |found: &str| {
        Error::new(
            ErrorKind::OutOfHostMemory,
            operation,
            format!("the system has no {bytes} bytes to page-lock{found} ({})", Limits::current()),
            "lower the pool's max_bytes, raise the memory limit, or free memory elsewhere",
        )
    };
    match failure {
        NotLocked::Refused(error) => error,
        NotLocked::NoMemory(Some(available)) => {
            no_memory(&format!(": {} are available", in_units(available)))
        }
        NotLocked::NoMemory(None) | NotLocked::Runtime(_, CudaCode::MEMORY_ALLOCATION) => {
            no_memory("")
        }
        NotLocked::Runtime(call, code) => {
            context.error(code, call, format_args!("page-locking {bytes} bytes"))
        }
    }
}
