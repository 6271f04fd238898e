//! Recording what a copy of many entries uses.
//!
//! A copy of thousands of entries is enqueued in a few portions, and each entry is a buffer that must know
//! of it. To record one use takes some tens of nanoseconds; for thousands of entries that is longer than the
//! copy. So the portions' fences are collected; if none of them stands for all, one behind them all is taken at
//! the end; and the team records that one in all entries while the device copies.
//!
//! # Invariants
//!
//! * The entries are borrowed from before the first portion until all is recorded, so that nobody enqueues
//!   other work on them, and no host reads or writes them, in between.
//! * All is recorded whatever happens: [`Uses`] does it when it drops. Without a fence behind them all, the
//!   portions' own are recorded.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entry::{Entry, List, Side};
use super::order::{check_device, check_driver, wait_for_conflicts};
use super::team::{self, Task};
use crate::error::{Error, Result};
use crate::memory::Operand;
use crate::memory::hazard::{Access, Hazards};
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
    fn access(self, side: Side) -> Access {
        match (self, side) {
            (Way::Up, Side::Device) | (Way::Down, Side::Host) => Access::Write,
            (Way::Up, Side::Host) | (Way::Down, Side::Device) => Access::Read,
        }
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
    fences: Mutex<Fences>,
}

/// The fences of portions, those that a later one stands for left out.
#[derive(Default)]
struct Fences {
    count: usize,
    few: [Option<Fence>; 4],
    more: Vec<Fence>,
}

impl Fences {
    fn add(&mut self, fence: Fence) {
        self.count += 1;
        for place in &mut self.few {
            match place.map(|old| old.covering(fence)) {
                None => {
                    *place = Some(fence);
                    return;
                }
                Some(Some(covering)) => {
                    *place = Some(covering);
                    return;
                }
                Some(None) => {}
            }
        }
        self.more.push(fence);
    }

    fn iter(&self) -> impl Iterator<Item = Fence> {
        self.few.iter().flatten().chain(&self.more).copied()
    }

    /// The one that stands for all, if there is one.
    fn only(&self) -> Option<Fence> {
        let mut all = self.iter();
        let first = all.next();
        if all.next().is_none() { first } else { None }
    }
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

    /// Checks that all belong to the stream's device, and makes the stream wait, on the device, for what
    /// conflicts.
    pub(super) fn wait_for_conflicts(&self) -> Result<()> {
        let conflicting = self.used_elsewhere()?;
        wait_for_conflicts(self.stream, self.operation, &conflicting).map(drop)
    }

    /// Checks that the stream can be used, and that all belong to its device, and blocks until what conflicts is
    /// complete.
    pub(super) fn settle_conflicts(&self) -> Result<()> {
        let timeline = &self.stream.timeline;
        timeline.open(self.operation)?;
        self.used_elsewhere()?.iter().try_for_each(|operand| {
            operand.hazards.wait_elsewhere(&operand.range, operand.access, timeline)
        })
    }

    /// The buffers that other streams may use.
    fn used_elsewhere(&self) -> Result<Vec<Operand<'e>>> {
        let timeline = &self.stream.timeline;
        let ours = timeline.context();
        let mut conflicting: Mutex<Vec<Operand<'e>>> = Mutex::default();
        let strange: Mutex<Option<Error>> = Mutex::default();
        share(self.list.len(), &|part| {
            for n in part.clone() {
                if let Err(error) = self.check(self.list.get(n)) {
                    strange.lock().get_or_insert(error);
                }
            }
            self.for_buffers(part, |side, hazards, Hull { range, .. }| {
                if hazards.is_used_elsewhere(timeline) {
                    let access = self.way.access(side);
                    conflicting.lock().push(Operand { context: ours, hazards, range, access });
                }
            });
        });
        let strange = strange.lock().take();
        strange.map_or(Ok(()), Err)?;
        Ok(std::mem::take(conflicting.get_mut()))
    }

    fn check(&self, entry: &Entry<'_>) -> Result<()> {
        let ours = self.stream.timeline.context();
        let device = entry.device.context();
        if !Arc::ptr_eq(device, ours) {
            check_device(self.operation, self.stream, &[device])?;
        }
        entry.pinned.map_or(Ok(()), |pinned| check_driver(self.operation, ours, pinned.context()))
    }

    /// Notes that a portion has been enqueued.
    pub(super) fn add(&self, fence: Fence) {
        self.fences.lock().add(fence);
    }

    /// Records in all entries a fence behind all portions, which is taken if none of theirs is. Gives its ticket,
    /// and how many were taken.
    pub(super) fn record(self) -> Result<(Ticket, u64)> {
        let timeline = &self.stream.timeline;
        let (only, count) = {
            let fences = self.fences.lock();
            (fences.only(), fences.count)
        };
        let (last, taken) = match only {
            Some(only) => (only, 0),
            None if count == 0 => return Ok((Ticket::done(), 0)),
            None => {
                let submission = timeline.submit(self.operation, |_, _| Ok(()))?;
                let mut all = Fences::default();
                all.add(submission.fence);
                *self.fences.lock() = all;
                submission.fenced?;
                (submission.fence, 1)
            }
        };
        Ok((Ticket::new(timeline.clone(), last.position), taken))
    }

    /// Calls `with` for the buffers of these entries. Views of one buffer that come one after the other are one
    /// range: the buffer's list would merge them all the same, at a price for each. What lies between them may
    /// be somebody else's, and be in use again at any time.
    fn for_buffers(&self, part: Range<usize>, mut with: impl FnMut(Side, &'e Hazards, Hull)) {
        let mut current: [Option<(&'e Hazards, Hull)>; 2] = [None, None];
        for n in part {
            self.list.get(n).for_buffers(|side, hazards, range| {
                match &mut current[side as usize] {
                    Some((same, hull)) if std::ptr::eq(*same, hazards) => hull.add(range),
                    place => {
                        let next = Hull { bytes: range.len(), range };
                        if let Some((before, hull)) = place.replace((hazards, next)) {
                            with(side, before, hull);
                        }
                    }
                }
            });
        }
        for (last, side) in current.into_iter().zip([Side::Host, Side::Device]) {
            if let Some((hazards, hull)) = last {
                with(side, hazards, hull);
            }
        }
    }
}

/// Ranges of one buffer, as one.
struct Hull {
    range: Range<usize>,
    /// How many bytes they have themselves.
    bytes: usize,
}

impl Hull {
    fn add(&mut self, range: Range<usize>) {
        self.bytes += range.len();
        self.range = self.range.start.min(range.start)..self.range.end.max(range.end);
    }

    /// Whether nothing lies between the ranges, which are disjoint where they are written.
    fn is_whole(&self) -> bool {
        self.bytes == self.range.len()
    }
}

/// Calls `work` with ranges that make up all numbers below `count`, on several threads if they are many.
pub(super) fn share(count: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    if count < SHARE_FROM {
        return work(0..count);
    }
    let next = AtomicUsize::new(0);
    let part = || {
        loop {
            let start = next.fetch_add(CHUNK, Ordering::Relaxed);
            if start >= count {
                return;
            }
            work(start..(start + CHUNK).min(count));
        }
    };
    let helpers = (count / CHUNK).min(team::helpers(Task::Copying));
    team::run(helpers, &part, &mut || part());
}

impl Drop for Uses<'_, '_> {
    fn drop(&mut self) {
        let fences = std::mem::take(self.fences.get_mut());
        let timeline = &self.stream.timeline;
        share(self.list.len(), &|part| {
            self.for_buffers(part, |side, hazards, hull| {
                let access = self.way.access(side);
                for fence in fences.iter() {
                    hazards.note(timeline, fence, &hull.range, access);
                }
                if access == Access::Write && fences.only().is_some() && hull.is_whole() {
                    hazards.supersede(timeline, &hull.range);
                }
            });
        });
    }
}
