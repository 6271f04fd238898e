//! Deals out a long list to the copy team, in ranges of numbers.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::team::{self, Helpers, Workload};
use crate::driver::Ordinal;

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
    let next = AtomicUsize::new(0);
    let take_part = || {
        let mut state = S::default();
        loop {
            let start = next.fetch_add(DEAL, Ordering::Relaxed);
            if start >= count {
                return done(state);
            }
            work(&mut state, start..(start + DEAL).min(count));
        }
    };
    let helpers = match count {
        _ if count < several => Helpers::none(),
        _ => Helpers::of(device, Workload::Copying).at_most(count / DEAL),
    };
    team::run(helpers, &take_part, &mut || take_part());
}
