//! Tickets: how to learn that an asynchronous operation is complete.
//!
//! A [`Ticket`] only observes. Dropping, forgetting or cancelling it changes nothing about the
//! operation or the buffers, which keep track of themselves (soundness rules 2 and 3).
//!
//! Awaiting costs the device nothing: no host function is enqueued. One thread of the process
//! queries the events of all awaited tickets; the first `.await` that finds its operation pending
//! starts it. It leaves the calling of wakers to others ([`wakers`]), so no task can hold it up.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{self, Waker};
use std::time::{Duration, Instant};

use crate::driver::Poll;
use crate::error::{Context, Error, ErrorKind, Remedy, Result};
use crate::process::PerProcess;
use crate::sync::Mutex;
use crate::timeline::Timeline;
use crate::wakers;

/// Knows when an asynchronous operation is complete: [`wait`](Self::wait),
/// [`wait_timeout`](Self::wait_timeout), [`is_done`](Self::is_done) or `.await`.
///
/// Copies of at most 64 KiB share events. Such a copy may count as pending until up to seven more
/// of them, enqueued right after it on the same stream, are complete too, and those that other
/// threads enqueue there at the same moment. A [`wait`](Self::wait) for a stream's last operation
/// may also wait for what other threads enqueue there at that moment. Nothing else delays a ticket.
#[derive(Clone)]
pub struct Ticket {
    /// `None` for an operation that had nothing to do.
    at: Option<(Arc<Timeline>, u64)>,
}

impl Ticket {
    pub(crate) fn new(stream: Arc<Timeline>, position: u64) -> Self {
        Ticket { at: Some((stream, position)) }
    }

    /// The ticket of an operation that had nothing to do.
    pub(crate) fn done() -> Self {
        Ticket { at: None }
    }

    pub(crate) fn at(&self) -> Option<(&Timeline, u64)> {
        self.at.as_ref().map(|(stream, position)| (&**stream, *position))
    }

    /// Blocks until the operation is complete. Its effects are then visible to the
    /// calling thread (`cudaEventSynchronize`).
    ///
    /// # Errors
    ///
    /// The error of the operation or of the device; [`ErrorKind::ForkedProcess`].
    pub fn wait(&self) -> Result<()> {
        self.wait_in("Ticket::wait")
    }

    /// As [`wait`](Self::wait), in a call of that name.
    pub(crate) fn wait_in(&self, operation: &'static str) -> Result<()> {
        self.at().map_or(Ok(()), |(stream, position)| stream.wait(position, operation))
    }

    /// As [`wait`](Self::wait), but blocks for no longer than `timeout`. It asks the device again
    /// and again, and sleeps for at most 0.2 ms in between.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](ErrorKind::TimedOut) if the operation is still pending; otherwise as for
    /// [`wait`](Self::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        const OPERATION: &str = "Ticket::wait_timeout";
        let Some(deadline) = Instant::now().checked_add(timeout) else {
            return self.wait_in(OPERATION);
        };
        if self.is_done()? {
            return Ok(());
        }
        let _waiting = self.at().and_then(|(stream, _)| stream.shows_wait(OPERATION));
        let mut pause = Pause::default();
        while !self.is_done()? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(still_pending(timeout));
            }
            pause.sleep(left);
        }
        Ok(())
    }

    /// Whether the operation is complete. Does not block. Three answers: `Ok(true)` done,
    /// `Ok(false)` pending, `Err` failed (`cudaEventQuery`).
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait).
    pub fn is_done(&self) -> Result<bool> {
        let Some((stream, position)) = self.at() else { return Ok(true) };
        Ok(stream.poll(position)? == Poll::Done)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at() {
            Some((stream, position)) => f
                .debug_struct("Ticket")
                .field("stream", &format_args!("{:#x}", stream.raw().handle))
                .field("position", &position)
                .finish(),
            None => f.write_str("Ticket(done)"),
        }
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut task::Context<'_>) -> task::Poll<Result<()>> {
        match self.is_done() {
            Ok(true) => task::Poll::Ready(Ok(())),
            Ok(false) => match watch(Ticket::clone(&self), task.waker().clone()) {
                Ok(()) => task::Poll::Pending,
                Err(error) => task::Poll::Ready(Err(error)),
            },
            Err(error) => task::Poll::Ready(Err(error)),
        }
    }
}

fn still_pending(timeout: Duration) -> Error {
    let text = |[micros, _]: [usize; 2]| format!("still pending after {micros} us");
    let micros = timeout.as_micros().try_into().unwrap_or(usize::MAX);
    let context = Context::Numbers(text, [micros, 0]);
    Error::new(ErrorKind::TimedOut, "Ticket::wait_timeout", context, "wait again, or for longer")
}

/// How long to sleep before the next query.
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Pause(Duration::from_micros(5))
    }
}

impl Pause {
    fn sleep(&mut self, most: Duration) {
        const LONGEST: Duration = Duration::from_micros(200);
        std::thread::sleep(self.0.min(most));
        self.0 = (self.0 * 2).min(LONGEST);
    }
}

type Watched = (Ticket, Waker);

/// The channel to the thread that watches awaited tickets. `None` until it is first needed, and as
/// long as no thread can be started.
type Watcher = Mutex<Option<Sender<Watched>>>;

/// Wakes `waker` once `ticket` is no longer pending.
fn watch(ticket: Ticket, waker: Waker) -> Result<()> {
    static WATCHER: PerProcess<Watcher> = PerProcess::new();
    // Outside the lock, because a failed send drops the waker here.
    let watcher = watcher(WATCHER.get()).map_err(|error| no_watcher(&error))?;
    watcher.send((ticket, waker)).map_err(|_| no_watcher(&"it has ended"))
}

fn watcher(known: &Watcher) -> io::Result<Sender<Watched>> {
    let mut known = known.lock();
    if let Some(sender) = &*known {
        return Ok(sender.clone());
    }
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("pinlane-watcher".into())
        .spawn(move || watch_all(&receiver))?;
    Ok(known.insert(sender).clone())
}

#[cold]
fn no_watcher(why: &dyn fmt::Display) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "Ticket::poll",
        format!("the thread that watches awaited tickets could not be started: {why}"),
        Remedy::in_rust_and_c(
            "raise the limit on threads and poll again, or use Ticket::wait",
            "raise the limit on threads and ask again, or call pinlane_ticket_wait",
        ),
    )
}

/// Runs as long as the process: the sender is in a static.
fn watch_all(incoming: &Receiver<Watched>) {
    let mut watched = Watchlist::default();
    let mut pause = Pause::default();
    loop {
        if watched.0.is_empty() {
            let Ok(first) = incoming.recv() else { return };
            watched.add(first);
            pause = Pause::default();
        }
        while let Ok(next) = incoming.try_recv() {
            watched.add(next);
        }
        if watched.wake_those_done() {
            pause = Pause::default();
        } else if !watched.0.is_empty() {
            pause.sleep(Duration::MAX);
        }
    }
}

/// The awaited tickets, by stream and position. Each is queried once a round and wakes a task once,
/// however often the task has polled it.
#[derive(Default)]
struct Watchlist(HashMap<(usize, u64), (Ticket, Vec<Waker>)>);

impl Watchlist {
    fn add(&mut self, (ticket, waker): Watched) {
        let Some((stream, position)) = ticket.at() else { return };
        let key = (std::ptr::from_ref(stream).addr(), position);
        // The ticket keeps its stream alive, so no other stream has this address.
        let (_, known) = self.0.entry(key).or_insert_with(|| (ticket, Vec::new()));
        if known.iter().any(|known| known.will_wake(&waker)) {
            wakers::discard(waker);
        } else {
            known.push(waker);
        }
    }

    /// Wakes the tasks of tickets that are no longer pending. False if there were none.
    fn wake_those_done(&mut self) -> bool {
        let before = self.0.len();
        self.0.retain(|_, (ticket, known)| {
            let pending = matches!(ticket.is_done(), Ok(false));
            if !pending {
                known.drain(..).for_each(wakers::wake);
            }
            pending
        });
        self.0.len() < before
    }
}
