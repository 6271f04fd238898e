//! Captures under way.

use std::ffi::c_void;

use super::held::Held;
use super::launch::{Graph, pinlane_graph};
use super::names::Names;
use crate::capi::foreign::{PINLANE_ACCESS_WRITE, each_once, pinlane_use};
use crate::capi::memory::range;
use crate::capi::{
    Out, Result, boundary, freeing, handle, handle_type, pinlane_buffer, pinlane_device,
    pinlane_device_buffer, pinlane_status, pinlane_stream, pointer,
};
use crate::driver::MAX_PATTERN;
use crate::graph;

/// Work that is being captured: recorded, not executed. `pinlane_capture_finish` makes a graph of
/// it. Any thread may use it, one at a time.
///
/// A capture takes each buffer that its work names: from then on until the graph is freed, calls
/// that conflict with the work get `PINLANE_STATUS_BUSY`, and the memory stays, even if the buffer
/// is freed. Buffers that the work only reads can still be read, also by other graphs. See
/// `pinlane_graph_lend_buffer` for how the program uses the others between launches.
pub enum pinlane_capture {}

handle_type!(pinlane_capture: Capture, "capture", table 14, shared: false);

/// The object of a capture's handle.
pub struct Capture {
    capture: graph::Capture,
    hosts: Names<pinlane_buffer>,
    devices: Names<pinlane_device_buffer>,
}

impl Capture {
    fn new(capture: graph::Capture) -> Self {
        Capture { capture, hosts: Names::new(), devices: Names::new() }
    }

    /// One operation. If it is refused before anything is captured, the capture is as before.
    fn record<R>(&mut self, operation: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let recorded = operation(self);
        let captured = recorded.is_ok() || self.capture.has_failed();
        self.hosts.settle(&mut self.capture, captured);
        self.devices.settle(&mut self.capture, captured);
        recorded
    }

    fn host(&mut self, buffer: *const pinlane_buffer, writes: bool) -> Result<Host> {
        self.hosts.key(&mut self.capture, buffer, writes)
    }

    fn device(&mut self, buffer: *const pinlane_device_buffer, writes: bool) -> Result<Device> {
        self.devices.key(&mut self.capture, buffer, writes)
    }

    /// # Safety
    ///
    /// * As for [`graph::Capture::foreign`], until the next call on the capture.
    unsafe fn foreign(&mut self, uses: &[pinlane_use]) -> Result<*mut c_void> {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for named in each_once(uses)? {
            let is_written = named.access == PINLANE_ACCESS_WRITE;
            let part = match named.buffer.is_null() {
                true => {
                    let key = self.device(named.device_buffer, is_written)?;
                    if is_written { key.writing() } else { key.reading() }
                }
                false => {
                    let key = self.host(named.buffer, is_written)?;
                    if is_written { key.writing() } else { key.reading() }
                }
            };
            if is_written { writes.push(part) } else { reads.push(part) }
        }
        // SAFETY: the precondition.
        unsafe { self.capture.foreign(&reads, &writes, |stream| stream) }
    }
}

type Host = graph::Key<Held<pinlane_buffer>>;
type Device = graph::Key<Held<pinlane_device_buffer>>;

/// Begins to capture work of `device`, and writes the capture to `capture`, which
/// `pinlane_capture_finish` or `pinlane_capture_free` frees. It has a stream of its own, so it
/// disturbs no other work, and no other work disturbs it. Does not block.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `CUDA`; `UNSUPPORTED` inside a host function;
/// `INVALID_VALUE` if `capture` is NULL.
///
/// # Safety
///
/// - `capture` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_capture_begin(
    device: *const pinlane_device,
    capture: *mut *mut pinlane_capture,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `capture`.
    unsafe { Out::new("capture", capture) }
        .create("pinlane_capture_begin", || Ok(Capture::new(handle::get(device)?.capture()?)))
}

/// Joins the capture of `stream` that other code has begun (PyTorch, for example), and writes a
/// handle to `capture`: what it captures becomes a part of the other code's graph. The other code
/// ends its capture as usual, after `pinlane_capture_finish`, whose graph holds the buffers and is
/// launched between
/// `pinlane_graph_foreign_begin` and `pinlane_foreign_end`. Does not block.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`, `CUDA`; `STREAM_CAPTURING` if the capture is
/// invalid; `INVALID_VALUE` if the stream is not being captured, or `capture` is NULL.
///
/// # Safety
///
/// - As long as the graph of the other code, or an executable graph of it, can be launched, the
///   capture or the graph that is made of it is not freed.
/// - Each launch is made between `pinlane_graph_foreign_begin` and `pinlane_foreign_end`.
/// - The other code does not end its capture during a call with `capture`.
/// - `capture` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_capture_join(
    stream: *const pinlane_stream,
    capture: *mut *mut pinlane_capture,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `capture`.
    unsafe { Out::new("capture", capture) }.create("pinlane_capture_join", || {
        // SAFETY: the caller's first two preconditions.
        Ok(Capture::new(unsafe { handle::get(stream)?.join_capture() }?))
    })
}

/// Captures a copy of `bytes` from `source`, from `source_offset` on, to `destination`, from
/// `destination_offset` on. Each launch reads `source` anew. The operations of a branch run one
/// after the other (`pinlane_capture_branch`). Does not block.
///
/// Statuses: `INVALID_HANDLE`, `OUT_OF_RANGE`, `WRONG_DEVICE`, `FORKED_PROCESS`; `BUSY` if a call,
/// or another capture or graph, uses a buffer in a way that conflicts: nothing was captured, and
/// the capture goes on. `CUDA`, `DEVICE_LOST`, `STREAM_CAPTURING`: the capture has failed as a
/// whole, so all later calls return the same, and `pinlane_capture_finish` makes no graph.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_capture_upload(
    capture: *mut pinlane_capture,
    source: *const pinlane_buffer,
    source_offset: usize,
    destination: *mut pinlane_device_buffer,
    destination_offset: usize,
    bytes: usize,
) -> pinlane_status {
    boundary("pinlane_capture_upload", || {
        handle::get_mut(capture)?.record(|capture| {
            let from = range(source_offset, bytes)?;
            let to = range(destination_offset, bytes)?;
            let source = capture.host(source, false)?;
            let destination = capture.device(destination, true)?;
            capture.capture.upload(source.slice(from), destination.slice(to))
        })
    })
}

/// As `pinlane_capture_upload`, from device memory to page-locked memory.
///
/// Statuses: as for `pinlane_capture_upload`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_capture_download(
    capture: *mut pinlane_capture,
    source: *const pinlane_device_buffer,
    source_offset: usize,
    destination: *mut pinlane_buffer,
    destination_offset: usize,
    bytes: usize,
) -> pinlane_status {
    boundary("pinlane_capture_download", || {
        handle::get_mut(capture)?.record(|capture| {
            let from = range(source_offset, bytes)?;
            let to = range(destination_offset, bytes)?;
            let source = capture.device(source, false)?;
            let destination = capture.host(destination, true)?;
            capture.capture.download(source.slice(from), destination.slice(to))
        })
    })
}

/// As `pinlane_capture_upload`, within the memory of the device. The two may be parts of one
/// buffer.
///
/// Statuses: as for `pinlane_capture_upload`; `INVALID_VALUE` if the two parts overlap.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_capture_copy(
    capture: *mut pinlane_capture,
    source: *const pinlane_device_buffer,
    source_offset: usize,
    destination: *mut pinlane_device_buffer,
    destination_offset: usize,
    bytes: usize,
) -> pinlane_status {
    boundary("pinlane_capture_copy", || {
        handle::get_mut(capture)?.record(|capture| {
            let from = range(source_offset, bytes)?;
            let to = range(destination_offset, bytes)?;
            let source = capture.device(source, false)?;
            let destination = capture.device(destination, true)?;
            capture.capture.copy(source.slice(from), destination.slice(to))
        })
    })
}

/// Captures a kernel that repeats the `pattern_bytes` bytes at `pattern`, 1 to 64, over `bytes` of
/// the buffer from `offset` on; `bytes` must be a multiple of `pattern_bytes`. The pattern may be
/// reused when the call returns. Does not block.
///
/// Statuses: as for `pinlane_capture_upload`; `LENGTH_MISMATCH`; `INVALID_VALUE` if `pattern` is
/// NULL; `UNSUPPORTED` for patterns of more than 64 bytes.
///
/// # Safety
///
/// - `pattern` is NULL or points to `pattern_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_capture_fill(
    capture: *mut pinlane_capture,
    buffer: *mut pinlane_device_buffer,
    offset: usize,
    bytes: usize,
    pattern: *const c_void,
    pattern_bytes: usize,
) -> pinlane_status {
    boundary("pinlane_capture_fill", || {
        handle::get_mut(capture)?.record(|capture| {
            let part = range(offset, bytes)?;
            if pattern.is_null() {
                return Err(pointer::null("pattern", pointer::ARRAY));
            }
            // A pattern of one byte too many is refused, so no more bytes are read.
            let length = pattern_bytes.min(MAX_PATTERN + 1);
            // SAFETY: `pattern` has `pattern_bytes` bytes, and `length` is at most that.
            let pattern = unsafe { std::slice::from_raw_parts(pattern.cast::<u8>(), length) };
            let buffer = capture.device(buffer, true)?;
            capture.capture.fill_bytes(buffer.slice(part), pattern)
        })
    })
}

/// Captures the caller's own work (a kernel, cuBLAS, NCCL, ...) on the `count` buffers of `uses`:
/// writes the `cudaStream_t` that is being captured to `cuda_stream`. Enqueue the work there, or
/// order it into that stream, before the next call on this capture. `uses` may be NULL if `count`
/// is 0. Does not block.
///
/// A call that cannot be captured makes the capture invalid: `pinlane_capture_finish`, if not an
/// earlier call, returns `STREAM_CAPTURING` or `CUDA`.
///
/// Statuses: as for `pinlane_capture_upload`; `INVALID_VALUE` if a pointer is NULL, or a use names
/// no buffer, two, or an unknown access or flag.
///
/// # Safety
///
/// - The operations can be launched again. They read only buffers of `uses`, write only those with
///   `PINLANE_ACCESS_WRITE`, and stay inside them.
/// - They use nothing else, such as a library's workspace, that work of another branch uses.
/// - The caller neither ends the capture of the stream nor destroys it, and enqueues nothing there
///   after the next call on this capture.
/// - `uses` is NULL or points to an array of `count` elements.
/// - `cuda_stream` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_capture_foreign(
    capture: *mut pinlane_capture,
    uses: *const pinlane_use,
    count: usize,
    cuda_stream: *mut *mut c_void,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `cuda_stream`.
    unsafe { Out::new("cuda_stream", cuda_stream) }.give("pinlane_capture_foreign", || {
        let mut capture = handle::get_mut(capture)?;
        // SAFETY: the caller's precondition on `uses`.
        let uses = unsafe { pointer::inputs("uses", uses, count) }?;
        // SAFETY: the caller's first two preconditions.
        capture.record(|capture| unsafe { capture.foreign(uses) })
    })
}

/// What is captured from now on goes on branch `branch`; a capture begins on branch 0. A launch
/// runs all branches at the same time, each in the order of its calls. Work that shares a buffer is
/// ordered all the same: an operation waits for every earlier one of the other branches that writes
/// what it uses, or uses what it writes. So any choice of branches gives the same result. Does not
/// block.
///
/// Statuses: as for `pinlane_capture_upload`; `UNSUPPORTED` if other code has begun the capture.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_capture_branch(
    capture: *mut pinlane_capture,
    branch: u32,
) -> pinlane_status {
    boundary("pinlane_capture_branch", || {
        handle::get_mut(capture)?.record(|capture| capture.capture.branch(branch))
    })
}

/// Ends the capture and writes its graph to `graph`, which `pinlane_graph_free` frees. Frees the
/// capture, also if this fails: its buffers are then the program's again. An empty capture makes an
/// empty graph. Waits for nothing: the first launch makes sure that earlier uses of the buffers are
/// complete.
///
/// Statuses: `INVALID_HANDLE`, `BUSY`, `INVALID_VALUE` if `graph` is NULL: the capture goes on. Why
/// the capture failed, `FORKED_PROCESS`, `STREAM_CAPTURING`, `CUDA`: it has ended, without a graph.
///
/// # Safety
///
/// - `graph` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_capture_finish(
    capture: *mut pinlane_capture,
    graph: *mut *mut pinlane_graph,
) -> pinlane_status {
    // SAFETY: the caller's precondition on `graph`.
    unsafe { Out::new("graph", graph) }.create("pinlane_capture_finish", || {
        let Capture { capture, hosts, devices } = handle::get_mut(capture)?.take();
        let graph = capture.finish().map_err(|refused| refused.error)?;
        Ok(Graph { graph, hosts, devices })
    })
}

/// Gives up the capture; NULL is a no-op. Its buffers are the program's again: in a host function a
/// little later, as after `pinlane_graph_free` there. Does not block.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a capture.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_capture_free(capture: *mut pinlane_capture) -> pinlane_status {
    freeing("pinlane_capture_free", || handle::free(capture))
}
