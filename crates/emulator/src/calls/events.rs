//! Events (rules 14, 16 and 17).

use super::no_such;
use crate::emulator::Emulator;
use crate::finding::FindingKind;
use crate::machine::Event;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal, Poll, RawEvent, RawStream};

impl Emulator {
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
        self.with(|machine| match machine.events.find(handle) {
            Some((_, event)) => Ok(RawEvent { device: event.device, handle }),
            None => Err(no_such(machine, self.call_name(), "event", handle)),
        })
    }

    /// Creates an event. `cudaEventCreateWithFlags`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_DEVICE`] if there is no such device; the code that it was lost with.
    pub fn event_create(&self, device: Ordinal, timing: bool) -> DriverResult<RawEvent> {
        self.call(Call::EventCreate, device, |machine| {
            let order = machine.races.event_created();
            let key = machine.events.insert(Event {
                device,
                order,
                timing,
                snapshot: None,
                stamp: None,
                captured: None,
                for_others: false,
                patience: 0,
            });
            Ok(RawEvent { device, handle: machine.events.handle(key) })
        })
    }

    /// Notes that other processes may use an event. `cudaEventInterprocess`
    pub fn let_others_use(&self, event: RawEvent) {
        self.with(|machine| {
            let key = machine.events.find(event.handle).map(|(key, _)| key);
            if let Some(event) = key.and_then(|key| machine.events.get_mut(key)) {
                event.for_others = true;
            }
        });
    }

    /// Whether other processes may use an event.
    #[must_use]
    pub fn event_is_for_others(&self, event: RawEvent) -> bool {
        self.with(|machine| {
            machine.events.find(event.handle).is_some_and(|(_, event)| event.for_others)
        })
    }

    /// Destroys an event; waits for it that are enqueued stay. `cudaEventDestroy`
    ///
    /// # Errors
    ///
    /// As for [`event_query`](Self::event_query).
    ///
    /// # Safety
    ///
    /// * The event is not used afterwards.
    pub unsafe fn event_destroy(&self, event: RawEvent) -> DriverResult<()> {
        self.on_event(Call::EventDestroy, event, |machine, key| {
            machine.events.remove(key);
            Ok(())
        })
    }

    /// Records an event: it takes the place of what the stream has been given so far.
    /// `cudaEventRecord`
    ///
    /// # Errors
    ///
    /// As for [`event_query`](Self::event_query), and if the stream is another device's.
    ///
    /// # Safety
    ///
    /// * The event is the caller's: no other code relies on what it was recorded for.
    pub unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        self.on_stream(Call::EventRecord, stream, |machine, key| {
            let found = machine.resolve_event(Call::EventRecord, event)?;
            if event.device != stream.device {
                let message = format!("EventRecord of {event:?} on {stream:?}");
                let code = CudaCode::INVALID_RESOURCE_HANDLE;
                return Err(machine.misuse(FindingKind::BadHandle, message, code));
            }
            machine.record(key, found)
        })
    }

    /// Whether what an event was recorded for is done (rule 16). `cudaEventQuery`
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`], and a finding, if there is no such event.
    /// [`CudaCode::CAPTURED_EVENT`] if it was recorded in a capture (rule 33). The code that its
    /// device was lost with.
    pub fn event_query(&self, event: RawEvent) -> DriverResult<Poll> {
        self.on_event(Call::EventQuery, event, |machine, key| {
            let Some(target) = machine.event_target(key)? else { return Ok(Poll::Done) };
            let event = machine.events.get(key).expect("just resolved");
            let (mut patience, knowledge) = (event.patience, event.order.knowledge.clone());
            let answer = machine.poll(target, &mut patience);
            machine.learn_from(answer, knowledge);
            machine.events.get_mut(key).expect("just resolved").patience = patience;
            answer
        })
    }

    /// Waits for what an event was recorded for. `cudaEventSynchronize`
    ///
    /// # Errors
    ///
    /// As for [`event_query`](Self::event_query).
    pub fn event_synchronize(&self, event: RawEvent) -> DriverResult<()> {
        self.wait_for(Call::EventSynchronize, event.device, |machine| {
            let key = machine.resolve_event(Call::EventSynchronize, event)?;
            let target = machine.event_target(key)?;
            let found = machine.events.get(key).expect("just resolved");
            Ok((target, found.order.knowledge.clone()))
        })
    }

    /// The milliseconds between two events (rule 17). `cudaEventElapsedTime`
    ///
    /// # Errors
    ///
    /// As for [`event_query`](Self::event_query). [`CudaCode::INVALID_RESOURCE_HANDLE`] if one was
    /// not recorded or has no timing; [`CudaCode::NOT_READY`] if one is not done.
    pub fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> DriverResult<f32> {
        self.on_event(Call::EventElapsed, start, |machine, first| {
            let second = machine.resolve_event(Call::EventElapsed, end)?;
            // Unlike other questions about such an event, this one does not end the capture (seen).
            for key in [first, second] {
                if machine.events.get(key).is_some_and(|event| event.captured.is_some()) {
                    return Err(CudaCode::CAPTURED_EVENT);
                }
            }
            let mut stamps = [0; 2];
            for (key, stamp) in [first, second].into_iter().zip(&mut stamps) {
                let target = machine.event_target(key)?;
                let event = machine.events.get(key).expect("just resolved");
                if !event.timing || event.device != start.device {
                    return Err(CudaCode::INVALID_RESOURCE_HANDLE);
                }
                let target = target.ok_or(CudaCode::INVALID_RESOURCE_HANDLE)?;
                *stamp = match event.stamp {
                    Some(stamp) if machine.is_complete(target) => stamp,
                    _ => return Err(CudaCode::NOT_READY),
                };
            }
            for key in [first, second] {
                let event = machine.events.get(key).expect("just resolved");
                let knowledge = event.order.knowledge.clone();
                machine.learn_from(Ok(Poll::Done), knowledge);
            }
            Ok((stamps[1] as f64 - stamps[0] as f64) as f32 / 1e6)
        })
    }

    /// Whether an event was last recorded in a capture that is under way.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_RESOURCE_HANDLE`] if there is no such event.
    pub fn is_captured(&self, event: RawEvent) -> DriverResult<bool> {
        self.with(|machine| {
            let key = machine.resolve_event(Call::EventQuery, event)?;
            let captured = machine.events.get(key).and_then(|event| event.captured);
            Ok(captured.is_some_and(|capture| machine.captures.get(capture).is_some()))
        })
    }
}
