//! The thread that calls host functions, as the CUDA runtime has one.
//!
//! It is started by the first host function, holds the machine only to ask for the next one, and
//! calls it with nothing locked. [`due`](super::due) says when. Functions run one after the other,
//! in the order in which their turn comes; CUDA allows that ("may be serialized"), and it brings
//! lock cycles to light. The thread ends when the last handle on the emulator is gone; functions
//! whose turn has not come by then are never called, like those of a lost device.

use std::sync::Arc;
use std::time::Instant;

use crate::machine::{Calling, Machine};
use crate::operation::HostCall;
use crate::schedule::Progress;
use crate::shared::Shared;
use crate::words::slots::Key;
use crate::words::thread::as_host_function;
use pinlane_base::sanitizer::theirs;
use pinlane_base::thread;
use pinlane_driver::CudaCode;
use pinlane_driver::DriverResult;

/// `cudaErrorOperatingSystem`
const OPERATING_SYSTEM: CudaCode = CudaCode(304);

/// Starts the thread, unless it runs.
pub(crate) fn ensure(machine: &mut Machine, shared: &Arc<Shared>) -> DriverResult<()> {
    if !machine.host_thread {
        let started = thread::start("pinlane-host-fn", Arc::clone(shared), |shared| serve(&shared));
        started.map_err(|_| OPERATING_SYSTEM)?;
        machine.host_thread = true;
    }
    Ok(())
}

fn serve(shared: &Shared) {
    let mut returned = None;
    while let Some((stream, call)) = shared.next_host_call(returned.take()) {
        // SAFETY: the caller of `Driver::launch_host` promises that the function may be called once
        // with this pointer on any thread; the operation was taken off its queue for this call. It
        // is called with nothing locked.
        as_host_function(|| theirs(|| unsafe { (call.function)(call.data) }));
        returned = Some(stream);
    }
}

impl Machine {
    /// The next host function whose turn has come. In lazy mode the host thread is what waits for
    /// them: what they are ordered after runs now.
    pub(crate) fn next_host_call(&mut self) -> Option<(Key, HostCall)> {
        loop {
            while let Some((key, call)) = self.host_ready.pop_front() {
                if let Some(stream) = self.streams.get_mut(key).filter(|s| s.dispatched) {
                    let number = stream.completed + 1;
                    let knowledge = stream.queue.front_mut().and_then(|o| o.knowledge.take());
                    if let Some(knowledge) = &knowledge {
                        self.look_at_known(knowledge);
                    }
                    self.tell_called(key);
                    self.races.function_begins(knowledge);
                    self.host_calling =
                        Some(Calling { stream: key, number, since: Instant::now() });
                    self.settle_host();
                    return Some((key, call));
                }
                // The device was lost since the function was queued.
                self.host_functions -= 1;
            }
            let mut targets = std::mem::take(&mut self.host_targets);
            targets.retain(|&target| self.drive(target, true) == Progress::Blocked);
            self.host_targets = targets;
            if self.host_ready.is_empty() {
                return None;
            }
        }
    }
}
