//! Dealing out a long list to the copy team, some numbers at a time.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::team::{self, Helpers, Workload};
use crate::driver::Ordinal;

/// How many numbers one thread takes at a time.
pub(crate) const DEAL: usize = 256;

/// Calls `work` with ranges that make up all numbers below `count`, each but the last `DEAL` long,
/// on several threads, of the device's group first, if there are `several` numbers or more. Every
/// thread has a state of its own, which `done` gets.
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
