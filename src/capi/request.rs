//! Calls that report their outcome to a callback.
//!
//! ```text
//!   pinlane_buffer_alloc_async     polls a future of the Rust interface once, for its place in the
//!        |                         queue; then it waits to be woken
//!        v
//!   helper thread (src/wakers.rs)  polls again when woken; tells the callback of the outcome
//! ```
//!
//! # Invariants
//!
//! * The callback is called once, by a helper, without locks. If the call that starts the request
//!   fails, it is never called.
//! * The future is dropped before the callback is called, so the callback may make the same call
//!   again.

use std::ffi::c_void;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::status::{PINLANE_STATUS_OK, panicked, report};
use super::{
    Error, ErrorKind, Out, Result, boundary, freeing, handle, handle_type, pinlane_status, refused,
};
use crate::sync::{Mutex, sanitizer};
use crate::wakers;

/// A call that reports its outcome to a callback. Any thread may use it. Freeing it does not change
/// the call.
pub enum pinlane_request {}

handle_type!(pinlane_request: Arc<dyn Cancel>, "request", table 11, shared: false);

/// The first argument of a callback.
#[derive(Clone, Copy)]
pub(super) struct User(pub(super) *mut c_void);

impl User {
    /// A method, so that a closure captures the whole struct.
    pub(super) fn get(self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the address is only passed to the caller's functions, which take it on any thread: that
// is a precondition of every function that takes a callback for later.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

/// A request with any type of outcome.
pub trait Cancel: Send + Sync {
    /// Ends the request, unless its outcome is known: its callback may have been called already.
    fn cancel(self: Arc<Self>);
}

struct Request<T>(Mutex<State<T>>);

enum State<T> {
    Waits(Pending<T>),
    /// The outcome is known, and a helper is about to report it. It can no longer be cancelled,
    /// because a block or batch that was taken for it would be lost.
    Known(Pending<T>),
    /// A thread has it, and checks these flags before it releases it.
    Polled {
        again: bool,
        cancelled: bool,
    },
    Over,
}

impl<T> State<T> {
    const POLLED: Self = State::Polled { again: false, cancelled: false };
}

struct Pending<T> {
    future: Pin<Box<dyn Future<Output = Result<T>> + Send>>,
    tell: Box<dyn FnOnce(Result<T>) + Send>,
}

impl<T: Send + 'static> Pending<T> {
    fn poll(&mut self, waker: &Waker) -> Poll<Result<T>> {
        let poll = || self.future.as_mut().poll(&mut Context::from_waker(waker));
        // A panic must reach the callback too, because the program waits for it.
        let polled = catch_unwind(AssertUnwindSafe(poll));
        polled.unwrap_or_else(|payload| Poll::Ready(Err(panicked(payload))))
    }

    /// The same request with a known outcome, without its future.
    fn with_outcome(self, outcome: Result<T>) -> Self {
        Pending { future: Box::pin(ready(outcome)), tell: self.tell }
    }
}

impl<T: Send + 'static> Request<T> {
    fn address(&self) -> usize {
        sanitizer::of(self)
    }

    /// Polls for the first time, so that requests are queued in the order of the calls. If the
    /// request cannot be started here (inside a host function, or without a thread to serve it),
    /// the error is returned and not reported to the callback. `begun` is called before the
    /// callback can be called.
    fn start(self: Arc<Self>, mut pending: Pending<T>, begun: impl FnOnce()) -> Result<()> {
        sanitizer::release(self.address());
        let polled = pending.poll(&Waker::from(self.clone()));
        if let Poll::Ready(Err(error)) = &polled
            && error.kind() == ErrorKind::Unsupported
        {
            return Err(error.clone());
        }
        begun();
        match self.settle(pending, polled) {
            None => {}
            Some((pending, None)) => self.hand_back(pending),
            Some((pending, Some(outcome))) => self.hand_over(pending, outcome),
        }
        Ok(())
    }

    /// Called after a poll. Returns the request if it must be polled again, or its outcome
    /// reported.
    fn settle(
        &self,
        pending: Pending<T>,
        polled: Poll<Result<T>>,
    ) -> Option<(Pending<T>, Option<Result<T>>)> {
        let mut state = self.0.lock();
        let State::Polled { again, cancelled } = *state else { unreachable!("as left before") };
        let outcome = match polled {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending if cancelled => Some(Err(withdrawn())),
            Poll::Pending if again => None,
            Poll::Pending => {
                *state = State::Waits(pending);
                return None;
            }
        };
        *state = if outcome.is_some() { State::Over } else { State::POLLED };
        Some((pending, outcome))
    }

    /// Lets a helper report the outcome.
    fn hand_over(self: Arc<Self>, pending: Pending<T>, outcome: Result<T>) {
        // The future is dropped without the lock.
        let pending = pending.with_outcome(outcome);
        *self.0.lock() = State::Known(pending);
        wakers::wake(Waker::from(self));
    }

    /// Lets a helper poll it again.
    fn hand_back(self: Arc<Self>, pending: Pending<T>) {
        let mut state = self.0.lock();
        if matches!(*state, State::Polled { cancelled: true, .. }) {
            drop(state);
            return self.hand_over(pending, Err(withdrawn()));
        }
        *state = State::Waits(pending);
        drop(state);
        wakers::wake(Waker::from(self));
    }

    /// Takes the waiting request, for this thread to poll.
    fn take(&self) -> Option<Pending<T>> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Over) {
            State::Waits(pending) | State::Known(pending) => {
                *state = State::POLLED;
                Some(pending)
            }
            State::Polled { cancelled, .. } => {
                *state = State::Polled { again: true, cancelled };
                None
            }
            State::Over => None,
        }
    }
}

/// Called by helpers only.
impl<T: Send + 'static> Wake for Request<T> {
    fn wake(self: Arc<Self>) {
        let Some(mut pending) = self.take() else { return };
        let waker = Waker::from(self.clone());
        loop {
            let polled = pending.poll(&waker);
            match self.settle(pending, polled) {
                None => return,
                Some((same, None)) => pending = same,
                Some((Pending { future, tell }, Some(outcome))) => {
                    drop(future);
                    sanitizer::acquire(self.address());
                    return tell(outcome);
                }
            }
        }
    }
}

impl<T: Send + 'static> Cancel for Request<T> {
    fn cancel(self: Arc<Self>) {
        let mut state = self.0.lock();
        match &mut *state {
            State::Waits(_) => {}
            State::Polled { cancelled, .. } => return *cancelled = true,
            State::Known(_) | State::Over => return,
        }
        let waits = std::mem::replace(&mut *state, State::POLLED);
        drop(state);
        if let State::Waits(pending) = waits {
            // Drops the future, which withdraws the request.
            self.hand_over(pending, Err(withdrawn()));
        }
    }
}

#[cold]
fn withdrawn() -> Error {
    refused(ErrorKind::Cancelled, "the request was cancelled", "make it again if it is needed")
}

impl Out<*mut pinlane_request> {
    /// Runs the body of the exported function `function`, which starts a request: a future, and the
    /// function that calls the callback with the status of its outcome and, if that is `OK`, the
    /// value. Writes the request's handle if the caller wants it.
    pub(super) fn start<T: Send + 'static, F, C>(
        self,
        function: &'static str,
        begin: impl FnOnce() -> Result<(F, C)>,
    ) -> pinlane_status
    where
        F: Future<Output = Result<T>> + Send + 'static,
        C: FnOnce(pinlane_status, Option<T>) + Send + 'static,
    {
        boundary(function, || {
            let out = self.optional()?;
            let (future, call) = begin()?;
            let tell = Box::new(move |outcome| match outcome {
                Ok(value) => call(PINLANE_STATUS_OK, Some(value)),
                Err(error) => call(report(function, error), None),
            });
            let request = Arc::new(Request(Mutex::new(State::POLLED)));
            let handle: Arc<dyn Cancel> = request.clone();
            let begun = || out.set_with(|| handle::create(handle));
            request.start(Pending { future: Box::pin(future), tell }, begun)
        })
    }
}

/// Withdraws the request: its callback is called with `CANCELLED`, by a thread of pinlane. If the
/// outcome is known already, nothing happens: the callback gets it, or has received it. Does not
/// block.
///
/// Statuses: `INVALID_HANDLE`, `FORKED_PROCESS`.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_request_cancel(request: *const pinlane_request) -> pinlane_status {
    boundary("pinlane_request_cancel", || {
        handle::get(request)?.clone().cancel();
        Ok(())
    })
}

/// Frees the handle; NULL is a no-op. The request continues, and its callback is called.
///
/// Statuses: `INVALID_HANDLE` if it was freed already or never was a request.
#[unsafe(no_mangle)]
pub extern "C" fn pinlane_request_free(request: *mut pinlane_request) -> pinlane_status {
    freeing("pinlane_request_free", || handle::free(request))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    type Told = Receiver<Result<u32, ErrorKind>>;

    fn started(
        future: impl Future<Output = Result<u32>> + Send + 'static,
    ) -> (Arc<dyn Cancel>, Told) {
        let (sender, told) = channel();
        let tell = move |outcome: Result<u32>| {
            sender.send(outcome.map_err(|error| error.kind())).expect("heard");
        };
        let request = Arc::new(Request(Mutex::new(State::POLLED)));
        let pending = Pending { future: Box::pin(future), tell: Box::new(tell) };
        request.clone().start(pending, || {}).expect("it can be started");
        (request, told)
    }

    /// Returns the outcome, and checks that there is no other.
    fn only(told: &Told) -> Result<u32, ErrorKind> {
        let outcome = told.recv().expect("exactly one");
        assert!(told.recv().is_err(), "called twice, or the callback was not dropped");
        outcome
    }

    #[test]
    fn a_callback_is_told_once_and_by_a_helper() {
        let (request, told) = started(async { Ok(7) });
        assert_eq!(only(&told), Ok(7));
        request.cancel();
        assert!(told.recv().is_err());
    }

    /// Each poll wakes its own task, from inside. The third poll is the last.
    #[test]
    fn a_wake_during_a_poll_is_not_lost() {
        let mut polls = 0;
        let (_request, told) = started(poll_fn(move |task| {
            polls += 1;
            task.waker().wake_by_ref();
            if polls == 3 { Poll::Ready(Ok(polls)) } else { Poll::Pending }
        }));
        assert_eq!(only(&told), Ok(3));
    }

    #[test]
    fn a_cancelled_future_is_dropped_before_the_callback_is_told() {
        let (alive, dropped) = channel::<()>();
        let (request, told) = started(async move {
            let _alive = alive;
            pending().await
        });
        request.clone().cancel();
        request.cancel();
        assert_eq!(only(&told), Err(ErrorKind::Cancelled));
        assert!(
            dropped
                .try_recv()
                .is_err_and(|gone| gone == std::sync::mpsc::TryRecvError::Disconnected)
        );
    }

    /// The request is cancelled during a poll: the polling thread reports it.
    #[test]
    fn cancelling_during_a_poll_ends_the_request() {
        for is_ready in [false, true] {
            let ((entered, inside), (go, wait)) = (channel(), channel::<()>());
            let mut first = true;
            let (request, told) = started(poll_fn(move |task| {
                if std::mem::take(&mut first) {
                    task.waker().wake_by_ref(); // so that a helper polls
                    return Poll::Pending;
                }
                entered.send(()).expect("heard");
                wait.recv().expect("let go");
                if is_ready { Poll::Ready(Ok(1)) } else { Poll::Pending }
            }));
            inside.recv().expect("a helper polls");
            request.cancel();
            go.send(()).expect("it waits");
            assert_eq!(only(&told), if is_ready { Ok(1) } else { Err(ErrorKind::Cancelled) });
        }
    }

    /// The helper that reports the outcome is late. What the request received must not be lost.
    #[test]
    fn a_request_whose_outcome_is_known_cannot_be_cancelled() {
        let (request, told) = channel();
        let tell = Box::new(move |outcome: Result<u32>| request.send(outcome).expect("heard"));
        let request = Arc::new(Request(Mutex::new(State::POLLED)));
        let mut pending = Pending { future: Box::pin(async { Ok(7) }), tell };
        let polled = pending.poll(Waker::noop());
        let Some((pending, Some(outcome))) = request.settle(pending, polled) else {
            unreachable!("ready at once")
        };
        *request.0.lock() = State::Known(pending.with_outcome(outcome));
        let cancel: Arc<dyn Cancel> = request.clone();
        cancel.cancel();
        request.wake();
        assert_eq!(told.recv().expect("exactly one").expect("it was not cancelled"), 7);
        assert!(told.recv().is_err());
    }

    #[test]
    fn a_panic_reaches_the_callback() {
        let (_request, told) = started(async { std::panic::resume_unwind(Box::new("on purpose")) });
        assert_eq!(only(&told), Err(ErrorKind::Panic));
    }
}
