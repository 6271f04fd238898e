//! Who knows of what: vector clocks, kept as small as they can be.
//!
//! An *agent* is a stream or a host thread, or what a stream's copies do ahead of its order.
//! Whatever it does has an [`Epoch`]: the agent and a position that only grows. What an agent knows
//! of others is a [`Clock`]: for each agent the last position that happened before. An agent's
//! [`Knowledge`] is its own epoch and its clock.
//!
//! # Invariant
//!
//! An agent that knows of an epoch knows all that happened before that epoch. It takes on knowledge
//! first, and moves to its next position then. So "does it know?" is one comparison, and clocks are
//! only joined when it does not.

use std::sync::Arc;

/// A stream or a host thread, as an index into clocks.
pub(crate) type Agent = u32;

/// Something that an agent did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Epoch {
    pub(crate) agent: Agent,
    pub(super) position: u64,
}

/// Which call it is, where it was made, and what for; the last two as numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Called {
    pub(super) number: u64,
    pub(crate) site: u32,
    pub(crate) label: u32,
}

/// For each agent, up to which position it is known. Shared until it changes.
#[derive(Debug, Default)]
struct Clock(Arc<Vec<u64>>);

impl Clone for Clock {
    fn clone(&self) -> Self {
        Clock(Arc::clone(&self.0))
    }

    /// Counts no sharers if it is the same one already.
    #[inline]
    fn clone_from(&mut self, other: &Self) {
        if !Arc::ptr_eq(&self.0, &other.0) {
            *self = other.clone();
        }
    }
}

impl Clock {
    #[inline]
    fn get(&self, agent: Agent) -> u64 {
        self.0.get(agent as usize).copied().unwrap_or(0)
    }

    fn raise(&mut self, to: Epoch) {
        let at = to.agent as usize;
        if self.get(to.agent) < to.position {
            let positions = Arc::make_mut(&mut self.0);
            if positions.len() <= at {
                positions.resize(at + 1, 0);
            }
            positions[at] = to.position;
        }
    }

    fn join(&mut self, other: &Clock) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let (behind, ahead) = compared(&self.0, &other.0);
        if !behind {
            return;
        }
        if !ahead {
            self.0 = Arc::clone(&other.0);
            return;
        }
        let positions = Arc::make_mut(&mut self.0);
        positions.resize(positions.len().max(other.0.len()), 0);
        for (mine, &theirs) in positions.iter_mut().zip(other.0.iter()) {
            *mine = theirs.max(*mine);
        }
    }
}

/// Whether the first of two lists has a smaller position somewhere, and whether it has a larger
/// one. What one of them lacks is 0.
fn compared(a: &[u64], b: &[u64]) -> (bool, bool) {
    let is_some = |rest: Option<&[u64]>| rest.is_some_and(|rest| rest.iter().any(|&at| at > 0));
    // Of a negative difference the highest bit is set: no position is so large. All differences are
    // looked at, in a loop without branches, because such a loop is run as vectors: with many
    // streams, most of the time goes here.
    let (less, more) = a.iter().zip(b).fold((0, 0), |(less, more), (a, b)| {
        (less | a.wrapping_sub(*b), more | b.wrapping_sub(*a))
    });
    let is_set = |bits: u64| bits >> 63 == 1;
    (is_set(less) || is_some(b.get(a.len()..)), is_set(more) || is_some(a.get(b.len()..)))
}

/// What happened before some moment of an agent, and that moment.
#[derive(Debug)]
pub(crate) struct Knowledge {
    at: Epoch,
    past: Clock,
}

impl Clone for Knowledge {
    fn clone(&self) -> Self {
        Knowledge { at: self.at, past: self.past.clone() }
    }

    #[inline]
    fn clone_from(&mut self, other: &Self) {
        self.at = other.at;
        self.past.clone_from(&other.past);
    }
}

impl Knowledge {
    pub(super) fn new(at: Epoch) -> Self {
        Knowledge { at, past: Clock::default() }
    }

    #[inline]
    pub(crate) fn at(&self) -> Epoch {
        self.at
    }

    /// The same past, of an earlier moment that had no other.
    pub(super) fn as_of(&self, at: Epoch) -> Self {
        Knowledge { at, past: self.past.clone() }
    }

    /// Whether it happened before this moment, or is it.
    #[inline]
    pub(crate) fn knows(&self, epoch: Epoch) -> bool {
        if epoch.agent == self.at.agent {
            epoch.position <= self.at.position
        } else {
            epoch.position <= self.past.get(epoch.agent)
        }
    }

    /// Takes on what another knows. The position stands until [`step`](Self::step).
    pub(super) fn learn(&mut self, other: &Knowledge) {
        if !self.knows(other.at) {
            self.past.join(&other.past);
            self.past.raise(other.at);
        }
    }

    /// The agent does one thing more.
    #[inline]
    pub(super) fn step(&mut self) {
        self.at.position += 1;
    }

    /// The same, to a position that it has not come to yet.
    pub(super) fn step_to(&mut self, position: u64) {
        debug_assert!(position > self.at.position);
        self.at.position = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agents<const N: usize>() -> [Knowledge; N] {
        std::array::from_fn(|agent| Knowledge::new(Epoch { agent: agent as Agent, position: 0 }))
    }

    #[test]
    fn knowledge_is_passed_on_and_is_a_copy() {
        let [mut a, mut b, mut c] = agents();
        a.step();
        b.learn(&a);
        b.step();
        let told = b.clone();
        a.step();
        b.learn(&a);
        b.step();
        c.learn(&told);
        c.step();
        let at = |agent, position| Epoch { agent, position };
        assert!(c.knows(at(0, 1)) && c.knows(at(1, 1)) && c.knows(at(2, 1)));
        assert!(!c.knows(at(0, 2)) && !c.knows(at(1, 2)) && !c.knows(at(2, 2)));
        assert!(b.knows(at(0, 2)) && !a.knows(at(1, 1)));
    }

    #[test]
    fn two_pasts_are_joined_agent_by_agent() {
        let [mut a, mut b, mut c, mut d] = agents();
        a.step();
        b.step();
        c.learn(&a);
        c.step();
        d.learn(&b);
        d.step();
        c.learn(&d);
        let known = |k: &Knowledge| [0, 1, 2, 3].map(|agent| k.knows(Epoch { agent, position: 1 }));
        assert_eq!(known(&c), [true; 4]);
        assert_eq!(known(&d), [false, true, false, true], "d's own past was shared, not changed");
    }

    #[test]
    fn lists_of_any_lengths_are_compared_as_if_both_were_filled_up_with_zeros() {
        let lists: Vec<Vec<u64>> = (0..4)
            .flat_map(|length| {
                (0..3u64.pow(length))
                    .map(move |n| (0..length).map(|at| n / 3u64.pow(at) % 3).collect())
            })
            .collect();
        for (a, b) in lists.iter().flat_map(|a| lists.iter().map(move |b| (a, b))) {
            let at = |list: &Vec<u64>, agent| list.get(agent).copied().unwrap_or(0);
            let less = (0..3).any(|agent| at(a, agent) < at(b, agent));
            let more = (0..3).any(|agent| at(a, agent) > at(b, agent));
            assert_eq!(compared(a, b), (less, more), "{a:?} {b:?}");
        }
    }
}
