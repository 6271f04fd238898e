//! A borrow that cannot end: pinlane aborts the process, because no device can tell when it stops
//! writing to the memory. Here only the program's thread stops, if an abort is right, so that
//! others can continue.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

thread_local! {
    static GAVE_UP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
    static IS_RIGHT: Cell<bool> = const { Cell::new(false) };
}

/// Prepares the thread of a program: `gave_up` tells others that it has given up.
pub(super) fn arm(gave_up: Arc<AtomicBool>) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let handler = on_abort as extern "C" fn(libc::c_int);
        // SAFETY: the handler only reads the thread's own cells, stores to an atomic and waits.
        unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
    });
    GAVE_UP.set(Some(gave_up));
}

/// Sets whether an abort is right from here on: only if something has failed.
pub(super) fn allow(is_right: bool) {
    IS_RIGHT.set(is_right);
}

extern "C" fn on_abort(_: libc::c_int) {
    let told = IS_RIGHT.get()
        && GAVE_UP.with_borrow(|gave_up| {
            gave_up.as_ref().map(|gave_up| gave_up.store(true, Ordering::SeqCst)).is_some()
        });
    if !told {
        // The process then aborts.
        return;
    }
    loop {
        // SAFETY: no preconditions.
        unsafe { libc::pause() };
    }
}
