//! The thread that calls host functions, as the CUDA runtime has one.
//!
//! It is started by the first host function, holds the machine only to ask for the next one, and
//! calls it with nothing locked. Functions run one after the other, in the order in which their
//! turn comes; CUDA allows that ("may be serialized"), and it brings lock cycles to light. The
//! thread ends when the last handle on the emulator is gone; functions whose turn has not come by
//! then are never called, like those of a lost device.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::machine::Machine;
use super::operation::HostCall;
use super::runtime::Shared;
use super::schedule::Progress;
use super::slots::Key;
use crate::driver::DriverResult;
use crate::error::CudaCode;

/// `cudaErrorOperatingSystem`
const OPERATING_SYSTEM: CudaCode = CudaCode(304);

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    static ALIVE: Arc<()> = Arc::new(());
}

/// Whether the calling thread is inside a host function of some emulator.
#[inline]
pub(super) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// A number that no other thread of the process ever has.
pub(super) fn this_thread() -> u64 {
    // A call from the destructor of another thread-local may come after this one is gone. All such
    // calls count as made by one thread, which has ended anyhow.
    THREAD.try_with(|&thread| thread).unwrap_or(u64::MAX)
}

/// Dies with the calling thread; dead from the start if the thread is ending.
pub(super) fn alive() -> Weak<()> {
    ALIVE.try_with(Arc::downgrade).unwrap_or_default()
}

/// Starts the thread, unless it runs.
pub(super) fn ensure(machine: &mut Machine, shared: &Arc<Shared>) -> DriverResult<()> {
    if !machine.host_thread {
        let shared = Arc::clone(shared);
        std::thread::Builder::new()
            .name("pinlane-emulated-host-functions".into())
            .spawn(move || serve(&shared))
            .map_err(|_| OPERATING_SYSTEM)?;
        machine.host_thread = true;
    }
    Ok(())
}

fn serve(shared: &Shared) {
    let mut returned = None;
    while let Some((stream, call)) = shared.next_host_call(returned.take()) {
        IN_HOST_FUNCTION.set(true);
        // SAFETY: `Driver::launch_host` is told that the function may be called once with this
        // pointer on any thread; the operation was taken off its queue for this call. It is called
        // with nothing locked.
        unsafe { (call.function)(call.data) };
        IN_HOST_FUNCTION.set(false);
        returned = Some(stream);
    }
}

impl Machine {
    /// The next host function whose turn has come. In lazy mode this is the one who waits for them:
    /// what they are ordered after runs now.
    pub(super) fn next_host_call(&mut self) -> Option<(Key, HostCall)> {
        loop {
            while let Some((key, call)) = self.host_ready.pop_front() {
                if self.streams.get(key).is_some_and(|stream| stream.dispatched) {
                    return Some((key, call));
                }
                // The device was lost meanwhile.
                self.host_functions -= 1;
            }
            let mut targets = std::mem::take(&mut self.host_targets);
            targets.retain(|&target| self.drive(target) == Progress::Blocked);
            self.host_targets = targets;
            if self.host_ready.is_empty() {
                return None;
            }
        }
    }
}
