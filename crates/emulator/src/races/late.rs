//! Operations that have not run yet, and whose uses are known only when they have.
//!
//! The shadow keeps what may race with operations that are still to come. Such an operation is an
//! earlier one: by the time that it runs, others may have used the same memory after it, in order,
//! and what it races with has left the shadow. So each keeps what it may race with, from its call
//! on: the uses of the memory that some of its uses will be in.
//!
//! ```text
//!   calls                             shadow of x    B#1 has met
//!   A#1 writes x                      A#1
//!   B#1 will use some of x            A#1            A#1
//!   A waits for B#1, A#2 writes x     A#2            A#1
//!   B#1 has run, and used some of x   A#2            A#1 races with it
//! ```

use std::collections::VecDeque;

use super::clock::{Agent, Epoch, Knowledge};
use super::report::RacingAccess;
use super::shadow::{Conflict, Use};
use super::{Eyes, Races};
use crate::operation::Action;
use crate::operation::uses::Touch;
use pinlane_driver::Call;

/// The most operations that are waited for. The oldest is forgotten first.
const MOST: usize = 1024;
/// The most uses that one of them keeps.
const MET: usize = 512;

/// An operation, and memory that it will use some of.
#[derive(Debug)]
struct Pending {
    knowledge: Knowledge,
    start: u64,
    end: u64,
    writes: bool,
    /// The uses that it is not ordered with.
    met: Vec<Use>,
}

#[derive(Debug, Default)]
pub(super) struct Late {
    pending: VecDeque<Pending>,
}

impl Late {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// An operation will use some of these bytes. It has met the earlier uses.
    pub(super) fn add(&mut self, knowledge: Knowledge, of: &Touch, met: Vec<Use>) {
        if self.pending.len() >= MOST {
            self.pending.pop_front();
        }
        let (start, end) = (of.start, of.start.saturating_add(of.bytes));
        let writes = of.access != RacingAccess::Read;
        self.pending.push_back(Pending { knowledge, start, end, writes, met });
    }

    /// Memory is used, by an operation or the host that has that knowledge.
    pub(super) fn meet(&mut self, new: &Use, knowledge: &Knowledge) {
        for one in &mut self.pending {
            let shares = new.start < one.end && one.start < new.start.saturating_add(new.bytes);
            if shares
                && (one.writes || new.writes())
                && one.met.len() < MET
                && !knowledge.knows(one.knowledge.at())
                && !one.knowledge.knows(new.at)
            {
                one.met.push(*new);
            }
        }
    }

    /// The operation has run: what it may race with.
    pub(super) fn take(&mut self, at: Epoch) -> Vec<Use> {
        let mut met = Vec::new();
        self.pending.retain_mut(|one| {
            let is_its = one.knowledge.at() == at;
            if is_its {
                met.append(&mut one.met);
            }
            !is_its
        });
        met
    }
}

impl Races {
    /// Notes what an operation may race with that will tell its uses when it has run.
    pub(super) fn expect_uses(&mut self, stream: Agent, action: &Action) {
        let Some((_, declared)) = action.declared() else { return };
        for touch in declared.later.iter().map(Touch::declared) {
            let knowledge = self.agents.knowledge(stream).clone();
            let eyes = Eyes { knowledge: &knowledge, agents: &self.agents };
            let met = self.memory.parallel(&touch, &eyes);
            self.late.add(knowledge, &touch, met);
        }
    }

    /// An operation has run that was to tell its uses, and has told none.
    pub(crate) fn used_nothing(&mut self, knowledge: &Knowledge) {
        self.late.take(knowledge.at());
    }

    /// What a kernel has used: known when its stand-in has run. Gives the kernel's place.
    pub(crate) fn used(
        &mut self,
        knowledge: &Knowledge,
        kernel: &'static str,
        uses: impl Iterator<Item = Touch>,
    ) -> Epoch {
        let kernel = Some(self.number_of(kernel));
        let user = Use { kernel, ..self.late_user(knowledge, Call::Busy) };
        let met = self.late.take(knowledge.at());
        for touch in uses {
            self.touch(user.at, &user, touch, Some(knowledge));
            self.race_with(user, &touch, &met);
        }
        knowledge.at()
    }

    /// Tells the operations that have not run yet of a use.
    #[cold]
    pub(super) fn meet(&mut self, mut new: Use, knowledge: Option<&Knowledge>) {
        if matches!(new.access, RacingAccess::Allocation | RacingAccess::Free) {
            new.bytes = self.memory.bytes_at(new.start).unwrap_or(new.bytes);
        }
        let knowledge = knowledge.unwrap_or_else(|| self.agents.knowledge(new.at.agent));
        self.late.meet(&new, knowledge);
    }

    /// Reports what an operation races with of the uses that it has met, by one of its own.
    fn race_with(&mut self, user: Use, touch: &Touch, met: &[Use]) {
        let &Touch { start, bytes, rows, access, .. } = touch;
        let new = Use { start, bytes, rows, access, ..user };
        for &first in met.iter().filter(|first| first.writes() || new.writes()) {
            let (from, end) = new.range_with(&first);
            if from < end
                && let Some((start, end)) = new.common(&first, from, end)
            {
                self.conflicts.push(Conflict { first, start, end });
                let origin = self.memory.origin_of(start);
                self.report(new, origin, true);
            }
        }
    }
}
