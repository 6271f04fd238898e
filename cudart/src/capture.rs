//! Captures of streams. There are no graphs: what a capture gives can be destroyed, and no more.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::atomic::{AtomicUsize, Ordering};

use pinlane::CudaCode;
use pinlane::driver::emulated::Face;
use pinlane::driver::{Capture, DriverResult};

use crate::abi::{Handle, Out, stream};

thread_local! {
    static MODE: Cell<c_uint> = const { Cell::new(0) };
}

fn status(face: &Face, handle: Handle, per_thread: bool) -> DriverResult<c_int> {
    let stream = stream(face, "cudaStreamIsCapturing", handle, per_thread)?;
    // SAFETY: the machine checks the handle.
    Ok(match unsafe { face.emulator().driver().stream_capture(stream) }? {
        Capture::None => 0,
        Capture::Active => 1,
        Capture::Invalidated => 2,
    })
}

cuda! {
    fn cudaStreamBeginCapture / cudaStreamBeginCapture_ptsz(
        handle: Handle, mode: c_uint,
    ) |face, per_thread| {
        if mode > 2 {
            return Err(CudaCode::INVALID_VALUE);
        }
        let stream = stream(face, "cudaStreamBeginCapture", handle, per_thread)?;
        face.emulator().begin_capture(stream)
    }

    fn cudaStreamEndCapture / cudaStreamEndCapture_ptsz(
        handle: Handle, graph: Out<Handle>,
    ) |face, per_thread| {
        static NEXT: AtomicUsize = AtomicUsize::new(16);
        graph.put(0)?;
        let stream = stream(face, "cudaStreamEndCapture", handle, per_thread)?;
        face.emulator().end_capture(stream)?;
        graph.put(NEXT.fetch_add(16, Ordering::Relaxed))
    }

    fn cudaStreamIsCapturing / cudaStreamIsCapturing_ptsz(
        handle: Handle, out: Out<c_int>,
    ) |face, per_thread| {
        out.put(status(face, handle, per_thread)?)
    }

    /// The same for all versions of the call: what else they ask for is left alone.
    fn cudaStreamGetCaptureInfo / cudaStreamGetCaptureInfo_ptsz(
        handle: Handle, out: Out<c_int>, id: Out<c_ulonglong>,
    ) |face, per_thread| {
        out.put(status(face, handle, per_thread)?)?;
        id.put_if_any(0);
        Ok(())
    }

    fn cudaStreamGetCaptureInfo_v2 / cudaStreamGetCaptureInfo_v2_ptsz(
        handle: Handle, out: Out<c_int>, id: Out<c_ulonglong>,
    ) |face, per_thread| {
        out.put(status(face, handle, per_thread)?)?;
        id.put_if_any(0);
        Ok(())
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: Out<c_uint>) |_face| {
        mode.exchange(|mode| MODE.replace(mode))
    }

    fn cudaGraphDestroy(graph: Handle) |_face| {
        if graph == 0 { Err(CudaCode::INVALID_VALUE) } else { Ok(()) }
    }
}
