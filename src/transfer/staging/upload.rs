//! From ordinary memory to the device.

use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::Entry;
use super::job::{self, Work};
use super::layout::{Cursor, Sizes};
use super::ring::Slot;
use super::{Engine, helpers, reach};
use crate::error::Result;
use crate::memory::Operand;
use crate::memory::hazard::Access;
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::ticket::Ticket;
use crate::transfer::order::ordered;
use crate::transfer::simd::Stores;

struct Upload<'a> {
    engine: &'a Engine,
    stream: &'a Stream,
    operation: &'static str,
    entries: &'a [Entry<'a>],
    threads: usize,
    progress: Mutex<Progress>,
    submitted: AtomicU64,
}

struct Progress {
    cursor: Cursor,
    done: usize,
    left: usize,
}

impl Engine {
    /// Copies the entries, and returns when the host memory may be reused. The ticket is for all of them.
    pub(in crate::transfer) fn upload(
        &self,
        stream: &Stream,
        operation: &'static str,
        entries: &[Entry<'_>],
    ) -> Result<Ticket> {
        let bytes = entries.iter().map(|entry| entry.device.len()).sum();
        let operands: Vec<Operand<'_>> = entries
            .iter()
            .map(|entry| entry.device.operand(0..entry.device.len(), Access::Write))
            .collect();
        let before = reach(stream, operation, &operands)?;
        let helpers = helpers(bytes);
        let upload = Upload {
            engine: self,
            stream,
            operation,
            entries,
            threads: helpers + 1,
            progress: Mutex::new(Progress { cursor: Cursor::default(), done: 0, left: bytes }),
            submitted: AtomicU64::new(0),
        };
        job::run(&upload, helpers)?;
        // One position behind them all.
        let ticket = stream.record()?;
        stream.timeline.note_moving(before + upload.submitted.into_inner() + 1);
        Ok(ticket)
    }
}

impl<'a> Work<'a> for Upload<'a> {
    fn open(&self) -> Result<Option<&'a Slot>> {
        let mut progress = self.progress.lock();
        if progress.left == 0 {
            return Ok(None);
        }
        let piece = self.engine.piece(progress.done, progress.left);
        let slot = self.engine.ring.take(&self.engine.pool, true)?.expect("patience is rewarded");
        let sizes = Sizes { piece, unit: self.engine.unit(piece, self.threads), items: false };
        // SAFETY: just taken, so that this thread has it alone.
        let layout = unsafe { slot.layout_mut() };
        layout.fill(&mut progress.cursor, self.entries, sizes);
        let bytes: usize = layout.parts().iter().map(|part| part.bytes).sum();
        progress.done += bytes;
        progress.left -= bytes;
        Ok(Some(slot))
    }

    fn unit(&self, slot: &'a Slot, unit: usize) -> Result<()> {
        // SAFETY: this thread is a worker of the slot.
        for part in unsafe { slot.layout() }.unit(unit) {
            let to = slot.address(part.offset);
            // SAFETY: an entry of an upload, and the part lies in it; the part's bytes of the slot are this
            // worker's, and the device is done with the slot (`take`).
            unsafe { self.entries[part.entry].fill(part.at, to, part.bytes, Stores::Cached) };
        }
        Ok(())
    }

    fn finish(&self, slot: &'a Slot) -> Result<()> {
        // SAFETY: all units are done, so that this thread has the slot alone.
        let layout = unsafe { slot.layout() };
        let mut operands = vec![slot.host().operand(0..layout.used(), Access::Read)];
        operands.extend(
            layout
                .entries()
                .map(|(entry, range)| self.entries[entry].device.operand(range, Access::Write)),
        );
        let submitted = ordered(
            self.stream,
            self.operation,
            &operands,
            |driver, raw| {
                layout.runs().try_for_each(|run| {
                    let from = slot.address(run.slot.start);
                    // SAFETY: the stream is live. The run lies in one slot, page-locked in one piece, and in the
                    // device memory of entries that follow each other; the uses that `ordered` records keep
                    // both valid until retired, and `take` keeps the host from writing the slot.
                    unsafe { driver.copy_h2d(raw, run.device, from, run.slot.len()) }
                })
            },
            || format!("copying {} bytes from the host", layout.used()),
        );
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.engine.ring.give_back(slot);
        submitted.map(drop)
    }

    fn abandon(&self, slot: &'a Slot) {
        self.engine.ring.give_back(slot);
    }
}
