//! Streams and events by their handles, which say nothing of the device; waiting for a device.

use super::{Face, Target};
use crate::finding::FindingKind;
use crate::machine::{EVENT_TAG, Machine, STREAM_TAG};
use crate::operation::Position;
use crate::words::slots::Key;
use pinlane_driver::CudaCode;
use pinlane_driver::{DriverResult, Ordinal, RawEvent, RawStream, StreamFlags};

/// `cudaStreamNonBlocking`
const NON_BLOCKING: u32 = 1;

fn no_such(machine: &mut Machine, call: &str, what: &str, handle: usize) -> CudaCode {
    let message = format!("{call} names {handle:#x}, which is no live {what}");
    machine.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_RESOURCE_HANDLE)
}

impl Face {
    /// The stream that a call names.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`], and a finding, if there is none.
    pub fn stream(&self, target: Target) -> DriverResult<RawStream> {
        match target.handle {
            0 => Ok(self.default_stream(target.per_thread)),
            RawStream::LEGACY => Ok(self.default_stream(false)),
            RawStream::PER_THREAD => Ok(self.default_stream(true)),
            handle => self.emulator.with(|machine| {
                let key = Key::from_handle(handle, STREAM_TAG);
                match key.and_then(|key| machine.streams.get(key)) {
                    Some(stream) if !stream.destroyed => {
                        Ok(RawStream { device: stream.device, handle })
                    }
                    _ => Err(no_such(machine, self.call_name(), "stream", handle)),
                }
            }),
        }
    }

    /// The event that a call names.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`], and a finding, if there is none; without a finding if
    /// the handle is 0.
    pub fn event(&self, handle: usize) -> DriverResult<RawEvent> {
        if handle == 0 {
            return Err(CudaCode::INVALID_RESOURCE_HANDLE);
        }
        self.emulator.with(|machine| {
            let key = Key::from_handle(handle, EVENT_TAG);
            match key.and_then(|key| machine.events.get(key)) {
                Some(event) => Ok(RawEvent { device: event.device, handle }),
                None => Err(no_such(machine, self.call_name(), "event", handle)),
            }
        })
    }

    /// Creates a stream of the current device. `cudaStreamCreateWithPriority`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_VALUE`] for unknown flags.
    pub fn stream_create(&self, flags: u32, priority: i32) -> DriverResult<RawStream> {
        if flags > NON_BLOCKING {
            return Err(CudaCode::INVALID_VALUE);
        }
        let how = StreamFlags { blocking: flags != NON_BLOCKING, priority };
        let stream = self.emulator.driver().stream_create(self.current_device(), how)?;
        self.books.lock().streams.insert(stream.handle, (flags, priority));
        Ok(stream)
    }

    /// The flags and the priority of a stream.
    #[must_use]
    pub fn stream_flags(&self, stream: RawStream) -> (u32, i32) {
        self.books.lock().streams.get(&stream.handle).copied().unwrap_or((0, 0))
    }

    /// Destroys a stream that this face has created; what is enqueued drains.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`] for any other; with a finding, unless it is a default
    /// stream.
    pub fn stream_destroy(&self, stream: RawStream) -> DriverResult<()> {
        if stream.is_default() {
            return Err(CudaCode::INVALID_RESOURCE_HANDLE);
        }
        let Some(noted) = self.books.lock().streams.remove(&stream.handle) else {
            let no_such = |machine: &mut Machine| {
                no_such(machine, self.call_name(), "stream of this program", stream.handle)
            };
            return Err(self.emulator.with(no_such));
        };
        // SAFETY: the stream came from `stream_create`, and was in the books until now; who uses it
        // afterwards is refused by the machine, which knows stale handles.
        let destroyed = unsafe { self.emulator.driver().stream_destroy(stream) };
        if destroyed.is_err() {
            self.books.lock().streams.insert(stream.handle, noted);
        }
        destroyed
    }

    /// Waits for all work of a device. `cudaDeviceSynchronize`
    ///
    /// # Errors
    ///
    /// The code that the device was lost with. [`CudaCode::STREAM_CAPTURE_UNSUPPORTED`] while one
    /// of its streams is capturing.
    pub fn synchronize(&self, device: Ordinal) -> DriverResult<()> {
        self.refuse_in_host_function()?;
        self.drain_device(device, true)
    }

    /// What allocating and freeing may do, one time in `n`: they synchronize with the device (rules
    /// 13 and 22). Nobody may count on it.
    pub(super) fn may_synchronize(&self, n: usize) {
        let device = self.current_device();
        let free = |machine: &mut Machine| machine.captures.is_empty() && machine.takes_liberty(n);
        if self.emulator.with(free) {
            // What a device or a capture has to say against it, the calls say that ask for it.
            let _ = self.drain_device(device, false);
        }
    }

    /// Waits for all work of a device. `told` says whether that is a promise of CUDA, and not only
    /// what it does this time.
    pub(super) fn drain_device(&self, device: Ordinal, told: bool) -> DriverResult<()> {
        self.emulator.with(|machine| {
            machine.device(device)?.lost.map_or(Ok(()), Err)?;
            let capturing = machine
                .streams
                .values()
                .any(|stream| stream.device == device && stream.capture.is_some());
            if capturing {
                machine.invalidate_all(device);
                return Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED);
            }
            Ok(())
        })?;
        self.drain_all(device, told)
    }

    /// The same beside captures, which have nothing to wait for.
    pub(super) fn drain_all(&self, device: Ordinal, told: bool) -> DriverResult<()> {
        let (targets, knowledge) = self.emulator.with(|machine| {
            machine.device(device)?.lost.map_or(Ok(()), Err)?;
            let of_device = |key: &&Key| {
                machine.streams.get(**key).is_some_and(|stream| stream.device == device)
            };
            let busy: Vec<Key> = machine.backlog.iter().filter(of_device).copied().collect();
            let targets: Vec<Position> = busy.into_iter().map(|key| machine.tail(key)).collect();
            Ok((targets, machine.races.device_tail(device)))
        })?;
        targets.into_iter().try_for_each(|target| self.wait(device, target, told))?;
        if told {
            // Also of streams that have nothing left to do, and of those that are gone.
            self.emulator.with(|machine| {
                knowledge.iter().for_each(|known| machine.host_learns(known));
                machine.settle_host();
            });
        }
        Ok(())
    }

    /// Waits; the race checker is told only what CUDA promises.
    pub(super) fn wait(&self, device: Ordinal, target: Position, told: bool) -> DriverResult<()> {
        let shared = &self.emulator.shared;
        let knowledge = shared.with(|machine| machine.knowledge(target.stream)).filter(|_| told);
        shared.wait(device, target, knowledge)
    }
}
