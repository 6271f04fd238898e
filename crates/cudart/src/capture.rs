//! Captures of streams, and graphs as far as they come from captures.

use std::ffi::{c_int, c_uint, c_ulonglong};

use pinlane_driver::CudaCode;
use pinlane_driver::{Call, Capture, DriverResult};
use pinlane_emulator::{CaptureMode, Emulator};

use crate::abi::{Handle, Out};
use crate::driver::contexts::stream;

/// The numbers of the modes.
const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// The flags of executable graphs (one more needs a stream), and two of them that exclude each
/// other.
const GRAPH_FLAGS: c_ulonglong = 13;
const FREES_AND_ON_DEVICE: c_ulonglong = 1 | 4;

fn mode_of(number: c_uint) -> DriverResult<CaptureMode> {
    MODES.get(number as usize).copied().ok_or(CudaCode::INVALID_VALUE)
}

fn status(gpu: &Emulator, handle: Handle, per_thread: bool) -> DriverResult<c_int> {
    let stream = stream(gpu, handle, per_thread)?;
    Ok(match gpu.stream_capture(stream)? {
        Capture::None => 0,
        Capture::Active => 1,
        Capture::Invalidated => 2,
    })
}

/// Writes as many nodes as there is room for, and 0 in the rest. With NULL for the nodes, it gives
/// only their count.
fn give_nodes(all: &[Handle], nodes: Out<Handle>, count: Out<usize>) -> DriverResult<()> {
    if nodes.check().is_err() {
        return count.put(all.len());
    }
    count.exchange(|room| {
        for at in 0..room {
            let node = all.get(at).copied().unwrap_or(0);
            nodes.at(at * size_of::<Handle>()).cast().put_if_any(node);
        }
        room.min(all.len())
    })
}

cuda! {
    fn [
        cudaStreamBeginCapture / cudaStreamBeginCapture_ptsz,
        cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz
    ](
        handle: Handle, mode: c_uint,
    ) |gpu, per_thread| {
        let mode = mode_of(mode)?;
        gpu.stream_begin_capture(stream(gpu, handle, per_thread)?, mode)
    }

    fn [
        cudaStreamEndCapture / cudaStreamEndCapture_ptsz,
        cuStreamEndCapture / cuStreamEndCapture_ptsz
    ](
        handle: Handle, graph: Out<Handle>,
    ) |gpu, per_thread| {
        graph.put_if_any(0);
        let captured = gpu.stream_end_capture(stream(gpu, handle, per_thread)?)?;
        match graph.check() {
            Ok(()) => graph.put(captured),
            // The program drops it.
            Err(_) => gpu.graph_destroy(captured),
        }
    }

    fn [
        cudaStreamIsCapturing / cudaStreamIsCapturing_ptsz,
        cuStreamIsCapturing / cuStreamIsCapturing_ptsz
    ](
        handle: Handle, out: Out<c_int>,
    ) |gpu, per_thread| {
        out.put(status(gpu, handle, per_thread)?)
    }

    // Other results that versions of the call ask for are not written.
    fn [
        cudaStreamGetCaptureInfo / cudaStreamGetCaptureInfo_ptsz,
        cudaStreamGetCaptureInfo_v2 / cudaStreamGetCaptureInfo_v2_ptsz,
        cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz,
        cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz
    ](handle: Handle, out: Out<c_int>, id: Out<c_ulonglong>) |gpu, per_thread| {
        out.put(status(gpu, handle, per_thread)?)?;
        id.put_if_any(gpu.capture_id(stream(gpu, handle, per_thread)?).unwrap_or(0));
        Ok(())
    }

    fn [cudaThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode](
        mode: Out<c_uint>,
    ) |gpu| {
        mode.exchange(|number| {
            let was = mode_of(number).map(|mode| gpu.exchange_capture_mode(mode));
            let was = was.map(|was| MODES.iter().position(|&mode| mode == was));
            was.ok().flatten().map_or(number, |was| was as c_uint)
        })
    }

    fn [cudaGraphGetNodes, cuGraphGetNodes](
        graph: Handle, nodes: Out<Handle>, count: Out<usize>,
    ) |gpu| {
        count.check()?;
        give_nodes(&gpu.graph_nodes(graph)?, nodes, count)
    }

    // A graph is one line of nodes.
    fn [cudaGraphGetRootNodes, cuGraphGetRootNodes](
        graph: Handle, nodes: Out<Handle>, count: Out<usize>,
    ) |gpu| {
        count.check()?;
        let all = gpu.graph_nodes(graph)?;
        give_nodes(&all[..all.len().min(1)], nodes, count)
    }

    fn [cudaGraphNodeGetType, cuGraphNodeGetType](node: Handle, kind: Out<c_int>) |gpu| {
        kind.put(match gpu.graph_node(node)? {
            Call::CopyH2D | Call::CopyD2H | Call::CopyD2D | Call::CopyPeer | Call::CopyBatch => 1,
            Call::Fill => 2,
            Call::LaunchHost => 3,
            // A kernel.
            _ => 0,
        })
    }

    fn [cudaGraphInstantiate, cudaGraphInstantiateWithFlags, cuGraphInstantiateWithFlags](
        out: Out<Handle>, graph: Handle, flags: c_ulonglong,
    ) |gpu| {
        out.check()?;
        if flags & !GRAPH_FLAGS != 0 || flags & FREES_AND_ON_DEVICE == FREES_AND_ON_DEVICE {
            return Err(CudaCode::INVALID_VALUE);
        }
        out.put(gpu.graph_instantiate(graph)?)
    }

    fn [cudaGraphUpload / cudaGraphUpload_ptsz, cuGraphUpload / cuGraphUpload_ptsz](
        exec: Handle, handle: Handle,
    ) |gpu, per_thread| {
        stream(gpu, handle, per_thread)?;
        if exec == 0 { Err(CudaCode::INVALID_VALUE) } else { Ok(()) }
    }

    fn [cudaGraphLaunch / cudaGraphLaunch_ptsz, cuGraphLaunch / cuGraphLaunch_ptsz](
        exec: Handle, handle: Handle,
    ) |gpu, per_thread| {
        let stream = stream(gpu, handle, per_thread)?;
        // SAFETY: the CUDA runtime demands of its callers that what the graph uses is there.
        unsafe { gpu.graph_launch(exec, stream) }
    }

    fn [cudaGraphDestroy, cudaGraphExecDestroy, cuGraphDestroy, cuGraphExecDestroy](
        graph: Handle,
    ) |gpu| {
        gpu.graph_destroy(graph)
    }
}
