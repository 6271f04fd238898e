//! Streams (rules 10 to 12), and host functions on them (rule 24).

use std::ffi::c_void;
use std::ops::RangeInclusive;

use crate::emulator::Emulator;
use crate::operation::{Action, HostCall};
use crate::races::Kind;
use crate::schedule::host_thread;
use pinlane_driver::CudaCode;
use pinlane_driver::{
    Call, DriverResult, HostFunction, Ordinal, Poll, RawEvent, RawStream, StreamFlags,
};

/// The priorities, the greatest first; others are clamped to them.
const PRIORITIES: RangeInclusive<i32> = -5..=0;

impl Emulator {
    /// Creates a stream. `cudaStreamCreateWithPriority`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device; the code that it was lost with.
    pub fn stream_create(&self, device: Ordinal, flags: StreamFlags) -> DriverResult<RawStream> {
        self.call(Call::StreamCreate, device, |machine| {
            let priority = flags.priority.clamp(*PRIORITIES.start(), *PRIORITIES.end());
            let kind = if flags.blocking { Kind::Blocking } else { Kind::NonBlocking };
            let key = machine.add_stream(device, StreamFlags { priority, ..flags }, kind);
            Ok(RawStream { device, handle: machine.streams.handle(key) })
        })
    }

    /// Destroys a stream; what is enqueued drains (rule 12). `cudaStreamDestroy`
    ///
    /// # Errors
    ///
    /// As for [`stream_query`](Self::stream_query), and for a default stream.
    ///
    /// # Safety
    ///
    /// * The stream is not used afterwards.
    pub unsafe fn stream_destroy(&self, stream: RawStream) -> DriverResult<()> {
        self.on_stream(Call::StreamDestroy, stream, |machine, key| {
            if stream.is_default() {
                return Err(CudaCode::INVALID_RESOURCE_HANDLE);
            }
            machine.stream_destroy(key);
            Ok(())
        })
    }

    /// The flags and the priority of a stream. `cudaStreamGetFlags`
    #[must_use]
    pub fn stream_flags(&self, stream: RawStream) -> StreamFlags {
        let flags = self.with(|machine| Some(machine.streams.find(stream.handle)?.1.flags));
        flags.unwrap_or(StreamFlags { blocking: true, priority: 0 })
    }

    /// Whether a stream has done all that it was given. `cudaStreamQuery`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`], and a finding, if there is no such stream.
    /// [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`] if it is capturing. The code that its device was
    /// lost with.
    pub fn stream_query(&self, stream: RawStream) -> DriverResult<Poll> {
        self.on_stream(Call::StreamQuery, stream, |machine, key| {
            machine.refuse_capturing(key)?;
            let found = machine.streams.get(key).expect("just resolved");
            let mut patience = found.patience;
            let (tail, knowledge) = (machine.tail(key), machine.knowledge(key));
            let answer = machine.poll(tail, &mut patience);
            machine.learn_from(answer, knowledge);
            if let Some(stream) = machine.streams.get_mut(key) {
                stream.patience = patience;
            }
            answer
        })
    }

    /// Waits until a stream has done all that it was given. `cudaStreamSynchronize`
    ///
    /// # Errors
    ///
    /// As for [`stream_query`](Self::stream_query).
    pub fn stream_synchronize(&self, stream: RawStream) -> DriverResult<()> {
        self.wait_for(Call::StreamSynchronize, stream.device, |machine| {
            let key = machine.resolve(Call::StreamSynchronize, stream)?;
            machine.refuse_capturing(key)?;
            Ok((Some(machine.tail(key)), machine.knowledge(key)))
        })
    }

    /// What the stream is given from now on waits for what the event was recorded for.
    /// `cudaStreamWaitEvent`
    ///
    /// # Errors
    ///
    /// As for [`stream_query`](Self::stream_query), and for [`event_query`](Self::event_query).
    ///
    /// # Safety
    ///
    /// * The stream and the event are the caller's.
    pub unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        self.on_stream(Call::StreamWaitEvent, stream, |machine, key| {
            let event = machine.resolve_event(Call::StreamWaitEvent, event)?;
            if machine.capture_wait(key, event)? {
                return Ok(());
            }
            let event = machine.events.get(event).expect("just resolved");
            let agent = machine.streams.get(key).expect("just resolved").agent;
            machine.races.waits(agent, &event.order);
            let snapshot = event.snapshot;
            snapshot.map_or(Ok(()), |snapshot| machine.submit(key, vec![snapshot], Action::Join))
        })
    }

    /// Calls a function of the host when its turn comes (rule 24). `cudaLaunchHostFunc`
    ///
    /// # Errors
    ///
    /// As for [`stream_query`](Self::stream_query); 304 if no thread can be started for it.
    ///
    /// # Safety
    ///
    /// * The stream is the caller's.
    /// * `function` may be called with `data` on any thread, once, or as often as a graph replays
    ///   it. It does not unwind, and does not wait for work that is not ordered before it.
    pub unsafe fn launch_host(
        &self,
        stream: RawStream,
        function: HostFunction,
        data: *mut c_void,
    ) -> DriverResult<()> {
        let call = HostCall { function, data };
        self.on_stream(Call::LaunchHost, stream, |machine, key| {
            host_thread::ensure(machine, &self.shared)?;
            machine.submit(key, Vec::new(), Action::HostFunction(call))
        })
    }
}
