//! Calls wakers and other user code on threads that no other thread depends on.
//!
//! A waker is the executor's code. It may run its task on the spot, and the task may then block on
//! anything: on memory that the pool's thread must get, or on a ticket that the watcher must wake.
//! So no thread that others depend on calls, clones or drops a waker, or drops the owner of a
//! stream. It passes them to the *helpers*:
//!
//! ```text
//!   pool's thread ------\
//!   ticket's watcher -----> queue ---> one helper, inside a waker
//!   who drops a buffer -/              others, which take over when it is stuck
//! ```
//!
//! # Invariants
//!
//! * One helper works on the queue, the *runner*. If it is inside one waker for longer than
//!   [`STUCK_AFTER`], the next helper takes its place. So there is one thread for each stuck waker,
//!   and a few more.
//! * While the queue is not empty, a helper is idle or about to start, or could not be started. In
//!   the last case the thread that passes a waker calls the queued ones itself. That works for all
//!   wakers except those that run their task on the spot and block there, and for all owners except
//!   those that wait for that thread.
//! * A helper that is idle for [`LINGER`] ends.
//! * No waker is called, dropped or cloned under the lock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::process::{PerProcess, call_user, thread};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How long a waker may take before another helper takes over.
const STUCK_AFTER: Duration = Duration::from_millis(1);
/// How long an idle helper stays.
const LINGER: Duration = Duration::from_secs(2);

/// Calls the waker, on another thread.
pub(crate) fn wake(waker: Waker) {
    HELPERS.get().hand_over(waker);
}

thread_local! {
    static SERVES_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Notes that other threads depend on the calling one.
pub(crate) fn serve_others() {
    SERVES_OTHERS.set(true);
}

/// Whether other threads depend on the calling one.
pub(crate) fn serves_others() -> bool {
    SERVES_OTHERS.get()
}

/// Calls other user code: on another thread if others depend on this one.
pub(crate) fn call_here_or_run(function: impl FnOnce() + Send + 'static) {
    if serves_others() { run(function) } else { call_user(function) }
}

/// Calls other user code, on another thread.
pub(crate) fn run(function: impl FnOnce() + Send + 'static) {
    struct Once<F>(Mutex<Option<F>>);

    impl<F: FnOnce() + Send + 'static> Wake for Once<F> {
        fn wake(self: Arc<Self>) {
            let function = self.0.lock().take();
            if let Some(function) = function {
                function();
            }
        }
    }

    wake(Waker::from(Arc::new(Once(Mutex::new(Some(function))))));
}

static HELPERS: PerProcess<WakerThreads> = PerProcess::new();

/// Calls and drops it separately, so that a panic in the drop does not happen during another panic.
fn call(waker: Waker) {
    call_user(|| waker.wake_by_ref());
    call_user(|| drop(waker));
}

#[derive(Default)]
struct WakerThreads {
    state: Mutex<WakerQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct WakerQueue {
    wakers: VecDeque<Waker>,
    /// How many helpers are not inside a waker, including those that are about to start.
    idle: usize,
    /// How many of these wait to take over.
    watching: usize,
    /// How many wakers have been started; gives each a number.
    begun: u64,
    /// The waker that the runner is calling, and since when.
    running: Option<(u64, Instant)>,
}

impl WakerThreads {
    fn hand_over(&'static self, waker: Waker) {
        let mut state = self.state.lock();
        state.wakers.push_back(waker);
        if self.ensure_idle(&mut state) {
            drop(state);
            self.changed.notify_one();
            return;
        }
        while let Some(waker) = state.wakers.pop_front() {
            drop(state);
            call(waker);
            state = self.state.lock();
        }
    }

    /// Starts a helper if none is idle. False if there still is none.
    fn ensure_idle(&'static self, state: &mut WakerQueue) -> bool {
        if state.idle == 0 {
            let started = thread::start("pinlane-wakers", self, WakerThreads::help);
            state.idle += usize::from(started.is_ok());
        }
        state.idle > 0
    }

    fn help(&'static self) {
        let mut state = self.state.lock();
        loop {
            if state.wakers.is_empty() {
                let Some(woken) = self.linger(state) else { return };
                state = woken;
                continue;
            }
            let taken = state.running.map_or(STUCK_AFTER, |(_, since)| since.elapsed());
            match STUCK_AFTER.checked_sub(taken) {
                Some(left) if !left.is_zero() => {
                    state.watching += 1;
                    state = self.changed.wait_timeout(state, left);
                    state.watching -= 1;
                }
                _ => state = self.run_first(state),
            }
        }
    }

    /// Sleeps until there may be work; `None` if this helper is no longer needed.
    fn linger(
        &self,
        mut state: MutexGuard<'static, WakerQueue>,
    ) -> Option<MutexGuard<'static, WakerQueue>> {
        /// The next runner, and the one that watches it.
        const ENOUGH: usize = 2;
        let start = Instant::now();
        if state.idle <= ENOUGH {
            state = self.changed.wait_timeout(state, LINGER);
        }
        if state.wakers.is_empty() && (state.idle > ENOUGH || start.elapsed() >= LINGER) {
            state.idle -= 1;
            return None;
        }
        Some(state)
    }

    /// Calls the first waker, as the runner until another helper takes over.
    fn run_first(
        &'static self,
        mut state: MutexGuard<'static, WakerQueue>,
    ) -> MutexGuard<'static, WakerQueue> {
        let Some(waker) = state.wakers.pop_front() else { return state };
        state.idle -= 1;
        if !state.wakers.is_empty() && state.watching == 0 && self.ensure_idle(&mut state) {
            self.changed.notify_one();
        }
        state.begun += 1;
        let number = state.begun;
        state.running = Some((number, Instant::now()));
        drop(state);
        call(waker);
        let mut state = self.state.lock();
        state.running.take_if(|running| running.0 == number);
        state.idle += 1;
        state
    }
}
