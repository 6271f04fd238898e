//! Counts live handles, and reports losses that no call can return.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use super::request::User;
use super::table::Kind;
use super::{
    Out, Result, boundary, handle, pinlane_buffer, pinlane_capture, pinlane_device,
    pinlane_device_buffer, pinlane_emulator, pinlane_file, pinlane_foreign, pinlane_graph,
    pinlane_pairs, pinlane_pool, pinlane_prefetch, pinlane_recording, pinlane_request,
    pinlane_status, pinlane_stream, pinlane_ticket, unknown,
};
use crate::notice::{self, Notice};
use crate::sync::sanitizer::theirs;

/// Handles of `pinlane_device`.
pub const PINLANE_KIND_DEVICE: i32 = 1;
/// Handles of `pinlane_ticket`.
pub const PINLANE_KIND_TICKET: i32 = 2;
/// Handles of `pinlane_stream`.
pub const PINLANE_KIND_STREAM: i32 = 3;
/// Handles of `pinlane_pool`.
pub const PINLANE_KIND_POOL: i32 = 4;
/// Handles of `pinlane_buffer`.
pub const PINLANE_KIND_BUFFER: i32 = 5;
/// Handles of `pinlane_device_buffer`.
pub const PINLANE_KIND_DEVICE_BUFFER: i32 = 6;
/// Handles of `pinlane_file`.
pub const PINLANE_KIND_FILE: i32 = 7;
/// Handles of `pinlane_foreign`.
pub const PINLANE_KIND_FOREIGN: i32 = 8;
/// Handles of `pinlane_emulator`.
pub const PINLANE_KIND_EMULATOR: i32 = 9;
/// Handles of `pinlane_prefetch`.
pub const PINLANE_KIND_PREFETCH: i32 = 10;
/// Handles of `pinlane_request`.
pub const PINLANE_KIND_REQUEST: i32 = 11;
/// Handles of `pinlane_pairs`.
pub const PINLANE_KIND_PAIRS: i32 = 12;
/// Handles of `pinlane_recording`.
pub const PINLANE_KIND_RECORDING: i32 = 13;
/// Handles of `pinlane_capture`.
pub const PINLANE_KIND_CAPTURE: i32 = 14;
/// Handles of `pinlane_graph`.
pub const PINLANE_KIND_GRAPH: i32 = 15;

fn live(kind: i32) -> Result<usize> {
    fn of<H: Kind>() -> usize {
        H::table().live()
    }
    Ok(match kind {
        PINLANE_KIND_DEVICE => of::<pinlane_device>(),
        PINLANE_KIND_TICKET => of::<pinlane_ticket>(),
        PINLANE_KIND_STREAM => of::<pinlane_stream>(),
        PINLANE_KIND_POOL => of::<pinlane_pool>(),
        PINLANE_KIND_BUFFER => of::<pinlane_buffer>(),
        PINLANE_KIND_DEVICE_BUFFER => of::<pinlane_device_buffer>(),
        PINLANE_KIND_FILE => of::<pinlane_file>(),
        PINLANE_KIND_FOREIGN => of::<pinlane_foreign>(),
        PINLANE_KIND_EMULATOR => of::<pinlane_emulator>(),
        PINLANE_KIND_PREFETCH => of::<pinlane_prefetch>(),
        PINLANE_KIND_REQUEST => of::<pinlane_request>(),
        PINLANE_KIND_PAIRS => of::<pinlane_pairs>(),
        PINLANE_KIND_RECORDING => of::<pinlane_recording>(),
        PINLANE_KIND_CAPTURE => of::<pinlane_capture>(),
        PINLANE_KIND_GRAPH => of::<pinlane_graph>(),
        _ => return Err(unknown("kind", kind, "use one of PINLANE_KIND_*")),
    })
}

/// Writes the number of handles of that `kind`, one of `PINLANE_KIND_*`, that have not been freed
/// to `count`: a program that has freed everything gets 0. Leak checkers cannot find such handles,
/// because the library knows them all. Looks at every handle; takes a short lock. Handles that
/// other threads create or free during the call may or may not count.
///
/// Statuses: `FORKED_PROCESS`; `INVALID_VALUE` for another `kind`, or if `count` is NULL.
///
/// # Safety
///
/// - `count` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_live_count(kind: i32, count: *mut usize) -> pinlane_status {
    // SAFETY: the caller's precondition on `count`.
    unsafe { Out::new("count", count) }.give("pinlane_live_count", || {
        handle::check_process()?;
        live(kind)
    })
}

/// Memory is never freed and never reused: nothing proves that the device is done with it.
pub const PINLANE_LOG_QUARANTINED: i32 = 1;
/// Reports lost memory: the system refused to take it back.
pub const PINLANE_LOG_NOT_RELEASED: i32 = 2;
/// A function that frees something returned a failure, perhaps to a destructor, which cannot pass
/// it on. The message is that of `pinlane_last_error`.
pub const PINLANE_LOG_FREE_REFUSED: i32 = 3;

/// Called with `user`, the event (one of `PINLANE_LOG_*`; later releases may add some), and a
/// message that is valid until the function returns.
///
/// It is called without locks, on any thread, including pinlane's own, and on several at once. It
/// must not unwind, must not call pinlane, and should return soon, because other work waits for the
/// thread.
pub type pinlane_log_callback =
    Option<unsafe extern "C" fn(user: *mut c_void, event: i32, message: *const c_char)>;

/// Sets the function of the process that reports losses that no call can return, for example to a
/// log. NULL, the default: no function.
///
/// Blocks while the former function is running. When the call returns, the former function is not
/// running and is not called again, so the data that it uses may be freed. Called from inside the
/// function itself it does not block.
///
/// Statuses: `FORKED_PROCESS`.
///
/// # Safety
///
/// - `function` may be called with `user` on any thread until another one is set, and does not
///   unwind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_set_log_callback(
    function: pinlane_log_callback,
    user: *mut c_void,
) -> pinlane_status {
    boundary("pinlane_set_log_callback", || {
        handle::check_process()?;
        let Some(function) = function else {
            notice::listen(None);
            return Ok(());
        };
        let user = User(user);
        let tell = move |event: Notice, text: &str| {
            let event = match event {
                Notice::Quarantined => PINLANE_LOG_QUARANTINED,
                Notice::NotReleased => PINLANE_LOG_NOT_RELEASED,
                Notice::FreeRefused => PINLANE_LOG_FREE_REFUSED,
            };
            let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
            // SAFETY: the caller's precondition.
            theirs(|| unsafe { function(user.get(), event, text.as_ptr()) });
        };
        notice::listen(Some(Arc::new(tell)));
        Ok(())
    })
}
