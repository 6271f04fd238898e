//! A device: its primary context, which the runtime of other libraries uses too, and what calls in
//! it leave as it was.
//!
//! | state of the thread | left alone by |
//! |---|---|
//! | the current context (`cuCtxGetCurrent`) | `Library::on`, which pops what it has pushed |
//! | the capture mode (`cuThreadExchangeStreamCaptureMode`) | [`relaxed`], which sets it back |
//!
//! The driver API keeps no last error.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::super::driver_api::{CAPTURE_RELAXED, CUcontext, CUfunction};
use super::super::kernel::Kernel;
use super::table::{Functions, result};
use pinlane_driver::{DriverResult, Ordinal};

/// A context, which is never released: the device stays in use until the process ends.
#[derive(Clone, Copy)]
pub(super) struct Context(CUcontext);

// SAFETY: CUDA takes a context on any thread; this type never dereferences it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn get(self) -> CUcontext {
        self.0
    }
}

/// The kernels on a device, in the order of [`Kernel`]. They stay until the process ends.
pub(super) struct Loaded(pub(super) [CUfunction; Kernel::NAMES.len()]);

// SAFETY: CUDA takes a function on any thread; this type never dereferences it.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A device.
pub(super) struct Device {
    /// Its number in the driver API.
    pub(super) handle: c_int,
    context: OnceLock<Context>,
    /// The crate's kernels, once they are loaded.
    pub(super) kernels: OnceLock<Loaded>,
}

impl Device {
    pub(super) fn new(functions: &Functions, ordinal: Ordinal) -> DriverResult<Device> {
        let mut handle = 0;
        // SAFETY: `handle` is a live number for the call to write.
        result(unsafe { (functions.device)(&mut handle, ordinal) })?;
        Ok(Device { handle, context: OnceLock::new(), kernels: OnceLock::new() })
    }

    /// Its primary context. The first call initialises the device, which takes a part of a second.
    pub(super) fn context(&self, functions: &Functions) -> DriverResult<Context> {
        if let Some(&context) = self.context.get() {
            return Ok(context);
        }
        let mut context = null_mut();
        // SAFETY: `context` is a live handle for the call to write. A second thread may retain it
        // once more, which is never released either.
        result(unsafe { (functions.retain)(&mut context, self.handle) })?;
        Ok(*self.context.get_or_init(|| Context(context)))
    }

    /// The same, if it is known already.
    pub(super) fn known_context(&self) -> Option<Context> {
        self.context.get().copied()
    }
}

/// Runs a call in relaxed capture mode. Otherwise one that CUDA lists as potentially unsafe fails
/// while any thread captures in global mode, and invalidates that capture.
pub(super) fn relaxed(functions: &Functions, call: impl FnOnce() -> c_uint) -> c_uint {
    let mut mode = CAPTURE_RELAXED;
    // SAFETY: `mode` is live and holds a mode; the call swaps it with the thread's.
    let code = unsafe { (functions.capture_mode)(&mut mode) };
    if code != 0 {
        return code;
    }
    let code = call();
    // SAFETY: as above; `mode` now holds the thread's former mode.
    let _ = unsafe { (functions.capture_mode)(&mut mode) };
    code
}
