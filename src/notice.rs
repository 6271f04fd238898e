//! Events that no call can return: lost memory, and releases that failed in a drop.
//!
//! They are counted (`Device::quarantined_bytes`, the statistics of pools), and reported to the
//! program's listener, if it has one.
//!
//! # Invariants
//!
//! * The listener is called on any thread, without locks of this crate. Its panics end here.
//! * When [`listen`] returns, the replaced listener is no longer running, and is not called again.
//!   The exception is a listener that replaces itself.
//! * Events inside the listener are not reported.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;

use crate::process::{PerProcess, call_user, is_exiting};
use crate::sync::{Condvar, Mutex};

/// The kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Memory is never freed and never reused, because nothing proves that the device is done with
    /// it.
    Quarantined,
    /// The system refused to take memory back.
    NotReleased,
    /// A call that frees a resource failed, perhaps where its result is ignored.
    #[cfg_attr(not(feature = "capi"), allow(dead_code))]
    FreeRefused,
}

type Function = dyn Fn(Notice, &str) + Send + Sync;

#[derive(Default)]
struct Listening {
    listener: Option<Arc<Function>>,
    /// How many calls of any listener are running.
    running: usize,
}

#[derive(Default)]
struct Notices {
    state: Mutex<Listening>,
    ended: Condvar,
}

/// A forked child has no listener until it sets one.
static NOTICES: PerProcess<Notices> = PerProcess::new();

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Makes `listener` the listener of the process. It replaces the previous one, if there is one.
#[cfg_attr(not(feature = "capi"), allow(dead_code))]
pub(crate) fn listen(listener: Option<Arc<Function>>) {
    let notices = NOTICES.get();
    let mut state = notices.state.lock();
    let former = std::mem::replace(&mut state.listener, listener);
    // This may also wait for calls of the new listener. A listener does not run for long.
    while state.running > 0 && !INSIDE.get() {
        state = notices.ended.wait(state);
    }
    drop(state);
    drop(former);
}

/// Calls the listener, if there is one. Only then is `text` called.
#[cold]
pub(crate) fn tell(event: Notice, text: impl FnOnce() -> String) {
    // At the end of the process everything is lost, which is not worth a report (soundness rule
    // 14).
    if INSIDE.get() || is_exiting() {
        return;
    }
    let notices = NOTICES.get();
    let mut state = notices.state.lock();
    let Some(listener) = state.listener.clone() else { return };
    state.running += 1;
    drop(state);
    INSIDE.set(true);
    call_user(|| listener(event, &text()));
    INSIDE.set(false);
    notices.state.lock().running -= 1;
    notices.ended.notify_all();
}

/// Reports lost memory: nothing proves that the device is done with it.
pub(crate) fn quarantined(bytes: usize, of: impl Display) {
    tell(Notice::Quarantined, || {
        format!("{bytes} bytes {of} are lost: nothing proves that the device is done with them")
    });
}

/// Reports lost memory: the system refused to take it back.
pub(crate) fn not_released(bytes: usize) {
    tell(Notice::NotReleased, || {
        format!("{bytes} bytes of page-locked memory are lost: the system did not take them back")
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// Other tests of the process may report losses at the same time.
    const MINE: &str = "a test of notices";

    #[test]
    fn c_rule_18_a_listener_that_was_replaced_has_ended() {
        let (entered, inside) = channel();
        let (ended, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ends, counts) = (ended.clone(), told.clone());
        let slow = move |_: Notice, text: &str| {
            if text == MINE {
                counts.fetch_add(1, Ordering::Relaxed);
                entered.send(()).expect("heard");
                std::thread::sleep(Duration::from_millis(50));
                tell(Notice::FreeRefused, || unreachable!("not reported in a listener"));
                ends.store(true, Ordering::Relaxed);
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        };
        listen(Some(Arc::new(slow)));
        let teller = std::thread::spawn(|| tell(Notice::FreeRefused, || MINE.to_owned()));
        inside.recv().expect("it is called");
        listen(None);
        assert!(ended.load(Ordering::Relaxed), "it is running");
        tell(Notice::FreeRefused, || unreachable!("there is no listener"));
        teller.join().expect("its panic has ended");
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}
