//! Tasks that await memory and tickets, on different executors: one that runs a task inside its
//! waker, one whose wakers panic, and one that forgets tasks.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;

use pinlane::{PinnedPool, Ticket};

use super::op::{Awaits, Executor, Then};
use super::{Machine, pick};

type Life = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A program's tasks that may be pending.
#[derive(Default)]
pub(super) struct Tasks {
    inline: Vec<Arc<Inline>>,
    held: Vec<Held>,
    forgotten: usize,
    /// The number of forgotten tasks that stay in the queue for memory, or hold memory, forever.
    hold_memory: usize,
}

/// What a task waits for first. Then it does a [`Second`], on another thread than the program's.
enum First {
    Memory(usize),
    Ticket(Ticket),
}

enum Second {
    End,
    Alloc(usize),
    AwaitMemory(usize),
    Wait(Ticket),
    AwaitTicket(Ticket),
}

async fn live(pool: PinnedPool, first: First, second: Second, home: ThreadId) {
    match first {
        First::Memory(len) => drop(pool.alloc_async::<u8>(len).await),
        First::Ticket(ticket) => drop(ticket.await),
    }
    // The program must not wait here for something that only it can do.
    if thread::current().id() == home {
        return;
    }
    match second {
        Second::End => {}
        Second::Alloc(len) => drop(pool.alloc::<u8>(len)),
        Second::AwaitMemory(len) => drop(pool.alloc_async::<u8>(len).await),
        Second::Wait(ticket) => drop(ticket.wait()),
        Second::AwaitTicket(ticket) => drop(ticket.await),
    }
}

/// A task that its waker runs.
struct Inline {
    life: Mutex<Option<Life>>,
    /// Unanswered wakes. The thread that raises it to one runs the task.
    wakes: AtomicUsize,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.wakes.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let waker = Waker::from(self.clone());
        loop {
            let seen = self.wakes.load(Ordering::Acquire);
            let mut life = self.life.lock().unwrap();
            let context = &mut Context::from_waker(&waker);
            if life.as_mut().is_some_and(|life| life.as_mut().poll(context).is_ready()) {
                *life = None;
            }
            drop(life);
            if self.wakes.fetch_sub(seen, Ordering::AcqRel) == seen {
                return;
            }
        }
    }
}

impl Inline {
    fn is_done(&self) -> bool {
        self.life.try_lock().is_ok_and(|life| life.is_none())
    }

    /// Ends the task, unless a thread runs it.
    fn cancel(&self) {
        if let Ok(mut life) = self.life.try_lock() {
            *life = None;
        }
    }
}

/// A future that was polled once, with a useless waker.
struct Held {
    _life: Life,
    woken: Arc<AtomicBool>,
    awaits_memory: bool,
}

struct Panics {
    woken: Arc<AtomicBool>,
    home: ThreadId,
    in_drop: bool,
}

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        if !self.in_drop {
            resume_unwind(Box::new("in wake, on purpose"));
        }
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if self.in_drop && thread::current().id() != self.home && !thread::panicking() {
            resume_unwind(Box::new("in drop, on purpose"));
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

impl Machine {
    fn ticket(&self, number: usize) -> Option<Ticket> {
        pick(number, &self.tickets).map(|index| self.tickets[index].0.clone())
    }

    pub(super) fn start_task(&mut self, awaits: Awaits, then: Then, by: Executor) {
        if let Executor::Blocking = by {
            return self.block_on(awaits);
        }
        let first = match awaits {
            Awaits::Memory { len } => Some(First::Memory(len)),
            Awaits::Ticket { ticket } => self.ticket(ticket).map(First::Ticket),
        };
        let second = match then {
            Then::End => Some(Second::End),
            Then::Alloc { len } => Some(Second::Alloc(len)),
            Then::AwaitMemory { len } => Some(Second::AwaitMemory(len)),
            Then::Wait { ticket } => self.ticket(ticket).map(Second::Wait),
            Then::AwaitTicket { ticket } => self.ticket(ticket).map(Second::AwaitTicket),
        };
        let (Some(first), Some(second)) = (first, second) else { return };
        let awaits_memory = matches!(first, First::Memory(_));
        let home = thread::current().id();
        let mut life: Life = Box::pin(live(self.pool.clone(), first, second, home));
        if let Executor::Inline = by {
            let task =
                Arc::new(Inline { life: Mutex::new(Some(life)), wakes: AtomicUsize::new(0) });
            task.wake_by_ref();
            return self.tasks.inline.push(task);
        }
        let woken = Arc::new(AtomicBool::new(false));
        let waker = match by {
            Executor::Forgetful => Waker::noop().clone(),
            _ => {
                let in_drop = matches!(by, Executor::PanicsInDrop);
                Waker::from(Arc::new(Panics { woken: woken.clone(), home, in_drop }))
            }
        };
        if life.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
        if let Executor::Forgetful = by {
            self.tasks.forgotten += 1;
            self.tasks.hold_memory += usize::from(awaits_memory);
            std::mem::forget(life);
        } else {
            self.tasks.held.push(Held { _life: life, woken, awaits_memory });
        }
    }

    /// Runs a task on the program's thread. It cannot wait for memory that the program holds.
    fn block_on(&mut self, awaits: Awaits) {
        let Awaits::Ticket { ticket } = awaits else { return };
        let Some(index) = pick(ticket, &self.tickets) else { return };
        let (ticket, behind) = self.tickets.swap_remove(index);
        self.may_wait_for(behind);
        self.accept(block_on(ticket), behind);
    }

    /// Waits until every task is done, or has been woken for the last time: all buffers are
    /// dropped, and all streams run. If tasks were forgotten, they may hold all memory, and other
    /// requests for memory need not be served.
    pub(super) fn finish_tasks(&mut self) {
        let starves = self.tasks.hold_memory > 0;
        loop {
            self.tasks.held.retain(|held| {
                let may_be_woken = !(starves && held.awaits_memory);
                may_be_woken && !held.woken.load(Ordering::Acquire)
            });
            self.tasks.inline.retain(|task| {
                if starves {
                    task.cancel();
                }
                !task.is_done()
            });
            if self.tasks.held.is_empty() && self.tasks.inline.is_empty() {
                return;
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether the program leaked tasks on purpose, with their pool, streams and memory; or
    /// handles, in host functions.
    pub fn has_forgotten(&self) -> bool {
        self.tasks.forgotten > 0 || self.has_refused_threads()
    }
}
