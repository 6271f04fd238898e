//! Calls that threads of this crate make of their own accord, and the end of the process.
//!
//! A call of the CUDA runtime after `main` has returned is undefined behaviour (CUDA C++
//! Programming Guide, *Initialization*), and a thread that nobody joins may be in one at that
//! moment. So a handler of `exit` waits for those calls, and threads begin no others. It is
//! registered before the first such thread starts. Handlers run in reverse order: this one before
//! those of a runtime that has been initialised by then.
//!
//! The wait ends after two seconds: a call may wait for a kernel that never ends. It is left out
//! if such a thread ends the process, in code of the user that it runs, and in a forked child,
//! which has no thread of its parent.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::time::{Duration, Instant};

use crate::lock::{Condvar, Mutex};
use crate::process::{PerProcess, note_exit};
use crate::system as libc;
use crate::thread::{self, Refused};

/// The longest wait. To page-lock 32 MiB takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

struct Background {
    state: Mutex<State>,
    idle: Condvar,
}

impl Default for Background {
    /// Registers the handler, too.
    fn default() -> Self {
        // SAFETY: `wait` is a plain function and stays for the whole life of the process. If this
        // fails, the end of the process does not wait.
        unsafe { libc::atexit(wait) };
        Background { state: Mutex::default(), idle: Condvar::default() }
    }
}

#[derive(Default)]
struct State {
    /// How many threads are [`Busy`].
    busy: usize,
    /// The process is ending.
    is_over: bool,
}

static BACKGROUND: PerProcess<Background> = PerProcess::new();

thread_local! {
    /// The thread is busy at times.
    static IS_ONE: Cell<bool> = const { Cell::new(false) };
    /// Of a thread of [`start`]: the first of its locals, so that it is dropped last.
    static TO_ITS_END: Cell<Option<Busy>> = const { Cell::new(None) };
}

/// The end of the process waits until this drops.
pub struct Busy(&'static Background);

impl Busy {
    fn begin() -> Option<Busy> {
        let background = BACKGROUND.get();
        let mut state = background.state.lock();
        let may = !state.is_over;
        state.busy += usize::from(may);
        may.then(|| Busy(background))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // In a forked child the parent's lock may be held forever.
        if BACKGROUND.known().is_some_and(|own| ptr::eq(own, self.0)) {
            self.0.state.lock().busy -= 1;
            self.0.idle.notify_all();
        }
    }
}

/// Call this before a thread is started that will be [`busy`].
pub fn prepare() {
    BACKGROUND.get();
}

/// Until the result drops, the calling thread makes calls that no caller waits for. `None` if the
/// process is ending: then it must make none.
pub fn busy() -> Option<Busy> {
    IS_ONE.set(true);
    Busy::begin()
}

/// As [`thread::start`], for work that ends soon. The end of the process waits for it.
pub fn start<T: Send + 'static>(
    name: &str,
    owned: T,
    work: impl FnOnce(T) + Send + 'static,
) -> Result<(), Refused<T>> {
    let Some(busy) = Busy::begin() else {
        return Err(Refused { error: io::Error::other("the process is ending"), owned });
    };
    let work = |(busy, owned)| {
        IS_ONE.set(true);
        TO_ITS_END.set(Some(busy));
        work(owned);
    };
    match thread::start(name, (busy, owned), work) {
        Ok(_detached) => Ok(()),
        Err(Refused { error, owned: (_, owned) }) => Err(Refused { error, owned }),
    }
}

extern "C" fn wait() {
    note_exit();
    let Some(background) = BACKGROUND.known() else { return };
    let mut state = background.state.lock();
    state.is_over = true;
    let end = Instant::now() + PATIENCE;
    while state.busy > 0 && !IS_ONE.get() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        state = background.idle.wait_timeout(state, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Late;

    static ENDED: AtomicUsize = AtomicUsize::new(0);

    impl Drop for Late {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(20));
            ENDED.fetch_add(1, Ordering::Relaxed);
        }
    }

    thread_local! {
        static KEPT: Cell<Option<Late>> = const { Cell::new(None) };
    }

    /// One test, because there is one process.
    #[test]
    fn the_end_waits_for_what_has_begun_with_all_that_it_owns_and_then_nothing_begins() {
        let begun = Instant::now();
        for _ in 0..3 {
            assert!(start("owns", Late, drop).is_ok());
            assert!(start("keeps", Late, |late| KEPT.set(Some(late))).is_ok());
        }
        let panics = |_late| std::panic::resume_unwind(Box::new("on purpose"));
        assert!(start("panics", Late, panics).is_ok());
        assert!(start("is busy", Late, |_late| drop((busy(), busy()))).is_ok());
        assert!(start("ends the process", Late, |_late| wait()).is_ok()); // not for itself
        wait();
        assert_eq!(ENDED.load(Ordering::Relaxed), 9);
        assert!(begun.elapsed() < PATIENCE);
        let is_over = || {
            let is_over = busy().is_none();
            wait();
            is_over
        };
        assert!(std::thread::spawn(is_over).join().expect("no panic"));
        let refused = start("begins", 7, drop).expect_err("too late");
        assert_eq!(refused.owned, 7);
    }
}
