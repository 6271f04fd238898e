//! Functions for tests of an emulated machine: they make calls fail, lose devices, limit memory,
//! stall streams or slow them down, and begin captures.

use std::ffi::c_char;

use super::Emulator;
use super::{Result, pinlane_emulator};
use crate::capi::{
    Out, boundary, handle, invalid, pinlane_status, pinlane_stream, pointer, unknown,
};
use crate::device::check_ordinal;
use crate::driver::emulated::{Fault, Repeat};
use crate::driver::{Call, DriverResult, RawStream};
use crate::error::CudaCode;
use crate::stream::Stream;

/// One call fails.
pub const PINLANE_FAULT_ONCE: i32 = 0;
/// That call and every later one of its name fail.
pub const PINLANE_FAULT_FOREVER: i32 = 1;
/// One call takes effect, and then fails.
pub const PINLANE_FAULT_ONCE_LATE: i32 = 2;
/// That call and every later one of its name take effect, and then fail.
pub const PINLANE_FAULT_FOREVER_LATE: i32 = 3;

/// Makes a call of the machine's driver fail: the `nth` with that name from now on. 1 is the next
/// one, and 0 means the same. It then returns `cuda_error` and has no effect. `repeat` is
/// `PINLANE_FAULT_ONCE` or `PINLANE_FAULT_FOREVER`. Does not block.
///
/// With `PINLANE_FAULT_ONCE_LATE` and `PINLANE_FAULT_FOREVER_LATE` the call takes effect, and then
/// fails, as a call that reports an earlier error: a copy is enqueued, memory is freed. HostAlloc,
/// DeviceAlloc, StreamCreate and EventCreate have no effect nevertheless, because their results
/// could never be freed.
///
/// A sticky error, such as 700 (`cudaErrorIllegalAddress`), loses the device that the call names;
/// 4 (`cudaErrorCudartUnloading`) loses all devices of the machine.
///
/// Calls of the driver: HostAlloc (`cudaHostAlloc`), HostFree (`cudaFreeHost`), HostRegister,
/// HostUnregister, DeviceAlloc (`cudaMallocAsync`), DeviceFree (`cudaFreeAsync`), CopyH2D, CopyD2H,
/// CopyBatch, CopyStrided, CopyD2D, CopyPeer, CopyStridedPeer, StreamCreate, StreamDestroy,
/// StreamQuery, StreamSynchronize, StreamWaitEvent, StreamCapture (`cudaStreamIsCapturing`),
/// EventCreate, EventDestroy, EventRecord, EventQuery, EventSynchronize, EventElapsed,
/// CaptureBegin, CaptureNode, CaptureEnd, GraphSetCopy, GraphLaunch, GraphDestroy, LaunchHost
/// (`cudaLaunchHostFunc`), PeerQuery, PeerEnable, PoolAccess, Attributes, MemoryInfo, and launches
/// of the kernels Fill, Checksum, MoveItems and Busy.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `call` is NULL or no call has that name, for a
/// `cuda_error` that is not positive, or for an unknown `repeat`.
///
/// # Safety
///
/// - `call` is NULL or points to a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_inject(
    emulator: *const pinlane_emulator,
    call: *const c_char,
    nth: u64,
    cuda_error: i32,
    repeat: i32,
) -> pinlane_status {
    boundary("pinlane_emulator_inject", || {
        let emulator = handle::get(emulator)?;
        // SAFETY: the caller's precondition on `call`.
        let call = unsafe { call_named(call) }?;
        let (repeat, late) = match repeat {
            PINLANE_FAULT_ONCE => (Repeat::Once, false),
            PINLANE_FAULT_FOREVER => (Repeat::Forever, false),
            PINLANE_FAULT_ONCE_LATE => (Repeat::Once, true),
            PINLANE_FAULT_FOREVER_LATE => (Repeat::Forever, true),
            other => return Err(unknown("repeat", other, "use one of PINLANE_FAULT_*")),
        };
        if cuda_error <= 0 {
            let context = format!("cuda_error is {cuda_error}, which is no error");
            let remedy = "name a cudaError_t, such as 2 (cudaErrorMemoryAllocation)";
            return Err(invalid(context, remedy));
        }
        emulator.inject(Fault { call, nth, code: CudaCode(cuda_error), repeat, late });
        Ok(())
    })
}

/// Removes all faults: those that have not happened yet, and those that repeat. Lost devices stay
/// lost.
///
/// Statuses: `INVALID_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_clear_faults(
    emulator: *const pinlane_emulator,
) -> pinlane_status {
    boundary("pinlane_emulator_clear_faults", || {
        handle::get(emulator)?.clear_faults();
        Ok(())
    })
}

/// Writes to `count` how many calls with that name the machine's driver has had, including failed
/// ones. `pinlane_emulator_inject` lists the names.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` if `call` or `count` is NULL, or no call has that
/// name.
///
/// # Safety
///
/// - `call` is NULL or points to a string.
/// - `count` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_calls(
    emulator: *const pinlane_emulator,
    call: *const c_char,
    count: *mut u64,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `count`.
    unsafe { Out::new("count", count) }.give("pinlane_emulator_calls", || {
        let emulator = handle::get(emulator)?;
        // SAFETY: the caller's precondition on `call`.
        Ok(emulator.calls(unsafe { call_named(call) }?))
    })
}

/// # Safety
///
/// * `name` is NULL (an error), or points to a string.
unsafe fn call_named(name: *const c_char) -> Result<Call> {
    // SAFETY: the same precondition.
    let name = unsafe { pointer::string("call", name) }?;
    Call::named(&name).ok_or_else(|| {
        let remedy = "pinlane_emulator_inject lists the names";
        invalid(format!("no call is named {name:?}"), remedy)
    })
}

/// Loses device number `ordinal` of the machine, as a faulty kernel does: every later call on it
/// fails with `cuda_error`, which is sticky, such as 700 (`cudaErrorIllegalAddress`). Enqueued work
/// continues or never runs, as the seed decides. 4 (`cudaErrorCudartUnloading`) loses all devices,
/// as the end of the process does; calls then have the status `CUDA`, otherwise `DEVICE_LOST`. A
/// lost device stays lost.
///
/// Statuses: `INVALID_HANDLE`; `INVALID_VALUE` for a `cuda_error` that does not lose a device;
/// `NO_DEVICE` if the machine has no such device.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_lose_device(
    emulator: *const pinlane_emulator,
    ordinal: i32,
    cuda_error: i32,
) -> pinlane_status {
    boundary("pinlane_emulator_lose_device", || {
        let (emulator, code) = (handle::get(emulator)?, CudaCode(cuda_error));
        if !code.is_sticky() && code != CudaCode::CUDART_UNLOADING {
            let context = format!("{code} loses no device");
            let remedy = "name a sticky error, such as 700, or 4 for all devices";
            return Err(invalid(context, remedy));
        }
        check_ordinal(&emulator, "", ordinal)?;
        emulator.lose_device(ordinal, code).map_err(|code| {
            crate::error::Error::cuda(code, "", format!("device {ordinal} of the machine"))
        })
    })
}

/// Stalls the stream: none of its operations starts until `pinlane_emulator_release`, or until the
/// stream is freed. Calls that wait for them block until then. The stream belongs to an emulated
/// device.
///
/// Statuses: `INVALID_HANDLE`; `UNSUPPORTED` for a stream of a GPU; `CUDA` for a borrowed stream
/// that does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_stall(stream: *const pinlane_stream) -> pinlane_status {
    boundary("pinlane_emulator_stall", || on_stream(stream, Emulator::stall))
}

/// Resumes a stream that `pinlane_emulator_stall` has stalled.
///
/// Statuses: as for `pinlane_emulator_stall`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_release(stream: *const pinlane_stream) -> pinlane_status {
    boundary("pinlane_emulator_release", || on_stream(stream, Emulator::release))
}

/// Makes the stream slow: each of its operations takes `steps` more steps before it is complete. A
/// step is a call that any thread makes on the machine; a wait takes as many steps as it needs. 0
/// restores the normal speed. The stream belongs to an emulated device. Does not block.
///
/// Statuses: as for `pinlane_emulator_stall`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_slow(
    stream: *const pinlane_stream,
    steps: u32,
) -> pinlane_status {
    boundary("pinlane_emulator_slow", || {
        on_stream(stream, |emulator, raw| emulator.slow(raw, steps))
    })
}

/// Limits how many bytes may be page-locked on the machine at a time, allocated and registered
/// together. A call that exceeds the limit gets `cudaErrorMemoryAllocation`; existing memory stays.
/// `SIZE_MAX` lifts the limit. Does not block.
///
/// Statuses: `INVALID_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_limit_page_locked(
    emulator: *const pinlane_emulator,
    bytes: usize,
) -> pinlane_status {
    boundary("pinlane_emulator_limit_page_locked", || {
        handle::get(emulator)?.limit_page_locked(bytes);
        Ok(())
    })
}

/// Changes how many bytes of memory each device of the machine has; existing memory stays. Does not
/// block.
///
/// Statuses: `INVALID_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_limit_device_memory(
    emulator: *const pinlane_emulator,
    bytes: usize,
) -> pinlane_status {
    boundary("pinlane_emulator_limit_device_memory", || {
        handle::get(emulator)?.limit_device_memory(bytes);
        Ok(())
    })
}

/// Begins a graph capture of the stream in global mode, as `cudaStreamBeginCapture` does. Until it
/// ends, pinlane refuses to enqueue on the stream. The stream belongs to an emulated device.
///
/// Statuses: as for `pinlane_emulator_stall`; `STREAM_CAPTURING` for the legacy default stream,
/// which cannot be captured; `CUDA` if the stream is being captured.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_emulator_begin_capture(stream: *const pinlane_stream) -> pinlane_status {
    boundary("pinlane_emulator_begin_capture", || on_stream(stream, Emulator::begin_capture))
}

/// Ends a graph capture, on the thread that began it, and writes to `operations` how many it has
/// recorded. The graph is not kept.
///
/// Statuses: as for `pinlane_emulator_stall`; `STREAM_CAPTURING` if a forbidden call has
/// invalidated the capture, which has ended now; `CUDA` if the stream is not being captured, or if
/// the capture began on another stream or thread; `INVALID_VALUE` if `operations` is NULL.
///
/// # Safety
///
/// - `operations` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_emulator_end_capture(
    stream: *const pinlane_stream,
    operations: *mut usize,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `operations`.
    unsafe { Out::new("operations", operations) }
        .give("pinlane_emulator_end_capture", || on_stream(stream, Emulator::end_capture))
}

/// Runs `work` on a stream of an emulated machine.
fn on_stream<R>(
    stream: *const pinlane_stream,
    work: impl FnOnce(&Emulator, RawStream) -> DriverResult<R>,
) -> Result<R> {
    let stream: &Stream = &*handle::get(stream)?;
    let context = stream.timeline.context();
    let emulator = context.emulator().ok_or_else(super::not_emulated)?;
    // `as_raw` exposes the stream, because the test changes it from outside.
    let raw = context.stream(stream.as_raw().addr());
    work(&emulator, raw).map_err(|code| context.error(code, "", "the stream"))
}
