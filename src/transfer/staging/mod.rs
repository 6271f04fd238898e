//! Copies between ordinary memory and a device, through slots of page-locked memory.
//!
//! Ordinary memory cannot be copied asynchronously: the device would read what the operating system
//! may move, and the caller change. So its bytes go through a small [`ring`] of page-locked slots.
//! Several threads ([`team`](super::team)) copy between memory and slots while the copy engine
//! works on other slots:
//!
//! ```text
//!   threads   |fill 0|fill 1| fill 2   | fill 3        | fill 4 ...
//!   device           |copy 0|copy 1|.. | copy 2    | copy 3        | ...
//! ```
//!
//! The first slots of an upload are filled to a part only, each to twice the one before, so that
//! the device begins early; and the last ones to less and less, so that it ends soon after the last
//! byte was copied ([`portions`]).
//!
//! # Invariants
//!
//! * An upload returns when all bytes have left the caller's memory; a download when all have
//!   arrived there.
//! * A copy takes slots only when its stream is idle or is already copying. So a stream that waits
//!   for other work when a copy comes holds no slot.
//! * A copy waits for slots of streams only that cannot be held up more than its own; see below.
//! * Every slot's copy is recorded as a use of the slot and of the device memory, as any copy is.
//!   An error in the middle leaves unspecified bytes in the destination, and nothing else: slots
//!   are given back with their uses, threads have left.
//!
//! # Nobody waits for a stream that is held up
//!
//! A stream that is found idle can be held up a moment later, with slots in its hands. What may do
//! that is its [`Exposure`](crate::timeline::Exposure):
//!
//! * *sealed*: nothing. Only this crate enqueues there, and before a copy takes slots, all else is
//!   complete;
//! * *shared*: work that others enqueue there between that check and the copy: they have the
//!   stream's handle;
//! * *bound*: also work of other streams. A blocking stream, and a thread's default stream, wait
//!   for what the legacy stream has been given, by any thread, and the legacy stream waits for
//!   them. A borrowed stream may be a blocking one.
//!
//! So bound streams together hold a part of the ring at most, bound and shared streams a larger
//! part ([`shares`](ring)), and a copy waits only for slots whose holders are no more exposed than
//! its own stream. There always are some. Then all waits for the slots of sealed streams end: their
//! copies lie behind copies only, and a thread that fills or empties one waits for nothing but such
//! slots. A copy on a sealed stream thus waits for no other kind of stream, and one on a shared
//! stream for no bound one. Copies on streams of one kind do wait for each other: one shared stream
//! that is held up may hold up another, and so may bound ones.
//!
//! What remains is a race of the program with itself: if another thread makes a sealed stream wait
//! for something, or enqueues a host function there, in the middle of a copy, then the slots of
//! that copy wait too.

mod download;
mod job;
mod layout;
mod options;
mod portions;
mod ring;
mod upload;

use std::any::Any;
use std::cell::Cell;
use std::time::Duration;

use bytemuck::Pod;

pub use self::options::Staging;
use self::ring::Ring;
use super::machine::Machine;
use super::team::{self, Task};
use super::uses::Uses;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::PinnedBuf;
use crate::pool::PinnedPool;
use crate::stream::Stream;
use crate::sync::Mutex;

/// What says that there is none to be had.
const SHORT: [ErrorKind; 2] = [ErrorKind::TimedOut, ErrorKind::BudgetExhausted];

/// How long a small copy waits for memory that other small copies hold.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often it waits so long, while more is being page-locked.
const TRIES: usize = 10;
/// No less is page-locked at once.
const PAGE: usize = 4096;

/// What a device's copies of ordinary memory share.
pub(super) struct Engine {
    pub(super) options: Staging,
    /// Where slots come from, and nothing else, so that no copy that waits keeps them from being
    /// made.
    pool: PinnedPool,
    /// For copies that need no slot.
    pub(super) small: PinnedPool,
    /// For lists of items, which are as long as the caller's own.
    pub(super) lists: PinnedPool,
    ring: Ring,
    pub(super) machine: Mutex<Option<Machine>>,
}

impl Engine {
    fn new(device: &Device, options: Staging) -> Result<Self> {
        let pool = || PinnedPool::builder(device).mapped(true);
        let small = pool().max_bytes(options.ring_bytes / 2).build()?;
        let lists = pool().build()?;
        let pool = pool().max_bytes(options.ring_bytes + options.ring_bytes / 2).build()?;
        let ring = Ring::new(options.slot_bytes, options.ring_bytes / options.slot_bytes);
        Ok(Engine { options, pool, small, lists, ring, machine: Mutex::default() })
    }

    /// The engine of the stream's device.
    pub(super) fn of(stream: &Stream) -> Result<&Engine> {
        let place = stream.device.engine();
        if place.get().is_none() {
            let device = Device { inner: stream.device.clone() };
            // Somebody else may have been faster.
            let _ = place.set(Box::new(Engine::new(&device, Staging::new())?));
        }
        let engine: &(dyn Any + Send + Sync) = &**place.get().expect("set above");
        Ok(engine.downcast_ref().expect("only this module sets it"))
    }

    /// Page-locked memory for a small copy; `None` if streams that wait for something hold all of
    /// it. The ring, of which such streams never hold all, does then.
    pub(super) fn small_block<T: Pod>(&self, len: usize) -> Result<Option<PinnedBuf<T>>> {
        let bytes = (len * size_of::<T>()).next_multiple_of(PAGE);
        for _ in 0..TRIES {
            match self.small.alloc_timeout(len, PATIENCE) {
                Err(error) if SHORT.contains(&error.kind()) => {}
                block => return block.map(Some),
            }
            // Page-locking may take longer.
            if !self.small.may_grow(bytes) {
                break;
            }
        }
        Ok(None)
    }

    /// How many threads of the team are to help with a copy. Whoever helps also enqueues, which no
    /// other thread can do on a thread's default stream.
    pub(super) fn helpers(&self, uses: &Uses<'_, '_>, bytes: usize, task: Task) -> Result<usize> {
        if uses.stream.timeline.is_of_one_thread() {
            return Ok(0);
        }
        let most = match task {
            Task::Copying | Task::Ahead => {
                (self.machine(uses.stream, uses.operation)?.costs.threads as usize)
                    .saturating_sub(1)
            }
            Task::Reading => usize::MAX,
        };
        Ok((bytes / (32 << 10)).min(team::helpers(task)).min(most))
    }
}

thread_local! {
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Calls the caller's code while this thread's job has slots.
fn telling<R>(tell: impl FnOnce() -> R) -> R {
    TELLING.set(true);
    let told = tell();
    TELLING.set(false);
    told
}

/// Refuses a copy that might wait for slots of the job that the thread is in.
fn refuse_inside(operation: &'static str) -> Result<()> {
    if !TELLING.get() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        operation,
        "called from inside the function that download_batch_each calls for each item",
        "note the item there, and copy when download_batch_each has returned, or on another thread",
    ))
}

impl Uses<'_, '_> {
    /// Blocks until the stream has come to the copy: what was enqueued before, and what conflicts,
    /// is complete or a copy that is being made. Tells how many positions the stream has.
    fn reach(&self) -> Result<u64> {
        let stream = self.stream;
        // By the host, so that the stream, if it is busy with copies, need not be emptied.
        self.settle_conflicts()?;
        // Before it is asked: what another thread enqueues meanwhile is not taken for a copy.
        let before = stream.timeline.recorded();
        if stream.timeline.is_moving() {
            return Ok(before);
        }
        let reached = stream.record()?;
        let (_, position) = reached.at().expect("recorded");
        reached.wait()?;
        Ok(position + 1)
    }
}
