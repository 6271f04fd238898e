//! A download of few slices, or of long ones, that is too short to hide its beginning and its end.
//!
//! Of a long download the waits between portions are hidden: the device copies the next ones
//! meanwhile. In one of some hundred KiB they are what it takes. Here the calling thread enqueues
//! the next portion while others copy what has landed.
//!
//! ```text
//!   device    | copy 0      | copy 1      | copy 2      |
//!   caller    enqueue 0, 1  | 0 landed; enqueue 2; chunk | 1 landed; chunk ...
//!   helper                  | chunk | chunk |            | chunk | chunk ...
//! ```
//!
//! # Invariants
//!
//! * Those of [`chunks`](super::chunks): a portion's bytes are opened when it has landed.
//! * A portion consists of whole chunks, and lies in one slot.

use std::collections::VecDeque;

use super::Engine;
use super::chunks::{Chunks, Held};
use super::copy::refuse_inside;
use super::options::stores_to_memory;
use super::team::{self, Helpers, Workload, pause};
use crate::copy::entry::Direction;
use crate::copy::route::Route;
use crate::copy::transfer::Transfer;
use crate::error::Result;
use crate::memory::hazard::Access;
use crate::ticket::Ticket;

/// How many portions are enqueued before the caller looks whether the first has landed.
const AT_FIRST: usize = 2;

/// What only the calling thread has.
#[derive(Default)]
struct Enqueued<'e> {
    /// What the device copies at a time, in bytes.
    portion: usize,
    /// Portions that have not landed, the oldest in front: their ends and tickets.
    in_flight: VecDeque<(usize, Ticket)>,
    held: Held<'e>,
}

impl Engine {
    /// Whether a download goes this way: few or long slices of memory, together not so long that
    /// their portions fill slots.
    pub(super) fn lands(&self, transfer: &Transfer<'_, '_>, route: Route) -> bool {
        transfer.direction == Direction::Down
            && transfer.survey.group.bytes < 8 * self.options.slot_bytes
            && Chunks::are_for(transfer, route)
    }

    /// Copies to few slices of pageable memory. Returns when all bytes have arrived there.
    pub(super) fn land(&self, transfer: Transfer<'_, '_>, route: Route) -> Result<Ticket> {
        refuse_inside(transfer.door.operation)?;
        let stream = transfer.door.stream;
        let before = transfer.reach()?;
        let bytes = transfer.survey.group.bytes;
        // Helpers do not enqueue, so a thread's default stream has them too.
        let helpers = Helpers::of(stream.context().ordinal(), Workload::Copying);
        let helpers = helpers.at_most(bytes / (32 << 10));
        let cuts = self.options.cuts(bytes, helpers.count + 1);
        let chunks = Chunks::new(&transfer, route, cuts.chunk, cuts.slot, stores_to_memory(bytes));
        let mut enqueued = Enqueued { portion: cuts.portion, ..Enqueued::default() };
        // The device begins while the team is called.
        chunks.enqueue_down(self, &mut enqueued)?;
        let mut result = Ok(());
        team::run(helpers, &|| chunks.help(), &mut || {
            result = chunks.drive_down(self, &mut enqueued);
        });
        // All threads have left. After an error slots may be in flight.
        let portions = enqueued.held.portions;
        drop(enqueued);
        result?;
        let ticket = transfer.ticket();
        drop(transfer);
        stream.note_moving(before + portions);
        Ok(ticket)
    }
}

impl<'e> Chunks<'e, '_> {
    /// The calling thread's part: it enqueues, waits, and copies chunks in between.
    fn drive_down(&self, engine: &'e Engine, enqueued: &mut Enqueued<'e>) -> Result<()> {
        let guard = self.guard();
        let operation = self.transfer.door.operation;
        let mut spins = 0;
        while enqueued.held.opened < self.bytes() {
            if enqueued.in_flight.len() < AT_FIRST && self.enqueue_down(engine, enqueued)? {
                continue;
            }
            let done = match enqueued.in_flight.front() {
                Some((_, ticket)) => ticket.is_done()?,
                // All slots are full of what other threads are copying.
                None if self.help_once(&enqueued.held) => continue,
                None if self.has_failed() => break,
                None => {
                    pause(&mut spins);
                    continue;
                }
            };
            if !done {
                if self.help_once(&enqueued.held) || self.enqueue_down(engine, enqueued)? {
                    continue;
                }
                enqueued.in_flight[0].1.wait_in(operation)?;
            }
            self.note_landed(enqueued);
            spins = 0;
        }
        std::mem::forget(guard);
        self.help();
        Ok(())
    }

    /// The oldest portion in flight has landed.
    fn note_landed(&self, enqueued: &mut Enqueued<'e>) {
        let Some((end, _)) = enqueued.in_flight.pop_front() else { return };
        let start = enqueued.held.opened;
        let (slot, offset) = self.slot_of(&enqueued.held, start);
        slot.host().announce_access_to(offset..offset + (end - start), Access::Read);
        self.open_to(&mut enqueued.held, end);
    }

    /// Enqueues the next portion. `false` if there is none, or no slot for it.
    fn enqueue_down(&self, engine: &'e Engine, enqueued: &mut Enqueued<'e>) -> Result<bool> {
        let start = enqueued.held.enqueued;
        let end = self.bytes().min(start + enqueued.portion);
        let copied = self.copied(&mut enqueued.held);
        if start == end || !self.has_slot(engine, &mut enqueued.held, start, copied)? {
            return Ok(false);
        }
        let ticket = self.enqueue(&mut enqueued.held, end)?;
        enqueued.in_flight.push_back((end, ticket));
        Ok(true)
    }
}
