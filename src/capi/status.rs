//! Statuses, messages, and the one boundary that every exported function goes through.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, ErrorKind, Result};
use crate::process::discard_panic;

/// What a function returns: `PINLANE_STATUS_OK`, or why it failed. Values are never renumbered; new
/// ones may be added.
pub type pinlane_status = i32;

/// The call did what it promises.
pub const PINLANE_STATUS_OK: pinlane_status = 0;
/// An argument is outside what the function accepts.
pub const PINLANE_STATUS_INVALID_VALUE: pinlane_status = 1;
/// Two sides of a copy, or a pattern and its range, do not fit each other.
pub const PINLANE_STATUS_LENGTH_MISMATCH: pinlane_status = 2;
/// A range does not lie inside its buffer.
pub const PINLANE_STATUS_OUT_OF_RANGE: pinlane_status = 3;
/// The device still uses the buffer, or no block is free: only `try_` functions say so.
pub const PINLANE_STATUS_NOT_READY: pinlane_status = 4;
/// The pool's budget is spent on buffers that are alive.
pub const PINLANE_STATUS_BUDGET_EXHAUSTED: pinlane_status = 5;
/// The system has no more page-locked memory to give.
pub const PINLANE_STATUS_OUT_OF_HOST_MEMORY: pinlane_status = 6;
/// The device has no more memory to give.
pub const PINLANE_STATUS_OUT_OF_DEVICE_MEMORY: pinlane_status = 7;
/// No usable device: no CUDA in this build, no driver, or no device of that number.
pub const PINLANE_STATUS_NO_DEVICE: pinlane_status = 8;
/// Not supported by this build, device or stream.
pub const PINLANE_STATUS_UNSUPPORTED: pinlane_status = 9;
/// The stream belongs to another device or driver than the buffers.
pub const PINLANE_STATUS_WRONG_DEVICE: pinlane_status = 10;
/// The per-thread default stream was used on another thread than the one that opened it.
pub const PINLANE_STATUS_WRONG_THREAD: pinlane_status = 11;
/// The stream is being captured into a graph.
pub const PINLANE_STATUS_STREAM_CAPTURING: pinlane_status = 12;
/// The process is a forked child of the one that opened the device.
pub const PINLANE_STATUS_FORKED_PROCESS: pinlane_status = 13;
/// The device is lost: a sticky CUDA error.
pub const PINLANE_STATUS_DEVICE_LOST: pinlane_status = 14;
/// Another thread uses the buffer in a conflicting way at this moment.
pub const PINLANE_STATUS_BUSY: pinlane_status = 15;
/// A handle is NULL, stale, freed, or of another type.
pub const PINLANE_STATUS_INVALID_HANDLE: pinlane_status = 16;
/// A panic was caught: a bug in pinlane.
pub const PINLANE_STATUS_PANIC: pinlane_status = 17;
/// Another failure that the CUDA runtime reported; see `pinlane_last_cuda_error`.
pub const PINLANE_STATUS_CUDA: pinlane_status = 18;
/// What was waited for did not happen in time.
pub const PINLANE_STATUS_TIMED_OUT: pinlane_status = 19;
/// A file could not be opened or read, or ended early.
pub const PINLANE_STATUS_IO: pinlane_status = 20;

fn status_of(kind: ErrorKind) -> pinlane_status {
    match kind {
        ErrorKind::InvalidValue => PINLANE_STATUS_INVALID_VALUE,
        ErrorKind::LengthMismatch => PINLANE_STATUS_LENGTH_MISMATCH,
        ErrorKind::OutOfRange => PINLANE_STATUS_OUT_OF_RANGE,
        ErrorKind::NotReady => PINLANE_STATUS_NOT_READY,
        ErrorKind::BudgetExhausted => PINLANE_STATUS_BUDGET_EXHAUSTED,
        ErrorKind::OutOfHostMemory => PINLANE_STATUS_OUT_OF_HOST_MEMORY,
        ErrorKind::OutOfDeviceMemory => PINLANE_STATUS_OUT_OF_DEVICE_MEMORY,
        ErrorKind::NoDevice => PINLANE_STATUS_NO_DEVICE,
        ErrorKind::Unsupported => PINLANE_STATUS_UNSUPPORTED,
        ErrorKind::WrongDevice => PINLANE_STATUS_WRONG_DEVICE,
        ErrorKind::WrongThread => PINLANE_STATUS_WRONG_THREAD,
        ErrorKind::StreamCapturing => PINLANE_STATUS_STREAM_CAPTURING,
        ErrorKind::ForkedProcess => PINLANE_STATUS_FORKED_PROCESS,
        ErrorKind::DeviceLost => PINLANE_STATUS_DEVICE_LOST,
        ErrorKind::Busy => PINLANE_STATUS_BUSY,
        ErrorKind::InvalidHandle => PINLANE_STATUS_INVALID_HANDLE,
        // No C function runs a producer.
        ErrorKind::Panic | ErrorKind::Producer => PINLANE_STATUS_PANIC,
        ErrorKind::Cuda => PINLANE_STATUS_CUDA,
        ErrorKind::TimedOut => PINLANE_STATUS_TIMED_OUT,
        ErrorKind::Io => PINLANE_STATUS_IO,
    }
}

/// The name of every status, and what it says.
const NAMES: [(&CStr, &CStr); 21] = [
    (c"PINLANE_STATUS_OK", c"PINLANE_STATUS_OK: The call did what it promises."),
    (c"PINLANE_STATUS_INVALID_VALUE", c"PINLANE_STATUS_INVALID_VALUE: An argument is outside what the function accepts."),
    (c"PINLANE_STATUS_LENGTH_MISMATCH", c"PINLANE_STATUS_LENGTH_MISMATCH: Two sides of a copy, or a pattern and its range, do not fit each other."),
    (c"PINLANE_STATUS_OUT_OF_RANGE", c"PINLANE_STATUS_OUT_OF_RANGE: A range does not lie inside its buffer."),
    (c"PINLANE_STATUS_NOT_READY", c"PINLANE_STATUS_NOT_READY: The device still uses the buffer, or no block is free: only try_ functions say so."),
    (c"PINLANE_STATUS_BUDGET_EXHAUSTED", c"PINLANE_STATUS_BUDGET_EXHAUSTED: The pool's budget is spent on buffers that are alive."),
    (c"PINLANE_STATUS_OUT_OF_HOST_MEMORY", c"PINLANE_STATUS_OUT_OF_HOST_MEMORY: The system has no more page-locked memory to give."),
    (c"PINLANE_STATUS_OUT_OF_DEVICE_MEMORY", c"PINLANE_STATUS_OUT_OF_DEVICE_MEMORY: The device has no more memory to give."),
    (c"PINLANE_STATUS_NO_DEVICE", c"PINLANE_STATUS_NO_DEVICE: No usable device: no CUDA in this build, no driver, or no device of that number."),
    (c"PINLANE_STATUS_UNSUPPORTED", c"PINLANE_STATUS_UNSUPPORTED: Not supported by this build, device or stream."),
    (c"PINLANE_STATUS_WRONG_DEVICE", c"PINLANE_STATUS_WRONG_DEVICE: The stream belongs to another device or driver than the buffers."),
    (c"PINLANE_STATUS_WRONG_THREAD", c"PINLANE_STATUS_WRONG_THREAD: The per-thread default stream was used on another thread than the one that opened it."),
    (c"PINLANE_STATUS_STREAM_CAPTURING", c"PINLANE_STATUS_STREAM_CAPTURING: The stream is being captured into a graph."),
    (c"PINLANE_STATUS_FORKED_PROCESS", c"PINLANE_STATUS_FORKED_PROCESS: The process is a forked child of the one that opened the device."),
    (c"PINLANE_STATUS_DEVICE_LOST", c"PINLANE_STATUS_DEVICE_LOST: The device is lost: a sticky CUDA error."),
    (c"PINLANE_STATUS_BUSY", c"PINLANE_STATUS_BUSY: Another thread uses the buffer in a conflicting way at this moment."),
    (c"PINLANE_STATUS_INVALID_HANDLE", c"PINLANE_STATUS_INVALID_HANDLE: A handle is NULL, stale, freed, or of another type."),
    (c"PINLANE_STATUS_PANIC", c"PINLANE_STATUS_PANIC: A panic was caught: a bug in pinlane."),
    (c"PINLANE_STATUS_CUDA", c"PINLANE_STATUS_CUDA: Another failure that the CUDA runtime reported; see pinlane_last_cuda_error."),
    (c"PINLANE_STATUS_TIMED_OUT", c"PINLANE_STATUS_TIMED_OUT: What was waited for did not happen in time."),
    (c"PINLANE_STATUS_IO", c"PINLANE_STATUS_IO: A file could not be opened or read, or ended early."),
];

fn name_of(status: pinlane_status) -> &'static CStr {
    let known = usize::try_from(status).ok().and_then(|number| NAMES.get(number));
    known.map_or(c"PINLANE_STATUS_UNKNOWN", |(name, _)| name)
}

thread_local! {
    /// The last error, and its message once somebody has asked for that.
    static LAST: RefCell<Last> = const { RefCell::new(Last { error: None, message: None }) };
    /// What is left of it when the thread is ending: these need no destructor.
    static STATUS: Cell<pinlane_status> = const { Cell::new(PINLANE_STATUS_OK) };
    static CUDA_ERROR: Cell<i32> = const { Cell::new(0) };
}

struct Last {
    error: Option<Error>,
    message: Option<CString>,
}

impl Last {
    fn message(&mut self) -> &CStr {
        match (&mut self.message, &self.error) {
            (Some(message), _) => message,
            (None, None) => c"",
            (slot, Some(error)) => {
                let text = error.to_string().replace('\0', "?");
                slot.insert(CString::new(text).unwrap_or_default())
            }
        }
    }
}

/// Runs the body of an exported function: an error becomes a status and this thread's message, and
/// a panic becomes `PINLANE_STATUS_PANIC` instead of unwinding into C.
#[inline]
pub(super) fn boundary(body: impl FnOnce() -> Result<()>) -> pinlane_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => PINLANE_STATUS_OK,
        Ok(Err(error)) => report(error),
        Err(payload) => panicked(payload),
    }
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> pinlane_status {
    let status = report(Error::new(
        ErrorKind::Panic,
        "pinlane",
        format!("a panic was caught at the C boundary: {}", panic_text(&*payload)),
        "report it as a bug of pinlane",
    ));
    discard_panic(payload);
    status
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Keeps the error; its text is made when somebody asks for it.
#[cold]
fn report(error: Error) -> pinlane_status {
    let status = status_of(error.kind());
    STATUS.set(status);
    CUDA_ERROR.set(error.cuda_code().map_or(0, |code| code.0));
    keep(Last { error: Some(error), message: None });
    status
}

fn keep(last: Last) {
    // What was there drops with the slot free, in case that calls pinlane. While the thread is
    // ending there is no slot: then the status alone must do.
    drop(LAST.try_with(|slot| slot.replace(last)));
}

/// The message of this thread's last pinlane call that failed: which call, what was found, what to
/// do. Empty if none has failed. Valid until the thread's next pinlane call. Never NULL. While the
/// thread is ending (in destructors of its own variables, or after `main`) it says what the status
/// means, and no more.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_last_error() -> *const c_char {
    let message = LAST.try_with(|slot| slot.borrow_mut().message().as_ptr());
    message.unwrap_or_else(|_| meaning_of(STATUS.get()).as_ptr())
}

fn meaning_of(status: pinlane_status) -> &'static CStr {
    let known = usize::try_from(status).ok().filter(|&number| number > 0);
    known.and_then(|number| NAMES.get(number)).map_or(c"", |(_, meaning)| meaning)
}

/// Makes `message` this thread's last message, as if a call had failed with `status`, and returns
/// `status`: for checks that a wrapper in another language makes itself. The text is copied. NULL:
/// what the status means.
///
/// # Safety
///
/// - `message` is NULL or points to a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_set_last_error(
    status: pinlane_status,
    message: *const c_char,
) -> pinlane_status {
    let text = if message.is_null() {
        meaning_of(status)
    } else {
        // SAFETY: the caller's precondition.
        unsafe { CStr::from_ptr(message) }
    };
    STATUS.set(status);
    CUDA_ERROR.set(0);
    keep(Last { error: None, message: Some(text.to_owned()) });
    status
}

/// The `cudaError_t` behind this thread's last pinlane call that failed; 0 if the CUDA runtime was
/// not the cause. The runtime's own last-error slot is never touched.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_last_cuda_error() -> i32 {
    CUDA_ERROR.get()
}

/// The name of a status, such as "PINLANE_STATUS_BUSY"; "PINLANE_STATUS_UNKNOWN" for a number that
/// is none. A constant string, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_status_name(status: pinlane_status) -> *const c_char {
    name_of(status).as_ptr()
}

/// The version of the library, as 1000000 * major + 1000 * minor + patch. Compare it with
/// `PINLANE_VERSION`, the version of the header.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_version() -> u32 {
    const fn number(text: &str) -> u32 {
        match u32::from_str_radix(text, 10) {
            Ok(number) => number,
            Err(_) => panic!("a part of the package's version is no number"),
        }
    }
    const VERSION: u32 = 1_000_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
        + 1000 * number(env!("CARGO_PKG_VERSION_MINOR"))
        + number(env!("CARGO_PKG_VERSION_PATCH"));
    VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_with_its_text() {
        let status = boundary(|| panic!("on purpose"));
        assert_eq!(status, PINLANE_STATUS_PANIC);
        // SAFETY: the pointer is a NUL-terminated string, valid until this thread's next call.
        let text = unsafe { CStr::from_ptr(pinlane_last_error()) };
        assert!(text.to_str().expect("UTF-8").contains("on purpose"));
    }

    #[test]
    fn every_status_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = (0..=PINLANE_STATUS_IO).map(name_of).collect();
        assert_eq!(names.len(), 21);
        assert_eq!(name_of(-1), c"PINLANE_STATUS_UNKNOWN");
    }
}
