//! Limits the slots of streams that other code can hold up.
//!
//! A slot has a *holder*: how exposed the stream is that took it last. The holder changes when
//! another stream takes the slot, so a copy in flight counts too. Streams of an exposure, together
//! with the more exposed ones, may hold a part of the ring:
//!
//! ```text
//!   slots      0   1   2   3   4   5   6   7
//!   sealed    |<------------ all ------------->|
//!   shared    |<------- six ------->|
//!   bound     |<------ five ----->|
//! ```
//!
//! A stream waits only for slots whose holder is no more exposed than itself. There always is one,
//! because the more exposed streams together may not hold all slots. A ring of two slots has no
//! room for three parts: there shared streams count as bound.

use crate::timeline::Exposure::{self, Bound, Sealed, Shared};

pub(super) const EXPOSURES: [Exposure; 3] = [Sealed, Shared, Bound];

/// The exposure that a stream counts as, in a ring of `slots` slots.
pub(super) fn class(slots: usize, exposure: Exposure) -> Exposure {
    if slots == 2 && exposure == Shared { Bound } else { exposure }
}

pub(super) struct Shares {
    /// By exposure: how many slots streams of that exposure and the more exposed ones may hold.
    most: [usize; 3],
    /// By exposure: how many slots streams of that exposure hold.
    held: [usize; 3],
    holders: Box<[Exposure]>,
}

impl Shares {
    /// For `slots` slots, at least two.
    pub(super) fn new(slots: usize) -> Self {
        let shared = slots - (slots / 4).max(1);
        let most = [slots, shared, (shared - 1).max(1)];
        Shares { most, held: [slots, 0, 0], holders: vec![Sealed; slots].into() }
    }

    pub(super) fn len(&self) -> usize {
        self.holders.len()
    }

    pub(super) fn holder(&self, slot: usize) -> Exposure {
        self.holders[slot]
    }

    /// How many slots the more exposed streams hold.
    pub(super) fn held_above(&self, exposure: Exposure) -> usize {
        self.held[exposure as usize + 1..].iter().sum()
    }

    /// Whether a stream of exposure `to` may take the slot.
    pub(super) fn may_pass(&self, slot: usize, to: Exposure) -> bool {
        let raised =
            EXPOSURES.into_iter().filter(|&class| self.holders[slot] < class && class <= to);
        raised.into_iter().all(|class| {
            let holding: usize = self.held[class as usize..].iter().sum();
            holding < self.most[class as usize]
        })
    }

    pub(super) fn pass(&mut self, slot: usize, to: Exposure) {
        self.held[self.holders[slot] as usize] -= 1;
        self.held[to as usize] += 1;
        self.holders[slot] = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the slots are held, every stream finds a slot that it may wait for, and take when it
    /// is free.
    #[test]
    fn everybody_has_a_slot_to_wait_for() {
        for slots in [2, 3, 4, 8] {
            for taken in 0..3usize.pow(slots as u32) {
                let mut shares = Shares::new(slots);
                let wanted = |slot: u32| EXPOSURES[taken / 3usize.pow(slot) % 3];
                for slot in 0..slots {
                    let to = class(slots, wanted(slot as u32));
                    if shares.may_pass(slot, to) {
                        shares.pass(slot, to);
                    }
                }
                for exposure in EXPOSURES {
                    let class = class(slots, exposure);
                    let fits = |&slot: &usize| {
                        shares.holder(slot) <= class && shares.may_pass(slot, class)
                    };
                    assert!((0..slots).any(|slot| fits(&slot)), "{slots}, {taken}, {exposure:?}");
                }
            }
        }
    }
}
