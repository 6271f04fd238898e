//! Seats that one thread offers, and others take without a lock.
//!
//! # Invariants
//!
//! * One thread at a time makes and withdraws offers, and makes one only where no seats are left.
//! * Whoever takes a seat gets what the offer is of, and nothing that was offered before or after
//!   it: each offer has a number of its own, which stands beside the seats in one word.
//! * Of the seats that an offer had, those that were not left when it was withdrawn were taken. So
//!   its maker knows how many threads may have what it is of.

use super::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The seats stand in the lowest bits, the offer's number above them.
const SEATS: u64 = (1 << 16) - 1;

/// At most one offer at a time.
pub(crate) struct Offer<T> {
    word: AtomicU64,
    of: AtomicPtr<T>,
}

/// A seat.
pub(crate) struct Taken<T> {
    pub(crate) of: *const T,
    /// No other seats are left.
    pub(crate) is_last: bool,
}

impl<T> Default for Offer<T> {
    fn default() -> Self {
        Offer { word: AtomicU64::new(0), of: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

impl<T> Offer<T> {
    /// How many seats are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        (self.word.load(Ordering::Acquire) & SEATS) as usize
    }

    /// Takes a seat, if any is left.
    pub(crate) fn take(&self) -> Option<Taken<T>> {
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & SEATS == 0 {
                return None;
            }
            // If it is of a later offer, the word has changed, and the exchange fails.
            let of = self.of.load(Ordering::Acquire);
            let (set, fail) = (Ordering::AcqRel, Ordering::Relaxed);
            if self.word.compare_exchange(word, word - 1, set, fail).is_ok() {
                return Some(Taken { of, is_last: word & SEATS == 1 });
            }
        }
    }

    /// Offers `seats` seats; none are left of an earlier offer.
    pub(crate) fn make(&self, of: *const T, seats: usize) {
        debug_assert!(self.left() == 0 && seats as u64 <= SEATS);
        let number = self.word.load(Ordering::Relaxed) | SEATS;
        self.of.store(of.cast_mut(), Ordering::Release);
        self.word.store(number + 1 + seats as u64, Ordering::Release);
    }

    /// Ends the offer, and returns how many seats nobody has taken.
    pub(crate) fn withdraw(&self) -> usize {
        (self.word.fetch_and(!SEATS, Ordering::AcqRel) & SEATS) as usize
    }
}
