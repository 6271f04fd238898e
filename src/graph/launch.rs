//! A graph: owns its buffers, and launches what was captured.
//!
//! # Invariants
//!
//! * **A launch is recorded once, in the graph.** `last` is the latest one. A later launch waits
//!   for it, so whoever waits for the last launch waits for all. No buffer knows of it yet.
//! * **Nobody uses a buffer before it knows of the last launch.** A buffer is reached only through
//!   the graph: by [`Graph::get`] and [`Graph::slice_mut`], which call [`Graph::tell`], and when
//!   the graph ends, which tells all. From then on the buffer's own uses order everything.
//! * **A launch waits for the uses that others have recorded since.** Only buffers that were told
//!   can have such uses. The first launch looks at all buffers.
//! * **No host access during a launch.** A reference to the elements borrows the graph, and
//!   [`Graph::launch`] needs it exclusively.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::buffer::{Buffers, GraphBuffer, Key, Part, Use, Writable};
use super::outline::Outline;
use super::work::{CopyNode, Work, check_overlap, merged};
use crate::context::Context;
use crate::copy::order::Door;
use crate::driver::{CopyKind, Driver, DriverResult, Item, RawGraph, RawStream};
use crate::error::{CudaCode, Error, ErrorKind, Refused, Remedy, Result};
use crate::memory::Operand;
use crate::process::{LateEnd, on_ordinary_thread};
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::ticket::Ticket;
use crate::timeline::{Fence, Timeline};

/// Captured work that can be launched again and again, and the buffers that it uses. From
/// [`Capture::finish`](super::Capture::finish).
///
/// The graph owns the buffers. [`get`](Self::get) and [`slice_mut`](Self::slice_mut) give them out
/// for a time; what they give has the waits and the uses of any buffer, and knows of every launch.
///
/// Dropping a graph, even in the middle of a launch, is fine: its memory is reused or freed only
/// when the device is done with it.
pub struct Graph {
    executable: Executable,
    buffers: Buffers,
    /// Sorted by buffer: at most one for each buffer and access.
    uses: Vec<Use>,
    /// The uses of each buffer.
    of_buffer: Vec<Range<usize>>,
    copies: Vec<CopyNode>,
    fixed: Vec<bool>,
    bytes: usize,
    outline: Outline,
    last: Option<(Arc<Timeline>, Fence)>,
    told: Mutex<Told>,
}

/// Which buffers know of the last launch, and may have uses that the graph does not know.
struct Told {
    is_told: Vec<bool>,
    list: Vec<usize>,
}

/// What launches the work.
pub(super) struct Executable {
    context: Arc<Context>,
    /// `None` if other code has the graph.
    graph: Option<RawGraph>,
    /// A copy has lost its addresses.
    is_broken: bool,
}

impl Executable {
    pub(super) fn own(context: Arc<Context>, graph: RawGraph) -> Self {
        Executable { context, graph: Some(graph), is_broken: false }
    }

    pub(super) fn of_others(context: Arc<Context>) -> Self {
        Executable { context, graph: None, is_broken: false }
    }

    fn graph(&self, operation: &'static str) -> Result<RawGraph> {
        let (what, remedy) = match self.graph {
            Some(graph) if !self.is_broken => return Ok(graph),
            Some(_) => (
                "CUDA has refused to change an address, and then to change it back",
                Remedy::Words("capture the work again"),
            ),
            None => ("other code has the executable graph", Remedy::LaunchForeign),
        };
        Err(Error::new(ErrorKind::Unsupported, operation, what, remedy))
    }
}

impl Executable {
    /// Destroys the graph, and then drops the buffers that it names. In a host function both happen
    /// on another thread.
    fn end(&mut self, named: Buffers) {
        let Some(graph) = self.graph.take() else { return };
        let end = move |(context, named, late): (Arc<Context>, Buffers, Option<LateEnd>)| {
            if let Some(driver) = context.releaser() {
                // SAFETY: the graph is live, and this was its last owner. A launch under way
                // drains. A failure leaks it.
                let _ = unsafe { driver.graph_destroy(graph) };
            }
            drop(late);
            drop(named);
        };
        let owned = (Arc::clone(&self.context), named, LateEnd::begin());
        // Without a thread the graph leaks, as after a failure: nothing launches it.
        on_ordinary_thread(owned, end, |(_, named, late)| {
            drop(late.take());
            drop(std::mem::replace(named, Buffers::new()));
        });
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        self.end(Buffers::new());
    }
}

impl Graph {
    pub(super) fn new(executable: Executable, buffers: Buffers, work: Work) -> Self {
        let Work { uses, copies, fixed: named, bytes, outline } = work;
        let uses = merged(uses);
        let count = buffers.len();
        let of_buffer = (0..count).map(|index| {
            let start = uses.partition_point(|user| user.index < index);
            start..uses.partition_point(|user| user.index <= index)
        });
        let of_buffer = of_buffer.collect();
        let mut fixed = vec![false; count];
        named.into_iter().for_each(|index| fixed[index] = true);
        let told = Mutex::new(Told { is_told: vec![true; count], list: (0..count).collect() });
        let last = None;
        Graph { executable, buffers, uses, of_buffer, copies, fixed, bytes, outline, last, told }
    }

    /// Launches all captured work on `stream`, as one operation that reads and writes what the work
    /// reads and writes. Does not block; ordered as [`Stream::upload`], and after earlier launches.
    /// The stream is any of the graph's device.
    ///
    /// It costs the host about what `cudaGraphLaunch` costs, however many buffers there are: only
    /// those that were given out since the last launch are looked at.
    ///
    /// # Errors
    ///
    /// [`WrongDevice`](ErrorKind::WrongDevice), [`StreamCapturing`](ErrorKind::StreamCapturing),
    /// [`ForkedProcess`](ErrorKind::ForkedProcess): nothing was enqueued.
    /// [`Unsupported`](ErrorKind::Unsupported) if other code has the executable graph. Errors of
    /// the runtime: the contents of what the work writes are unspecified.
    pub fn launch(&mut self, stream: &Stream) -> Result<Ticket> {
        const OPERATION: &str = "Graph::launch";
        let graph = self.executable.graph(OPERATION)?;
        // SAFETY: the graph is live, and used by this thread alone (`&mut self`). The stream is
        // live, of the graph's device, and not captured (`launch_by`). The graph owns the memory,
        // and the launch is recorded before anything can use it (the invariants).
        let launch = |driver: &dyn Driver, raw| unsafe { driver.graph_launch(graph, raw) };
        self.launch_by(OPERATION, stream, launch)
    }

    /// As [`launch`](Self::launch), for work that was captured into a graph of other code
    /// ([`Stream::join_capture`]): `launch` gets the `cudaStream_t` and launches that graph there.
    ///
    /// # Safety
    ///
    /// * `launch` enqueues the graph that the work was captured into, or an executable graph of it,
    ///   once or more, on the stream that it is given; and no other work on the buffers.
    ///
    /// # Errors
    ///
    /// As for [`launch`](Self::launch); an `Err` means that `launch` was not called, unless it is
    /// an error of the runtime.
    pub unsafe fn launch_foreign<R>(
        &mut self,
        stream: &Stream,
        launch: impl FnOnce(*mut c_void) -> R,
    ) -> Result<(R, Ticket)> {
        let handle = stream.as_raw();
        let mut value = None;
        let launch = |_: &dyn Driver, _| {
            value = Some(launch(handle));
            Ok(())
        };
        let ticket = self.launch_by("Graph::launch_foreign", stream, launch)?;
        Ok((value.expect("launched"), ticket))
    }

    fn launch_by(
        &mut self,
        operation: &'static str,
        stream: &Stream,
        launch: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()>,
    ) -> Result<Ticket> {
        let door = stream.door(operation).moving(self.bytes);
        self.wait_for_uses(door)?;
        self.submit(door, launch).1
    }

    /// Other code is about to launch the work on the stream, before
    /// [`end_foreign`](Self::end_foreign).
    #[cfg(feature = "capi")]
    pub(crate) fn begin_foreign(&mut self, operation: &'static str, stream: &Stream) -> Result<()> {
        self.wait_for_uses(stream.door(operation))?;
        stream.timeline.expose();
        Ok(())
    }

    /// Records the launch, and returns a ticket for it. False if it could not be recorded.
    #[cfg(feature = "capi")]
    pub(crate) fn end_foreign(
        &mut self,
        operation: &'static str,
        stream: &Stream,
    ) -> (bool, Result<Ticket>) {
        self.submit(stream.door(operation), |_, _| Ok(()))
    }

    /// Makes the stream wait for all that a launch comes after.
    fn wait_for_uses(&mut self, door: Door<'_>) -> Result<()> {
        self.check_stream(door)?;
        let Told { list, .. } = self.told.get_mut();
        let changed = list.iter().flat_map(|&index| &self.uses[self.of_buffer[index].clone()]);
        let operands: Vec<Operand<'_>> = changed.map(|user| self.buffers.operand(user)).collect();
        door.wait_for_conflicts(&operands)?;
        drop(operands);
        if let Some((before, fence)) = &self.last
            && !Arc::ptr_eq(before, door.stream)
        {
            door.stream.wait_for(before, fence.position, door.operation)?;
        }
        Ok(())
    }

    /// Records what `launch` enqueues as the last launch. False if it was not called.
    fn submit(
        &mut self,
        door: Door<'_>,
        launch: impl FnOnce(&dyn Driver, RawStream) -> DriverResult<()>,
    ) -> (bool, Result<Ticket>) {
        let Graph { outline, buffers, told, last, .. } = self;
        let describe = || outline.launch(buffers);
        let Told { is_told, list } = told.get_mut();
        let mut is_recorded = false;
        let noted = |fence| {
            // The launch comes after all that the list has, and after the last launch.
            list.drain(..).for_each(|index| is_told[index] = false);
            *last = Some((Arc::clone(door.stream), fence));
            is_recorded = true;
        };
        let door = door.launching(&describe);
        let ticket = door.portion(&[], launch, || "launching a graph".to_owned(), noted);
        (is_recorded, ticket)
    }

    fn check_stream(&self, door: Door<'_>) -> Result<()> {
        door.check_driver(&self.executable.context)?;
        let (ours, theirs) = (self.executable.context.ordinal(), door.stream.context().ordinal());
        if ours == theirs {
            return Ok(());
        }
        let what = format!("a graph of device {ours} on a stream of device {theirs}");
        let remedy = "launch it on a stream of the device that it was captured on";
        Err(Error::new(ErrorKind::WrongDevice, door.operation, what, remedy))
    }

    /// A buffer of the graph, as an owner gives it out: to read it, and for work of streams that
    /// reads it. Does not block; [`PinnedBuf::read`](crate::PinnedBuf::read) waits for the launches
    /// that write the buffer.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) if the key is another graph's.
    pub fn get<B: GraphBuffer>(&self, key: Key<B>) -> Result<&B> {
        let buffer = self.buffers.get("Graph::get", key)?;
        self.tell(key.index());
        Ok(buffer)
    }

    /// A buffer, exclusively. It knows of the last launch.
    #[cfg(feature = "capi")]
    pub(crate) fn buffer_mut<B: GraphBuffer>(&mut self, key: Key<B>) -> Result<&mut B> {
        const OPERATION: &str = "Graph::get";
        self.buffers.get(OPERATION, key)?;
        self.tell(key.index());
        self.buffers.get_mut(OPERATION, key)
    }

    /// A part of a buffer, exclusively: to write it, and for work of streams that writes it. Does
    /// not block; [`PinnedSliceMut::into_write`](crate::PinnedSliceMut::into_write) waits for the
    /// launches that use it, and for nothing else.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) if the key is another graph's;
    /// [`OutOfRange`](ErrorKind::OutOfRange).
    pub fn slice_mut<B: Writable>(&mut self, part: impl Into<Part<B>>) -> Result<B::SliceMut<'_>> {
        const OPERATION: &str = "Graph::slice_mut";
        let part = part.into();
        let (_, range) = self.buffers.elements(OPERATION, part)?;
        self.tell(part.key().index());
        self.buffers.get_mut(OPERATION, part.key())?.part_mut(range)
    }

    /// Records the last launch in a buffer that is about to be given out, and remembers that others
    /// may use it from now on.
    fn tell(&self, index: usize) {
        if !self.executable.context.is_current() {
            return; // a thread that exists only in the parent may hold the locks
        }
        let mut told = self.told.lock();
        if told.is_told[index] {
            return;
        }
        if let Some((stream, fence)) = &self.last {
            for user in &self.uses[self.of_buffer[index].clone()] {
                let operand = self.buffers.operand(user);
                operand.note(stream, *fence);
            }
        }
        told.is_told[index] = true;
        told.list.push(index);
    }

    /// Replaces a buffer by one of the same length, in all launches to come, and gives the old one
    /// back. Does not block. Two buffers that take turns need one graph.
    ///
    /// # Errors
    ///
    /// Every error gives the new buffer back, and the graph keeps the old one:
    ///
    /// * [`LengthMismatch`](ErrorKind::LengthMismatch), [`WrongDevice`](ErrorKind::WrongDevice),
    ///   and [`InvalidValue`](ErrorKind::InvalidValue) if the key is another graph's;
    /// * [`Unsupported`](ErrorKind::Unsupported) if other work than copies names the buffer: a
    ///   kernel's addresses are not known;
    /// * what `cuGraphExecMemcpyNodeSetParams` reports. If the addresses that were changed before
    ///   cannot be changed back either, the graph cannot be launched any more.
    pub fn rebind<B: GraphBuffer>(&mut self, key: Key<B>, new: B) -> Result<B, Refused<B>> {
        match self.try_rebind(key, &new) {
            Ok(()) => {
                let index = key.index();
                self.outline.outdated();
                self.tell(index); // the list has it, so that the next launch looks at the new one
                let place = self.buffers.get_mut("Graph::rebind", key).expect("just found");
                Ok(std::mem::replace(place, new))
            }
            Err(error) => Err(Refused { value: new, error }),
        }
    }

    fn try_rebind<B: GraphBuffer>(&mut self, key: Key<B>, new: &B) -> Result<()> {
        const OPERATION: &str = "Graph::rebind";
        let old = self.buffers.get(OPERATION, key)?;
        let graph = self.executable.graph(OPERATION)?;
        let index = key.index();
        if old.extent().0 != new.extent().0 {
            let (old, new) = (old.extent().0, new.extent().0);
            let what = format!("the graph's buffer has {old} elements, the new one {new}");
            let remedy = "give it a buffer of the same length";
            return Err(Error::new(ErrorKind::LengthMismatch, OPERATION, what, remedy));
        }
        let context = &self.executable.context;
        let theirs = new.operand(0..0, false).context;
        context.check_driver(OPERATION, theirs, "buffer")?;
        if old.operand(0..0, false).context.ordinal() != theirs.ordinal() && B::IS_OF_DEVICE {
            let what = format!("the new buffer is on device {}", theirs.ordinal());
            let remedy = "give it a buffer of the device of the old one";
            return Err(Error::new(ErrorKind::WrongDevice, OPERATION, what, remedy));
        }
        if self.fixed[index] {
            let what = "a kernel, or foreign work, has the address of the buffer";
            let remedy = "rebind buffers that only copies name, or capture again";
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, what, remedy));
        }
        let changes: Vec<&CopyNode> = self.copies.iter().filter(|it| it.names(index)).collect();
        if let Some(copy) = changes.iter().find(|copy| !copy.fits(index, new)) {
            let what = format!("a copy of {} bytes would cross two registrations", copy.bytes);
            let remedy = "give it a buffer of a pool that page-locks as the old one's does";
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, what, remedy));
        }
        let item = |copy: &CopyNode, to: Option<&B>| {
            let address = |(buffer, offset): (usize, usize)| match to {
                Some(new) if buffer == index => new.address() + offset as u64,
                _ => self.buffers.address(buffer) + offset as u64,
            };
            let [src, dst] = copy.sides.map(address);
            Item { src, dst, bytes: copy.bytes as u64 }
        };
        for copy in changes.iter().filter(|copy| copy.kind == CopyKind::D2D) {
            let Item { src, dst, .. } = item(copy, Some(new));
            check_overlap(OPERATION, (src, dst), copy.bytes)?;
        }
        let driver = context.driver(OPERATION)?;
        let set = |copy: &CopyNode, to: Option<&B>| {
            let item = item(copy, to);
            let node = copy.node.ok_or(CudaCode::NOT_SUPPORTED)?;
            // SAFETY: the graph is live, and used by this thread alone (`&mut self`). The node was
            // captured from a copy of this kind and length. Both sides are buffers of the graph, or
            // the one that is about to be; each lies in one registration (`fits`), overlaps no
            // other, and stays until no launch can use it.
            unsafe { driver.graph_set_copy(graph, node, copy.kind, item) }
        };
        let failed = changes.iter().enumerate().find_map(|(at, copy)| {
            let code = set(copy, Some(new)).err()?;
            let is_back = changes[..=at].iter().all(|copy| set(copy, None).is_ok());
            Some((code, is_back))
        });
        let Some((code, is_back)) = failed else { return Ok(()) };
        let error = context.error(code, OPERATION, "changing the addresses of a copy");
        self.executable.is_broken = !is_back;
        Err(error)
    }

    /// The number of bytes that a launch moves or touches, at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends the graph, and gives its buffers back. Does not block: what the last launch still uses
    /// is waited for as after any operation. In a host function the graph is destroyed a little
    /// later, on another thread; its memory stays page-locked until then, even if you drop the
    /// buffers at once.
    #[must_use]
    pub fn into_buffers(mut self) -> Buffers {
        self.tell_all();
        std::mem::replace(&mut self.buffers, Buffers::new())
    }

    fn tell_all(&self) {
        (0..self.buffers.len()).for_each(|index| self.tell(index));
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.tell_all();
        let buffers = std::mem::replace(&mut self.buffers, Buffers::new());
        self.executable.end(buffers);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("device", &self.executable.context.ordinal())
            .field("buffers", &self.buffers.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
