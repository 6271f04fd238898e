//! An allocation that is not a hit gets a block from the books, or a place in the queue.

use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::memory::block::BlockRef;
use crate::pool::books::Books;
use crate::pool::books::queue::{Reply, Request, Waiter};
use crate::pool::classes::Size;
use crate::pool::core::Core;
use crate::pool::thread::cache::{Cache, batch};
use crate::pool::thread::local;
use crate::pool::{errors, trace};

/// How long an allocation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Only memory that is page-locked and free already.
    None,
    /// Grow, and wait for devices, but not for buffers to be dropped.
    Devices,
    /// Wait for anything, until then.
    Until(Option<Instant>),
}

impl Patience {
    /// Waits for anything, for at most that long.
    pub(crate) fn for_at_most(time: Duration) -> Self {
        Patience::Until(Instant::now().checked_add(time))
    }
}

/// Where a block may be if it is not free in the books.
struct Elsewhere {
    in_flight: bool,
    /// Another thread keeps it.
    kept: bool,
}

impl Core {
    /// A block for a request of `size`, after this thread had no hit.
    pub(crate) fn take(
        self: &Arc<Self>,
        operation: &'static str,
        size: Size,
        patience: Patience,
    ) -> Result<BlockRef> {
        if let Some(block) = self.take_now(size, patience == Patience::None) {
            return Ok(block);
        }
        let deadline = match patience {
            Patience::None => return Err(errors::not_ready(operation, size)),
            Patience::Devices => None,
            Patience::Until(deadline) => deadline,
        };
        let gives_up = patience == Patience::Devices;
        let waiting = self.enqueue(operation, size, gives_up, Waiter::Thread)?;
        waiting.wait(deadline).unwrap_or_else(|| {
            let error = errors::timed_out(operation, size, self.lock().brief());
            trace::failed(size.bytes, &error);
            Err(error)
        })
    }

    /// A block that is free, or that a device is found to be done with. Does not block. With
    /// `others`, also a block that another thread keeps.
    pub(crate) fn take_now(&self, size: Size, others: bool) -> Option<BlockRef> {
        let cache = self.own_cache();
        // If this thread used another pool last, its cache of this pool has not been tried yet.
        if let Some(block) = size.class().and_then(|class| self.hit(class)) {
            return Some(block);
        }
        let mut elsewhere = match self.take_shared(size, cache.as_deref()) {
            Ok(block) => return Some(block),
            Err(elsewhere) => elsewhere,
        };
        let settled = cache.is_some_and(|cache| self.settle(&cache));
        // Again, because code of a stream's owner may have used this pool, or another.
        let in_flight = elsewhere.in_flight || settled && self.lock().store.parked.blocks > 0;
        if in_flight {
            self.retire();
        }
        if settled || in_flight {
            let cache = self.own_cache();
            if let Some(block) = size.class().and_then(|class| self.hit(class)) {
                return Some(block);
            }
            elsewhere = match self.take_shared(size, cache.as_deref()) {
                Ok(block) => return Some(block),
                Err(elsewhere) => elsewhere,
            };
        }
        // Looking there stops all threads for a moment.
        if !others || !elsewhere.kept {
            return None;
        }
        let mut books = self.lock();
        if books.queue.first().is_some() || self.gate.is_closed() {
            return None;
        }
        self.collect_once(&mut books);
        books.store.take(size)
    }

    /// A block from the books, and a batch for this thread's cache, unless an earlier request waits
    /// for it.
    fn take_shared(&self, size: Size, cache: Option<&Cache>) -> Result<BlockRef, Elsewhere> {
        let mut books = self.lock();
        let is_own = |other: &Arc<Cache>| cache.is_some_and(|own| ptr::eq(own, &raw const **other));
        let elsewhere = |books: &Books| Elsewhere {
            in_flight: books.store.parked.blocks > 0,
            kept: books.caches.iter().any(|cache| !is_own(cache) && cache.may_have(size)),
        };
        let queue = &books.queue;
        if queue.first_is_alone() || queue.has(size) {
            return Err(elsewhere(&books));
        }
        let Some(block) = books.store.take(size) else { return Err(elsewhere(&books)) };
        books.queue.count_served();
        books.counts.hits += 1;
        if let (Some(cache), Some(class)) = (cache, size.class())
            && !self.gate.is_closed()
        {
            // SAFETY: the owner's thread, under the pool's lock.
            let room = unsafe { cache.room(class) };
            books.store.take_batch(size, room.min(batch(size.bytes)), |block| {
                // SAFETY: as above; and the shelf has room: this is called at most `room`
                // times.
                unsafe { cache.push(class, block) };
            });
        }
        Ok(block)
    }

    /// This thread's cache, made if it has none; `None` if the thread is ending. Makes an existing
    /// cache the one used last.
    pub(crate) fn own_cache(&self) -> Option<Arc<Cache>> {
        if let Some(cache) = local::get(self.id) {
            return Some(cache);
        }
        let cache = Arc::new(Cache::new(self.id, self.options.thread_cache_bytes));
        if !local::keep(&cache, self.me.clone()) {
            return None;
        }
        let mut books = self.lock();
        if !books.closed {
            books.caches.push(cache.clone());
        }
        Some(cache)
    }

    /// Enters a request into the queue.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        operation: &'static str,
        size: Size,
        gives_up: bool,
        waiter: Waiter,
    ) -> Result<Waiting> {
        // A host function gets only blocks that are free already.
        self.context.driver(operation)?;
        let reply = Arc::new(Reply::default());
        let mut books = self.lock();
        if !books.store.could_serve(size) {
            let error = errors::unserved(operation, size, &books.stats());
            drop(books);
            trace::failed(size.bytes, &error);
            return Err(error);
        }
        let since = Instant::now();
        books.counts.misses += 1;
        books.last_request = since;
        self.call_keeper(operation, &mut books)?;
        let number = books.queue.push(Request {
            operation,
            size,
            gives_up,
            waiter,
            since,
            waited: false,
            reply: reply.clone(),
        });
        Ok(Waiting { core: self.clone(), number, reply })
    }
}

/// A request that is waited for; withdrawn when dropped.
pub(crate) struct Waiting {
    core: Arc<Core>,
    /// The number of the request in the queue.
    number: u64,
    reply: Arc<Reply>,
}

impl Waiting {
    /// Blocks until the outcome arrives; `None` if it does not by `deadline`.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<Result<BlockRef>> {
        // A request that has left the queue is served: the outcome is at most a moment away.
        self.reply
            .wait(deadline)
            .or_else(|| if self.withdraw() { None } else { self.reply.wait(None) })
    }

    /// Takes the request out of the queue; false if it has been served.
    fn withdraw(&self) -> bool {
        let request = self.core.lock().queue.remove(self.number);
        // Another request may be first now, and if the queue is empty the keeper opens the gate.
        self.core.wake.notify_all();
        request.is_some()
    }

    /// Notes that the task was called and has polled: it may have its turn.
    fn answer(&self) -> Result<()> {
        let mut books = self.core.lock();
        let Some(request) = books.queue.answer(self.number) else { return Ok(()) };
        let operation = request.operation;
        self.core.call_keeper(operation, &mut books)?;
        self.core.serve(books);
        Ok(())
    }
}

impl Future for Waiting {
    type Output = Result<BlockRef>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        // In a forked child no keeper serves the request, and locks may be held forever.
        self.core.context.check_process("PinnedPool::alloc_async")?;
        let (outcome, called) = self.reply.poll(task);
        if called {
            self.answer()?;
        }
        outcome
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // In a forked child a thread that exists only in the parent may hold the lock.
        if !self.core.context.is_current() {
            return;
        }
        // If it is no longer in the queue, its outcome has arrived or will arrive in a moment.
        self.withdraw();
        self.reply.abandon();
    }
}
