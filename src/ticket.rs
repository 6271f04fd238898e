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
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::task::{self, Waker};
use std::time::{Duration, Instant};

use crate::driver::Poll;
use crate::error::{Error, ErrorKind, Found, Remedy, Result};
use crate::process::{PerProcess, call_user, thread};
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
pub struct Ticket {
    /// `None` for an operation that had nothing to do.
    at: Option<(Arc<Timeline>, u64)>,
    /// Where the last poll has left its waker.
    slot: Option<Arc<WakerSlot>>,
}

/// The clone is a future of its own, which nothing has polled.
impl Clone for Ticket {
    fn clone(&self) -> Self {
        Ticket { at: self.at.clone(), slot: None }
    }
}

/// The waker of the last poll of one future. `None` when it has been woken: the next poll needs a
/// new slot.
struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    /// Puts a waker in the place of the last one; gives it back if that has been woken.
    fn replace(&self, waker: Waker) -> Result<(), Waker> {
        let mut place = self.0.lock();
        let Some(last) = &mut *place else { return Err(waker) };
        let last = std::mem::replace(last, waker);
        drop(place);
        call_user(|| drop(last));
        Ok(())
    }
}

impl Drop for WakerSlot {
    fn drop(&mut self) {
        let last = self.0.lock().take();
        call_user(|| drop(last));
    }
}

impl Ticket {
    pub(crate) fn new(stream: Arc<Timeline>, position: u64) -> Self {
        Ticket { at: Some((stream, position)), slot: None }
    }

    /// The ticket of an operation that had nothing to do.
    pub(crate) fn done() -> Self {
        Ticket { at: None, slot: None }
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

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> task::Poll<Result<()>> {
        match self.is_done() {
            Ok(true) => task::Poll::Ready(Ok(())),
            Ok(false) => match self.watch(task.waker().clone()) {
                Ok(()) => task::Poll::Pending,
                Err(error) => task::Poll::Ready(Err(error)),
            },
            Err(error) => task::Poll::Ready(Err(error)),
        }
    }
}

impl Ticket {
    /// Wakes `waker`, in place of that of the last call, once the operation is no longer pending.
    fn watch(&mut self, waker: Waker) -> Result<()> {
        let waker = match &self.slot {
            Some(slot) => match slot.replace(waker) {
                Ok(()) => return Ok(()),
                Err(waker) => waker,
            },
            None => waker,
        };
        let slot = Arc::new(WakerSlot(Mutex::new(Some(waker))));
        watch(self.clone(), Arc::downgrade(&slot))?;
        self.slot = Some(slot);
        Ok(())
    }
}

fn still_pending(timeout: Duration) -> Error {
    let text = |[micros, _]: [usize; 2]| format!("still pending after {micros} us");
    let micros = timeout.as_micros().try_into().unwrap_or(usize::MAX);
    let context = Found::Numbers(text, [micros, 0]);
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

type Watched = (Ticket, Weak<WakerSlot>);

/// The channel to the thread that watches awaited tickets. `None` until it is first needed, and as
/// long as no thread can be started.
type Watcher = Mutex<Option<Sender<Watched>>>;

/// Wakes the waker in `slot` once `ticket` is no longer pending.
fn watch(ticket: Ticket, slot: Weak<WakerSlot>) -> Result<()> {
    static WATCHER: PerProcess<Watcher> = PerProcess::new();
    let watcher = watcher(WATCHER.get()).map_err(|error| no_watcher(&error))?;
    watcher.send((ticket, slot)).map_err(|_| no_watcher(&"it has ended"))
}

fn watcher(known: &Watcher) -> io::Result<Sender<Watched>> {
    let mut known = known.lock();
    if let Some(sender) = &*known {
        return Ok(sender.clone());
    }
    let (sender, receiver) = channel();
    thread::start("pinlane-watcher", receiver, |receiver| watch_all(&receiver))
        .map_err(|refused| refused.error)?;
    Ok(known.insert(sender).clone())
}

#[cold]
fn no_watcher(why: &dyn fmt::Display) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "Ticket::poll",
        format!("the thread that watches awaited tickets could not be started: {why}"),
        Remedy::WaitWithoutWatcher,
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

/// The awaited tickets, by stream and position. Each is queried once a round.
///
/// A future has one slot, however often it is polled and by whichever wakers; a dropped future has
/// none. So the list is as long as the futures that are pending, and a slot costs a constant time.
#[derive(Default)]
struct Watchlist(HashMap<(usize, u64), Awaited>);

/// A ticket, and the slots of its futures.
type Awaited = (Ticket, Vec<Weak<WakerSlot>>);

impl Watchlist {
    fn add(&mut self, (ticket, slot): Watched) {
        let Some((stream, position)) = ticket.at() else { return };
        let key = (std::ptr::from_ref(stream).addr(), position);
        // The ticket keeps its stream alive, so no other stream has this address.
        let (_, slots) = self.0.entry(key).or_insert_with(|| (ticket, Vec::new()));
        if slots.len() == slots.capacity() {
            slots.retain(|slot| slot.strong_count() > 0);
            // As many can come as have stayed before the next search.
            slots.reserve(slots.len().max(4));
        }
        slots.push(slot);
    }

    /// Wakes the tasks of tickets that are no longer pending, and forgets tickets whose futures
    /// were all dropped. False if no ticket left the list.
    fn wake_those_done(&mut self) -> bool {
        let before = self.0.len();
        self.0.retain(|_, (ticket, slots)| {
            while slots.pop_if(|slot| slot.strong_count() == 0).is_some() {}
            let pending = !slots.is_empty() && matches!(ticket.is_done(), Ok(false));
            if !pending {
                let slots = slots.drain(..).filter_map(|slot| slot.upgrade());
                slots.filter_map(|slot| slot.0.lock().take()).for_each(wakers::wake);
            }
            pending
        });
        self.0.len() < before
    }
}
