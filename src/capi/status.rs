//! Statuses, messages, and the one boundary that every exported function goes through.
//!
//! A function of the C interface is named once, where it calls [`boundary`]. The errors of its body
//! do not contain it: a message begins with that name instead of the Rust operation, and ends with
//! what to do in C ([`in_c`]).
//!
//! A message is formatted on demand. Until then a failed call keeps only the parts of the message,
//! so polling with a call that returns `NOT_READY` is cheap.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::prefetch::Failure;
use super::remedy::in_c;
use crate::error::{Error, ErrorKind, Found, Result};
use crate::notice::{self, Notice};
use crate::process::discard_panic;
use crate::sync::sanitizer::{ours, theirs};

/// The result of a function: `PINLANE_STATUS_OK`, or why it failed. Values are never renumbered;
/// new ones may be added.
pub type pinlane_status = i32;

/// The call did what it promises.
pub const PINLANE_STATUS_OK: pinlane_status = 0;
/// An argument is outside what the function accepts.
pub const PINLANE_STATUS_INVALID_VALUE: pinlane_status = 1;
/// The lengths of a copy's two sides, or of a pattern and its range, do not fit.
pub const PINLANE_STATUS_LENGTH_MISMATCH: pinlane_status = 2;
/// A range does not lie inside its buffer.
pub const PINLANE_STATUS_OUT_OF_RANGE: pinlane_status = 3;
/// The device still uses the buffer, or no block is free. Only `try_` functions say so.
pub const PINLANE_STATUS_NOT_READY: pinlane_status = 4;
/// Live buffers take the pool's whole budget.
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
/// The per-thread default stream was used on a thread that did not open it.
pub const PINLANE_STATUS_WRONG_THREAD: pinlane_status = 11;
/// The stream is being captured into a graph.
pub const PINLANE_STATUS_STREAM_CAPTURING: pinlane_status = 12;
/// The process is a forked child of the one that opened the device.
pub const PINLANE_STATUS_FORKED_PROCESS: pinlane_status = 13;
/// The device is lost: a sticky CUDA error.
pub const PINLANE_STATUS_DEVICE_LOST: pinlane_status = 14;
/// At this moment another thread uses the buffer in a way that conflicts.
pub const PINLANE_STATUS_BUSY: pinlane_status = 15;
/// A handle is NULL, freed, of another type, or never was one.
pub const PINLANE_STATUS_INVALID_HANDLE: pinlane_status = 16;
/// A panic was caught: a bug in pinlane.
pub const PINLANE_STATUS_PANIC: pinlane_status = 17;
/// Another failure that the CUDA runtime reported: see `pinlane_last_cuda_error`.
pub const PINLANE_STATUS_CUDA: pinlane_status = 18;
/// The call waited for as long as it was allowed to.
pub const PINLANE_STATUS_TIMED_OUT: pinlane_status = 19;
/// A file could not be opened or read, or ended early.
pub const PINLANE_STATUS_IO: pinlane_status = 20;
/// There is nothing more to get.
pub const PINLANE_STATUS_END: pinlane_status = 21;
/// The program's own producer failed: see `pinlane_last_producer_error`.
pub const PINLANE_STATUS_PRODUCER: pinlane_status = 22;
/// The call was withdrawn before it had an outcome.
pub const PINLANE_STATUS_CANCELLED: pinlane_status = 23;

/// Each status, its name, and the name with its meaning, which is the comment of its constant.
/// `build/header.rs` writes them.
const STATUSES: &[(pinlane_status, &CStr, &CStr)] =
    &include!(concat!(env!("OUT_DIR"), "/statuses.rs"));

fn name_of(status: pinlane_status) -> &'static CStr {
    let known = STATUSES.iter().find(|(known, ..)| *known == status);
    known.map_or(c"PINLANE_STATUS_UNKNOWN", |(_, name, _)| name)
}

/// Empty for OK, and for a number that is not a status.
fn meaning_of(status: pinlane_status) -> &'static CStr {
    let known = STATUSES.iter().find(|(known, ..)| *known == status && status != PINLANE_STATUS_OK);
    known.map_or(c"", |(.., meaning)| meaning)
}

thread_local! {
    /// The last failure. Its message is formatted on demand.
    static LAST: RefCell<Last> = const { RefCell::new(Last::Nothing) };
    /// The codes of the last failure. They have no destructor, so they outlive `LAST` when the
    /// thread ends.
    static CODES: Cell<Codes> = const { Cell::new(Codes { status: 0, cuda: 0, producer: 0 }) };
}

enum Last {
    Nothing,
    Failed(&'static str, Error),
    Message(CString),
}

#[derive(Clone, Copy)]
struct Codes {
    status: pinlane_status,
    cuda: i32,
    producer: i32,
}

/// The message for a C program that called `function`.
fn message(function: &str, error: &Error) -> CString {
    let (operation, (context, remedy)) = (error.operation(), error.context_and_remedy());
    // Functions of the CUDA runtime have the same names in C. Other operations are names of Rust.
    let below = if operation.starts_with("cuda") { &[": ", operation] } else { &["", ""] };
    let code = error.cuda_code().map_or(String::new(), |code| format!(": {code}"));
    let text = format!("{function}{}: {context}{code}; {}", below.concat(), in_c(remedy));
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// An error that the C interface detects. The boundary names the function.
#[cold]
pub(super) fn refused(kind: ErrorKind, context: impl Into<Found>, remedy: &'static str) -> Error {
    Error::new(kind, "", context, remedy)
}

/// The error of an argument that is not accepted.
#[cold]
pub(super) fn invalid(found: impl Into<Found>, remedy: &'static str) -> Error {
    refused(ErrorKind::InvalidValue, found, remedy)
}

/// Runs the body of the exported function `function`. An error becomes a status and this thread's
/// message. A panic becomes `PINLANE_STATUS_PANIC`: it must not unwind into C.
#[inline(always)]
pub(super) fn boundary(
    function: &'static str,
    body: impl FnOnce() -> Result<()>,
) -> pinlane_status {
    ours(|| match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => PINLANE_STATUS_OK,
        Ok(Err(error)) => report(function, error),
        Err(payload) => report(function, panicked(payload)),
    })
}

/// As [`boundary`], for a function that frees an object. Destructors ignore its status, so a
/// failure is also reported to the log.
#[inline(always)]
pub(super) fn freeing(function: &'static str, body: impl FnOnce() -> Result<()>) -> pinlane_status {
    let status = boundary(function, body);
    if status != PINLANE_STATUS_OK {
        notice::tell(Notice::FreeRefused, || last_message().unwrap_or_default());
    }
    status
}

/// Turns a panic into an error, and drops its payload.
#[cold]
pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let context = format!("a panic was caught: {}", text.unwrap_or("no message"));
    discard_panic(payload);
    refused(ErrorKind::Panic, context, "report it as a bug of pinlane")
}

#[cold]
pub(super) fn report(function: &'static str, error: Error) -> pinlane_status {
    let codes = Codes {
        status: error.kind() as pinlane_status,
        cuda: error.cuda_code().map_or(0, |code| code.0),
        producer: Failure::code_behind(&error),
    };
    keep(codes, Last::Failed(function, error));
    codes.status
}

fn keep(codes: Codes, last: Last) {
    CODES.set(codes);
    // The old value drops after the slot is free, because its drop may call pinlane. While the
    // thread ends there is no slot, and only the codes are kept.
    drop(LAST.try_with(|slot| slot.replace(last)));
}

/// Calls the caller's function. Returns its result, and the message of the last failed pinlane call
/// in it.
pub(super) fn call_and_listen(function: impl FnOnce() -> i32) -> (i32, Option<String>) {
    keep(CODES.get(), Last::Nothing);
    let returned = theirs(function);
    (returned, last_message().filter(|text| !text.is_empty()))
}

/// Formats the message of this thread's last failure, and passes it to `show`; `None` while the
/// thread ends.
fn with_message<R>(show: impl FnOnce(&CStr) -> R) -> Option<R> {
    let shown = LAST.try_with(|slot| {
        let (mut last, mut made_of) = (slot.borrow_mut(), None);
        if let Last::Failed(function, error) = &*last {
            let made = Last::Message(message(function, error));
            made_of = Some(std::mem::replace(&mut *last, made));
        }
        (show(if let Last::Message(message) = &*last { message } else { c"" }), made_of)
    });
    // The parts of the message drop here, outside of the borrow, because the source of an error may
    // be a caller's value.
    shown.ok().map(|(shown, _made_of)| shown)
}

fn last_message() -> Option<String> {
    with_message(|text| text.to_string_lossy().into_owned())
}

/// The message of this thread's last pinlane call that failed: which call, what was found, what to
/// do. Empty if none has failed. Never NULL. Valid until the thread's next pinlane call. While the
/// thread ends (in destructors of thread-local variables, or after `main`) it contains only the
/// meaning of the status.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_last_error() -> *const c_char {
    with_message(CStr::as_ptr).unwrap_or_else(|| meaning_of(CODES.get().status).as_ptr())
}

/// Makes `message` this thread's last message, as if a call had failed with `status`, and returns
/// `status`. For wrappers in other languages with checks of their own. The text is copied. NULL
/// means the meaning of the status.
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
        // SAFETY: `message` is a string by the caller's precondition, and not NULL.
        unsafe { CStr::from_ptr(message) }
    };
    keep(Codes { status, cuda: 0, producer: 0 }, Last::Message(text.to_owned()));
    status
}

/// The `cudaError_t` behind this thread's last pinlane call that failed; 0 if the CUDA runtime was
/// not the cause. The runtime's own last-error slot is never touched.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_last_cuda_error() -> i32 {
    CODES.get().cuda
}

/// What the program's own producer returned, if it caused this thread's last failed pinlane call; 0
/// if no function of a `pinlane_producer` was the cause.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_last_producer_error() -> i32 {
    CODES.get().producer
}

/// The name of a status, such as "PINLANE_STATUS_BUSY", or "PINLANE_STATUS_UNKNOWN" for a number
/// that is not a status. A constant string, never NULL.
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
            Err(_) => panic!("a part of the package's version is not a number"),
        }
    }
    const VERSION: u32 = 1_000_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
        + 1000 * number(env!("CARGO_PKG_VERSION_MINOR"))
        + number(env!("CARGO_PKG_VERSION_PATCH"));
    VERSION
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::capi::buffer::HostBuffer;
    use crate::error::Remedy;

    fn c_message() -> String {
        // SAFETY: the pointer is a NUL-terminated string, valid until this thread's next call.
        unsafe { CStr::from_ptr(pinlane_last_error()) }.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn c_rule_01_a_panic_becomes_a_status_with_its_text() {
        let status = boundary("pinlane_test", || panic!("on purpose"));
        assert_eq!(status, PINLANE_STATUS_PANIC);
        assert!(c_message().contains("on purpose"));
    }

    #[test]
    fn c_rule_17_a_message_names_the_function_and_remedies_of_c() {
        let kind = ErrorKind::OutOfRange;
        boundary("pinlane_upload", || Err(Error::new(kind, "Stream::upload", "8 of 7", "less")));
        assert_eq!(c_message(), "pinlane_upload: 8 of 7; less");
        let remedy = Remedy::ReadThroughPageCache;
        boundary("pinlane_upload", || Err(Error::new(kind, "Stream::upload", "8 of 7", remedy)));
        let rest = "read the file by way of the page cache: without PINLANE_FILE_DIRECT";
        assert_eq!(c_message(), format!("pinlane_upload: 8 of 7; {rest}"));
        boundary("pinlane_upload", || Err(Error::new(kind, "cudaMalloc", "8 of 7", "less")));
        assert_eq!(c_message(), "pinlane_upload: cudaMalloc: 8 of 7; less");
    }

    #[test]
    fn c_rule_16_the_text_of_an_answer_is_made_when_somebody_asks() {
        struct Counting(Arc<AtomicUsize>);
        impl fmt::Display for Counting {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fetch_add(1, Ordering::Relaxed);
                f.write_str("not now")
            }
        }
        let made = Arc::new(AtomicUsize::new(0));
        let context = || Found::Later(Arc::new(Counting(made.clone())));
        for _ in 0..3 {
            boundary("pinlane_test", || Err(refused(ErrorKind::NotReady, context(), "later")));
        }
        assert_eq!(made.load(Ordering::Relaxed), 0);
        assert_eq!([c_message(), c_message()], ["pinlane_test: not now; later"; 2]);
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn c_rule_16_answers_are_errors_without_text() {
        use crate::capi::buffer::pinlane_buffer;
        use crate::capi::handle;
        use crate::driver::emulated::{Emulator, Execution};

        let machine = Emulator::builder().execution(Execution::Lazy).build();
        let device = crate::Device::of_emulator(&machine, 0).expect("no faults");
        let pool = crate::PinnedPool::builder(&device).max_bytes(4096).build().expect("a page");
        let stream = device.stream().expect("no faults");
        let mut gpu = device.alloc::<u8>(64).expect("no faults");
        let mut host = pool.alloc::<u8>(4096).expect("it fits");
        let ticket = stream.fill(&mut gpu, 1).expect("no faults");
        stream.download(&gpu, host.slice_mut(..64).expect("it has")).expect("no faults");
        let now = std::time::Duration::ZERO;
        let not_ready = [pool.try_alloc::<u8>(1).err(), host.try_read().err()];
        let timed_out = [pool.alloc_timeout::<u8>(1, now).err(), ticket.wait_timeout(now).err()];
        let handle = handle::create::<pinlane_buffer>(HostBuffer::new(host));
        let inside = handle::get(handle).expect("live");
        let busy = [handle::get_mut(handle).err()];
        drop(inside);
        handle::free(handle).expect("live");
        for (kind, errors) in [
            (ErrorKind::NotReady, &not_ready[..]),
            (ErrorKind::TimedOut, &timed_out[..]),
            (ErrorKind::Busy, &busy[..]),
        ] {
            for error in errors.iter().map(|error| error.as_ref().expect("an answer")) {
                assert!(error.kind() == kind && !error.has_text(), "{error}");
            }
        }
    }

    #[test]
    fn every_status_has_its_own_name() {
        let names: std::collections::BTreeSet<_> =
            (0..=PINLANE_STATUS_CANCELLED).map(name_of).collect();
        assert_eq!(names.len(), STATUSES.len());
        assert_eq!(name_of(-1), c"PINLANE_STATUS_UNKNOWN");
        assert_eq!(name_of(PINLANE_STATUS_BUSY), c"PINLANE_STATUS_BUSY");
        assert_eq!(name_of(PINLANE_STATUS_CANCELLED), c"PINLANE_STATUS_CANCELLED");
    }

    #[test]
    fn every_kind_of_error_has_the_number_of_its_status() {
        use ErrorKind::*;
        let kinds = [
            InvalidValue,
            LengthMismatch,
            OutOfRange,
            NotReady,
            BudgetExhausted,
            TimedOut,
            OutOfHostMemory,
            OutOfDeviceMemory,
            NoDevice,
            Unsupported,
            WrongDevice,
            WrongThread,
            StreamCapturing,
            ForkedProcess,
            DeviceLost,
            Busy,
            InvalidHandle,
            Panic,
            Io,
            Producer,
            End,
            Cancelled,
            Cuda,
        ];
        assert_eq!(kinds.len(), STATUSES.len() - 1, "all but OK");
        for kind in kinds {
            let spelt = |letter: char| match letter.is_uppercase() {
                true => format!("_{letter}"),
                false => letter.to_uppercase().to_string(),
            };
            let words: String = format!("{kind:?}").chars().map(spelt).collect();
            let name = format!("PINLANE_STATUS{words}");
            assert_eq!(name_of(kind as pinlane_status).to_str(), Ok(&*name));
        }
    }
}
