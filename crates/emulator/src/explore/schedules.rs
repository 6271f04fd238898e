//! Runs in all modes, with many seeds.

use std::time::Instant;

use super::options::{Exploration, given, told};
use super::report::{Explored, FailedRun};
use super::run::{Ended, Outcome, run};
use super::shrink::{self, Budget};
use crate::emulator::{Builder, Emulator};

/// Runs a program under many schedules.
///
/// The first run is eager; the others take turns in all modes, each with a seed of its own. A run
/// fails if the program panics or returns an error, or if its machine has
/// [findings](Emulator::findings), races included. Then it is made smaller: first it is tried
/// eagerly, then decisions are taken away as long as it still fails in the same way. What is left
/// is printed on stderr and returned, with the text that repeats it.
///
/// If the environment has `PINLANE_REPLAY`, such a text, that run alone is made.
///
/// The program gets a new machine for each run and should make everything else anew, too. Blocks as
/// long as the runs take; a run that hangs is not ended. A panic of the program is caught, and of
/// its own thread not printed, so that a bug is printed once.
///
/// ```
/// use pinlane_driver::{CudaCode, Driver, Kernels, StreamFlags};
/// use pinlane_emulator::{Exploration, explore};
///
/// let explored = explore(Exploration::new().runs(20), |machine| {
///     let driver = machine.driver();
///     let stream = driver.stream_create(0, StreamFlags::default())?;
///     // SAFETY: the stream and the memory are live until they are given back, in its order.
///     unsafe {
///         let memory = driver.device_alloc(stream, 40)?;
///         driver.fill(stream, memory, 40, &[7])?;
///         driver.device_free(stream, memory)?;
///         driver.stream_destroy(stream)?;
///     }
///     Ok::<(), CudaCode>(())
/// });
/// assert_eq!(explored.unwrap().runs, 20);
/// ```
///
/// # Errors
///
/// The smallest run found that fails.
///
/// # Panics
///
/// If `PINLANE_REPLAY` is no replay of a run.
pub fn explore<R: Outcome>(
    exploration: Exploration,
    mut program: impl FnMut(&Emulator) -> R,
) -> Result<Explored, Box<FailedRun>> {
    explore_steps(exploration, &[(); 0], |machine, _| program(machine))
}

/// As [`explore`], for a program that is a list of steps. When a run fails, first steps are taken
/// away, then decisions. Decisions are keyed by stream and operation, so that a program which loses
/// a step keeps the others' decisions. `program` gets the steps to make.
///
/// # Errors
///
/// The smallest run found that fails; [`FailedRun::steps`] are the numbers of its steps.
///
/// # Panics
///
/// As [`explore`].
pub fn explore_steps<S, R: Outcome>(
    exploration: Exploration,
    steps: &[S],
    mut program: impl FnMut(&Emulator, &[&S]) -> R,
) -> Result<Explored, Box<FailedRun>> {
    let mut run = |machine: Builder, kept: &[usize]| {
        let steps: Vec<&S> = kept.iter().map(|&number| &steps[number]).collect();
        run(machine, |emulator| program(emulator, &steps))
    };
    let all: Vec<usize> = (0..steps.len()).collect();
    if let Some(replay) = given() {
        let ended = run(exploration.machine.clone().replay(replay.clone()), &all);
        let failed = ended.has_failed().then(|| FailedRun::of(ended, replay, 1, all));
        return told(&exploration, failed, 1);
    }
    let (begin, mut operations) = (Instant::now(), None);
    let runs = exploration.runs.unwrap_or(if exploration.time.is_some() { u64::MAX } else { 100 });
    for number in 0..runs {
        if number > 0 && exploration.time.is_some_and(|time| begin.elapsed() >= time) {
            return told(&exploration, None, number);
        }
        let (mode, seed) = exploration.schedule(number);
        let machine = || {
            let machine = exploration.machine.clone().execution(mode).seed(seed);
            operations.map_or(machine.clone(), |count| machine.operations(count))
        };
        let ended = run(machine(), &all);
        if ended.has_failed() {
            let mut budget = Budget(exploration.shrink_runs);
            let mut smallest = ended;
            let mut kept = all.clone();
            if !all.is_empty() {
                kept = shrink::fewest(all, &mut budget, |fewer| {
                    let fewer = run(machine(), fewer);
                    let fails = fewer.fails_as(&smallest);
                    if fails {
                        smallest = fewer;
                    }
                    fails
                });
            }
            let decided = smallest.replay.clone();
            shrink::decisions(decided.clone(), &mut budget, |replay| {
                let ended = run(exploration.machine.clone().replay(replay.clone()), &kept);
                let fails = ended.fails_as(&smallest);
                if fails {
                    smallest = Ended { replay: replay.clone(), ..ended };
                }
                fails
            });
            let replay = smallest.replay.clone();
            let failed = FailedRun::of(smallest, replay, number + 1, kept);
            let failed = failed.in_mode(mode, seed, decided.decisions());
            return told(&exploration, Some(failed), number + 1);
        }
        operations = operations.or(Some(ended.operations));
    }
    told(&exploration, None, runs)
}
