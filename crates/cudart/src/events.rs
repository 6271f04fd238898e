//! Events.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::{LazyLock, Mutex, PoisonError};

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Poll};
use pinlane_emulator::Face;

use crate::abi::{Handle, Out, event, stream};
use crate::streams::check_external;

/// `cudaEventDisableTiming`, and all flags that there are.
const DISABLE_TIMING: c_uint = 2;
/// `cudaEventInterprocess`, which has no timing.
const INTERPROCESS: c_uint = 4;
const FLAGS: c_uint = 7;

/// Which events have no timing.
static FLAGS_OF: LazyLock<Mutex<HashMap<Handle, c_uint>>> = LazyLock::new(Mutex::default);

fn create(face: &Face, out: Out<Handle>, flags: c_uint) -> DriverResult<()> {
    out.check()?;
    if flags & !FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
        return Err(CudaCode::INVALID_VALUE);
    }
    let timing = flags & DISABLE_TIMING == 0;
    let event = face.emulator().driver().event_create(face.current_device(), timing)?;
    let mut flags_of = FLAGS_OF.lock().unwrap_or_else(PoisonError::into_inner);
    flags_of.insert(event.handle, flags);
    out.put(event.handle)
}

fn record(
    face: &Face,
    other: Handle,
    (handle, per_thread): (Handle, bool),
    flags: c_uint,
) -> DriverResult<()> {
    let event = event(face, other)?;
    let mut stream = stream(face, handle, per_thread)?;
    check_external(face, stream, flags)?;
    if handle <= 2 {
        // A default stream is that of the event's device only if that is current (rule 18).
        stream.device = face.current_device();
    }
    // SAFETY: the machine checks the handles.
    unsafe { face.emulator().driver().event_record(event, stream) }
}

cuda! {
    fn cudaEventCreate(out: Out<Handle>) |face| {
        create(face, out, 0)
    }

    fn [cudaEventCreateWithFlags, cuEventCreate](out: Out<Handle>, flags: c_uint) |face| {
        create(face, out, flags)
    }

    fn [cudaEventDestroy, cuEventDestroy_v2](handle: Handle) |face| {
        let event = event(face, handle)?;
        FLAGS_OF.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        // SAFETY: the machine checks the handle; a stale one is a finding.
        unsafe { face.emulator().driver().event_destroy(event) }
    }

    fn [cudaEventRecord / cudaEventRecord_ptsz, cuEventRecord / cuEventRecord_ptsz](
        handle: Handle, of: Handle,
    ) |face, per_thread| {
        record(face, handle, (of, per_thread), 0)
    }

    fn [
        cudaEventRecordWithFlags / cudaEventRecordWithFlags_ptsz,
        cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz
    ](
        handle: Handle, of: Handle, flags: c_uint,
    ) |face, per_thread| {
        if flags > 1 {
            return Err(CudaCode::INVALID_VALUE);
        }
        record(face, handle, (of, per_thread), flags)
    }

    fn [cudaEventQuery, cuEventQuery](handle: Handle) |face| {
        let event = event(face, handle)?;
        // What a captured event answers comes first: it does so in every mode (rule 33).
        let of_capture = face.is_captured(event)?;
        if !of_capture {
            face.refuse_unsafe()?;
        }
        // SAFETY: the machine checks the handle.
        match face.answered(|| unsafe { face.emulator().driver().event_query(event) })? {
            Poll::Done => Ok(()),
            Poll::NotReady => Err(CudaCode::NOT_READY),
        }
    }

    fn [cudaEventSynchronize, cuEventSynchronize](handle: Handle) |face| {
        let event = event(face, handle)?;
        if !face.is_captured(event)? {
            face.refuse_unsafe()?;
        }
        let driver = face.emulator().driver();
        if face.is_in_host_function() {
            // A GPU waits for ever for what comes after the function.
            // SAFETY: the machine checks the handle.
            return match face.answered(|| unsafe { driver.event_query(event) })? {
                Poll::Done => Ok(()),
                Poll::NotReady => Err(CudaCode::NOT_PERMITTED),
            };
        }
        // SAFETY: as above.
        unsafe { driver.event_synchronize(event) }
    }

    fn [
        cudaEventElapsedTime,
        cudaEventElapsedTime_v2,
        cuEventElapsedTime,
        cuEventElapsedTime_v2
    ](
        out: Out<f32>, start: Handle, end: Handle,
    ) |face| {
        let start = event(face, start)?;
        let end = event(face, end)?;
        let driver = face.emulator().driver();
        // SAFETY: the machine checks the handles.
        let elapsed = face.answered(|| unsafe { driver.event_elapsed(start, end) });
        out.put(elapsed?)
    }
}
