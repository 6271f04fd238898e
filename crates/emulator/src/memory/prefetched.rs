//! Where programs last wanted managed memory, as ranges that do not overlap.

use std::collections::BTreeMap;
use std::ops::Range;

use pinlane_driver::Ordinal;

/// By the first address of each range: its end, and the device that it went to.
#[derive(Debug, Default)]
pub(crate) struct Prefetched(BTreeMap<usize, (usize, Ordinal)>);

impl Prefetched {
    /// The range went to a device.
    pub(crate) fn note(&mut self, range: Range<usize>, device: Ordinal) {
        self.forget(range.clone());
        if !range.is_empty() {
            self.0.insert(range.start, (range.end, device));
        }
    }

    /// The range counts as never prefetched.
    pub(crate) fn forget(&mut self, range: Range<usize>) {
        // One range may begin before it.
        self.split(range.start);
        self.split(range.end);
        while let Some((&start, _)) = self.0.range(range.clone()).next() {
            self.0.remove(&start);
        }
    }

    /// Makes a range begin at `at`, if `at` is inside of one.
    fn split(&mut self, at: usize) {
        if let Some((_, (end, device))) = self.0.range_mut(..at).next_back()
            && *end > at
        {
            let rest = (std::mem::replace(end, at), *device);
            self.0.insert(at, rest);
        }
    }

    /// The device that all of the range went to last.
    pub(crate) fn device_of(&self, range: Range<usize>) -> Option<Ordinal> {
        let (&first, &(_, device)) = self.0.range(..=range.start).next_back()?;
        let mut reached = first;
        for (&start, &(end, other)) in self.0.range(first..range.end) {
            if start != reached || other != device {
                return None;
            }
            reached = end;
        }
        (reached >= range.end).then_some(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a list that has a device for each byte.
    #[test]
    fn the_last_prefetch_of_each_byte_counts() {
        let (mut known, mut bytes) = (Prefetched::default(), [None; 64]);
        let mut state = 7u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % limit
        };
        for _ in 0..20_000 {
            let start = below(64);
            let range = start..start + below(65 - start);
            let device = below(3) as Ordinal;
            match below(4) {
                0 => {
                    known.forget(range.clone());
                    bytes[range].fill(None);
                }
                1 => {
                    known.note(range.clone(), device);
                    bytes[range].fill(Some(device));
                }
                _ if range.is_empty() => {}
                _ => {
                    let first = bytes[start];
                    let same = bytes[range.clone()].iter().all(|&one| one == first);
                    assert_eq!(known.device_of(range), first.filter(|_| same));
                }
            }
            assert!(known.0.len() <= 64);
        }
    }
}
