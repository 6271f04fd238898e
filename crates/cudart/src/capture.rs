//! Captures of streams, and graphs as far as they come from captures.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

use pinlane_driver::CudaCode;
use pinlane_driver::{Call, Capture, CopyKind, DriverResult, Item, RawStream};
use pinlane_emulator::{CaptureMode, Emulator, Side};

use crate::abi::{Handle, Out};
use crate::driver::contexts::stream;
use crate::environment;

/// The numbers of the modes.
const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// `cudaStreamCaptureStatusActive`
const ACTIVE: c_int = 1;

/// The flags of executable graphs (one more needs a stream), and two of them that exclude each
/// other.
const GRAPH_FLAGS: c_ulonglong = 13;
const FREES_ON_LAUNCH: c_ulonglong = 1;
const FREES_AND_ON_DEVICE: c_ulonglong = FREES_ON_LAUNCH | 4;

fn mode_of(number: c_uint) -> DriverResult<CaptureMode> {
    MODES.get(number as usize).copied().ok_or(CudaCode::INVALID_VALUE)
}

fn status(gpu: &Emulator, stream: RawStream) -> DriverResult<c_int> {
    Ok(match gpu.stream_capture(stream)? {
        Capture::None => 0,
        Capture::Active => ACTIVE,
        Capture::Invalidated => 2,
    })
}

/// Where a program wants to know what is being captured.
struct Asked {
    graph: Out<Handle>,
    nodes: Out<*const Handle>,
    edges: Out<*const Handle>,
    count: Out<usize>,
}

impl Asked {
    fn nothing() -> Self {
        Asked { graph: Out::of(0), nodes: Out::of(0), edges: Out::of(0), count: Out::of(0) }
    }
}

/// Tells about a stream's capture: zeros if there is none that goes on.
fn tell(
    gpu: &Emulator,
    stream: RawStream,
    out: Out<c_int>,
    id: Out<c_ulonglong>,
    asked: Asked,
) -> DriverResult<()> {
    let status = status(gpu, stream)?;
    out.put(status)?;
    id.put_if_any(gpu.capture_id(stream).unwrap_or(0));
    let info = gpu.capture_info(stream).filter(|_| status == ACTIVE);
    let (graph, nodes, count) =
        info.map_or((0, ptr::null(), 0), |info| (info.graph, info.dependencies, info.count));
    asked.graph.put_if_any(graph);
    asked.nodes.put_if_any(nodes);
    // An entry has 8 bytes.
    asked.edges.put_if_any(nodes.wrapping_add(count));
    asked.count.put_if_any(count);
    Ok(())
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

/// Gives a copy of an executable graph other addresses, in the direction that they show.
pub fn set_copy(
    gpu: &Emulator,
    exec: Handle,
    node: Handle,
    (dst, src): (*mut c_void, *const c_void),
    bytes: usize,
) -> DriverResult<()> {
    let is_host = |ptr: *const c_void| match gpu.held(ptr).side {
        Side::PageLocked => Ok(true),
        Side::OnDevice => Ok(false),
        Side::Pageable | Side::Managed => Err(CudaCode::NOT_SUPPORTED),
    };
    let kind = match (is_host(src)?, is_host(dst)?) {
        (true, false) => CopyKind::H2D,
        (false, true) => CopyKind::D2H,
        (false, false) => CopyKind::D2D,
        (true, true) => return Err(CudaCode::NOT_SUPPORTED),
    };
    let (src, dst) = (src.expose_provenance() as u64, dst.expose_provenance() as u64);
    gpu.graph_set_copy(exec, node, kind, Item { src, dst, bytes: bytes as u64 })
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
        out.put(status(gpu, stream(gpu, handle, per_thread)?)?)
    }

    // Three arguments in CUDA 12, and seven in CUDA 13.
    fn [cudaStreamGetCaptureInfo / cudaStreamGetCaptureInfo_ptsz](
        handle: Handle, out: Out<c_int>, id: Out<c_ulonglong>, graph: Out<Handle>,
        nodes: Out<*const Handle>, edges: Out<*const Handle>, count: Out<usize>,
    ) |gpu, per_thread| {
        let is_old = environment::major() == 12;
        let asked = if is_old { Asked::nothing() } else { Asked { graph, nodes, edges, count } };
        tell(gpu, stream(gpu, handle, per_thread)?, out, id, asked)
    }

    fn [
        cudaStreamGetCaptureInfo_v2 / cudaStreamGetCaptureInfo_v2_ptsz,
        cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz
    ](
        handle: Handle, out: Out<c_int>, id: Out<c_ulonglong>, graph: Out<Handle>,
        nodes: Out<*const Handle>, count: Out<usize>,
    ) |gpu, per_thread| {
        let asked = Asked { graph, nodes, count, ..Asked::nothing() };
        tell(gpu, stream(gpu, handle, per_thread)?, out, id, asked)
    }

    fn [
        cudaStreamGetCaptureInfo_v3 / cudaStreamGetCaptureInfo_v3_ptsz,
        cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz
    ](
        handle: Handle, out: Out<c_int>, id: Out<c_ulonglong>, graph: Out<Handle>,
        nodes: Out<*const Handle>, edges: Out<*const Handle>, count: Out<usize>,
    ) |gpu, per_thread| {
        tell(gpu, stream(gpu, handle, per_thread)?, out, id, Asked { graph, nodes, edges, count })
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
            Call::CopyH2D | Call::CopyD2H | Call::CopyD2D | Call::CopyPeer => 1,
            Call::CopyBatch | Call::CopyStrided | Call::CopyStridedPeer => 1,
            Call::Fill => 2,
            Call::LaunchHost => 3,
            Call::DeviceAlloc => 10,
            Call::DeviceFree => 11,
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
        out.put(gpu.graph_instantiate(graph, flags & FREES_ON_LAUNCH != 0)?)
    }

    fn cudaGraphExecMemcpyNodeSetParams1D(
        exec: Handle, node: Handle, dst: *mut c_void, src: *const c_void, bytes: usize,
        kind: c_uint,
    ) |gpu| {
        if kind > 4 {
            return Err(CudaCode::INVALID_VALUE);
        }
        set_copy(gpu, exec, node, (dst, src), bytes)
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
