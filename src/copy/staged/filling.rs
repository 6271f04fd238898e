//! An upload of few slices that is too short to hide its beginning and its end.
//!
//! The calling thread enqueues what has been filled, from the first byte on, in portions that
//! double. Threads fill slots a little faster than the device reads them, so the device seldom
//! waits; and as portions are few, it seldom pauses between two. Where threads are slower, the
//! caller sees that the device is idle, and gives it what there is.
//!
//! ```text
//!   caller    chunk | chunk | enqueue 0 | chunk | chunk | enqueue 1 | ... | enqueue last
//!   helper    chunk | chunk | chunk | chunk | chunk | chunk | chunk ...
//!   device                  | copy 0      | copy 1                  | copy 2
//! ```
//!
//! # Invariants
//!
//! * Those of [`chunks`](super::chunks).
//! * A portion lies in one slot, and all its bytes have been filled.
//! * The slots of bytes that may be filled are held until all their bytes are enqueued.

use super::Engine;
use super::chunks::{Chunks, Held};
use super::copy::refuse_inside;
use super::team::{self, Helpers, Workload, pause};
use crate::copy::entry::Direction;
use crate::copy::route::Route;
use crate::copy::transfer::Transfer;
use crate::error::Result;
use crate::ticket::Ticket;

/// What only the calling thread has.
#[derive(Default)]
struct Enqueued<'e> {
    last: Option<Ticket>,
    held: Held<'e>,
}

impl Engine {
    /// Whether an upload goes this way: few slices of memory, and not so long that what it writes
    /// should stay in the caches. One of several slots only while few other copies fill slots:
    /// where many do, a slot waits here for its caller, who may have lost the core.
    pub(super) fn fills(
        &self,
        transfer: &Transfer<'_, '_>,
        route: Route,
        workload: Workload,
    ) -> bool {
        let bytes = transfer.survey.group.bytes;
        transfer.direction == Direction::Up
            && workload == Workload::Copying
            && Chunks::are_for(transfer, route)
            && bytes <= self.options.streaming_bytes
            && (bytes <= self.options.slot_bytes || self.ring.is_quiet())
    }

    /// Copies few slices of pageable memory. Returns when all bytes have left them.
    pub(super) fn fill(&self, transfer: Transfer<'_, '_>, route: Route) -> Result<Ticket> {
        let door = transfer.door;
        refuse_inside(door.operation)?;
        let before = transfer.reach()?;
        let bytes = transfer.survey.group.bytes;
        self.make_room(door, bytes)?;
        // Helpers do not enqueue, so a thread's default stream has them too.
        let helpers = Helpers::of(door.stream.context().ordinal(), Workload::Copying);
        let helpers = helpers.at_most(bytes / (32 << 10));
        let chunk = self.options.chunk();
        let slot = self.options.slot_bytes / chunk * chunk;
        let stores = self.options.stores_to_slot(Workload::Copying, bytes);
        let chunks = Chunks::new(&transfer, route, chunk, slot, stores);
        let mut enqueued = Enqueued::default();
        // Threads begin as soon as they come.
        chunks.make_room(self, &mut enqueued)?;
        let mut result = Ok(());
        team::run(helpers, &|| chunks.help(), &mut || {
            result = chunks.drive_up(self, helpers.count + 1, &mut enqueued);
        });
        // All threads have left. After an error slots may be in flight.
        let portions = enqueued.held.portions;
        drop(enqueued);
        result?;
        let ticket = transfer.ticket();
        drop(transfer);
        door.stream.note_moving(before + portions);
        Ok(ticket)
    }
}

impl<'e> Chunks<'e, '_> {
    /// Holds a slot for the bytes after those that are open, and opens them.
    fn make_room(&self, engine: &'e Engine, enqueued: &mut Enqueued<'e>) -> Result<bool> {
        let start = enqueued.held.opened;
        let done = enqueued.held.enqueued;
        let made = self.has_slot(engine, &mut enqueued.held, start, done)?;
        if made {
            self.open_to(&mut enqueued.held, self.bytes().min(start + self.slot_bytes()));
        }
        Ok(made)
    }

    /// The calling thread's part: it enqueues, and copies chunks in between.
    fn drive_up(
        &self,
        engine: &'e Engine,
        threads: usize,
        enqueued: &mut Enqueued<'e>,
    ) -> Result<()> {
        let guard = self.guard();
        let (mut helped, mut spins) = (false, 0);
        while enqueued.held.enqueued < self.bytes() {
            if let Some(end) = self.portion(engine, enqueued, helped)? {
                enqueued.last = Some(self.enqueue(&mut enqueued.held, end)?);
                (helped, spins) = (false, 0);
                continue;
            }
            // Before threads run out of chunks.
            let soon = self.given_out() + 2 * threads * engine.options.chunk();
            if enqueued.held.opened < self.bytes().min(soon) && self.make_room(engine, enqueued)? {
                continue;
            }
            helped = self.help_once(&enqueued.held);
            if helped {
                spins = 0;
            } else if self.has_failed() {
                break;
            } else {
                pause(&mut spins);
            }
        }
        std::mem::forget(guard);
        Ok(())
    }

    /// The end of the next portion, if it is worth a copy now. A shorter one is, if the device is
    /// idle; that takes a call, which is made only if it `asks`.
    fn portion(
        &self,
        engine: &Engine,
        enqueued: &mut Enqueued<'e>,
        asks: bool,
    ) -> Result<Option<usize>> {
        let start = enqueued.held.enqueued;
        let room = self.slot_bytes() - start % self.slot_bytes();
        let left = room.min(self.bytes() - start);
        let filled = left.min(self.copied(&mut enqueued.held) - start);
        let first = engine.options.first_bytes;
        // Twice as many bytes as the one before. No short one is left over.
        let wanted = first + start;
        let wanted = if left <= wanted + first { left } else { wanted };
        if filled >= wanted {
            return Ok(Some(start + filled));
        }
        // Not so short that many of them take longer than the fewer ones.
        let is_worth = asks && filled >= first.max(self.bytes() / 8);
        let idle = is_worth && enqueued.last.as_ref().map_or(Ok(false), Ticket::is_done)?;
        Ok(idle.then_some(start + filled))
    }
}
