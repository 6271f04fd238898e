//! How many schedules it takes until a program goes wrong by itself.

use std::collections::HashMap;

use crate::program::Program;

/// From how many seeds the search is started.
pub const STARTS: u64 = 20;
/// After how many schedules a search gives up, and how many seeds there are.
pub const LIMIT: u64 = 1000;

/// The median over all starts of the schedules that a search needs until the program goes wrong;
/// `None` if it is more than [`LIMIT`].
///
/// The starts lie apart by `LIMIT / STARTS` seeds. A search that reaches the last seed continues
/// with the first.
#[must_use]
pub fn median(program: &Program, mode: &str) -> Option<u64> {
    let mut seen = HashMap::new();
    let mut wrong =
        |seed| *seen.entry(seed).or_insert_with(|| program.run(false, mode, seed).went_wrong());
    let mut needed: Vec<u64> = (0..STARTS)
        .map(|start| {
            let seed = |step| 1 + (start * (LIMIT / STARTS) + step) % LIMIT;
            (0..LIMIT).find(|&step| wrong(seed(step))).map_or(u64::MAX, |step| step + 1)
        })
        .collect();
    needed.sort_unstable();
    let middle = needed[needed.len() / 2];
    (middle <= LIMIT).then_some(middle)
}
