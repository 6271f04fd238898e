//! Streams.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use pinlane_driver::CudaCode;
use pinlane_driver::{Capture, DriverResult, Poll, RawStream, StreamFlags};
use pinlane_emulator::{Emulator, Side};

use crate::abi::{Handle, Out};
use crate::driver::contexts::stream;

/// `cudaStreamCallback_t`
type Callback = unsafe extern "C" fn(Handle, c_int, *mut c_void);

/// `cudaMemAttachGlobal`, `Host`, `Single`
const ATTACHES: [c_uint; 3] = [1, 2, 4];

/// `cudaErrorIllegalState`
const ILLEGAL_STATE: CudaCode = CudaCode(401);

/// `cudaStreamNonBlocking`, the only flag.
const NON_BLOCKING: c_uint = 1;

fn create(gpu: &Emulator, out: Out<Handle>, flags: c_uint, priority: c_int) -> DriverResult<()> {
    out.check()?;
    if flags > NON_BLOCKING {
        return Err(CudaCode::INVALID_VALUE);
    }
    let flags = StreamFlags { blocking: flags != NON_BLOCKING, priority };
    out.put(gpu.stream_create(gpu.current_device(), flags)?.handle)
}

/// Records and waits are external to a capture only where there is one.
pub fn check_external(gpu: &Emulator, stream: RawStream, flags: c_uint) -> DriverResult<()> {
    if flags != 0 && !gpu.is_capturing(stream) { Err(ILLEGAL_STATE) } else { Ok(()) }
}

/// A callback and what it is called with.
struct Call {
    function: Callback,
    stream: Handle,
    data: *mut c_void,
}

unsafe extern "C" fn call_back(data: *mut c_void) {
    // SAFETY: `cudaStreamAddCallback` made it of a box, and gives it to one call.
    let call = unsafe { Box::from_raw(data.cast::<Call>()) };
    // SAFETY: the program asked for this call.
    unsafe { (call.function)(call.stream, 0, call.data) };
}

cuda! {
    fn cudaStreamCreate(out: Out<Handle>) |gpu| {
        create(gpu, out, 0, 0)
    }

    fn [cudaStreamCreateWithFlags, cuStreamCreate](out: Out<Handle>, flags: c_uint) |gpu| {
        create(gpu, out, flags, 0)
    }

    fn [cudaStreamCreateWithPriority, cuStreamCreateWithPriority](
        out: Out<Handle>, flags: c_uint, priority: c_int,
    ) |gpu| {
        create(gpu, out, flags, priority)
    }

    fn [cudaStreamDestroy, cuStreamDestroy_v2](handle: Handle) |gpu| {
        let stream = stream(gpu, handle, false)?;
        // SAFETY: the program gives its stream up.
        unsafe { gpu.stream_destroy(stream) }
    }

    fn [cudaStreamQuery / cudaStreamQuery_ptsz, cuStreamQuery / cuStreamQuery_ptsz](
        handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        gpu.refuse_unsafe_on(stream)?;
        match gpu.answered(|| gpu.stream_query(stream))? {
            Poll::Done => Ok(()),
            Poll::NotReady => Err(CudaCode::NOT_READY),
        }
    }

    fn [
        cudaStreamSynchronize / cudaStreamSynchronize_ptsz,
        cuStreamSynchronize / cuStreamSynchronize_ptsz
    ](handle: Handle) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        gpu.refuse_unsafe_on(stream)?;
        gpu.stream_synchronize(stream)
    }

    fn [
        cudaStreamWaitEvent / cudaStreamWaitEvent_ptsz,
        cuStreamWaitEvent / cuStreamWaitEvent_ptsz
    ](
        handle: Handle, other: Handle, flags: c_uint,
    ) |gpu, per_thread| {
        if flags > 1 {
            return Err(CudaCode::INVALID_VALUE);
        }
        let stream = stream(gpu, handle, per_thread)?;
        let event = gpu.event(other)?;
        check_external(gpu, stream, flags)?;
        // SAFETY: both are the program's.
        unsafe { gpu.stream_wait_event(stream, event) }
    }

    fn [cudaStreamGetFlags / cudaStreamGetFlags_ptsz, cuStreamGetFlags / cuStreamGetFlags_ptsz](
        handle: Handle, out: Out<c_uint>,
    ) |gpu, per_thread| {
        let flags = gpu.stream_flags(stream(gpu, handle, per_thread)?);
        out.put(if flags.blocking { 0 } else { NON_BLOCKING })
    }

    fn [
        cudaStreamGetPriority / cudaStreamGetPriority_ptsz,
        cuStreamGetPriority / cuStreamGetPriority_ptsz
    ](
        handle: Handle, out: Out<c_int>,
    ) |gpu, per_thread| {
        out.put(gpu.stream_flags(stream(gpu, handle, per_thread)?).priority)
    }

    fn [
        cudaStreamGetDevice / cudaStreamGetDevice_ptsz,
        cuStreamGetDevice / cuStreamGetDevice_ptsz
    ](
        handle: Handle, out: Out<c_int>,
    ) |gpu, per_thread| {
        out.put(stream(gpu, handle, per_thread)?.device)
    }

    fn [cudaStreamGetId / cudaStreamGetId_ptsz, cuStreamGetId / cuStreamGetId_ptsz](
        handle: Handle, out: Out<c_ulonglong>,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        out.put((stream.handle as c_ulonglong) << 8 | stream.device as c_ulonglong)
    }

    fn [
        cudaStreamAttachMemAsync / cudaStreamAttachMemAsync_ptsz,
        cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz
    ](
        handle: Handle, ptr: *mut c_void, _bytes: usize, flags: c_uint,
    ) |gpu, per_thread| {
        gpu.refuse_captured(stream(gpu, handle, per_thread)?)?;
        let known = gpu.held(ptr).side == Side::Managed && ATTACHES.contains(&flags);
        if known { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
    }

    fn [cudaLaunchHostFunc / cudaLaunchHostFunc_ptsz, cuLaunchHostFunc / cuLaunchHostFunc_ptsz](
        handle: Handle, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void,
    ) |gpu, per_thread| {
        let function = function.ok_or(CudaCode::INVALID_VALUE)?;
        let stream = stream(gpu, handle, per_thread)?;
        // SAFETY: the program asks for a call of its function.
        unsafe { gpu.launch_host(stream, function, data) }
    }

    fn [
        cudaStreamAddCallback / cudaStreamAddCallback_ptsz,
        cuStreamAddCallback / cuStreamAddCallback_ptsz
    ](
        handle: Handle, function: Option<Callback>, data: *mut c_void, flags: c_uint,
    ) |gpu, per_thread| {
        let function = function.filter(|_| flags == 0).ok_or(CudaCode::INVALID_VALUE)?;
        let stream = stream(gpu, handle, per_thread)?;
        if gpu.stream_capture(stream)? != Capture::None {
            // It is called once; a graph would call it again.
            return Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED);
        }
        let call = Box::into_raw(Box::new(Call { function, stream: handle, data })).cast();
        // SAFETY: `call_back` is called at most once with the box.
        let done = unsafe { gpu.launch_host(stream, call_back, call) };
        if done.is_err() {
            // SAFETY: the machine has not taken the box over.
            drop(unsafe { Box::from_raw(call.cast::<Call>()) });
        }
        done
    }

    fn [
        cudaStreamCopyAttributes / cudaStreamCopyAttributes_ptsz,
        cuStreamCopyAttributes / cuStreamCopyAttributes_ptsz
    ](
        dst: Handle, src: Handle,
    ) |gpu, per_thread| {
        stream(gpu, dst, per_thread)?;
        stream(gpu, src, per_thread).map(drop)
    }
}
