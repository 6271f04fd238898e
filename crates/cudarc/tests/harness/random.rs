//! Random numbers for programs.

use std::ops::Range;

/// A generator of random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// `len` values.
    pub fn values(&mut self, len: usize) -> Vec<u32> {
        let first = self.next() as u32;
        (0..len as u32).map(|at| first.wrapping_add(at)).collect()
    }

    /// A part of a buffer of `len` elements, often all of it.
    pub fn part(&mut self, len: usize) -> Range<usize> {
        if self.below(3) == 0 {
            return 0..len;
        }
        let (one, other) = (self.below(len), self.below(len));
        one.min(other)..one.max(other) + 1
    }
}
