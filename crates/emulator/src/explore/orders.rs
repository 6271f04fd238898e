//! Every order of the operations of a small program.

use std::time::Instant;

use super::options::{Exploration, given, told};
use super::report::{Explored, FailedRun};
use super::run::{Ended, Outcome, run};
use super::shrink::{self, Budget};
use crate::emulator::{Builder, Emulator};
use crate::schedule::execution::Execution;

/// Tries every order of the operations that a program enqueues, as far as its waits let them be
/// seen: for small programs.
///
/// Nothing runs before the program waits. In a wait, each operation that is ready is tried next, in
/// a run of its own. Records, and waits by streams, change no memory and are no choice. So a
/// program that waits for all of its streams has as many runs as its operations have orders that
/// the edges allow. `runs` of the exploration is the most that are made, one million unless said,
/// and its modes do not matter. Otherwise it is as [`explore`](super::explore).
///
/// # Errors
///
/// The smallest run found that fails.
///
/// # Panics
///
/// As [`explore`](super::explore).
pub fn explore_orders<R: Outcome>(
    exploration: Exploration,
    mut program: impl FnMut(&Emulator) -> R,
) -> Result<Explored, Box<FailedRun>> {
    let mut run = |machine: Builder| run(machine, &mut program);
    if let Some(replay) = given() {
        let ended = run(exploration.machine.clone().replay(replay.clone()));
        let failed = ended.has_failed().then(|| FailedRun::of(ended, replay, 1, vec![]));
        return told(&exploration, failed, 1);
    }
    let (begin, mut path) = (Instant::now(), Vec::new());
    for number in 1..=exploration.runs.unwrap_or(1_000_000) {
        let machine = exploration.machine.clone().execution(Execution::Lazy);
        let mut ended = run(machine.seed(exploration.seed).path(path));
        if ended.has_failed() {
            let decided = ended.replay.clone();
            let mut budget = Budget(exploration.shrink_runs);
            shrink::decisions(decided.clone(), &mut budget, |replay| {
                let smaller = run(exploration.machine.clone().replay(replay.clone()));
                let fails = smaller.fails_as(&ended);
                if fails {
                    ended = Ended { replay: replay.clone(), ..smaller };
                }
                fails
            });
            let replay = ended.replay.clone();
            return told(&exploration, Some(FailedRun::of(ended, replay, number, vec![])), number);
        }
        let Some(next) = next_path(ended.path) else { return told(&exploration, None, number) };
        path = next;
        if exploration.time.is_some_and(|time| begin.elapsed() >= time) {
            return Ok(Explored { runs: number, complete: false });
        }
    }
    Ok(Explored { runs: exploration.runs.unwrap_or(1_000_000), complete: false })
}

/// The next path in order: the last point with a choice left takes it.
fn next_path(mut path: Vec<(usize, usize)>) -> Option<Vec<usize>> {
    while let Some((taken, choices)) = path.pop() {
        if taken + 1 < choices {
            let kept = path.iter().map(|&(taken, _)| taken);
            return Some(kept.chain([taken + 1]).collect());
        }
    }
    None
}
