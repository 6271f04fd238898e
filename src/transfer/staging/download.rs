//! From the device to ordinary memory.
//!
//! As many slots as can be had are in flight; the team takes them in the order in which they were enqueued,
//! as each lands.

use std::collections::VecDeque;

use super::entry::Entry;
use super::job::{self, Work};
use super::layout::{Cursor, Sizes};
use super::ring::Slot;
use super::{Engine, helpers, reach, stores_to_memory};
use crate::error::Result;
use crate::memory::Operand;
use crate::memory::hazard::Access;
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::ticket::Ticket;
use crate::transfer::order::ordered;
use crate::transfer::simd::Stores;

struct Download<'a> {
    engine: &'a Engine,
    stream: &'a Stream,
    operation: &'static str,
    entries: &'a [Entry<'a>],
    threads: usize,
    stores: Stores,
    progress: Mutex<Progress<'a>>,
}

struct Progress<'a> {
    cursor: Cursor,
    done: usize,
    left: usize,
    /// Oldest in front; each with the ticket of its copy.
    in_flight: VecDeque<(&'a Slot, Ticket)>,
    submitted: u64,
}

impl Engine {
    /// Copies the entries, and returns when they have arrived in host memory.
    pub(in crate::transfer) fn download(
        &self,
        stream: &Stream,
        operation: &'static str,
        entries: &[Entry<'_>],
    ) -> Result<()> {
        let bytes = entries.iter().map(|entry| entry.device.len()).sum();
        let operands: Vec<Operand<'_>> = entries
            .iter()
            .map(|entry| entry.device.operand(0..entry.device.len(), Access::Read))
            .collect();
        let before = reach(stream, operation, &operands)?;
        let helpers = helpers(bytes);
        let progress = Progress {
            cursor: Cursor::default(),
            done: 0,
            left: bytes,
            in_flight: VecDeque::with_capacity(8),
            submitted: 0,
        };
        let download = Download {
            engine: self,
            stream,
            operation,
            entries,
            threads: helpers + 1,
            stores: stores_to_memory(bytes),
            progress: Mutex::new(progress),
        };
        let result = job::run(&download, helpers);
        let mut progress = download.progress.lock();
        for (slot, _) in progress.in_flight.drain(..) {
            self.ring.give_back(slot);
        }
        stream.timeline.note_moving(before + progress.submitted);
        result
    }
}

impl<'a> Download<'a> {
    /// Enqueues the next slot's copy.
    fn enqueue(&self, progress: &mut Progress<'a>, slot: &'a Slot) -> Result<()> {
        let piece = self.engine.piece(progress.done, progress.left);
        let sizes = Sizes { piece, unit: self.engine.unit(piece, self.threads), items: false };
        // SAFETY: just taken, so that this thread has it alone.
        let layout = unsafe { slot.layout_mut() };
        layout.fill(&mut progress.cursor, self.entries, sizes);
        let bytes: usize = layout.parts().iter().map(|part| part.bytes).sum();
        progress.done += bytes;
        progress.left -= bytes;

        let mut operands = vec![slot.host().operand(0..layout.used(), Access::Write)];
        operands.extend(
            layout
                .entries()
                .map(|(entry, range)| self.entries[entry].device.operand(range, Access::Read)),
        );
        progress.submitted += 1;
        let submitted = ordered(
            self.stream,
            self.operation,
            &operands,
            |driver, raw| {
                layout.runs().try_for_each(|run| {
                    let to = slot.address(run.slot.start);
                    // SAFETY: the stream is live. The run lies in one slot, page-locked in one piece, and in one
                    // allocation; the uses that `ordered` records keep both valid until retired; nobody
                    // touches the slot's bytes before `open` has waited for the copy.
                    unsafe { driver.copy_d2h(raw, to, run.device, run.slot.len()) }
                })
            },
            || format!("copying {} bytes to the host", layout.used()),
        );
        match submitted {
            Ok(((), ticket)) => {
                progress.in_flight.push_back((slot, ticket));
                Ok(())
            }
            Err(error) => {
                self.engine.ring.give_back(slot);
                Err(error)
            }
        }
    }
}

impl<'a> Work<'a> for Download<'a> {
    fn open(&self) -> Result<Option<&'a Slot>> {
        let mut progress = self.progress.lock();
        while progress.left > 0 {
            // Only who has no slot waits for one.
            let patient = progress.in_flight.is_empty();
            let Some(slot) = self.engine.ring.take(&self.engine.pool, patient)? else { break };
            self.enqueue(&mut progress, slot)?;
        }
        let Some((slot, ticket)) = progress.in_flight.pop_front() else { return Ok(None) };
        drop(progress);
        if let Err(error) = ticket.wait() {
            self.engine.ring.give_back(slot);
            return Err(error);
        }
        Ok(Some(slot))
    }

    fn unit(&self, slot: &'a Slot, unit: usize) -> Result<()> {
        // SAFETY: this thread is a worker of the slot.
        for part in unsafe { slot.layout() }.unit(unit) {
            let from = slot.address(part.offset);
            // SAFETY: an entry of a download, and the part lies in it; its bytes are this worker's, on both
            // sides, and the copy to the slot is complete (`open`).
            unsafe { self.entries[part.entry].drain(part.at, from, part.bytes, self.stores) };
        }
        Ok(())
    }

    fn finish(&self, slot: &'a Slot) -> Result<()> {
        self.engine.ring.give_back(slot);
        Ok(())
    }

    fn abandon(&self, slot: &'a Slot) {
        self.engine.ring.give_back(slot);
    }
}
