//! What lies at addresses: a map from where things begin, which finds the one that an address lies
//! in.
//!
//! Programs name the same addresses again and again. So the map remembers what it has found for
//! some, and forgets all of it whenever something comes or goes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Index;

/// How many addresses are remembered.
const RECENT: usize = 16;

/// An address that nothing begins at or below.
const NONE: (u64, usize) = (0, usize::MAX);

/// Things by the addresses that they begin at.
#[derive(Debug)]
pub(crate) struct Spans<T> {
    /// The number of each thing, by where it begins.
    starts: BTreeMap<u64, usize>,
    /// Each thing, and where it begins.
    things: Vec<Option<(u64, T)>>,
    vacant: Vec<usize>,
    /// Addresses, each with the number of the last thing that begins there or below.
    recent: [Cell<(u64, usize)>; RECENT],
}

impl<T> Default for Spans<T> {
    fn default() -> Self {
        let recent = [const { Cell::new(NONE) }; RECENT];
        Spans { starts: BTreeMap::new(), things: Vec::new(), vacant: Vec::new(), recent }
    }
}

impl<T> Spans<T> {
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    fn forget_recent(&mut self) {
        self.recent = [const { Cell::new(NONE) }; RECENT];
    }

    /// Gives what began there so far.
    pub(crate) fn insert(&mut self, start: u64, thing: T) -> Option<T> {
        let former = self.remove(start);
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.things.push(None);
            self.things.len() - 1
        });
        self.things[number] = Some((start, thing));
        self.starts.insert(start, number);
        former
    }

    pub(crate) fn remove(&mut self, start: u64) -> Option<T> {
        self.forget_recent();
        let number = self.starts.remove(&start)?;
        self.vacant.push(number);
        self.things[number].take().map(|(_, thing)| thing)
    }

    pub(crate) fn get(&self, start: u64) -> Option<&T> {
        self.below(start).filter(|(at, _)| *at == start).map(|(_, thing)| thing)
    }

    pub(crate) fn get_mut(&mut self, start: u64) -> Option<&mut T> {
        self.below_mut(start).filter(|(at, _)| *at == start).map(|(_, thing)| thing)
    }

    /// The last thing that begins at an address or below, and where.
    #[inline]
    pub(crate) fn below(&self, address: u64) -> Option<(u64, &T)> {
        let (start, thing) = self.things[self.number_below(address)?].as_ref()?;
        Some((*start, thing))
    }

    #[inline]
    pub(crate) fn below_mut(&mut self, address: u64) -> Option<(u64, &mut T)> {
        let number = self.number_below(address)?;
        let (start, thing) = self.things[number].as_mut()?;
        Some((*start, thing))
    }

    /// The number of the last thing that begins at an address or below. It is that thing's until
    /// the thing is removed.
    #[inline]
    pub(crate) fn number_below(&self, address: u64) -> Option<usize> {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let recent = &self.recent[(address.wrapping_mul(SPREAD) >> 32) as usize % RECENT];
        let (known, number) = recent.get();
        if known == address && number != NONE.1 {
            return Some(number);
        }
        let (_, &number) = self.starts.range(..=address).next_back()?;
        recent.set((address, number));
        Some(number)
    }

    /// What begins below an address, in order.
    pub(crate) fn range_to(&self, end: u64) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        self.starts.range(..end).map(|(&start, &number)| (start, self.numbered(number)))
    }

    /// All, in the order of their addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.starts.iter().map(|(&start, &number)| (start, self.numbered(number)))
    }

    /// The thing that has a number, and where it begins.
    #[inline]
    pub(crate) fn entry(&self, number: usize) -> (u64, &T) {
        let (start, thing) = self.things[number].as_ref().expect("only things have numbers");
        (*start, thing)
    }

    #[inline]
    pub(crate) fn numbered(&self, number: usize) -> &T {
        self.entry(number).1
    }

    #[inline]
    pub(crate) fn numbered_mut(&mut self, number: usize) -> &mut T {
        &mut self.things[number].as_mut().expect("only things have numbers").1
    }
}

impl<T> Index<u64> for Spans<T> {
    type Output = T;

    fn index(&self, start: u64) -> &T {
        self.get(start).expect("something begins there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_what_a_plain_map_finds(
            steps in prop::collection::vec((0..4u8, 0..40u64), 1..200),
        ) {
            let (mut spans, mut plain) = (Spans::default(), BTreeMap::new());
            for (number, (step, address)) in steps.into_iter().enumerate() {
                match step {
                    0 => prop_assert_eq!(
                        spans.insert(address, number),
                        plain.insert(address, number)
                    ),
                    1 => prop_assert_eq!(spans.remove(address), plain.remove(&address)),
                    _ => {
                        let below = plain.range(..=address).next_back();
                        let below = below.map(|(&start, &number)| (start, number));
                        let found = spans.below(address).map(|(start, &number)| (start, number));
                        prop_assert_eq!(found, below);
                        let found = spans.below_mut(address).map(|(start, &mut n)| (start, n));
                        prop_assert_eq!(found, below);
                        prop_assert_eq!(spans.get(address), plain.get(&address));
                    }
                }
                prop_assert_eq!(spans.len(), plain.len());
                let all = plain.iter().map(|(&start, number)| (start, number));
                prop_assert!(spans.iter().eq(all));
                let to = plain.range(..address).rev().map(|(&start, number)| (start, number));
                prop_assert!(spans.range_to(address).rev().eq(to));
            }
        }
    }
}
