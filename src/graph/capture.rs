//! A capture under way: takes buffers, and records work on them.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::branches::Branches;
use super::buffer::{Buffers, GraphBuffer, Key, Named, OnDevice, OnHost, Part, Use, Writable};
use super::launch::{Executable, Graph};
use super::work::{CopyNode, Work, check_overlap};
use crate::context::Context;
use crate::copy::entry::{Direction, Side};
use crate::copy::kernels::check_pattern;
use crate::copy::order::Door;
use crate::device::{Device, create_stream};
use crate::driver::{
    Capture as Status, CopyKind, DevicePtr, Driver, DriverResult, RawStream, StreamFlags,
};
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::process::{LateEnd, on_ordinary_thread};
use crate::stream::Stream;
use crate::timeline::Timeline;
use crate::trace::Action;

/// Work that is being captured into a [`Graph`]: recorded, not executed. From
/// [`Device::capture`].
///
/// A capture owns the buffers that its work names: [`own`](Self::own) takes one and gives a
/// [`Key`] for it. The calls record one operation each, in order, and check what can be checked:
/// lengths, ranges, and devices. After such an error the capture is as before the call. If CUDA
/// refuses an operation, the capture has failed as a whole, and [`finish`](Self::finish) says so.
///
/// What cannot be captured has no method here: copies of pageable memory, which the host makes in
/// part; batches by CUDA's batch call, which CUDA refuses; allocations and waits. Copies of several
/// buffers are several calls.
///
/// Dropping a capture ends it, and drops its buffers.
pub struct Capture {
    buffers: Buffers,
    branches: Branches,
    /// Who ends the capture. `None` when it has ended.
    by: Option<By>,
    work: Work,
    /// Why the capture has failed.
    failed: Option<Error>,
}

/// Who has begun a capture, and ends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// This crate, on a stream of this capture alone.
    Us,
    /// Other code.
    Others,
}

impl Device {
    /// Begins to capture work of this device into a [`Graph`]; see [`graph`](crate::graph). The
    /// capture has a stream of its own, so it disturbs no other work, and no other work disturbs
    /// it. Does not block.
    ///
    /// # Errors
    ///
    /// [`ForkedProcess`](ErrorKind::ForkedProcess), [`Unsupported`](ErrorKind::Unsupported) inside
    /// a host function, or what `cuStreamBeginCapture` reports.
    pub fn capture(&self) -> Result<Capture> {
        const OPERATION: &str = "Device::capture";
        let context = self.context();
        let driver = context.driver(OPERATION)?;
        let stream = create_stream(context, StreamFlags::default())?;
        // SAFETY: the stream is live, new, and this crate's own.
        unsafe { driver.capture_begin(stream.raw()) }
            .map_err(|code| context.error(code, "cuStreamBeginCapture", "capturing a stream"))?;
        let mut capture = Capture::new(stream, By::Us);
        let begun = capture.branches.begin(driver);
        begun.map_err(|code| {
            context.error(code, OPERATION, "recording the event of its branches")
        })?;
        Ok(capture)
    }
}

impl Stream {
    /// Joins a capture of this stream that other code has begun (PyTorch, candle): work of the
    /// returned [`Capture`] becomes a part of the other code's graph. [`finish`](Capture::finish)
    /// gives a [`Graph`] that owns the buffers, and that is told of each launch by
    /// [`launch_foreign`](Graph::launch_foreign).
    ///
    /// # Safety
    ///
    /// * As long as the graph of the other code, or an executable graph of it, can be launched, the
    ///   returned capture, or the graph that it becomes, exists.
    /// * Each launch is made in [`launch_foreign`](Graph::launch_foreign).
    /// * The other code does not end its capture during a call with the returned capture: the work
    ///   of the call would be executed, in no order with other work on the buffers.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) if the stream is not being captured;
    /// [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub unsafe fn join_capture(&self) -> Result<Capture> {
        const OPERATION: &str = "Stream::join_capture";
        let capture = Capture::new(Arc::clone(&self.timeline), By::Others);
        capture.check_active(self.timeline.context().driver(OPERATION)?, OPERATION)?;
        Ok(capture)
    }
}

impl Capture {
    fn new(stream: Arc<Timeline>, by: By) -> Self {
        Capture {
            buffers: Buffers::new(),
            branches: Branches::new(stream),
            by: Some(by),
            work: Work::default(),
            failed: None,
        }
    }

    /// Takes a buffer, for as long as the graph exists. Does not block.
    pub fn own<B: GraphBuffer>(&mut self, buffer: B) -> Key<B> {
        self.buffers.add(buffer)
    }

    /// The buffer of a key, for its address and its length.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) if the key is another graph's.
    pub fn get<B: GraphBuffer>(&self, key: Key<B>) -> Result<&B> {
        self.buffers.get("Capture::get", key)
    }

    #[cfg(feature = "capi")]
    pub(crate) fn buffer_mut<B: GraphBuffer>(&mut self, key: Key<B>) -> Result<&mut B> {
        self.buffers.get_mut("Capture::get", key)
    }

    /// Whether no graph can be made any more.
    #[cfg(feature = "capi")]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Captures a copy from page-locked memory to the device. Each launch reads the host's buffer
    /// anew.
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](ErrorKind::LengthMismatch), [`OutOfRange`](ErrorKind::OutOfRange),
    /// [`WrongDevice`](ErrorKind::WrongDevice), and [`InvalidValue`](ErrorKind::InvalidValue) for a
    /// key of another graph: nothing was captured, and the capture goes on. Errors of the runtime:
    /// the capture has failed.
    pub fn upload<H, D>(&mut self, src: impl Into<Part<H>>, dst: impl Into<Part<D>>) -> Result<()>
    where
        H: OnHost,
        D: OnDevice<Element = H::Element> + Writable,
    {
        self.across("Capture::upload", Direction::Up, src.into(), dst.into())
    }

    /// Captures a copy from the device to page-locked memory.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload).
    pub fn download<D, H>(&mut self, src: impl Into<Part<D>>, dst: impl Into<Part<H>>) -> Result<()>
    where
        D: OnDevice<Element = H::Element>,
        H: OnHost + Writable,
    {
        self.across("Capture::download", Direction::Down, dst.into(), src.into())
    }

    fn across<H, D>(
        &mut self,
        operation: &'static str,
        direction: Direction,
        host: Part<H>,
        device: Part<D>,
    ) -> Result<()>
    where
        H: OnHost,
        D: OnDevice<Element = H::Element>,
    {
        let (of_host, host_range) = self.buffers.elements(operation, host)?;
        let (of_device, device_range) = self.buffers.elements(operation, device)?;
        let (from, to) = direction.pair(host_range.len(), device_range.len());
        let door = self.door(operation);
        door.check_lengths::<H::Element>(from, to)?;
        let size = size_of::<H::Element>();
        let pinned = of_host.part(host_range.clone())?;
        door.check_driver(pinned.bytes().context())?;
        let view = of_device.part(device_range.clone())?;
        door.check_device(&[view.context()])?;
        let (at, to) = (pinned.as_ptr().cast::<u8>(), view.as_device_ptr());
        // Each part lies in one registration, which one copy may cover.
        let parts: Vec<Range<usize>> = pinned.bytes().parts(at, host_range.len() * size).collect();
        let uses = [
            self.buffers.use_of(operation, &host.named(direction.access(Side::Host)))?,
            self.buffers.use_of(operation, &device.named(direction.access(Side::Device)))?,
        ];
        let (host_start, device_start) = (uses[0].range.start, uses[1].range.start);
        let at = at.cast_mut();
        let (host, device) = (host.key().index(), device.key().index());
        let mut copies = Vec::with_capacity(parts.len());
        let action = match direction {
            Direction::Up => Action::Upload,
            Direction::Down => Action::Download,
        };
        let captured = self.enqueue(operation, action, uses.to_vec(), |driver, raw| {
            for part in parts {
                let (at, to) = (at.wrapping_add(part.start), to + part.start as DevicePtr);
                // SAFETY: the stream is live. The part lies in one registration and in one
                // allocation, which the graph owns until no launch can use them.
                unsafe {
                    match direction {
                        Direction::Up => driver.copy_h2d(raw, to, at, part.len())?,
                        Direction::Down => driver.copy_d2h(raw, at, to, part.len())?,
                    }
                }
                let host = (host, host_start + part.start);
                let device = (device, device_start + part.start);
                let sides = direction.pair(host, device).into();
                // SAFETY: the stream is live.
                let node = unsafe { driver.capture_node(raw) }?;
                copies.push(CopyNode { node, kind: direction.kind(), sides, bytes: part.len() });
            }
            Ok(())
        });
        self.work.copies.append(&mut copies);
        captured
    }

    /// Captures a copy of device memory within the device.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload); [`InvalidValue`](ErrorKind::InvalidValue) if the two
    /// overlap.
    pub fn copy<S, D>(&mut self, src: impl Into<Part<S>>, dst: impl Into<Part<D>>) -> Result<()>
    where
        S: OnDevice,
        D: OnDevice<Element = S::Element> + Writable,
    {
        const OPERATION: &str = "Capture::copy";
        let (src, dst) = (src.into(), dst.into());
        let (from, from_range) = self.buffers.elements(OPERATION, src)?;
        let (to, to_range) = self.buffers.elements(OPERATION, dst)?;
        let door = self.door(OPERATION);
        door.check_lengths::<S::Element>(from_range.len(), to_range.len())?;
        let from = from.part(from_range)?;
        let to = to.part(to_range)?;
        door.check_device(&[from.context()])?;
        door.check_device(&[to.context()])?;
        let bytes = from.len() * size_of::<S::Element>();
        let (from, to) = (from.as_device_ptr(), to.as_device_ptr());
        check_overlap(OPERATION, (from, to), bytes)?;
        let uses = [
            self.buffers.use_of(OPERATION, &src.reading())?,
            self.buffers.use_of(OPERATION, &dst.writing())?,
        ];
        let sides = [0, 1].map(|side: usize| (uses[side].index, uses[side].range.start));
        let mut copied = None;
        let captured = self.enqueue(OPERATION, Action::Copy, uses.to_vec(), |driver, raw| {
            if bytes == 0 {
                return Ok(());
            }
            // SAFETY: the stream is live; the two lie in one allocation each, which the graph owns
            // until no launch can use them, and do not overlap: checked above.
            unsafe { driver.copy_d2d(raw, to, from, bytes) }?;
            // SAFETY: the stream is live.
            let node = unsafe { driver.capture_node(raw) }?;
            copied = Some(CopyNode { node, kind: CopyKind::D2D, sides, bytes });
            Ok(())
        });
        self.work.copies.extend(copied);
        captured
    }

    /// Captures a kernel that sets every element to `value`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) for elements of more than 64 bytes; otherwise as for
    /// [`upload`](Self::upload).
    pub fn fill<D>(&mut self, dst: impl Into<Part<D>>, value: D::Element) -> Result<()>
    where
        D: OnDevice + Writable,
    {
        self.fill_bytes(dst.into(), bytemuck::bytes_of(&value))
    }

    /// Repeats `pattern` over `dst`.
    pub(crate) fn fill_bytes<D>(&mut self, dst: Part<D>, pattern: &[u8]) -> Result<()>
    where
        D: OnDevice + Writable,
    {
        const OPERATION: &str = "Capture::fill";
        let (buffer, range) = self.buffers.elements(OPERATION, dst)?;
        let view = buffer.part(range)?;
        let door = self.door(OPERATION);
        door.check_device(&[view.context()])?;
        let (to, bytes) = (view.as_device_ptr(), view.len() * size_of::<D::Element>());
        if bytes > 0 {
            check_pattern(door, pattern, bytes)?;
        }
        let uses = vec![self.buffers.use_of(OPERATION, &dst.writing())?];
        self.work.fixed.push(uses[0].index);
        self.enqueue(OPERATION, Action::Fill, uses, |driver, raw| {
            if bytes == 0 {
                return Ok(());
            }
            // SAFETY: the stream is live; the view lies in one allocation, which the graph owns
            // until no launch can use it; the pattern has 1 to 64 bytes: checked above.
            unsafe { driver.fill(raw, to, bytes, pattern) }
        })
    }

    /// Lets `launch` capture foreign work (a kernel, cuBLAS, NCCL, ...): it gets the `cudaStream_t`
    /// that is captured. Take the addresses of the buffers before, by [`get`](Self::get).
    ///
    /// ```
    /// # use pinlane::Device;
    /// # unsafe fn launch_kernel(input: u64, output: u64, stream: *mut std::ffi::c_void) {}
    /// # let device = Device::open_or_emulated()?;
    /// let mut capture = device.capture()?;
    /// let input = capture.own(device.alloc::<f32>(1000)?);
    /// let output = capture.own(device.alloc::<f32>(1000)?);
    /// let from = capture.get(input)?.as_device_ptr();
    /// let to = capture.get(output)?.as_device_ptr();
    /// unsafe {
    ///     capture.foreign(&[input.reading()], &[output.writing()], |stream| {
    ///         launch_kernel(from, to, stream)
    ///     })?;
    /// }
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// * All work that `launch` enqueues is enqueued on the stream that it is given, or ordered
    ///   into it before `launch` returns; its operations can be launched again.
    /// * The work reads only buffers named in `reads` or `writes`, writes only those in `writes`,
    ///   and stays inside them. It uses nothing else, such as a library's workspace, that work of
    ///   another [branch](Self::branch) uses.
    /// * `launch` neither ends the capture nor destroys the stream.
    ///
    /// # Errors
    ///
    /// As for [`upload`](Self::upload). [`StreamCapturing`](ErrorKind::StreamCapturing) if the
    /// capture is invalid after `launch`, because it made a call that cannot be captured; the
    /// capture has then failed.
    pub unsafe fn foreign<R>(
        &mut self,
        reads: &[Named],
        writes: &[Named],
        launch: impl FnOnce(*mut c_void) -> R,
    ) -> Result<R> {
        const OPERATION: &str = "Capture::foreign";
        let named = reads.iter().chain(writes);
        let uses = named.map(|named| self.buffers.use_of(OPERATION, named));
        let uses: Vec<Use> = uses.collect::<Result<_>>()?;
        self.work.fixed.extend(uses.iter().map(|user| user.index));
        let mut value = None;
        self.enqueue(OPERATION, Action::Foreign, uses, |_, raw| {
            value = Some(launch(std::ptr::without_provenance_mut(raw.handle)));
            Ok(())
        })?;
        let context = Arc::clone(self.context());
        if let Err(error) = self.check_active(context.driver(OPERATION)?, OPERATION) {
            self.failed = Some(error.clone());
            return Err(error);
        }
        Ok(value.expect("launched"))
    }

    /// What is captured from now on goes on the branch of that number; a capture begins on branch
    /// 0. A launch runs all branches at the same time, each in the order of its calls. Work that
    /// shares a buffer is ordered all the same: an operation waits for every earlier one of the
    /// other branches that writes what it uses, or uses what it writes. So any choice of branches
    /// gives the same result.
    ///
    /// ```
    /// # use pinlane::{Device, PinnedPool};
    /// # let device = Device::open_or_emulated()?;
    /// # let pool = PinnedPool::builder(&device).max_bytes(1 << 20).build()?;
    /// # let mut capture = device.capture()?;
    /// # let next = capture.own(pool.alloc::<f32>(1000)?);
    /// # let [a, b] = [(); 2].map(|()| device.alloc::<f32>(1000).map(|it| capture.own(it)));
    /// # let (input, result) = (a?, b?);
    /// # let output = capture.own(pool.alloc::<f32>(1000)?);
    /// capture.upload(next, input)?;
    /// capture.branch(1)?; // beside the upload
    /// capture.download(result, output)?;
    /// # Ok::<(), pinlane::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if other code has begun the capture
    /// ([`Stream::join_capture`]), because only its stream has the order of its work. Errors of the
    /// runtime: no stream could be created, and the capture goes on; or the capture has failed.
    pub fn branch(&mut self, number: u32) -> Result<()> {
        const OPERATION: &str = "Capture::branch";
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.by == Some(By::Others) {
            let what = "other code has begun the capture, and orders its work by its stream";
            let remedy = "let the other code make the branches, and join the capture of each";
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, what, remedy));
        }
        let context = Arc::clone(self.context());
        let drawn = self.branches.switch(context.driver(OPERATION)?, number)?;
        self.failed = drawn.err().map(|code| context.error(code, OPERATION, "forking a branch"));
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Captures one operation. Its uses count even if it fails, because CUDA may have captured it.
    fn enqueue(
        &mut self,
        operation: &'static str,
        action: Action,
        uses: Vec<Use>,
        call: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()>,
    ) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let (context, raw) = (Arc::clone(self.context()), self.branches.current().raw());
        let driver = context.driver(operation)?;
        if self.by == Some(By::Others) {
            self.check_active(driver, operation)?;
        }
        let moved = uses.iter().map(|user| user.range.len()).max().unwrap_or(0);
        self.work.bytes = self.work.bytes.saturating_add(moved);
        self.work.uses.extend_from_slice(&uses);
        self.work.outline.note(action, self.branches.number(), &uses, moved);
        // If the call panics, nobody knows what it has captured.
        let what = "an earlier call of the capture panicked";
        self.failed = Some(Error::invalid(operation, what, "capture all work again"));
        let ordered = self.branches.wait_for_conflicts(driver, &uses);
        let called = ordered.and_then(|()| call(driver, raw));
        self.branches.note(uses);
        self.failed = called.err().map(|code| context.error(code, operation, "capturing"));
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn context(&self) -> &Arc<Context> {
        self.branches.first().context()
    }

    /// Checks that the stream is being captured, and that nothing has invalidated the capture.
    fn check_active(&self, driver: &dyn Driver, operation: &'static str) -> Result<()> {
        // SAFETY: the stream is live: this crate's own, or borrowed by the contract of its owner.
        let (kind, what, remedy) =
            match unsafe { driver.stream_capture(self.branches.first().raw()) } {
                Ok(Status::Active) => return Ok(()),
                Ok(Status::None) => (
                    ErrorKind::InvalidValue,
                    "the stream is not being captured",
                    "join the capture after it was begun, and capture all work before it ends",
                ),
                Ok(Status::Invalidated) => (
                    ErrorKind::StreamCapturing,
                    "the capture is invalid: a call was made that cannot be captured",
                    "make only calls on the captured stream that CUDA can capture",
                ),
                Err(code) => {
                    let asking = "asking whether the stream is captured";
                    return Err(self.context().error(code, "cudaStreamIsCapturing", asking));
                }
            };
        Err(Error::new(kind, operation, what, remedy))
    }

    /// For checks of what is captured.
    fn door(&self, operation: &'static str) -> Door<'_> {
        Door::new(self.branches.first(), operation)
    }

    /// Ends the capture. The first launch makes sure that earlier uses of the buffers are complete;
    /// this call waits for nothing.
    ///
    /// # Errors
    ///
    /// Every error gives the buffers back: why the capture failed, or what `cuStreamEndCapture` and
    /// `cuGraphInstantiateWithFlags` report. An empty capture makes an empty graph.
    pub fn finish(mut self) -> Result<Graph, Refused<Buffers>> {
        let ended = self.end();
        let buffers = std::mem::replace(&mut self.buffers, Buffers::new());
        match ended {
            Ok(executable) => Ok(Graph::new(executable, buffers, std::mem::take(&mut self.work))),
            Err(error) => Err(Refused { value: buffers, error }),
        }
    }

    /// Gives up the capture, and gives the buffers back.
    #[must_use]
    pub fn into_buffers(mut self) -> Buffers {
        std::mem::replace(&mut self.buffers, Buffers::new())
    }

    fn end(&mut self) -> Result<Executable> {
        const OPERATION: &str = "Capture::finish";
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let context = self.context();
        if self.by == Some(By::Others) {
            return Ok(Executable::of_others(Arc::clone(context)));
        }
        let driver = context.driver(OPERATION)?;
        let joined = self.branches.join(driver);
        joined.map_err(|code| context.error(code, OPERATION, "joining the branches"))?;
        // SAFETY: the stream is live, and its capture has begun.
        let graph = unsafe { driver.capture_end(self.branches.first().raw()) };
        let graph = graph.map_err(|code| {
            context.error(code, "cuStreamEndCapture", "making a graph of the capture")
        })?;
        let executable = Executable::own(Arc::clone(context), graph);
        self.by = None;
        Ok(executable)
    }
}

/// A capture that made no graph ends, and then the buffers that it names drop. In a host function
/// both happen on another thread.
impl Drop for Capture {
    fn drop(&mut self) {
        if self.by.take() != Some(By::Us) {
            return;
        }
        // The other branches end when the capture has ended, by its first stream.
        let end = |(branches, named, late): (Branches, Buffers, Option<LateEnd>)| {
            let stream = branches.first();
            if let Some(driver) = stream.context().releaser() {
                // SAFETY: the stream is live, and its capture has begun; nothing else has the
                // graph.
                let _ = unsafe {
                    driver.capture_end(stream.raw()).and_then(|graph| driver.graph_destroy(graph))
                };
            }
            drop(late);
            drop(named);
        };
        let stream = Arc::clone(self.branches.first());
        let branches = std::mem::replace(&mut self.branches, Branches::new(stream));
        let named = std::mem::replace(&mut self.buffers, Buffers::new());
        // Without a thread the stream stays, as after a failure: nothing launches the work.
        on_ordinary_thread((branches, named, LateEnd::begin()), end, |(_, named, late)| {
            drop(late.take());
            drop(std::mem::replace(named, Buffers::new()));
        });
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("buffers", &self.buffers.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
