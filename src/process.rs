//! Finds out which process and which kind of thread a call comes from, and whether the process is
//! ending.
//!
//! Two rules decide whether a caller may call the CUDA runtime:
//!
//! * After `fork` the child must not use what its parent initialised
//!   (`cudaErrorInitializationError` is the best that can happen). Every [`Process`] mark taken
//!   before the fork is stale in the child.
//! * Inside a host function the runtime must not be called (CUDA Runtime API,
//!   `cudaLaunchHostFunc`). [`in_host_function`] detects that.

use std::cell::Cell;
use std::io::Write;
use std::mem::ManuallyDrop;

pub(crate) use pinlane_base::background;
pub(crate) use pinlane_base::process::{
    FirstProcess, PerProcess, Process, call_user, discard_panic, is_exiting, is_mapped,
};
pub(crate) use pinlane_base::thread;

use crate::error::Error;
use crate::sync::{Condvar, Mutex};

/// Ends the process, because a borrow cannot end: a device may access the memory at any time, so
/// giving it back would be undefined behaviour. Aborts the process, unless it is already ending:
/// then this thread only waits for the end.
#[cold]
pub(crate) fn borrow_cannot_end(ptr: *const u8, bytes: usize, error: &Error, remedy: &str) -> ! {
    while is_exiting() {
        std::thread::park();
    }
    // Not `eprintln`, which panics if stderr is closed.
    let _ = writeln!(
        std::io::stderr(),
        "pinlane: aborting. The device may still use {bytes} borrowed bytes at {ptr:p} and cannot \
         be waited for ({error}), so their owner must not get them back. {remedy}"
    );
    std::process::abort()
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside a host function that this crate launched.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Runs a host function of the user, and marks the calling thread meanwhile. A panic ends here:
/// unwinding into the C frames of the runtime is undefined. Its payload may own buffers and streams
/// too, so it is dropped under the mark.
pub(crate) fn call_host_function(f: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    call_user(f);
    IN_HOST_FUNCTION.set(false);
}

/// Passes `owned` to `release` on a thread where CUDA calls are allowed: on this thread, or on a
/// new one if the caller is inside a host function (soundness rule 8: memory is freed only from
/// ordinary threads).
///
/// If no thread can be started, `owned` is forgotten, because a device may still use it, and `lost`
/// counts the loss (soundness rule 19). In a forked child nothing is counted.
pub(crate) fn on_ordinary_thread<T: Send + 'static>(
    owned: T,
    release: impl FnOnce(T) + Send + 'static,
    lost: impl FnOnce(&mut T),
) {
    if !in_host_function() {
        return release(owned);
    }
    if let Err(refused) = background::start("pinlane-release", owned, release) {
        lost(&mut ManuallyDrop::new(refused.owned));
    }
}

/// How many graphs a host function has ended that another thread has yet to destroy.
#[derive(Default)]
struct LateEnds {
    pending: Mutex<usize>,
    ended: Condvar,
}

static LATE_ENDS: PerProcess<LateEnds> = PerProcess::new();

/// A graph that a host function has ended: until this drops, the graph names memory that its
/// owners may have dropped already.
pub(crate) struct LateEnd(());

impl LateEnd {
    /// `None` on an ordinary thread, which destroys a graph at once.
    pub(crate) fn begin() -> Option<LateEnd> {
        in_host_function().then(|| {
            *LATE_ENDS.get().pending.lock() += 1;
            LateEnd(())
        })
    }
}

impl Drop for LateEnd {
    fn drop(&mut self) {
        let ends = LATE_ENDS.get();
        *ends.pending.lock() -= 1;
        ends.ended.notify_all();
    }
}

/// Waits for the graphs that a host function has ended. Call it before memory is unlocked. The
/// threads that it waits for run nothing but the driver's call that destroys a graph.
pub(crate) fn wait_for_late_ends() {
    let Some(ends) = LATE_ENDS.known() else { return };
    let mut pending = ends.pending.lock();
    while *pending > 0 {
        pending = ends.ended.wait(pending);
    }
}
