//! What the emulated runtime knows of the thread that calls it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

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
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Makes a call that a host function may make, too.
pub(crate) fn though_in_host_function<R>(call: impl FnOnce() -> R) -> R {
    let inside = IN_HOST_FUNCTION.replace(false);
    let result = call();
    IN_HOST_FUNCTION.set(inside);
    result
}

/// Calls `function`, and marks the thread during the call.
pub(crate) fn as_host_function(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}

/// A number that no other thread of the process ever has.
pub(crate) fn this_thread() -> u64 {
    // A call from the destructor of another thread-local may come after this one is gone. All such
    // calls count as made by one thread, which has ended anyhow.
    THREAD.try_with(|&thread| thread).unwrap_or(u64::MAX)
}

/// Dies with the calling thread; dead from the start if the thread is ending.
pub(crate) fn alive() -> Weak<()> {
    ALIVE.try_with(Arc::downgrade).unwrap_or_default()
}

thread_local! {
    /// Whether the thread holds some machine, or waits for it.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread holds some machine: then it must not ask for one.
pub(crate) fn is_held() -> bool {
    HOLDS.try_with(Cell::get).unwrap_or(true)
}

/// The thread holds a machine until this is dropped.
pub(crate) struct Holding {
    held: bool,
}

impl Holding {
    #[inline]
    pub(crate) fn begin() -> Self {
        Holding { held: HOLDS.replace(true) }
    }
}

impl Drop for Holding {
    #[inline]
    fn drop(&mut self) {
        HOLDS.set(self.held);
    }
}
