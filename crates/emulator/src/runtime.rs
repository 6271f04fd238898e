//! The lock around the machine, the threads that sleep on it, and who wakes them.
//!
//! One mutex holds everything. Two kinds of threads sleep:
//!
//! * callers of a synchronize, on `changed`: they try again whenever something completed, was
//!   released or was lost;
//! * the host thread, on `host_work`: it wakes when there is a host function to look after.
//!
//! Under the lock, state is changed first and flagged; [`Shared::with`] wakes the sleepers after it
//! has let go. A wake-up costs a system call, hence the count of waiters.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::finding::FindingKind;
use super::machine::Machine;
use super::operation::{Action, HostCall, Position};
use super::races::{Knowledge, Site};
use super::schedule::Progress;
use super::schedule::due::{LOOK, Look};
use super::words::slots::Key;
use super::words::thread::{Holding, in_host_function};
use pinlane_base::lock::{Condvar, Mutex, MutexGuard};
use pinlane_driver::CudaCode;
use pinlane_driver::{Call, DriverResult, Ordinal, Poll, RawEvent, RawStream};

/// The machine and its sleepers.
#[derive(Debug)]
pub(super) struct Shared {
    machine: Mutex<Machine>,
    changed: Condvar,
    host_work: Condvar,
}

impl Shared {
    pub(super) fn new(machine: Machine) -> Self {
        Shared { machine: Mutex::new(machine), changed: Condvar::new(), host_work: Condvar::new() }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Machine> {
        // No code of the user runs under the lock; a panic there is a bug of this module, and the
        // thread that hit it says so.
        let mut machine = self.machine.lock();
        machine.races.begin_turn();
        machine
    }

    /// Runs `work` on the machine and wakes those who wait for what it did.
    #[inline]
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        let _holding = Holding::begin();
        let mut machine = self.lock();
        let result = work(&mut machine);
        let changed = std::mem::take(&mut machine.changed) && machine.waiters > 0;
        let host_work = std::mem::take(&mut machine.host_work);
        drop(machine);
        if changed {
            self.changed.notify_all();
        }
        if host_work {
            self.host_work.notify_all();
        }
        result
    }

    /// Wakes those who wait for what was done, while the lock is still held.
    fn wake(&self, machine: &mut Machine) {
        if std::mem::take(&mut machine.changed) && machine.waiters > 0 {
            self.changed.notify_all();
        }
        if std::mem::take(&mut machine.host_work) {
            self.host_work.notify_all();
        }
    }

    /// Blocks until `target` is complete. `device` is that of the stream or event waited for. The
    /// race checker is told that the caller then knows of `knowledge`.
    pub(super) fn wait(
        &self,
        device: Ordinal,
        target: Position,
        knowledge: Option<Knowledge>,
    ) -> DriverResult<()> {
        let began = Instant::now();
        let _holding = Holding::begin();
        let mut machine = self.lock();
        loop {
            if let Some(code) = machine.devices[device as usize].lost {
                return Err(code);
            }
            let progress = machine.wait_step(target);
            self.wake(&mut machine);
            match progress {
                Progress::Done => {
                    machine.learn_from(Ok(Poll::Done), knowledge);
                    return Ok(());
                }
                Progress::Lost(code) => return Err(code),
                Progress::Blocked => {
                    machine.functions_are_due();
                    self.wake(&mut machine);
                    let time = machine.time_to_wait(target, began);
                    machine.waiters += 1;
                    machine = match time {
                        Some(time) => self.changed.wait_timeout(machine, time),
                        None => self.changed.wait(machine),
                    };
                    machine.waiters -= 1;
                    machine.races.begin_turn();
                    if time.is_some() {
                        let site = machine.sites.then(Site::capture).flatten();
                        machine.end_if_stuck(target, began, site);
                    }
                }
            }
        }
    }

    /// For the host thread: takes note that its last function returned, and blocks until there is
    /// another to call. `None` when the emulator is gone.
    pub(super) fn next_host_call(&self, returned: Option<Key>) -> Option<(Key, HostCall)> {
        let _holding = Holding::begin();
        let mut machine = self.lock();
        if let Some(stream) = returned {
            machine.host_function_returned(stream);
        }
        let mut look = Look::default();
        loop {
            if machine.shutdown {
                return None;
            }
            let is_due = machine.are_due(&mut look);
            let next = if is_due { machine.next_host_call() } else { None };
            // That flag is for this thread, which has just looked.
            machine.host_work = false;
            self.wake(&mut machine);
            if next.is_some() {
                return next;
            }
            machine = match !is_due && machine.has_functions() {
                true => self.host_work.wait_timeout(machine, LOOK),
                false => self.host_work.wait(machine),
            };
        }
    }
}

/// What all handles on one emulator share; the host thread ends with it.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) shared: Arc<Shared>,
    /// Whether calls find out where they were made.
    pub(super) sites: bool,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.with(|machine| {
            machine.shutdown = true;
            machine.host_work = true;
        });
    }
}

/// A host function may make no call (rule 24). CUDA says that one may fail with this code; here
/// every one does.
pub(super) fn refuse_in_host_function(
    machine: &mut Machine,
    call: impl fmt::Debug,
) -> DriverResult<()> {
    if in_host_function() {
        let message = format!("{call:?} was called from inside a host function");
        let kind = FindingKind::CallInHostFunction;
        return Err(machine.misuse(kind, message, CudaCode::NOT_PERMITTED));
    }
    Ok(())
}

impl Runtime {
    /// Runs a call on the machine, which names no stream and perhaps no device.
    #[inline]
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        let site = self.sites.then(Site::capture);
        self.shared.with(|machine| {
            if let Some(site) = site {
                machine.races.called_from(site);
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
    pub(super) fn call<R>(
        &self,
        call: Call,
        device: Ordinal,
        work: impl FnOnce(&mut Machine) -> DriverResult<R>,
    ) -> DriverResult<R> {
        self.with(|machine| {
            refuse_in_host_function(machine, call)?;
            machine.enter(call, device, work)
        })
    }

    /// A call that waits for what `target` finds.
    pub(super) fn synchronize(
        &self,
        call: Call,
        device: Ordinal,
        target: impl FnOnce(&mut Machine) -> DriverResult<(Option<Position>, Option<Knowledge>)>,
    ) -> DriverResult<()> {
        let (late, target) = self.with(|machine| {
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
    pub(super) fn on_stream<R>(
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

    pub(super) fn on_event<R>(
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

    /// Enqueues an operation on `size` bytes or items; none is no operation.
    #[inline]
    pub(super) fn enqueue(
        &self,
        stream: RawStream,
        size: usize,
        action: Action,
    ) -> DriverResult<()> {
        self.on_stream(action.call(), stream, |machine, key| {
            if size == 0 { Ok(()) } else { machine.submit(key, Vec::new(), action) }
        })
    }
}
