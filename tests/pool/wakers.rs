//! Wakers that run their task where they are called, and owners of streams that wait for memory or
//! for work when they are dropped. Whatever they wait for must still happen. So the threads that
//! page-lock, serve requests, watch tickets and help with copies call neither.

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use pinlane::emulated::Execution;
use pinlane::{PinnedPool, Stream};

use crate::executor::Work;
use crate::support::{BLOCK, LEN, Rig, block_on, eventually, watched};

const LONG: Duration = Duration::from_secs(3600);
/// The number of tasks that wait inside one another.
const NESTED: usize = 8;

/// A task that its waker polls, on the thread that calls the waker.
struct Inline(Mutex<Option<Work>>);

impl Inline {
    fn start(work: impl Future<Output = ()> + Send + 'static) {
        Arc::new(Inline(Mutex::new(Some(Box::pin(work))))).wake();
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        // A running task is woken only after it has registered its waker, at the end of its poll.
        let mut work = self.0.lock().unwrap();
        let waker = Waker::from(self.clone());
        if let Some(future) = work.as_mut()
            && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *work = None;
        }
    }
}

/// Makes the pool's own thread, not the caller's, serve the next request for `BLOCK` bytes.
fn forget_what_is_free(pool: &PinnedPool) {
    pool.trim().unwrap();
}

#[test]
fn a_waker_that_allocates_where_it_is_called_does_not_stop_the_pool() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 3 * NESTED);
        let (done, all) = channel();
        for task in 0..NESTED {
            forget_what_is_free(&rig.pool);
            let (pool, done) = (rig.pool.clone(), done.clone());
            Inline::start(async move {
                let first = pool.alloc_async::<u8>(BLOCK).await.unwrap();
                // This size is not in the cache: the thread that page-locks must not be blocked.
                let second = pool.alloc_timeout::<u8>(BLOCK + 256 * (task + 1), LONG).unwrap();
                done.send(()).unwrap();
                drop((first, second));
            });
        }
        (0..NESTED).for_each(|_| all.recv().unwrap());
        rig.assert_nothing_is_left();
    });
}

/// Each task waits, inside its waker, for a block that only the end of the next task gives back.
#[test]
fn wakers_that_wait_inside_one_another_for_a_spent_budget_all_end() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, NESTED);
        let (done, all) = channel();
        let ended = Arc::new(AtomicUsize::new(0));
        let mut held: Vec<_> = (0..NESTED).map(|_| rig.host(1)).collect();
        let last = held.pop();
        for _ in 0..NESTED - 1 {
            let (pool, done, ended) = (rig.pool.clone(), done.clone(), ended.clone());
            Inline::start(async move {
                let own = pool.alloc_async::<u32>(LEN).await.unwrap();
                // This runs inside the waker.
                let second = pool.alloc_timeout::<u32>(LEN, LONG).unwrap();
                ended.fetch_add(1, Relaxed);
                done.send(()).unwrap();
                drop((own, second));
            });
        }
        eventually("all wait", || rig.pool.stats().waiting == NESTED - 1);
        // The tasks get all blocks but one. Each then waits for one more.
        drop(held);
        eventually("all wait inside", || rig.pool.stats().waiting == NESTED - 1);
        assert_eq!(ended.load(Relaxed), 0);
        drop(last);
        assert_eq!(all.iter().take(NESTED - 1).count(), NESTED - 1);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn a_waker_that_waits_for_a_ticket_does_not_stop_the_watch() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        let streams: Vec<Stream> = (0..=NESTED).map(|_| rig.device.stream().unwrap()).collect();
        streams.iter().for_each(|stream| rig.stall(stream));
        let tickets: Vec<_> = streams.iter().map(|stream| stream.record().unwrap()).collect();
        let (inside, arrived) = channel();
        let (done, all) = channel();
        for pair in tickets.windows(2) {
            let (first, second) = (pair[0].clone(), pair[1].clone());
            let (inside, done) = (inside.clone(), done.clone());
            Inline::start(async move {
                first.await.unwrap();
                inside.send(()).unwrap();
                // Blocks until the watch, which continues, has woken this thread.
                block_on(second).unwrap();
                done.send(()).unwrap();
            });
        }
        for stream in &streams[..NESTED] {
            rig.release(stream);
            arrived.recv().unwrap();
        }
        rig.release(&streams[NESTED]);
        (0..NESTED).for_each(|_| all.recv().unwrap());
        drop((streams, tickets));
        rig.assert_nothing_is_left();
    });
}

/// The thread that drops a buffer does not run tasks either: the drop returns, whatever the waker
/// does.
#[test]
fn dropping_a_buffer_does_not_run_the_task_that_waits_for_it() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        let held = rig.host(1);
        let dropped = Arc::new(Mutex::new(()));
        let (own, pool) = (dropped.clone(), rig.pool.clone());
        let (done, is_done) = channel();
        Inline::start(async move {
            let host = pool.alloc_async::<u32>(LEN).await.unwrap();
            drop(own.lock().unwrap());
            drop(host);
            done.send(thread::current().id()).unwrap();
        });
        {
            // If the task ran on this thread, it would lock this twice.
            let _locked = dropped.lock().unwrap();
            drop(held);
        }
        assert_ne!(is_done.recv().unwrap(), thread::current().id());
        rig.assert_nothing_is_left();
    });
}

/// A waker that panics when it is woken and when it is dropped, also while a panic unwinds.
struct Worst;

impl Wake for Worst {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

impl Drop for Worst {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(PanicsAgain));
    }
}

struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

/// Polls with a waker, of which the library then holds the last reference.
fn poll_with_the_worst(future: Pin<&mut impl Future>) {
    let waker = Waker::from(Arc::new(Worst));
    assert!(matches!(future.poll(&mut Context::from_waker(&waker)), Poll::Pending));
    let last = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(waker)));
    last.expect("the library has another");
}

#[test]
fn a_waker_that_panics_when_it_is_dropped_hurts_nobody() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        for _ in 0..3 {
            let held = rig.host(1);
            let mut waits = Box::pin(rig.pool.alloc_async::<u32>(LEN));
            poll_with_the_worst(waits.as_mut());
            drop(held);
            drop(block_on(waits).unwrap());
            // Withdrawn: the thread that drops the future drops the waker.
            let held = rig.host(1);
            let mut waits = Box::pin(rig.pool.alloc_async::<u32>(LEN));
            poll_with_the_worst(waits.as_mut());
            drop(waits);
            drop(held);

            rig.stall(&rig.stream);
            let (mut first, second) = (rig.stream.record().unwrap(), rig.stream.record().unwrap());
            poll_with_the_worst(Pin::new(&mut first));
            let others = thread::spawn(move || block_on(second));
            rig.release(&rig.stream);
            others.join().unwrap().unwrap();
        }
        rig.assert_nothing_is_left();
    });
}

/// Says that it has been woken.
struct Tell(Sender<()>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

/// What the owner of a stream does when it is dropped.
struct AtTheEnd(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let work = self.0.take().expect("it is dropped once");
        work();
    }
}

#[test]
fn the_owner_of_a_stream_that_ends_on_the_pools_thread_may_wait_for_that_thread() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 2);
        let (own, mut gpu) = (rig.device.stream().unwrap(), rig.gpu());
        let (held, host, pool) = (rig.host(0), rig.host(1), rig.pool.clone());
        let (done, end) = channel();
        let owner = AtTheEnd(Some(Box::new(move || {
            drop(held);
            // Of another size: that thread must give memory back and page-lock new memory.
            drop(pool.alloc_timeout::<u32>(LEN / 2, LONG).unwrap());
            done.send(thread::current().id()).unwrap();
        })));
        // SAFETY: a stream of this device. The stream itself outlives the borrowed one.
        let borrowed = unsafe { rig.device.borrow_stream_of(owner, own.as_raw()) };
        rig.stall(&own);
        borrowed.upload(&host, &mut gpu).unwrap();
        let pool = rig.pool.clone();
        let request = thread::spawn(move || drop(pool.alloc_timeout::<u32>(LEN, LONG).unwrap()));
        eventually("it waits", || rig.pool.stats().waiting == 1);
        // From now on only the block uses the stream, and only the pool's thread looks at it.
        drop((gpu, borrowed, host));
        rig.release(&own);
        request.join().unwrap();
        assert_ne!(end.recv().unwrap(), thread::current().id());
        drop(own);
        rig.assert_nothing_is_left();
    });
}

#[test]
fn the_owner_of_a_stream_that_ends_on_the_watching_thread_may_wait_for_that_thread() {
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, 1);
        let own = rig.device.stream().unwrap();
        [&own, &rig.stream].into_iter().for_each(|stream| rig.stall(stream));
        let mut second = rig.stream.record().unwrap();
        let (inside, arrived) = channel();
        let (done, end) = channel();
        let work = move || {
            let (woken, is_woken) = channel();
            let waker = Waker::from(Arc::new(Tell(woken)));
            let poll = Pin::new(&mut second).poll(&mut Context::from_waker(&waker));
            inside.send(()).unwrap();
            is_woken.recv().unwrap();
            done.send(poll.is_pending()).unwrap();
        };
        // SAFETY: a stream of this device. The stream itself outlives the borrowed one.
        let borrowed =
            unsafe { rig.device.borrow_stream_of(AtTheEnd(Some(Box::new(work))), own.as_raw()) };
        let mut first = borrowed.record().unwrap();
        let mut task = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut first).poll(&mut task).is_pending());
        // The watching thread has a ticket of its own, which is the last.
        drop((borrowed, first));
        rig.release(&own);
        arrived.recv().unwrap();
        rig.release(&rig.stream);
        assert!(end.recv().unwrap());
        drop(own);
        rig.assert_nothing_is_left();
    });
}

/// A copy of many buffers notes its use in each of them by several threads, and drops the uses
/// before it there.
#[test]
fn the_owner_of_a_stream_that_ends_on_a_copy_thread_may_wait_for_that_copy() {
    const BUFFERS: usize = 2048;
    const EACH: usize = 32;
    if thread::available_parallelism().map_or(1, NonZeroUsize::get) < 2 {
        return; // no copy threads
    }
    watched(|| {
        let rig = Rig::new(Execution::Eager, 0, BUFFERS.div_ceil(LEN));
        let caller = thread::current().id();
        let own: Vec<_> = (0..BUFFERS / EACH).map(|_| rig.device.stream().unwrap()).collect();
        let mut gpus: Vec<_> = (0..BUFFERS).map(|_| rig.device.alloc::<u32>(1).unwrap()).collect();
        let host = rig.pool.alloc_zeroed::<u32>(BUFFERS).unwrap();
        let (copying, waited) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
        while waited.load(Relaxed) == 0 {
            for (stream, gpus) in own.iter().zip(gpus.chunks_mut(EACH)) {
                let (copying, waited) = (Arc::clone(&copying), Arc::clone(&waited));
                let owner = AtTheEnd(Some(Box::new(move || {
                    if thread::current().id() != caller {
                        drop(copying.lock().unwrap());
                        waited.fetch_add(1, Relaxed);
                    }
                })));
                // SAFETY: a stream of this device. The stream itself outlives the borrowed one.
                let borrowed = unsafe { rig.device.borrow_stream_of(owner, stream.as_raw()) };
                gpus.iter_mut().for_each(|gpu| drop(borrowed.fill(gpu, 1).unwrap()));
            }
            let copied = copying.lock().unwrap();
            rig.stream.upload_batch(host.slice(..).unwrap().chunks(1).zip(&mut gpus)).unwrap();
            drop(copied);
        }
        drop((gpus, host, own));
        rig.assert_nothing_is_left();
    });
}
