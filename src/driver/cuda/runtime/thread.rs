//! What CUDA keeps per host thread, and how a call leaves it as it was.
//!
//! | state of the thread | left alone by |
//! |---|---|
//! | the last error (`cudaPeekAtLastError`) | [`call`], [`call_here`] |
//! | the current device (`cudaGetDevice`) | [`on_device`], which sets it back |
//! | the capture mode (`cudaThreadExchangeStreamCaptureMode`) | [`relaxed`], which sets it back |
//!
//! The last error is the hard one: a failing call overwrites it, it can be cleared, but it cannot
//! be set. There are three cases:
//!
//! * The slot is empty, as nearly always: the call runs, and if it fails the slot is cleared.
//! * The slot holds an error that the caller has not read yet: the call runs on a new thread, which
//!   has its own slot. That costs some tens of microseconds, until the error is read.
//! * The slot shows the state of the whole process (no driver, corrupted context, exit): clearing
//!   does not help, and a failing call can only report the same error, so it runs in place.

use std::sync::OnceLock;

use super::sys;
use crate::error::CudaCode;
use crate::process::thread::with_helpers;
use crate::sync::Mutex;
use pinlane_driver::{DriverResult, Ordinal, RawStream};

const SUCCESS: sys::cudaError = sys::cudaError::cudaSuccess;

/// Runs a CUDA call and returns its result, and leaves the thread's last error as it was.
///
/// The call must not depend on the current device unless it sets it, and must not name the
/// per-thread default stream: it may run on another thread.
pub(super) fn call(f: impl FnOnce() -> sys::cudaError + Send) -> DriverResult<()> {
    result(match LastError::peek() {
        LastError::None => run_and_clear(f),
        LastError::OfThread => run_elsewhere(f),
        LastError::OfProcess => f(),
    })
}

/// As [`call`], but never on another thread, for the per-thread default stream: its handle would
/// name another stream there. If the slot held an error and the call fails too, the slot then holds
/// the newer error; CUDA has no way to put the older one back.
fn call_here(f: impl FnOnce() -> sys::cudaError) -> DriverResult<()> {
    result(match LastError::peek() {
        LastError::None => run_and_clear(f),
        LastError::OfThread | LastError::OfProcess => f(),
    })
}

/// [`call`] in [`relaxed`] mode, with `device` current.
pub(super) fn call_on_device(
    device: Ordinal,
    f: impl FnOnce() -> sys::cudaError + Send,
) -> DriverResult<()> {
    call(|| on_device(device, || relaxed(f)))
}

/// A call that names a stream. Only a default stream depends on the current device.
pub(super) fn call_on(
    stream: RawStream,
    f: impl FnOnce() -> sys::cudaError + Send,
) -> DriverResult<()> {
    if stream.is_default() { call_with_device(stream, f) } else { call(f) }
}

/// A call that names a stream and needs the stream's device to be current.
pub(super) fn call_with_device(
    stream: RawStream,
    f: impl FnOnce() -> sys::cudaError + Send,
) -> DriverResult<()> {
    let f = || on_device(stream.device, f);
    if stream.handle == RawStream::PER_THREAD { call_here(f) } else { call(f) }
}

/// As [`call_with_device`], for a function of the driver API. It leaves the last error alone, so
/// with one device there is nothing to check. `stream` is not a default stream. The thread may have
/// no current context.
#[inline]
pub(super) fn call_driver(
    stream: RawStream,
    f: impl FnOnce() -> sys::cudaError + Send,
) -> DriverResult<()> {
    if there_is_one_device() { result(f()) } else { call_with_device(stream, f) }
}

/// Runs `f` with `device` current. With one device there is nothing to set or query. If the device
/// is current already, that costs one comparison.
///
/// Returns the result of `f`, even if the old device cannot be restored: what `f` made or enqueued
/// exists, and an error would keep the caller from releasing it or waiting for it. Restoring fails
/// only in a corrupted context or while the runtime unloads, and the next call reports that itself.
pub(super) fn on_device(device: Ordinal, f: impl FnOnce() -> sys::cudaError) -> sys::cudaError {
    if there_is_one_device() {
        return f();
    }
    let mut before = 0;
    // SAFETY: `before` is a live `int` for the call to write.
    let code = unsafe { sys::cudaGetDevice(&mut before) };
    if code != SUCCESS {
        return code;
    }
    if before == device {
        return f();
    }
    // SAFETY: takes a number and checks it.
    let code = unsafe { sys::cudaSetDevice(device) };
    if code != SUCCESS {
        return code;
    }
    let code = f();
    // SAFETY: takes a number, the one that was current before.
    set_back(|| unsafe { sys::cudaSetDevice(before) });
    code
}

/// Whether the process has exactly one device, which is then current on every thread. After the
/// runtime has started, the number does not change.
fn there_is_one_device() -> bool {
    static ONE: OnceLock<bool> = OnceLock::new();
    *ONE.get_or_init(|| {
        let mut count = 0;
        // SAFETY: `count` is a live `int` for the call to write.
        let code = unsafe { sys::cudaGetDeviceCount(&mut count) };
        code == SUCCESS && count == 1
    })
}

/// Runs `f` in relaxed capture mode. Otherwise a call that CUDA lists as potentially unsafe fails
/// while any thread captures in global mode, and invalidates that capture.
pub(super) fn relaxed(f: impl FnOnce() -> sys::cudaError) -> sys::cudaError {
    let mut mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
    // SAFETY: `mode` is live and holds a mode; the call swaps it with the thread's.
    let code = unsafe { sys::cudaThreadExchangeStreamCaptureMode(&mut mode) };
    if code != SUCCESS {
        return code;
    }
    let code = f();
    // SAFETY: as above; `mode` now holds the thread's former mode.
    set_back(|| unsafe { sys::cudaThreadExchangeStreamCaptureMode(&mut mode) });
    code
}

/// Restores what was changed for a call. Clears a failure from the last-error slot, unless the slot
/// held an error before: the caller's error, or the error of the call, which is cleared later.
fn set_back(restore: impl FnOnce() -> sys::cudaError) {
    // SAFETY: no preconditions.
    let was_empty = unsafe { sys::cudaPeekAtLastError() } == SUCCESS;
    if restore() != SUCCESS && was_empty {
        // SAFETY: no preconditions.
        let _ = unsafe { sys::cudaGetLastError() };
    }
}

/// What the calling thread's last-error slot shows.
enum LastError {
    None,
    OfThread,
    OfProcess,
}

impl LastError {
    fn peek() -> Self {
        // SAFETY: no preconditions.
        match code_of(unsafe { sys::cudaPeekAtLastError() }) {
            CudaCode::SUCCESS => Self::None,
            CudaCode::INSUFFICIENT_DRIVER | CudaCode::CUDART_UNLOADING => Self::OfProcess,
            code if code.is_sticky() => Self::OfProcess,
            _ => Self::OfThread,
        }
    }
}

fn run_and_clear(f: impl FnOnce() -> sys::cudaError) -> sys::cudaError {
    let code = f();
    if code != SUCCESS {
        // `cudaErrorNotReady` too: the documents disagree on whether it is kept in the slot.
        // SAFETY: no preconditions.
        let _ = unsafe { sys::cudaGetLastError() };
    }
    code
}

#[cold]
fn run_elsewhere(f: impl FnOnce() -> sys::cudaError + Send) -> sys::cudaError {
    let mut device = 0;
    // The new thread gets the same device, so that no other device is initialised. SAFETY: `device`
    // is a live `int` for the call to write. The call does not fail: the slot shows that the
    // runtime is up.
    let _ = unsafe { sys::cudaGetDevice(&mut device) };

    let (waiting, code) = (Mutex::new(Some(f)), Mutex::new(sys::cudaError::cudaErrorUnknown));
    let take = || waiting.lock().take();
    // The new thread is in global capture mode, even if this one is not.
    let run = || {
        if let Some(f) = take() {
            *code.lock() = on_device(device, || relaxed(f));
        }
    };
    with_helpers("pinlane-call", 1, &run, || ());
    match take() {
        None => *code.lock(),
        // No thread could be started. The call itself matters more than the slot.
        Some(f) => f(),
    }
}

fn code_of(error: sys::cudaError) -> CudaCode {
    CudaCode(error.0.cast_signed())
}

fn result(error: sys::cudaError) -> DriverResult<()> {
    if error == SUCCESS { Ok(()) } else { Err(code_of(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::cuda::instance;
    use pinlane_driver::Attribute;

    /// Soundness rule 15, on a machine with or without a GPU: a call that fails leaves the slot as
    /// it was, whether the slot was empty or held an error of the caller's.
    #[test]
    fn soundness_rule_15_the_last_error_is_left_alone() {
        let driver = instance();
        // SAFETY: no preconditions.
        let peek = || unsafe { sys::cudaPeekAtLastError() };

        let before = peek();
        let failed = driver.attribute(-1, Attribute::MemoryPoolsSupported);
        assert!(failed.is_err(), "device -1 has attributes: {failed:?}");
        assert_eq!(peek(), before);

        // SAFETY: takes a number and checks it: the caller's own error.
        let own = unsafe { sys::cudaSetDevice(-1) };
        assert_ne!(own, sys::cudaError::cudaSuccess);
        assert_eq!(peek(), own);
        assert_eq!(driver.attribute(-1, Attribute::MemoryPoolsSupported), failed);
        assert_eq!(peek(), own);
        assert!(driver.versions().is_ok());
        assert_eq!(peek(), own, "a call that succeeds does not clear the slot");
        // SAFETY: no preconditions.
        assert_eq!(unsafe { sys::cudaGetLastError() }, own);
    }

    /// The result of a call is not lost if the device cannot be restored, and the caller finds none
    /// of our errors.
    #[test]
    fn soundness_rule_15_what_cannot_be_set_back_is_no_error_of_the_call() {
        // SAFETY: no preconditions.
        let peek = || unsafe { sys::cudaPeekAtLastError() };
        // SAFETY: takes a number and checks it.
        let refused = || unsafe { sys::cudaSetDevice(-1) };
        let before = peek();
        set_back(refused);
        // Without a driver the slot shows that from the first call of any thread on.
        let of_process = matches!(LastError::peek(), LastError::OfProcess);
        assert!(peek() == before || of_process);
        let own = refused();
        assert_ne!(own, SUCCESS);
        set_back(|| SUCCESS);
        assert_eq!(peek(), own, "what was there stays");
        // SAFETY: no preconditions.
        assert_eq!(unsafe { sys::cudaGetLastError() }, own);
    }

    /// `cudaGetDeviceCount` leaves its output unwritten if there is no driver.
    #[test]
    fn without_a_driver_the_count_is_an_error() {
        let driver = instance();
        let (installed, runtime) = driver.versions().expect("versions are known without a driver");
        assert!(runtime >= 12_000, "runtime {runtime}");
        match driver.device_count() {
            Ok(count) => {
                assert!(count >= 0 && installed > 0, "{count} devices, driver {installed}")
            }
            Err(code) => assert!(
                matches!(code, CudaCode::NO_DEVICE | CudaCode::INSUFFICIENT_DRIVER),
                "{code}"
            ),
        }
    }
}
