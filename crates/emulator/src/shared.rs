//! The lock around the machine, the threads that sleep on it, and what wakes them.
//!
//! One mutex holds everything. Two kinds of threads sleep:
//!
//! * callers of a synchronize, on `changed`: they try again whenever something completed, was
//!   released or was lost;
//! * the host thread, on `host_work`: it wakes when there is a host function to look after.
//!
//! Under the lock, state is changed first and flagged; [`Shared::with`] wakes the sleepers after it
//! has let go. A wake-up costs a system call, hence the count of waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::machine::Machine;
use super::operation::{HostCall, Position};
use super::races::{Knowledge, Site};
use super::schedule::Progress;
use super::schedule::due::{LOOK, Look};
use super::watch::are_hit;
use super::words::slots::Key;
use super::words::thread::Holding;
use pinlane_base::lock::{Condvar, Mutex, MutexGuard};
use pinlane_driver::{DriverResult, Ordinal, Poll};

/// The machine and its sleepers.
#[derive(Debug)]
pub(super) struct Shared {
    machine: Mutex<Machine>,
    changed: Condvar,
    host_work: Condvar,
    /// How many handles there are; the host thread ends with the last one.
    handles: AtomicUsize,
    /// Whether there are findings that were not taken yet.
    pub(super) has_findings: Arc<AtomicBool>,
    /// Whether calls find out where they were made.
    pub(super) sites: bool,
    /// The machine's number in the process.
    pub(super) id: u64,
}

impl Shared {
    /// The machine, for one handle.
    pub(super) fn new(machine: Machine) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Shared {
            has_findings: Arc::clone(&machine.findings.are_new),
            sites: machine.sites,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            machine: Mutex::new(machine),
            changed: Condvar::new(),
            host_work: Condvar::new(),
            handles: AtomicUsize::new(1),
        }
    }

    /// There is one handle more.
    pub(super) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// There is one handle less.
    pub(super) fn drop_handle(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.with(|machine| {
                machine.shutdown = true;
                machine.host_work = true;
            });
        }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Machine> {
        // No code of the user runs under the lock; a panic there is a bug of this module, and the
        // thread that hit it says so.
        let mut machine = self.machine.lock();
        machine.races.begin_turn();
        if are_hit() {
            // Before any thread learns of anything.
            machine.report_reads();
        }
        machine
    }

    /// Runs `work` on the machine and wakes the threads that wait for what it did.
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

    /// Wakes the threads that wait for what was done, while the lock is still held.
    fn wake(&self, machine: &mut Machine) {
        if std::mem::take(&mut machine.changed) && machine.waiters > 0 {
            self.changed.notify_all();
        }
        if std::mem::take(&mut machine.host_work) {
            self.host_work.notify_all();
        }
    }

    /// Blocks until `target` is complete. `device` is that of the stream or event waited for. Then
    /// the caller knows of `knowledge`, for the race checker.
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
