//! Tickets show when an asynchronous operation is complete.
//!
//! A [`Ticket`] only observes. Dropping, forgetting or cancelling it changes nothing about the
//! operation or the buffers, which keep track of themselves (soundness rules 2 and 3).
//!
//! Awaiting costs the device nothing: no host function is enqueued. One thread of the process
//! queries the events of all awaited tickets; the first `.await` that finds its operation pending
//! starts it. Other threads call the wakers ([`wakers`]), so no task can hold it up.

use std::collections::{BTreeMap, HashMap};
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
use crate::process::{PerProcess, background, call_user, thread};
use crate::sync::Mutex;
use crate::timeline::Timeline;
use crate::wakers;

/// Shows when an asynchronous operation is complete, by [`wait`](Self::wait),
/// [`wait_timeout`](Self::wait_timeout), [`is_done`](Self::is_done) or `.await`.
///
/// Copies of at most 64 KiB share events. Such a copy may count as pending until up to seven more
/// of them, enqueued right after it on the same stream, are complete too, and copies that other
/// threads enqueue there at the same moment. A [`wait`](Self::wait) for a stream's last operation,
/// and an `.await`, may also wait for work that other threads enqueue there at that moment. Nothing
/// else delays a ticket.
pub struct Ticket {
    /// `None` for an operation without work.
    at: Option<(Arc<Timeline>, u64)>,
    /// The slot with the waker of the last poll.
    slot: Option<Arc<WakerSlot>>,
}

/// The clone is a separate future, which has not been polled.
impl Clone for Ticket {
    fn clone(&self) -> Self {
        Ticket { at: self.at.clone(), slot: None }
    }
}

/// The waker of the last poll of one future. `None` after it has been woken: the next poll needs a
/// new slot.
struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    /// Replaces the last waker; returns the new one if the last has been woken.
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

    /// The ticket of an operation without work.
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

    /// As [`wait`](Self::wait), in the call that `operation` names.
    pub(crate) fn wait_in(&self, operation: &'static str) -> Result<()> {
        self.at().map_or(Ok(()), |(stream, position)| stream.wait(position, operation))
    }

    /// As [`wait`](Self::wait), but blocks for no longer than `timeout`. It queries the device
    /// repeatedly, and sleeps for at most 0.2 ms in between.
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
        let mut pause = Pause::SHORTEST;
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
        if self.is_done()? {
            return task::Poll::Ready(Ok(()));
        }
        self.watch(task.waker().clone())?;
        task::Poll::Pending
    }
}

impl Ticket {
    /// Wakes `waker`, instead of the waker of the last call, when the operation is no longer
    /// pending.
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

impl Pause {
    const SHORTEST: Self = Pause(Duration::from_micros(5));

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

/// Wakes the waker in `slot` when `ticket` is no longer pending.
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
    background::prepare();
    let (sender, receiver) = channel();
    thread::start("pinlane-watcher", receiver, |receiver| watch_all(&receiver))
        .map_err(|refused| refused.error)?;
    Ok(known.insert(sender).clone())
}

#[cold]
fn no_watcher(why: &dyn fmt::Display) -> Error {
    let what = format!("the thread that watches awaited tickets could not be started: {why}");
    Error::new(ErrorKind::Unsupported, "Ticket::poll", what, Remedy::WaitWithoutWatcher)
}

/// Runs as long as the process: the sender is in a static.
fn watch_all(incoming: &Receiver<Watched>) {
    wakers::serve_others();
    let mut watched = Watchlist::default();
    let mut pause = Pause::SHORTEST;
    loop {
        if watched.0.is_empty() {
            let Ok(first) = incoming.recv() else { return };
            watched.add(first);
            pause = Pause::SHORTEST;
        }
        while let Ok(next) = incoming.try_recv() {
            watched.add(next);
        }
        let busy = background::busy();
        let any = watched.wake_those_done(busy.is_some());
        drop(busy);
        if any {
            pause = Pause::SHORTEST;
        } else if !watched.0.is_empty() {
            pause.sleep(Duration::MAX);
        }
    }
}

/// The awaited tickets, by stream and position. A stream is FIFO, so a round queries the first
/// ticket of each stream, and the next one only if that is done: pending tickets cost the others
/// nothing.
///
/// A future has one slot, even if it is polled often and with different wakers; a slot costs
/// constant time. The slot of a dropped future stays until its stream reaches it.
#[derive(Default)]
struct Watchlist(HashMap<usize, BTreeMap<u64, Awaited>>);

/// A ticket, and the slots of its futures.
type Awaited = (Ticket, Vec<Weak<WakerSlot>>);

impl Watchlist {
    fn add(&mut self, (ticket, slot): Watched) {
        let Some((stream, position)) = ticket.at() else { return };
        // The ticket keeps its stream alive, so no other stream has this address.
        let stream = self.0.entry(std::ptr::from_ref(stream).addr()).or_default();
        let (_, slots) = stream.entry(position).or_insert_with(|| (ticket, Vec::new()));
        if slots.len() == slots.capacity() {
            slots.retain(|slot| slot.strong_count() > 0);
            // Room for as many new slots as have stayed, before the next search.
            slots.reserve(slots.len().max(4));
        }
        slots.push(slot);
    }

    /// Wakes the tasks of tickets that are no longer pending, and removes tickets whose futures
    /// were all dropped. False if no ticket left the list. The last ticket of a stream ends it, so
    /// none is dropped here when the process is ending.
    fn wake_those_done(&mut self, goes_on: bool) -> bool {
        let mut any = false;
        self.0.retain(|_, stream| {
            while let Some(mut first) = stream.first_entry() {
                let (ticket, slots) = first.get_mut();
                while slots.pop_if(|slot| slot.strong_count() == 0).is_some() {}
                if !slots.is_empty() && matches!(ticket.is_done(), Ok(false)) {
                    break;
                }
                let (ticket, slots) = first.remove();
                if goes_on {
                    drop(ticket);
                } else {
                    std::mem::forget(ticket);
                }
                let slots = slots.into_iter().filter_map(|slot| slot.upgrade());
                slots.filter_map(|slot| slot.0.lock().take()).for_each(wakers::wake);
                any = true;
            }
            !stream.is_empty()
        });
        any
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::device::Device;
    use crate::driver::Call;
    use crate::driver::emulated::Emulator;
    use crate::stream::Stream;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn assert_woken(woken: &Woken, count: usize) {
        while woken.0.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), count);
    }

    struct Rig {
        emulator: Emulator,
        streams: [Stream; 2],
        list: Watchlist,
        woken: Arc<Woken>,
    }

    impl Rig {
        fn new() -> Self {
            let emulator = Emulator::new();
            let device = Device::of_emulator(&emulator, 0).expect("no faults");
            let streams = [(); 2].map(|()| device.stream().expect("no faults"));
            for stream in &streams {
                emulator.stall(stream.timeline.raw()).expect("live");
            }
            Rig { emulator, streams, list: Watchlist::default(), woken: Arc::default() }
        }

        /// Adds the next ticket of a stream.
        fn add(&mut self, stream: usize) -> Arc<WakerSlot> {
            let ticket = self.streams[stream].record().expect("no faults");
            let slot = Arc::new(WakerSlot(Mutex::new(Some(Waker::from(self.woken.clone())))));
            self.list.add((ticket, Arc::downgrade(&slot)));
            slot
        }

        /// Lets the stream run, then checks the list.
        fn run(&mut self, stream: usize) -> bool {
            self.emulator.release(self.streams[stream].timeline.raw()).expect("live");
            self.list.wake_those_done(true)
        }

        fn len(&self) -> usize {
            self.list.0.values().map(BTreeMap::len).sum()
        }
    }

    #[test]
    fn a_round_asks_once_for_each_stream_however_many_tickets_are_pending() {
        let mut rig = Rig::new();
        let slots: Vec<_> = (0..200).map(|number| rig.add(number % 2)).collect();
        let asked = rig.emulator.calls(Call::EventQuery);
        assert!(!rig.list.wake_those_done(true));
        assert_eq!(rig.emulator.calls(Call::EventQuery) - asked, 2);
        assert!(rig.run(1));
        assert_woken(&rig.woken, 100);
        assert_eq!(rig.len(), 100);
        assert!(rig.run(0));
        assert_woken(&rig.woken, 200);
        assert!(rig.list.0.is_empty());
        drop(slots);
    }

    #[test]
    fn what_dropped_futures_leave_goes_when_the_stream_comes_to_it() {
        let mut rig = Rig::new();
        let slots = [0, 0, 0, 1].map(|stream| rig.add(stream));
        let [first, second, third, alone] = slots;
        drop((first, third, alone));
        assert!(rig.list.wake_those_done(true));
        assert_eq!(rig.len(), 2, "the second is pending, and the third after it");
        assert!(rig.run(0));
        assert!(rig.list.0.is_empty());
        assert_woken(&rig.woken, 1);
        drop(second);
    }
}
