//! Deals out a long list to the copy team, in ranges of numbers.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::team::{self, Helpers, Workload};
use crate::driver::Ordinal;
use crate::sync::CachePadded;

/// The most parts that threads begin with.
const PARTS: usize = 16;

/// How many numbers one thread takes at a time.
pub(crate) const DEAL: usize = 256;

/// Calls `work` with ranges that cover all numbers below `count`, each but the last `DEAL` long.
/// From `several` numbers on, it uses several threads, those of the device's group first. Every
/// thread has its own state, which is passed to `done` at the end.
pub(crate) fn share<S: Default>(
    device: Ordinal,
    count: usize,
    several: usize,
    work: &(dyn Fn(&mut S, Range<usize>) + Sync),
    done: &(dyn Fn(S) + Sync),
) {
    let helpers = match count {
        _ if count < several => Helpers::none(),
        _ => Helpers::of(device, Workload::Copying).at_most(count / DEAL),
    };
    // Each thread begins with a part that is the same in every pass over a list, so that what it
    // wrote is still in its own cache, and then helps with the others.
    let parts = (helpers.count + 1).min(PARTS);
    let each = count.div_ceil(parts).next_multiple_of(DEAL);
    let next: [_; PARTS] = std::array::from_fn(|part| CachePadded(AtomicUsize::new(part * each)));
    let take_part = || {
        let mut state = S::default();
        let first = team::number();
        for part in (first..first + parts).map(|part| part % parts) {
            let end = ((part + 1) * each).min(count);
            // At the end all threads look at all parts: a load leaves the others their lines.
            while next[part].load(Ordering::Relaxed) < end {
                let start = next[part].fetch_add(DEAL, Ordering::Relaxed);
                if start >= end {
                    break;
                }
                work(&mut state, start..(start + DEAL).min(end));
            }
        }
        done(state);
    };
    team::run(helpers, &take_part, &mut || take_part());
}

/// Gives each place the value of its number, by several threads as in [`share`].
pub(crate) fn write<T: Copy + Send>(
    device: Ordinal,
    several: usize,
    places: &mut [MaybeUninit<T>],
    value: &(impl Fn(usize) -> T + Sync),
) {
    struct Places<T>(*mut MaybeUninit<T>);
    // SAFETY: several threads use it, each for its own places, and values pass between threads.
    unsafe impl<T: Send> Sync for Places<T> {}
    impl<T> Places<T> {
        fn at(&self, n: usize) -> *mut MaybeUninit<T> {
            self.0.wrapping_add(n)
        }
    }
    let count = places.len();
    let places = Places(places.as_mut_ptr());
    let write = |(): &mut (), part: Range<usize>| {
        for n in part {
            // SAFETY: `n` is below the length, and each is written by one thread.
            unsafe { places.at(n).write(MaybeUninit::new(value(n))) };
        }
    };
    share(device, count, several, &write, &|()| {});
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_in_whole_deals() {
        for count in [0, 1, DEAL - 1, DEAL, DEAL + 1, 3 * DEAL, 5000, 20_000] {
            for several in [0, usize::MAX] {
                let seen: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                let deals = AtomicUsize::new(0);
                let work = |own: &mut usize, part: Range<usize>| {
                    *own += 1;
                    assert!(part.start.is_multiple_of(DEAL), "{part:?}");
                    assert!(part.len() == DEAL || part.end == count, "{part:?} of {count}");
                    for n in part {
                        seen[n].fetch_add(1, Ordering::Relaxed);
                    }
                };
                let done = |own: usize| {
                    deals.fetch_add(own, Ordering::Relaxed);
                };
                share(0, count, several, &work, &done);
                assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1), "{count}");
                assert_eq!(deals.into_inner(), count.div_ceil(DEAL));
            }
        }
    }

    #[test]
    fn every_place_gets_the_value_of_its_number() {
        for count in [0, 1, DEAL + 1, 5000] {
            for several in [0, usize::MAX] {
                let mut all = Vec::with_capacity(count);
                write(0, several, &mut all.spare_capacity_mut()[..count], &|n| 3 * n + 1);
                // SAFETY: so many have been written.
                unsafe { all.set_len(count) };
                assert!(all.iter().enumerate().all(|(n, &value)| value == 3 * n + 1), "{count}");
            }
        }
    }
}
