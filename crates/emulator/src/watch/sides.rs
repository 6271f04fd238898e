//! The host's sides of copies that have run, until the program can know that
//! ([`hashed`](super::hashed)). What is kept is bounded: the oldest goes first, and is looked at no
//! more.

use std::collections::VecDeque;

use crate::races::Side;
use pinlane_driver::Ordinal;

/// The most sides that are kept.
const MOST: usize = 1024;
/// The most bytes that they have together: what a wait may have to hash.
const MOST_BYTES: usize = 1 << 30;

/// The host's side of a copy that has run.
#[derive(Debug)]
pub(super) struct Hashed {
    pub(super) side: Side,
    pub(super) hash: u64,
    pub(super) device: Ordinal,
}

/// The sides whose copies are not known to be done.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    list: VecDeque<Hashed>,
    bytes: usize,
}

impl Sides {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn push(&mut self, hashed: Hashed) {
        let bytes = hashed.side.bytes;
        if bytes > MOST_BYTES {
            return;
        }
        while self.list.len() == MOST || self.bytes + bytes > MOST_BYTES {
            let Some(oldest) = self.list.pop_front() else { break };
            self.bytes -= oldest.side.bytes;
        }
        self.bytes += bytes;
        self.list.push_back(hashed);
    }

    /// Takes out those that `is_over` names.
    pub(super) fn take(&mut self, is_over: impl Fn(&Side) -> bool) -> Vec<Hashed> {
        let list = std::mem::take(&mut self.list);
        let (over, rest): (Vec<_>, Vec<_>) =
            list.into_iter().partition(|hashed| is_over(&hashed.side));
        self.list = rest.into();
        self.bytes -= over.iter().map(|hashed| hashed.side.bytes).sum::<usize>();
        over
    }

    /// The device is reset.
    pub(crate) fn forget_device(&mut self, device: Ordinal) {
        self.list.retain(|hashed| hashed.device != device);
        self.bytes = self.list.iter().map(|hashed| hashed.side.bytes).sum();
    }

    /// Host memory is unregistered or freed: that call reports what is pending there.
    pub(crate) fn forget(&mut self, start: usize, bytes: usize) {
        if !self.list.is_empty() {
            self.take(|side| side.overlaps(start, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::races::{Called, Kind, Races, RacingAccess};
    use pinlane_driver::Call;

    fn hashed(start: usize, bytes: usize) -> Hashed {
        let mut races = Races::new();
        let stream = races.stream_created(0, Kind::Legacy);
        let by = races.latest(stream);
        let (call, access, called) = (Call::CopyH2D, RacingAccess::Read, Called::default());
        Hashed { side: Side { by, call, access, start, bytes, called }, hash: 0, device: 0 }
    }

    #[test]
    fn what_is_kept_is_bounded_in_number_and_bytes() {
        let mut sides = Sides::default();
        (0..3 * MOST).for_each(|at| sides.push(hashed(at, 1)));
        assert_eq!((sides.list.len(), sides.bytes), (MOST, MOST));
        assert_eq!(sides.list[0].side.start, 2 * MOST, "the oldest went first");
        sides.push(hashed(0, MOST_BYTES));
        assert_eq!((sides.list.len(), sides.bytes), (1, MOST_BYTES));
        sides.push(hashed(0, MOST_BYTES + 1));
        assert_eq!(sides.list.len(), 1, "too long to be looked at");
        sides.forget(MOST_BYTES - 1, 1);
        assert_eq!((sides.list.len(), sides.bytes), (0, 0));
    }
}
