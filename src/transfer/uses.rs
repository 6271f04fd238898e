//! Recording what a copy of many entries uses.
//!
//! A copy of thousands of entries is enqueued in a few portions, and each entry is a buffer that must know
//! of it. To record one use takes some tens of nanoseconds; for thousands of entries that is longer than the
//! copy. So the portions' fences are collected, one fence behind them all is taken at the end, and the team
//! records that one in all entries while the device copies.
//!
//! # Invariants
//!
//! * The entries are borrowed from before the first portion until all is recorded, so that nobody enqueues
//!   other work on them, and no host reads or writes them, in between.
//! * All is recorded whatever happens: [`Uses`] does it when it drops. Without a fence behind them all, the
//!   portions' own are recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entry::List;
use super::order::{check_device, wait_for_conflicts};
use super::team;
use crate::error::{Error, Result};
use crate::memory::Operand;
use crate::memory::hazard::Access;
use crate::stream::Stream;
use crate::sync::Mutex;
use crate::ticket::Ticket;
use crate::timeline::Fence;

/// What is done to the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    fn on_device(self) -> Access {
        if self == Way::Up { Access::Write } else { Access::Read }
    }

    fn on_host(self) -> Access {
        if self == Way::Up { Access::Read } else { Access::Write }
    }
}

/// So many entries are worth asking the team.
const SHARE_FROM: usize = 512;
/// How many of them one thread takes at a time.
const CHUNK: usize = 128;

pub(super) struct Uses<'e, 'a> {
    stream: &'e Stream,
    operation: &'static str,
    list: List<'e, 'a>,
    way: Way,
    fences: Mutex<Vec<Fence>>,
}

impl<'e, 'a> Uses<'e, 'a> {
    pub(super) fn new(
        stream: &'e Stream,
        operation: &'static str,
        list: List<'e, 'a>,
        way: Way,
    ) -> Self {
        Uses { stream, operation, list, way, fences: Mutex::default() }
    }

    /// The operands of an entry.
    fn of(&self, n: usize) -> impl Iterator<Item = Operand<'a>> + use<'a> {
        let entry = self.list.get(n);
        let device = entry.on_device(self.way.on_device());
        [Some(device), entry.on_host(self.way.on_host())].into_iter().flatten()
    }

    /// Checks that all belong to the stream's device, and makes the stream wait, on the device, for what
    /// conflicts. Whether there was anything to wait for.
    pub(super) fn wait_for_conflicts(&self) -> Result<bool> {
        let timeline = &self.stream.timeline;
        let conflicting: Mutex<Vec<Operand<'a>>> = Mutex::default();
        let strange: Mutex<Option<Error>> = Mutex::default();
        self.for_all(&|n| {
            let device = self.list.get(n).device.context();
            if !Arc::ptr_eq(device, timeline.context())
                && let Err(error) = check_device(self.operation, self.stream, &[device])
            {
                strange.lock().get_or_insert(error);
            }
            for operand in self.of(n) {
                if operand.hazards.is_used_elsewhere(timeline) {
                    conflicting.lock().push(operand);
                }
            }
        });
        let strange = strange.lock().take();
        strange.map_or(Ok(()), Err)?;
        let conflicting = std::mem::take(&mut *conflicting.lock());
        wait_for_conflicts(self.stream, self.operation, &conflicting)?;
        Ok(!conflicting.is_empty())
    }

    /// Notes that a portion has been enqueued.
    pub(super) fn add(&self, fence: Fence) {
        self.fences.lock().push(fence);
    }

    /// Takes a fence behind all portions, and records it in all entries.
    pub(super) fn record(self) -> Result<Ticket> {
        let timeline = &self.stream.timeline;
        let (last, count) = {
            let fences = self.fences.lock();
            (fences.last().copied(), fences.len())
        };
        let Some(mut last) = last else { return Ok(Ticket::done()) };
        if count > 1 {
            let submission = timeline.submit(self.operation, |_, _| Ok(()))?;
            *self.fences.lock() = vec![submission.fence];
            submission.fenced?;
            last = submission.fence;
        }
        Ok(Ticket::new(timeline.clone(), last.position))
    }

    fn for_all(&self, work: &(dyn Fn(usize) + Sync)) {
        let count = self.list.len();
        if count < SHARE_FROM {
            return (0..count).for_each(work);
        }
        let next = AtomicUsize::new(0);
        let share = || {
            loop {
                let start = next.fetch_add(CHUNK, Ordering::Relaxed);
                if start >= count {
                    return;
                }
                (start..(start + CHUNK).min(count)).for_each(work);
            }
        };
        team::run(count / CHUNK, &share, &mut || share());
    }
}

impl Drop for Uses<'_, '_> {
    fn drop(&mut self) {
        let fences = std::mem::take(self.fences.get_mut());
        let timeline = &self.stream.timeline;
        self.for_all(&|n| {
            for operand in self.of(n) {
                for &fence in &fences {
                    operand.hazards.note(timeline, fence, &operand.range, operand.access);
                }
                if operand.access == Access::Write && fences.len() == 1 {
                    operand.hazards.supersede(timeline, &operand.range);
                }
            }
        });
    }
}
