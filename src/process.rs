//! Which process, and which kind of thread, a call comes from, and whether the process is ending.
//!
//! Two facts about the caller decide whether the CUDA runtime may be called at all:
//!
//! * After `fork` the child must not use what its parent initialised (`cudaErrorInitializationError` is
//!   the best that can happen). Every [`Process`] mark taken before the fork is stale in the child.
//! * Inside a host function the runtime must not be called (CUDA Runtime API, `cudaLaunchHostFunc`).
//!   [`in_host_function`] tells.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static EXITING: AtomicBool = AtomicBool::new(false);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn note_exit() {
    EXITING.store(true, Ordering::Relaxed);
}

/// Whether the process is ending: `main` has returned, or somebody has called `exit`.
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Ordering::Relaxed)
}

/// A mark of the process that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The mark of the calling process.
    pub(crate) fn current() -> Self {
        static REGISTER: Once = Once::new();
        REGISTER.call_once(|| {
            // SAFETY: `count_fork` is a plain function for the whole life of the process and does
            // nothing but an atomic addition, which is allowed in a forked child.
            // A failure (out of memory) leaves forks unnoticed, as they are without pinlane.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
            // SAFETY: `note_exit` is a plain function for the whole life of the process. A failure
            // leaves the end of the process unnoticed.
            unsafe { libc::atexit(note_exit) };
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether the calling process took this mark, and not an ancestor of it. One load.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside a host function that this crate launched.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Marks the calling thread as being inside a host function while `f` runs.
pub(crate) fn as_host_function<R>(f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_HOST_FUNCTION.set(false);
        }
    }
    IN_HOST_FUNCTION.set(true);
    let _leave = Leave;
    f()
}

/// Runs `release` where CUDA calls are allowed: here, or on a thread of its own when the caller is
/// inside a host function (soundness rule 8: memory is freed only from ordinary threads).
pub(crate) fn on_ordinary_thread(release: impl FnOnce() + Send + 'static) {
    if in_host_function() {
        // Without a thread the resources leak, which is always sound.
        let _ = std::thread::Builder::new().name("pinlane-release".into()).spawn(release);
    } else {
        release();
    }
}

/// Calls somebody else's code whose panic must not reach ours.
pub(crate) fn call_user(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        discard_panic(payload);
    }
}

/// Ends a panic of somebody else's code. The payload is theirs too, and dropping it may panic again; what
/// that leaves is forgotten.
pub(crate) fn discard_panic(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}
