//! What calls do to the machine: find streams and events by their handles, and enqueue.

use std::fmt;

use super::fault::Strike;
use super::finding::FindingKind;
use super::machine::{BLOCKING, Device, Machine, Stream};
use super::memory::host::{Access, HostUse};
use super::operation::pieces;
use super::operation::{Action, Operation, Position};
use super::races::{Agent, Kind, Knowledge};
use super::schedule::About;
use super::words::rng;
use super::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal, RawEvent, RawStream, StreamFlags};

impl Machine {
    /// Runs `work` between the checks that every call makes first and last.
    #[inline]
    pub(super) fn enter<R>(
        &mut self,
        call: Call,
        device: Ordinal,
        work: impl FnOnce(&mut Self) -> DriverResult<R>,
    ) -> DriverResult<R> {
        let late = self.begin(call, device)?;
        let result = work(self);
        self.end(device, late)?;
        result
    }

    /// What every call does first: count, find the device, and fail if the device is lost or a
    /// fault strikes. Gives the error for its [end](Self::end), if a fault is late.
    #[inline]
    pub(super) fn begin(&mut self, call: Call, device: Ordinal) -> DriverResult<Option<CudaCode>> {
        let fault = self.faults.count(call);
        if self.slow_streams > 0 {
            self.pass_steps(1);
        }
        let lost = self.device(device)?.lost;
        let unloads = fault.is_some_and(|it| it.code == CudaCode::CUDART_UNLOADING);
        if let Some(code) = lost.filter(|_| !unloads) {
            return Err(self.refuse(code));
        }
        match fault {
            Some(Strike { code, is_late: true }) => Ok(Some(code)),
            Some(Strike { code, is_late: false }) => Err(self.fails(device, code)),
            None => Ok(None),
        }
    }

    /// What every call does last: fail if a late fault strikes.
    #[inline]
    pub(super) fn end(&mut self, device: Ordinal, late: Option<CudaCode>) -> DriverResult<()> {
        late.map_or(Ok(()), |code| Err(self.fails(device, code)))
    }

    /// The device that a call names.
    pub(super) fn device(&mut self, device: Ordinal) -> DriverResult<&mut Device> {
        let device = usize::try_from(device).ok().and_then(|at| self.devices.get_mut(at));
        device.ok_or(CudaCode::INVALID_DEVICE)
    }

    /// A call on the device fails, which may lose it.
    #[cold]
    fn fails(&mut self, device: Ordinal, code: CudaCode) -> CudaCode {
        if code == CudaCode::CUDART_UNLOADING || code.is_sticky() {
            self.lose(device, code);
        }
        code
    }

    pub(super) fn add_stream(&mut self, device: Ordinal, flags: StreamFlags, kind: Kind) -> Key {
        let agent = self.races.stream_created(device, kind);
        let name = self.names.next();
        let standing = self.schedule.standing(name);
        let key = self.streams.insert(Stream::new(device, flags, agent, standing));
        if kind != Kind::PerThread {
            self.races.stream_has_handle(agent, self.streams.handle(key));
        }
        key
    }

    /// The stream that a handle names on this thread (rule 11).
    #[inline]
    pub(super) fn resolve(
        &mut self,
        call: impl fmt::Debug,
        stream: RawStream,
    ) -> DriverResult<Key> {
        match self.streams.find(stream.handle) {
            Some((key, found)) if !found.destroyed && found.device == stream.device => Ok(key),
            _ => self.resolve_default(&call, stream),
        }
    }

    /// The same of a handle that no stream has which was created.
    #[inline(never)]
    fn resolve_default(&mut self, call: &dyn fmt::Debug, stream: RawStream) -> DriverResult<Key> {
        if stream.handle <= RawStream::LEGACY {
            return Ok(self.device(stream.device)?.legacy);
        }
        if stream.handle == RawStream::PER_THREAD {
            self.device(stream.device)?;
            return Ok(self.per_thread(stream.device));
        }
        Err(self.bad_handle(call, &stream, "stream"))
    }

    /// The error for a handle that names nothing.
    #[cold]
    fn bad_handle(
        &mut self,
        call: &dyn fmt::Debug,
        named: &dyn fmt::Debug,
        what: &str,
    ) -> CudaCode {
        let message = format!("{call:?} names {named:?}, which is no live {what}");
        self.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_RESOURCE_HANDLE)
    }

    /// The calling thread's default stream on a device.
    fn per_thread(&mut self, device: Ordinal) -> Key {
        let per_thread = &mut self.devices[device as usize].per_thread;
        if let Some(stream) = per_thread.find() {
            return stream;
        }
        if per_thread.is_crowded() {
            let streams = &self.streams;
            let busy = |key| streams.get(key).is_some_and(|stream| !stream.queue.is_empty());
            let orphans = per_thread.take_orphans(busy);
            orphans.into_iter().for_each(|stream| self.stream_destroy(stream));
        }
        let stream = self.add_stream(device, BLOCKING, Kind::PerThread);
        self.devices[device as usize].per_thread.insert(stream);
        stream
    }

    /// Returns at once; what is enqueued drains (rule 12), also if the stream was stalled: no call
    /// can name it any more to release it.
    pub(super) fn stream_destroy(&mut self, key: Key) {
        if let Some(capture) = self.streams.get(key).and_then(|stream| stream.capture) {
            self.drop_capture(capture);
        }
        if self.streams.get(key).is_some_and(|stream| stream.stalled) {
            self.release(key);
        }
        if let Some(stream) = self.streams.get_mut(key) {
            stream.destroyed = true;
            self.races.stream_removed(stream.agent);
            if stream.queue.is_empty() {
                self.remove_stream(key);
            }
        }
    }

    pub(super) fn resolve_event(&mut self, call: Call, event: RawEvent) -> DriverResult<Key> {
        match self.events.find(event.handle) {
            Some((key, found)) if found.device == event.device => Ok(key),
            _ => Err(self.bad_handle(&call, &event, "event")),
        }
    }

    /// Enqueues an operation; runs it at once in eager mode, if nothing is ahead of it.
    #[inline]
    pub(super) fn submit(
        &mut self,
        key: Key,
        mut waits: Vec<Position>,
        mut action: Action,
    ) -> DriverResult<()> {
        if !self.captures.is_empty() && self.capture(key, &action)? {
            return Ok(());
        }
        self.implicit_waits(key, &mut waits);
        waits.retain(|&position| !self.is_complete(position));
        if let Action::Batch(_, transfers) = &mut action
            && !self.schedule.is_eager()
        {
            // Rules 5 and 8: in any order.
            self.draw(key, About::BatchOrder).shuffle(transfers);
        }
        self.submitted += 1;
        let is_asked = self.hashes_sides_of(&action);
        let stream = self.streams.get_mut(key).expect("resolved by the caller");
        stream.enqueued += 1;
        stream.submitted += 1;
        let (agent, device) = (stream.agent, stream.device);
        let ready = !stream.stalled && !stream.slow.is_slow() && waits.is_empty();
        let idle = ready && stream.queue.is_empty();
        let is_function = matches!(action, Action::HostFunction(_));
        let at_once = idle && self.schedule.is_eager() && !is_function;
        let knowledge = self.races.enqueued(agent, &action, is_asked, at_once);
        let position = Position { stream: key, count: stream.enqueued };
        if let Action::Mark { event } = action {
            self.snapshot(event, position, agent);
        }
        self.tell_enqueued(agent, &action);
        if self.host.watcher.is_some() {
            self.close_to_host(agent, device, &action);
        }
        if self.races.has_found() {
            self.report_races();
        }
        if at_once {
            // No stream can wait for this position yet, so this makes none ready.
            if self.execute(key, &action, knowledge.as_ref()) {
                self.streams.get_mut(key).expect("still there").completed += 1;
            }
            return Ok(());
        }
        if self.schedule.is_eager() {
            self.push(key, 0, waits, action, knowledge);
        } else {
            self.push_pieces(key, waits, action, knowledge);
        }
        Ok(())
    }

    /// Records an event. Where nothing is pending, that is an operation which changes no memory and
    /// is complete at once.
    #[inline]
    pub(super) fn record(&mut self, key: Key, event: Key) -> DriverResult<()> {
        let stream = self.streams.get_mut(key).expect("resolved by the caller");
        let is_held = stream.stalled || stream.slow.is_slow();
        let is_idle = self.backlog.is_empty() && self.captures.is_empty() && !is_held;
        if !(is_idle && self.schedule.is_eager()) {
            return self.submit(key, Vec::new(), Action::Mark { event });
        }
        self.submitted += 1;
        stream.enqueued += 1;
        stream.submitted += 1;
        stream.completed += 1;
        let (agent, device, count) = (stream.agent, stream.device, stream.enqueued);
        let position = Position { stream: key, count };
        self.races.marked(agent);
        self.snapshot(event, position, agent);
        self.stamp(position, device, event);
        Ok(())
    }

    /// Enqueues an operation that may land in pieces; each is an operation of the queue.
    #[cold]
    fn push_pieces(
        &mut self,
        key: Key,
        mut waits: Vec<Position>,
        action: Action,
        knowledge: Option<Knowledge>,
    ) {
        self.schedule.host_steps();
        let stream = self.streams.get_mut(key).expect("resolved by the caller");
        let (name, number) = (stream.standing.name, stream.submitted);
        let pieces = match pieces::can_split(&action) {
            true => self.schedule.pieces(name, number),
            false => 1,
        };
        if pieces <= 1 {
            return self.push(key, 0, waits, action, knowledge);
        }
        let mut rng = self.schedule.draw(name, number, About::Cuts);
        let pieces = pieces::split(action, pieces as usize, &mut rng);
        stream.enqueued += pieces.len() as u64 - 1;
        for (piece, action) in (0..).zip(pieces) {
            self.push(key, piece, std::mem::take(&mut waits), action, knowledge.clone());
        }
    }

    pub(super) fn next_operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    #[cold]
    fn push(
        &mut self,
        key: Key,
        piece: u32,
        waits: Vec<Position>,
        action: Action,
        knowledge: Option<Knowledge>,
    ) {
        let stream = self.streams.get(key).expect("resolved by the caller");
        let (standing, number) = (stream.standing, stream.submitted);
        let operation = Operation {
            id: self.next_operation(),
            number,
            piece,
            hold: self.schedule.hold(standing, number, piece),
            passed: 0,
            waits,
            action,
            knowledge,
            called: self.races.called(),
        };
        self.disturb(&operation.action);
        for host in operation.action.host_claims() {
            self.host.begin_use(host, operation.id);
        }
        let is_host_function = matches!(operation.action, Action::HostFunction(_));
        let stream = self.streams.get_mut(key).expect("resolved by the caller");
        let is_first = stream.queue.is_empty();
        if is_first {
            stream.backlog_at = self.backlog.len();
            self.backlog.push(key);
            stream.slow.begin();
        }
        stream.queue.push_back(operation);
        let target = Position { stream: key, count: stream.enqueued };
        if is_first {
            self.wake(key);
        }
        if is_host_function {
            self.host_functions += 1;
            self.call_is_made();
            match self.schedule.is_eager() && self.slow_streams == 0 {
                true => self.settle(),
                false => self.host_targets.push(target),
            }
            self.host_work = true;
        }
    }

    /// Uses CUDA's freedom with an operation that has not run: what it is to write is poisoned, and
    /// what it is to read is hashed, since it must not change. So is pageable memory that it is to
    /// write, because the program may use it for something else. A table stays as it is if only
    /// some of its rows are written and these are not known yet.
    fn disturb(&mut self, action: &Action) {
        for host in action.host_uses() {
            let is_watched = host.pageable && host.access == Access::Write;
            // A source that is read ahead must not change, whatever work the stream has before it.
            let must_stay = host.is_read_ahead() && !self.is_to_be_written(host);
            let is_settled = must_stay || self.is_settled(host);
            if !is_settled || (is_watched && self.is_to_be_written(host)) {
                continue;
            }
            let (ptr, bytes) = (host.ptr, host.bytes);
            if host.access == Access::Read {
                // SAFETY: the caller has checked that the range is page-locked, or says that it is
                // valid; and the host does not write to what an operation reads until that is
                // retired.
                let contents = unsafe { self.host.bytes(ptr, bytes) };
                host.fingerprint.set(Some(rng::fingerprint(contents)));
            } else if !action.is_known_late() {
                self.look_before_writing(host);
                // SAFETY: the same; and the host does not access what an operation writes at all.
                unsafe { self.host.poison(ptr, bytes) };
                if host.pageable {
                    // SAFETY: just written.
                    let poison = unsafe { self.host.bytes(ptr, bytes) };
                    host.fingerprint.set(Some(rng::fingerprint(poison)));
                }
            }
        }
    }

    /// Whether a pending operation writes to some of the range.
    pub(super) fn is_to_be_written(&self, host: &HostUse) -> bool {
        self.host.is_pending(host.ptr, host.bytes, Access::Write)
    }

    /// Whether no pending operation may touch the range in a conflicting way. Such an operation
    /// names the range, or is a host function, which may touch anything.
    pub(super) fn is_settled(&self, host: &HostUse) -> bool {
        let other = if host.access == Access::Read { Access::Write } else { Access::Read };
        self.host_functions == 0 && !self.host.is_pending(host.ptr, host.bytes, other)
    }

    /// The rules of the legacy default stream: its operations wait for all earlier work of the
    /// device's blocking streams, and theirs wait for its work; non-blocking streams are exempt.
    #[inline]
    fn implicit_waits(&mut self, key: Key, waits: &mut Vec<Position>) {
        if self.backlog.is_empty() {
            return;
        }
        let stream = self.streams.get(key).expect("resolved by the caller");
        if !stream.flags.blocking {
            return;
        }
        let legacy = self.devices[stream.device as usize].legacy;
        if key == legacy {
            self.device_waits(stream.device, waits);
        } else {
            waits.push(self.tail(legacy));
        }
    }

    /// All work enqueued so far on the legacy stream and the blocking streams of a device.
    pub(super) fn device_waits(&self, device: Ordinal, waits: &mut Vec<Position>) {
        for &key in &self.backlog {
            let Some(stream) = self.streams.get(key) else { continue };
            if stream.flags.blocking && stream.device == device {
                waits.push(Position { stream: key, count: stream.enqueued });
            }
        }
    }

    fn snapshot(&mut self, event: Key, position: Position, agent: Agent) {
        if let Some(event) = self.events.get_mut(event) {
            self.races.recorded(agent, &mut event.order);
            event.snapshot = Some(position);
            event.stamp = None;
            event.captured = None;
            event.patience = 0;
        }
    }
}
