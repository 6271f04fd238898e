//! Copies between pageable memory, or files, and a device, through slots of page-locked memory.
//!
//! Pageable memory cannot be copied asynchronously: the system may move it, and the caller may
//! change it, while the device reads it. So its bytes go through a small [`ring`] of page-locked
//! slots. Several threads ([`team`]) copy between memory and slots while the copy engine works on
//! other slots:
//!
//! ```text
//!   threads   |fill 0|fill 1| fill 2   | fill 3        | fill 4 ...
//!   device           |copy 0|copy 1|.. | copy 2    | copy 3        | ...
//! ```
//!
//! The first portions of an upload are short, each twice as long as the one before, so that the
//! device begins early. The last ones of a long upload are shorter and shorter, so that the device
//! ends soon after the last byte was copied ([`options`]).
//!
//! ```text
//!   copy     one transfer through slots       ring     the slots, and who may have them
//!   units    how threads share it             layout   what lies where in a slot
//!   queue    what was filled, what arrived    options  how long portions are, which stores
//!   filling  an upload of few slices          simd     how threads copy
//!   landing  a download of few slices         team     the threads
//!   chunks   what these two have in common    parts    what a thread does with a unit
//! ```
//!
//! A *transfer* is a whole copy. It is made in *portions*: each fills one slot, and is copied by
//! the device in one piece. The threads of the *team* share a portion, a unit at a time.
//!
//! # Invariants
//!
//! * An upload returns when all bytes have left the caller's memory; a download when all have
//!   arrived there.
//! * A copy takes slots only when its stream is idle or is already copying. So a stream that waits
//!   for other work when a copy begins holds no slot.
//! * A copy waits only for slots of streams that are no more exposed than its own; see below.
//! * Every slot's copy is recorded as a use of the slot and of the device memory, as any copy is.
//!   After an error in the middle only the bytes of the destination are unspecified: slots are
//!   given back with their uses, and threads have left.
//!
//! # No copy waits for a stream that is held up
//!
//! A stream that is found idle can be held up a moment later, while it has slots. What can hold it
//! up is its [`Exposure`](crate::timeline::Exposure):
//!
//! * *sealed*: nothing. Only this crate enqueues there, and all other work is complete before a
//!   copy takes slots.
//! * *shared*: other code has the stream's handle, and may enqueue work between that check and the
//!   copy.
//! * *bound*: also work of other streams. A blocking stream, and a thread's default stream, wait
//!   for the work that any thread gives to the legacy stream, and the legacy stream waits for them.
//!   A borrowed stream may be a blocking one.
//!
//! Bound streams together hold at most a part of the ring. Bound and shared streams together hold
//! at most a larger part ([`shares`](ring)). A copy waits only for slots whose holders are no more
//! exposed than its own stream; such slots always exist. So a wait for the slot of a sealed stream
//! always ends: only copies precede its copies, and a thread that fills or empties the slot waits
//! only for such slots. A copy on a sealed stream waits for no other kind of stream, and a copy on
//! a shared stream waits for no bound one. Copies on streams of one kind do wait for each other: a
//! shared stream that is held up can hold up another one, and so can bound streams.
//!
//! Two cases remain. A kernel of the program that fills the device also holds up copies by
//! [`Route::Kernel`](crate::batch::Route::Kernel), until some of its blocks end; the copy engine
//! never waits for it. And a
//! program can race with itself: if another thread makes a sealed stream wait for something, or
//! enqueues a host function there, in the middle of a copy, the slots of that copy wait too.

mod chunks;
mod copy;
mod filling;
mod landing;
mod layout;
mod options;
mod parts;
mod queue;
mod ring;
pub(crate) mod share;
pub(crate) mod simd;
pub(crate) mod team;
mod units;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use self::copy::refuse_inside;
pub use self::options::Staging;
use self::ring::Ring;
use self::team::{Helpers, Workload};
use super::order::Door;
use super::route::Abilities;
use crate::context::Context;
use crate::driver::Ordinal;
use crate::error::{ErrorKind, Result};
use crate::memory::PinnedBuf;
use crate::pool::{Builder, PinnedPool};
use crate::process::background;
use crate::timeline::Timeline;

/// The errors of a pool without a free block.
const SHORT: [ErrorKind; 2] = [ErrorKind::TimedOut, ErrorKind::BudgetExhausted];

/// How long a small copy waits for memory that other small copies hold.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often it waits for [`PATIENCE`] while more memory is being page-locked.
const TRIES: usize = 10;
/// The system page-locks at least this much at once.
const PAGE: usize = 4096;
/// From this many bytes on a copy uses all slots.
const LARGE: usize = 32 << 20;

/// Page-locks all slots: first one, so that a copy can begin, then the others in one piece, with
/// several threads. Page-locking them one by one takes four times as long.
fn fill(ring: &Ring, pool: &PinnedPool, bytes: usize) {
    ring.fill(pool, 1);
    pool.grow_by(bytes);
    ring.fill(pool, usize::MAX);
}

/// The state that all staged copies of a device share.
pub(crate) struct Engine {
    options: Staging,
    /// Only for slots, so that no waiting copy can prevent a slot from being made.
    pool: PinnedPool,
    /// For copies that do not need a slot.
    small: PinnedPool,
    /// For lists of items, which are as long as the caller's lists.
    pub(crate) lists: PinnedPool,
    ring: Arc<Ring>,
    abilities: OnceLock<Abilities>,
}

impl Engine {
    pub(crate) fn new(context: &Arc<Context>, options: Staging) -> Result<Self> {
        let pool = || Builder::new(context).mapped(true);
        let small = pool().max_bytes(options.ring_bytes / 2).build()?;
        let lists = pool().build()?;
        let pool = pool().max_bytes(options.ring_bytes + options.ring_bytes / 2).build()?;
        let ring = Ring::new(options.slot_bytes, options.ring_bytes / options.slot_bytes).into();
        Ok(Engine { options, pool, small, lists, ring, abilities: OnceLock::new() })
    }

    /// Page-locks the ring, and starts the threads that help with a copy.
    pub(crate) fn warm_up(&self, device: Ordinal) {
        team::start(Helpers::of(device, Workload::Copying));
        fill(&self.ring, &self.pool, self.options.ring_bytes);
    }

    /// Called before the first large copy: page-locks one slot, then the others on an extra thread,
    /// while the device copies from the first.
    fn make_room(&self, door: Door<'_>, bytes: usize) -> Result<()> {
        if bytes < LARGE || self.ring.is_begun() {
            return Ok(());
        }
        let first = self.ring.take(&self.pool, door.stream.exposure(), true, door.operation)?;
        drop(first.map(|slot| self.ring.guard(slot)));
        let bytes = self.options.ring_bytes;
        let work = move |(ring, pool): (Arc<Ring>, PinnedPool)| fill(&ring, &pool, bytes);
        // If the thread cannot be started, copies page-lock the slots one by one.
        let _ = background::start("pinlane-warm-up", (self.ring.clone(), self.pool.clone()), work);
        Ok(())
    }

    /// Page-locked memory for a copy of that many bytes, if it is small. Also `None` if streams
    /// that are held up hold all of that memory. The copy then uses the ring, which such streams
    /// never hold as a whole.
    pub(crate) fn small_block(&self, bytes: usize) -> Result<Option<PinnedBuf<u8>>> {
        if !self.is_small(bytes) {
            return Ok(None);
        }
        for _ in 0..TRIES {
            match self.small.alloc_timeout(bytes, PATIENCE) {
                Err(error) if SHORT.contains(&error.kind()) => {}
                block => return block.map(Some),
            }
            // Page-locking may take longer.
            if !self.small.may_grow(bytes.next_multiple_of(PAGE)) {
                break;
            }
        }
        Ok(None)
    }

    /// Whether a copy of that many bytes does not need a slot.
    pub(crate) fn is_small(&self, bytes: usize) -> bool {
        bytes <= self.options.direct_bytes
    }

    /// What the device can do. Asks the driver once.
    pub(crate) fn abilities(&self, door: Door<'_>) -> Result<Abilities> {
        if let Some(known) = self.abilities.get() {
            return Ok(*known);
        }
        // A failed answer is not remembered.
        let found = Abilities::of(door.stream.context(), door.operation)?;
        Ok(*self.abilities.get_or_init(|| found))
    }

    /// How many threads of the team help with a copy. A helper also enqueues, so there are none for
    /// a thread's default stream, where no other thread can enqueue.
    fn helpers(&self, stream: &Timeline, bytes: usize, workload: Workload) -> Helpers {
        if stream.is_of_one_thread() {
            return Helpers::none();
        }
        Helpers::of(stream.context().ordinal(), workload).at_most(bytes / (32 << 10))
    }
}
