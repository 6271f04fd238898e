//! Recording what a copy of many entries uses.
//!
//! A copy of thousands of entries is enqueued in a few portions, and each entry is a buffer that
//! must know of it. To record one use takes some tens of nanoseconds; for thousands of entries that
//! is longer than the copy. So the portions' fences are collected; if none of them stands for all,
//! one behind them all is taken at the end; and the team records that one in all entries while the
//! device copies.
//!
//! # Invariants
//!
//! * The entries are borrowed from before the first portion until all is recorded, so that nobody
//!   enqueues other work on them, and no host reads or writes them, in between.
//! * All is recorded whatever happens: [`Uses`] does it when it drops. Without a fence behind them
//!   all, the portions' own are recorded.

use std::ops::Range;

use super::entry::{List, Side};
use super::order::wait_for_conflicts;
use super::share::share;
use super::survey::{Region, Survey, for_regions};
use crate::error::Result;
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
    fn access(self, side: Side) -> Access {
        match (self, side) {
            (Way::Up, Side::Device) | (Way::Down, Side::Host) => Access::Write,
            (Way::Up, Side::Host) | (Way::Down, Side::Device) => Access::Read,
        }
    }
}

/// So many regions are recorded by several threads: each takes a lock of its own.
const SEVERAL: usize = 512;

/// A copy of many entries: what it copies, and what will be recorded of it.
pub(super) struct Uses<'e, 'a> {
    pub(super) stream: &'e Stream,
    pub(super) operation: &'static str,
    pub(super) list: List<'e, 'a>,
    pub(super) survey: Survey<'e>,
    pub(super) way: Way,
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
    /// # Errors
    ///
    /// An entry belongs to another device or driver than the stream.
    pub(super) fn new(
        stream: &'e Stream,
        operation: &'static str,
        list: List<'e, 'a>,
        way: Way,
    ) -> Result<Self> {
        let survey = Survey::of(stream, operation, list)?;
        Ok(Uses { stream, operation, list, survey, way, fences: Mutex::default() })
    }

    /// Makes the stream wait, on the device, for what conflicts.
    pub(super) fn wait_for_conflicts(&self) -> Result<()> {
        let context = self.stream.timeline.context();
        let operand = |region: &Region<'e>| Operand {
            context,
            hazards: region.hazards,
            range: region.range.clone(),
            access: self.way.access(region.side),
        };
        let conflicting: Vec<_> = self.survey.used_elsewhere.iter().map(operand).collect();
        wait_for_conflicts(self.stream, self.operation, &conflicting).map(drop)
    }

    /// Checks that the stream can be used, and blocks until what conflicts is complete.
    pub(super) fn settle_conflicts(&self) -> Result<()> {
        let timeline = &self.stream.timeline;
        timeline.open(self.operation)?;
        self.survey.used_elsewhere.iter().try_for_each(|region| {
            let access = self.way.access(region.side);
            region.hazards.wait_elsewhere(&region.range, access, timeline)
        })
    }

    /// Notes that a portion has been enqueued.
    pub(super) fn add(&self, fence: Fence) {
        self.fences.lock().add(fence);
    }

    /// Records in all entries a fence behind all portions, which is taken if none of theirs is.
    /// Gives its ticket, and how many were taken.
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

    /// Records the fences in a buffer.
    fn note(&self, fences: &Fences, region: &Region<'_>) {
        let timeline = &self.stream.timeline;
        let access = self.way.access(region.side);
        for fence in fences.iter() {
            region.hazards.note(timeline, fence, &region.range, access);
        }
        if access == Access::Write && fences.only().is_some() && region.is_whole() {
            region.hazards.supersede(timeline, &region.range);
        }
    }
}

impl Drop for Uses<'_, '_> {
    fn drop(&mut self) {
        let fences = std::mem::take(self.fences.get_mut());
        if fences.count == 0 {
            return;
        }
        let done = &|()| {};
        match &self.survey.regions {
            Some(regions) => {
                let note = |(): &mut (), part: Range<usize>| {
                    regions[part].iter().for_each(|region| self.note(&fences, region));
                };
                share(regions.len(), SEVERAL, &note, done);
            }
            None => {
                let note = |(): &mut (), part: Range<usize>| {
                    for_regions(self.list, part, |region| self.note(&fences, &region));
                };
                share(self.list.len(), SEVERAL, &note, done);
            }
        }
    }
}
