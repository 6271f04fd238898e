//! The lock around the machine, who sleeps on it, and who wakes them.
//!
//! One mutex holds everything. Two kinds of threads sleep:
//!
//! * callers of a synchronize, on `changed`: they try again whenever something completed, was released
//!   or was lost;
//! * the host thread, on `host_work`: it wakes when there is a host function to look after.
//!
//! Under the lock, state is changed first and flagged; [`Shared::with`] wakes the sleepers after it has
//! let go. A wake-up costs a system call, hence the count of waiters.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::finding::FindingKind;
use super::host_thread;
use super::machine::Machine;
use super::operation::{Action, HostCall, Position};
use super::schedule::Progress;
use super::slots::Key;
use crate::driver::{Call, DriverResult, Ordinal, RawStream};
use crate::error::CudaCode;

pub(super) struct Shared {
    machine: Mutex<Machine>,
    changed: Condvar,
    host_work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        // No code of the user runs under the lock; a panic there is a bug of this module, and the
        // thread that hit it says so.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the machine and wakes whom that concerns.
    #[inline]
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        let mut machine = self.lock();
        let result = work(&mut machine);
        let changed = std::mem::take(&mut machine.changed) && machine.waiters > 0;
        let host_work = std::mem::take(&mut machine.host_work);
        drop(machine);
        if changed {
            self.changed.notify_all();
        }
        if host_work {
            self.host_work.notify_one();
        }
        result
    }

    /// Blocks until `target` is complete.
    fn wait(&self, device: Ordinal, target: Position) -> DriverResult<()> {
        let mut machine = self.lock();
        let result = loop {
            if let Some(code) = machine.devices[device as usize].lost {
                break Err(code);
            }
            match machine.wait_step(target) {
                Progress::Done => break Ok(()),
                Progress::Lost(code) => break Err(code),
                Progress::Blocked => {}
            }
            // The steps just made may concern others who sleep.
            if std::mem::take(&mut machine.changed) && machine.waiters > 0 {
                self.changed.notify_all();
            }
            if std::mem::take(&mut machine.host_work) {
                self.host_work.notify_one();
            }
            machine.waiters += 1;
            machine = self.changed.wait(machine).unwrap_or_else(PoisonError::into_inner);
            machine.waiters -= 1;
        };
        drop(machine);
        // Flags raised by the last steps are acted upon.
        self.with(|_| ());
        result
    }

    /// For the host thread: the next function to call, or `None` when the emulator is gone.
    pub(super) fn next_host_call(&self, returned: Option<Key>) -> Option<(Key, HostCall)> {
        if let Some(stream) = returned {
            self.with(|machine| machine.host_function_returned(stream));
        }
        loop {
            let next = self.with(|machine| {
                if machine.shutdown { Some(None) } else { machine.next_host_call().map(Some) }
            });
            if let Some(next) = next {
                return next;
            }
            let machine = self.lock();
            // What came up between the two locks set the flag, or left a function behind.
            if !machine.host_work && machine.host_ready.is_empty() && !machine.shutdown {
                drop(self.host_work.wait(machine));
            }
        }
    }
}
