//! Events.

use std::ffi::c_uint;

use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Poll};
use pinlane_emulator::Emulator;

use crate::abi::{Handle, Out};
use crate::driver::contexts::stream;
use crate::streams::check_external;

/// `cudaEventDisableTiming`
const DISABLE_TIMING: c_uint = 2;
/// `cudaEventInterprocess`, which has no timing.
const INTERPROCESS: c_uint = 4;
/// All flags.
const FLAGS: c_uint = 7;

fn create(gpu: &Emulator, out: Out<Handle>, flags: c_uint) -> DriverResult<()> {
    out.check()?;
    if flags & !FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
        return Err(CudaCode::INVALID_VALUE);
    }
    let timing = flags & DISABLE_TIMING == 0;
    let event = gpu.event_create(gpu.current_device(), timing)?;
    if flags & INTERPROCESS != 0 {
        gpu.let_others_use(event);
    }
    out.put(event.handle)
}

fn record(
    gpu: &Emulator,
    other: Handle,
    (handle, per_thread): (Handle, bool),
    flags: c_uint,
) -> DriverResult<()> {
    let event = gpu.event(other)?;
    let mut stream = stream(gpu, handle, per_thread)?;
    check_external(gpu, stream, flags)?;
    if handle <= 2 {
        // A default stream is that of the event's device only if that is current (rule 18).
        stream.device = gpu.current_device();
    }
    // SAFETY: the event is the program's.
    unsafe { gpu.event_record(event, stream) }
}

cuda! {
    fn cudaEventCreate(out: Out<Handle>) |gpu| {
        create(gpu, out, 0)
    }

    fn [cudaEventCreateWithFlags, cuEventCreate](out: Out<Handle>, flags: c_uint) |gpu| {
        create(gpu, out, flags)
    }

    fn [cudaEventDestroy, cuEventDestroy_v2](handle: Handle) |gpu| {
        let event = gpu.event(handle)?;
        // SAFETY: the program gives its event up.
        unsafe { gpu.event_destroy(event) }
    }

    fn [cudaEventRecord / cudaEventRecord_ptsz, cuEventRecord / cuEventRecord_ptsz](
        handle: Handle, of: Handle,
    ) |gpu, per_thread| {
        record(gpu, handle, (of, per_thread), 0)
    }

    fn [
        cudaEventRecordWithFlags / cudaEventRecordWithFlags_ptsz,
        cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz
    ](
        handle: Handle, of: Handle, flags: c_uint,
    ) |gpu, per_thread| {
        if flags > 1 {
            return Err(CudaCode::INVALID_VALUE);
        }
        record(gpu, handle, (of, per_thread), flags)
    }

    fn [cudaEventQuery, cuEventQuery](handle: Handle) |gpu| {
        let event = gpu.event(handle)?;
        // What a captured event answers comes first: it does so in every mode (rule 33).
        let of_capture = gpu.is_captured(event)?;
        if !of_capture {
            gpu.refuse_unsafe()?;
        }
        match gpu.answered(|| gpu.event_query(event))? {
            Poll::Done => Ok(()),
            Poll::NotReady => Err(CudaCode::NOT_READY),
        }
    }

    fn [cudaEventSynchronize, cuEventSynchronize](handle: Handle) |gpu| {
        let event = gpu.event(handle)?;
        if !gpu.is_captured(event)? {
            gpu.refuse_unsafe()?;
        }
        if gpu.is_in_host_function() {
            // On a GPU, a wait for work after the function never returns.
            return match gpu.answered(|| gpu.event_query(event))? {
                Poll::Done => Ok(()),
                Poll::NotReady => Err(CudaCode::NOT_PERMITTED),
            };
        }
        gpu.event_synchronize(event)
    }

    fn [
        cudaEventElapsedTime,
        cudaEventElapsedTime_v2,
        cuEventElapsedTime,
        cuEventElapsedTime_v2
    ](
        out: Out<f32>, start: Handle, end: Handle,
    ) |gpu| {
        let start = gpu.event(start)?;
        let end = gpu.event(end)?;
        out.put(gpu.answered(|| gpu.event_elapsed(start, end))?)
    }
}
