//! Recordings: timelines of the work of devices and threads, as files.

use std::ffi::c_char;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::{
    ErrorKind, Out, Result, boundary, freeing, handle, handle_type, invalid, pinlane_device,
    pinlane_status, pointer, refused, unknown,
};
use crate::trace::{Recording, Trace};

/// Records the work on devices, until it is stopped. Any thread may use it, one at a time.
pub enum pinlane_recording {}

handle_type!(pinlane_recording: State, "recording", table 13, shared: false);

/// JSON in Chrome's trace event format, one track for each thread and each stream. Perfetto
/// (ui.perfetto.dev) and chrome://tracing open it. A launch of a graph has arguments that say which
/// captured operations it consists of.
pub const PINLANE_TRACE_JSON: i32 = 0;
/// A drawing, one row for each thread and each stream, for light and dark pages.
pub const PINLANE_TRACE_SVG: i32 = 1;

/// The object of a recording's handle.
pub enum State {
    Running(Recording),
    Stopped(Trace),
}

impl State {
    /// The trace, if the recording was stopped.
    fn trace(&self) -> Result<&Trace> {
        match self {
            State::Stopped(trace) => Ok(trace),
            State::Running(_) => {
                Err(invalid("the recording is still running", "call pinlane_recording_stop first"))
            }
        }
    }
}

/// Makes a recording without devices, whose time begins now, and writes it to `recording`. The
/// caller frees it with `pinlane_recording_free`.
///
/// Statuses: `FORKED_PROCESS`; `INVALID_VALUE` if `recording` is NULL.
///
/// # Safety
///
/// - `recording` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_recording_create(
    recording: *mut *mut pinlane_recording,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `recording`.
    unsafe { Out::new("recording", recording) }
        .create("pinlane_recording_create", || Ok(State::Running(Recording::new())))
}

/// Records the work of the device in `recording` from now on: on all its streams, in its pools, and
/// on helper threads. Several devices may share a recording. Blocks for a moment, to relate the
/// device's clock to the host's.
///
/// A device that is not recorded pays one branch for each call. While it is recorded, each
/// operation of a stream has two more events.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`; `INVALID_VALUE` while another recording
/// records the device, or if this one was stopped.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_device_record(
    device: *const pinlane_device,
    recording: *mut pinlane_recording,
) -> pinlane_status {
    boundary("pinlane_device_record", || {
        let device = handle::get(device)?;
        match &*handle::get_mut(recording)? {
            State::Running(recording) => device.record(recording),
            State::Stopped(_) => {
                Err(invalid("the recording was stopped", "create another recording"))
            }
        }
    })
}

/// Ends the recording, which can then be written. Blocks until all recorded work is complete. Does
/// nothing if the recording was stopped before.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `FORKED_PROCESS`, `UNSUPPORTED` inside a host function: the
/// recording continues.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_recording_stop(recording: *mut pinlane_recording) -> pinlane_status {
    boundary("pinlane_recording_stop", || {
        let mut state = handle::get_mut(recording)?;
        if let State::Running(recording) = &*state {
            *state = State::Stopped(recording.finish()?);
        }
        Ok(())
    })
}

/// Writes the number of recorded spans to `spans`, and the number of missing ones to `missing`:
/// operations whose times are unknown (the device was lost, or the stream was being captured), and
/// spans beyond the first million. Either may be NULL.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`; `INVALID_VALUE` while the recording is running.
///
/// # Safety
///
/// - `spans` and `missing` are NULL or point to variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_recording_counts(
    recording: *const pinlane_recording,
    spans: *mut usize,
    missing: *mut usize,
) -> pinlane_status {
    boundary("pinlane_recording_counts", || {
        // SAFETY: the caller's precondition on `spans`.
        let spans = unsafe { Out::new("spans", spans) }.optional()?;
        // SAFETY: the caller's precondition on `missing`.
        let missing = unsafe { Out::new("missing", missing) }.optional()?;
        let state = handle::get(recording)?;
        let trace = state.trace()?;
        spans.set(trace.spans().len());
        missing.set(trace.missing());
        Ok(())
    })
}

/// Writes the recording to the file at `path`, which ends with a NUL, in `format`, one of
/// `PINLANE_TRACE_*`. Replaces an existing file. Blocks as writing a file does. May be called
/// again, even with another format.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`; `INVALID_VALUE` while the recording is running, for an
/// unknown format, or if `path` is NULL; `IO` if the file cannot be written. A file that cannot be
/// written in full is removed.
///
/// # Safety
///
/// - `path` is NULL or points to a string that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_recording_write(
    recording: *const pinlane_recording,
    format: i32,
    path: *const c_char,
) -> pinlane_status {
    boundary("pinlane_recording_write", || {
        // SAFETY: the caller's precondition on `path`.
        let path = unsafe { pointer::path("path", path) }?;
        let state = handle::get(recording)?;
        let trace = state.trace()?;
        let text = match format {
            PINLANE_TRACE_JSON => trace.to_json(),
            PINLANE_TRACE_SVG => trace.to_svg(),
            format => return Err(unknown("format", format, "use one of PINLANE_TRACE_*")),
        };
        write(path, &text).map_err(|error| {
            let context = format!("{}: {error}", path.display());
            refused(ErrorKind::Io, context, "name a file that can be written, with room for it")
        })
    })
}

/// Frees the recording; NULL is a no-op. A running recording ends, and its notes are dropped. Does
/// not block.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a recording.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_recording_free(recording: *mut pinlane_recording) -> pinlane_status {
    freeing("pinlane_recording_free", || handle::free(recording))
}

/// Writes all of a file, or removes it. Does not remove other than regular files.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let written = file.write_all(text.as_bytes());
    if written.is_err() && file.metadata().is_ok_and(|it| it.is_file()) {
        let _ = std::fs::remove_file(path);
    }
    written
}
