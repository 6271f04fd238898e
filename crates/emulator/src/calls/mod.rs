//! One method for each call of CUDA, one file for each noun. This file has what all calls share.
//!
//! [`Driver`](pinlane_driver::Driver) and the drop-in library translate these methods. The state is
//! the machine's. A method that destroys the object of an address or a handle is `unsafe`, or
//! destroys only objects that the program has made.

mod batches;
mod copies;
mod devices;
mod events;
mod fills;
mod graphs;
pub(crate) mod host;
mod ipc;
mod kernels;
mod managed;
mod mapped;
mod memory;
mod pools;
mod ranges;
mod reset;
mod streams;
pub(crate) mod strided;
mod system_calls;
mod threads;

use std::fmt;

pub use batches::{BatchEntry, SourceOrder};
pub use copies::{Kind, Plane};
pub use graphs::CaptureInfo;
pub use pools::PoolFigure;
pub use ranges::{Held, Side};
pub use threads::Target;

use super::emulator::Emulator;
use super::finding::FindingKind;
use super::machine::Machine;
use super::operation::{Action, Position};
use super::races::{Knowledge, Site};
use super::words::slots::Key;
use super::words::thread::in_host_function;
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal, RawEvent, RawStream};

/// A host function may make no call (rule 24). CUDA says that one may fail with this code; here
/// every one does.
#[inline]
pub(crate) fn refuse_in_host_function(
    machine: &mut Machine,
    call: impl fmt::Debug,
) -> DriverResult<()> {
    if in_host_function() { Err(refused(machine, &call)) } else { Ok(()) }
}

#[cold]
fn refused(machine: &mut Machine, call: &dyn fmt::Debug) -> CudaCode {
    let message = format!("{call:?} was called from inside a host function");
    machine.misuse(FindingKind::CallInHostFunction, message, CudaCode::NOT_PERMITTED)
}

/// The error for a handle that names nothing.
fn no_such(machine: &mut Machine, call: &str, what: &str, handle: usize) -> CudaCode {
    let message = format!("{call} names {handle:#x}, which is no live {what}");
    machine.misuse(FindingKind::BadHandle, message, CudaCode::INVALID_RESOURCE_HANDLE)
}

impl Emulator {
    /// Runs a call that names no stream, and perhaps no device, on the machine.
    #[inline]
    pub(crate) fn in_call<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        // Boxed, because a site is large and most calls have none.
        let site = self.shared.sites.then(|| Box::new(Site::capture()));
        self.shared.with(|machine| {
            if let Some(site) = site {
                machine.races.called_from(*site);
            }
            machine.races.begin_call();
            if machine.host.has_closed() {
                machine.ask_for_faults();
                machine.host.take_back_lent();
            }
            machine.call_is_made();
            let result = work(machine);
            machine.pass();
            result
        })
    }

    #[inline]
    pub(crate) fn call<R>(
        &self,
        call: Call,
        device: Ordinal,
        work: impl FnOnce(&mut Machine) -> DriverResult<R>,
    ) -> DriverResult<R> {
        self.in_call(|machine| {
            refuse_in_host_function(machine, call)?;
            machine.enter(call, device, work)
        })
    }

    /// A call that waits for what `target` finds.
    pub(crate) fn wait_for(
        &self,
        call: Call,
        device: Ordinal,
        target: impl FnOnce(&mut Machine) -> DriverResult<(Option<Position>, Option<Knowledge>)>,
    ) -> DriverResult<()> {
        let (late, target) = self.in_call(|machine| {
            refuse_in_host_function(machine, call)?;
            let late = machine.begin(call, device)?;
            Ok((late, target(machine)))
        })?;
        let waited = target.and_then(|(position, knowledge)| {
            position.map_or(Ok(()), |position| self.shared.wait(device, position, knowledge))
        });
        if late.is_some() {
            self.shared.with(|machine| machine.end(device, late))?;
        }
        waited
    }

    #[inline]
    pub(crate) fn on_stream<R>(
        &self,
        call: Call,
        stream: RawStream,
        work: impl FnOnce(&mut Machine, Key) -> DriverResult<R>,
    ) -> DriverResult<R> {
        self.call(call, stream.device, |machine| {
            let key = machine.resolve(call, stream)?;
            work(machine, key)
        })
    }

    pub(crate) fn on_event<R>(
        &self,
        call: Call,
        event: RawEvent,
        work: impl FnOnce(&mut Machine, Key) -> DriverResult<R>,
    ) -> DriverResult<R> {
        self.call(call, event.device, |machine| {
            let key = machine.resolve_event(call, event)?;
            work(machine, key)
        })
    }

    /// Enqueues what `action` makes on `size` bytes or items, unless that is 0.
    #[inline]
    pub(crate) fn enqueue(
        &self,
        stream: RawStream,
        call: Call,
        size: usize,
        action: impl FnOnce() -> Action,
    ) -> DriverResult<()> {
        self.on_stream(call, stream, |machine, key| {
            if size == 0 { Ok(()) } else { machine.submit(key, Vec::new(), action()) }
        })
    }
}
