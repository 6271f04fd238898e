//! Copies between ordinary memory and a device, through slots of page-locked memory.
//!
//! Ordinary memory cannot be copied asynchronously: the device would read what the operating system may
//! move, and the caller change. So its bytes go through a small [`ring`] of page-locked slots. Several threads
//! ([`team`](super::team)) copy between memory and slots while the copy engine works on other slots:
//!
//! ```text
//!   threads   |fill 0|fill 1| fill 2   | fill 3        | fill 4 ...
//!   device           |copy 0|copy 1|.. | copy 2    | copy 3        | ...
//! ```
//!
//! The first slots of a copy are filled to a part only, each to twice the one before, so that the device
//! begins early; and the last ones to less and less, so that it ends soon after the last byte was copied.
//!
//! # Invariants
//!
//! * An upload returns when all bytes have left the caller's memory; a download when all have arrived there.
//! * Unless other threads enqueue on the stream meanwhile, slots are only taken for one that has come to the copy: whatever was enqueued there before is
//!   complete, or is itself a copy that is being made. So a stream that waits for something holds no slots, and
//!   nobody who waits for slots waits for it.
//! * Every slot's copy is recorded as a use of the slot and of the device memory, as any copy is. An error in
//!   the middle leaves unspecified bytes in the destination, and nothing else: slots are given back with their
//!   uses, threads have left.

mod download;
mod job;
mod layout;
mod ring;
mod upload;

use std::any::Any;
use std::cell::Cell;
use std::time::Duration;

use bytemuck::Pod;

use self::ring::Ring;
use super::entry::List;
use super::machine::Machine;
use super::path::Path;
use super::simd::Stores;
use super::team::{self, Task};
use super::uses::Uses;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::PinnedBuf;
use crate::pool::PinnedPool;
use crate::stream::Stream;
use crate::sync::Mutex;

/// The page-locked memory through which copies of ordinary memory go: how much, and in which portions. One for
/// each device; see [`Device::set_staging`].
#[derive(Clone, Debug)]
pub struct Staging {
    pub(super) ring_bytes: usize,
    pub(super) slot_bytes: usize,
    pub(super) first_bytes: usize,
    pub(super) unit_bytes: usize,
    pub(super) direct_bytes: usize,
    pub(super) streaming_bytes: usize,
}

impl Default for Staging {
    fn default() -> Self {
        Self::new()
    }
}

impl Staging {
    /// The default: 8 slots of 8 MiB. They are page-locked one by one, when they are needed.
    #[must_use]
    pub fn new() -> Self {
        Staging {
            ring_bytes: 64 << 20,
            slot_bytes: 8 << 20,
            first_bytes: 256 << 10,
            streaming_bytes: 64 << 20,
            unit_bytes: 256 << 10,
            direct_bytes: 64 << 10,
        }
    }

    /// The most page-locked memory in bytes for large copies; small ones take up to half as much beside.
    #[must_use]
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// The largest portion in bytes that is given to the copy engine at once: what a slot holds.
    #[must_use]
    pub fn slot_bytes(mut self, bytes: usize) -> Self {
        self.slot_bytes = bytes;
        self
    }

    /// The first portion of a copy in bytes; each is twice the one before, up to a slot.
    #[must_use]
    pub fn first_bytes(mut self, bytes: usize) -> Self {
        self.first_bytes = bytes;
        self
    }

    /// The bytes that a thread copies at a time.
    #[must_use]
    pub fn unit_bytes(mut self, bytes: usize) -> Self {
        self.unit_bytes = bytes;
        self
    }

    /// Copies of at most this many bytes go through one block of page-locked memory, without the team.
    #[must_use]
    pub fn direct_bytes(mut self, bytes: usize) -> Self {
        self.direct_bytes = bytes;
        self
    }

    /// Uploads of at most this many bytes are written to their slots past the cache. A device reads what cores have
    /// just written out of their caches at half the speed at which it reads memory. Longer uploads gain by
    /// waiting: their portions are given to the device later, when they have left those caches.
    #[must_use]
    pub fn streaming_bytes(mut self, bytes: usize) -> Self {
        self.streaming_bytes = bytes;
        self
    }

    fn check(&self) -> Result<()> {
        let Staging { ring_bytes, slot_bytes, first_bytes, unit_bytes, .. } = *self;
        let sound = slot_bytes >= 4096
            && ring_bytes / slot_bytes >= 2
            && ring_bytes / slot_bytes <= 4096
            && ring_bytes <= 1 << 40
            && (1024..=slot_bytes).contains(&first_bytes)
            && unit_bytes >= 1024;
        if sound {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidValue,
            "Device::set_staging",
            format!("{self:?}"),
            "a slot has at least 4096 bytes, the ring 2 to 4096 slots and at most 1 TiB, the first portion and a unit at least \
             1024 bytes, the first portion at most those of a slot",
        ))
    }
}

impl Device {
    /// Says how copies of ordinary memory are staged on this device, for all clones of the handle. Allocates
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`](ErrorKind::InvalidValue) for sizes that make no ring, and after the first such copy;
    /// [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub fn set_staging(&self, options: Staging) -> Result<()> {
        options.check()?;
        let engine = Engine::new(self, options)?;
        self.inner.engine().set(Box::new(engine)).map_err(|_| {
            Error::new(
                ErrorKind::InvalidValue,
                "Device::set_staging",
                "ordinary memory has been copied already",
                "set the options right after Device::open",
            )
        })
    }
}

/// How long a small copy waits for memory that other small copies hold.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a device's copies of ordinary memory share.
pub(super) struct Engine {
    pub(super) options: Staging,
    /// Where slots come from, and nothing else, so that no copy that waits keeps them from being made.
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

    /// The portion of an upload of `bytes` that comes after `done` bytes, with `left` to go.
    fn upload_piece(&self, path: Path, bytes: usize, done: usize, left: usize) -> usize {
        let Staging { slot_bytes, first_bytes, .. } = self.options;
        // Doubling: as much as all before. Halving: what is left when the last byte has been copied is short.
        let mut ramp = first_bytes.max(done);
        let mut end = left / 2;
        if path.has_items() {
            // A kernel takes a few microseconds to begin and to end.
            ramp = ramp.max(bytes / 3);
            end = left;
        }
        let end = end.max(2 * first_bytes).next_multiple_of(4096);
        ramp.min(end).min(slot_bytes)
    }

    /// The portion of a download of `bytes` that comes after `done` bytes, with `left` to go.
    fn download_piece(&self, path: Path, bytes: usize, done: usize, left: usize) -> usize {
        let Staging { slot_bytes, first_bytes, .. } = self.options;
        if path.has_items() {
            return (bytes / 4).max(first_bytes).next_multiple_of(4096).min(slot_bytes);
        }
        let even = (bytes / 16).max(8 * first_bytes).next_multiple_of(4096);
        let end = (left / 4).max(first_bytes).next_multiple_of(4096);
        first_bytes.max(done).min(even).min(end).min(slot_bytes)
    }

    /// Page-locked memory for a small copy; `None` if streams that wait for something hold all of it. The ring, whose
    /// slots no such stream holds, does then.
    pub(super) fn small_block<T: Pod>(&self, len: usize) -> Result<Option<PinnedBuf<T>>> {
        match self.small.alloc_timeout(len, PATIENCE) {
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
            block => block.map(Some),
        }
    }

    /// How many threads of the team are to help with a copy.
    pub(super) fn helpers(&self, stream: &Stream, bytes: usize, task: Task) -> Result<usize> {
        let most = match task {
            Task::Copying => (self.machine(stream)?.costs.threads as usize).saturating_sub(1),
            Task::Reading => usize::MAX,
        };
        Ok((bytes / (32 << 10)).min(team::helpers(task)).min(most))
    }

    /// The bytes of a unit, so that a portion is work for everybody.
    fn unit(&self, piece: usize, threads: usize) -> usize {
        (piece / (2 * threads))
            .next_multiple_of(4096)
            .clamp(8 << 10, self.options.unit_bytes.max(8 << 10))
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

/// The bytes of all entries.
fn total(list: List<'_, '_>) -> usize {
    list.iter().map(|entry| entry.bytes()).sum()
}

impl Uses<'_, '_> {
    /// Blocks until the stream has come to the copy: what was enqueued before, and what conflicts, is complete
    /// or a copy that is being made. Tells how many positions the stream has.
    fn reach(&self, stream: &Stream) -> Result<u64> {
        let conflicts = self.wait_for_conflicts()?;
        // Before it is asked: what another thread enqueues meanwhile is not taken for a copy.
        let before = stream.timeline.recorded();
        if !conflicts && stream.timeline.is_moving() {
            return Ok(before);
        }
        let reached = stream.record()?;
        let (_, position) = reached.at().expect("recorded");
        reached.wait()?;
        Ok(position + 1)
    }
}

impl Staging {
    /// How an upload of `bytes` is written to its slots.
    fn stores_to_slot(&self, bytes: usize) -> Stores {
        if bytes <= self.streaming_bytes { Stores::Streaming } else { Stores::Cached }
    }

    /// How many filled slots an upload keeps back, after `done` bytes.
    fn hold(&self, bytes: usize, done: usize) -> usize {
        if bytes <= self.streaming_bytes || done == bytes {
            return 0;
        }
        HOLD.min(done / (HOLD_AFTER * self.slot_bytes))
    }
}

/// The most filled slots that are kept back: as much as eight cores' private caches hold.
const HOLD: usize = 2;
/// One more is kept back after so many slots, so that the device is not idle at the start.
const HOLD_AFTER: usize = 4;

/// Which stores are best for that many bytes of ordinary memory.
fn stores_to_memory(bytes: usize) -> Stores {
    if bytes >= 1 << 20 { Stores::Streaming } else { Stores::Cached }
}
