//! Events.

use std::ffi::c_uint;

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

fn create(face: &Face, out: Out<Handle>, flags: c_uint) -> DriverResult<()> {
    out.check()?;
    if flags & !FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
        return Err(CudaCode::INVALID_VALUE);
    }
    let timing = flags & DISABLE_TIMING == 0;
    out.put(face.event_create(face.current_device(), timing)?.handle)
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
    // SAFETY: the event is the program's.
    unsafe { face.event_record(event, stream) }
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
        // SAFETY: the program gives its event up.
        unsafe { face.event_destroy(event) }
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
        match face.answered(|| face.event_query(event))? {
            Poll::Done => Ok(()),
            Poll::NotReady => Err(CudaCode::NOT_READY),
        }
    }

    fn [cudaEventSynchronize, cuEventSynchronize](handle: Handle) |face| {
        let event = event(face, handle)?;
        if !face.is_captured(event)? {
            face.refuse_unsafe()?;
        }
        if face.is_in_host_function() {
            // A GPU waits for ever for what comes after the function.
            return match face.answered(|| face.event_query(event))? {
                Poll::Done => Ok(()),
                Poll::NotReady => Err(CudaCode::NOT_PERMITTED),
            };
        }
        face.event_synchronize(event)
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
        out.put(face.answered(|| face.event_elapsed(start, end))?)
    }
}
