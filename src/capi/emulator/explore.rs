//! Runs a program under many schedules.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use super::{Result, pinlane_emulator, pinlane_emulator_options};
use crate::capi::growing::Growing;
use crate::capi::{
    check_flags, growing, handle, invalid, layout, pinlane_status, pointer, set_unless_0,
};
use crate::driver::emulated::{
    Emulator, Execution, Exploration, Explored, FailedRun, asked_for, explore, explore_orders,
};
use crate::sync::sanitizer::theirs;

/// `pinlane_explore` does not print its findings on stderr.
pub const PINLANE_EXPLORE_QUIET: u32 = 1;
/// Tries every order of the operations that the program's waits can distinguish, instead of modes
/// and seeds. For programs of a few operations. `runs` then limits the number of orders.
pub const PINLANE_EXPLORE_ORDERS: u32 = 2;

/// Which runs `pinlane_explore` makes. Initialise with `PINLANE_EXPLORATION_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_exploration {
    /// `sizeof(pinlane_exploration)`.
    pub size: usize,
    /// The number of runs; 0: 100, or as many as the time limit allows.
    pub runs: u64,
    /// No run starts after this many milliseconds; 0: no limit.
    pub time_ms: u64,
    /// The first seed.
    pub seed: u64,
    /// How many more runs may be made to find a smaller one that fails.
    pub shrink_runs: u64,
    /// The options of each run's machine, or NULL. Their seed, execution and replay are ignored.
    pub machine: *const pinlane_emulator_options,
    /// How many devices the machine has, 1 to 64.
    pub devices: i32,
    /// 0, or some of `PINLANE_EXPLORE_*`.
    pub flags: u32,
}

layout!(pinlane_exploration: 56; size 0, runs 8, shrink_runs 32, machine 40, devices 48, flags 52);
growing!(pinlane_exploration_init: pinlane_exploration, sizes [56], default {
    seed: 1, shrink_runs: 1000, devices: 1
});

/// How an exploration ended. Initialise with `PINLANE_EXPLORED_INIT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pinlane_explored {
    /// `sizeof(pinlane_explored)`.
    pub size: usize,
    /// The number of runs, up to the first that failed. Runs that made it smaller do not count.
    pub runs: u64,
    /// The seed of the smallest run found that fails; 0 if none does.
    pub seed: u64,
    /// The number of misuses of CUDA in that run.
    pub findings: usize,
    /// The number of decisions of that run that differ from an eager run.
    pub decisions: usize,
    /// 1 if a run failed, otherwise 0.
    pub failed: u32,
    /// 1 if no run failed and all requested runs were made, otherwise 0.
    pub complete: u32,
}

layout!(pinlane_explored: 48; size 0, runs 8, findings 24, failed 40, complete 44);
growing!(pinlane_explored_init: pinlane_explored, sizes [48], default {});

/// A program that `pinlane_explore` runs, with `user` and its own machine. It returns 0 if the run
/// succeeded. Otherwise it may write the reason to `message`, which has room for `capacity` bytes
/// with the NUL. It must not unwind (by a C++ exception or otherwise) or `longjmp` out of the call.
pub type pinlane_explored_program = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        machine: *mut pinlane_emulator,
        message: *mut c_char,
        capacity: usize,
    ) -> i32,
>;

/// The room for a program's message.
const MESSAGE: usize = 1024;

/// Runs `program` under many schedules, on the calling thread, each time on a new emulated
/// machine.
///
/// The program gets `user` and its machine. It opens devices with `pinlane_emulator_open`, and
/// frees all objects that it makes, except the machine.
///
/// The first run is eager; the others alternate between all modes, each with its own seed. A run
/// fails if `program` does not return 0, or if its machine has findings, including races. Then it
/// is made smaller: first it is tried eagerly, then decisions are removed as long as it still fails
/// in the same way. The smallest failing run is printed on stderr, with the text that repeats it,
/// and written to `report` as a text. `explored`, whose `size` member must be set, gets the
/// outcome.
///
/// If the environment has `PINLANE_REPLAY`, such as `12:B#3`, only that run is made.
///
/// `report`, `capacity` and `needed` are as `buffer`, `capacity` and `needed` of
/// `pinlane_emulator_finding`; the text is empty if no run failed. `options` may be NULL. Blocks as
/// long as the runs take.
///
/// Statuses: `OK` even if a run failed: see `explored`. `INVALID_VALUE` if `program` or `explored`
/// is NULL, for options of an unknown size, a number of devices or flags out of range, machines
/// that cannot be made, or an invalid `PINLANE_REPLAY`; `FORKED_PROCESS`.
///
/// # Safety
///
/// - `options` is NULL or points to an initialised struct whose `size` member is right, and whose
///   `machine` is as the options of `pinlane_emulator_create`.
/// - `program` may be called with `user` and its other arguments.
/// - `explored` is NULL or points to a struct whose `size` member is set and right.
/// - `report` is NULL or points to `capacity` bytes.
/// - `needed` is NULL or points to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pinlane_explore(
    options: *const pinlane_exploration,
    program: pinlane_explored_program,
    user: *mut c_void,
    explored: *mut pinlane_explored,
    report: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> pinlane_status {
    let mut said = String::new();
    let run = || -> Result<pinlane_explored> {
        handle::check_process()?;
        pointer::check_text(report, capacity, needed)?;
        let program = pointer::function("program", program)?;
        // SAFETY: the caller's precondition on `options`.
        let options = unsafe { growing::options(options) }?;
        // SAFETY: the caller's preconditions on `options` and `program`.
        let ended = unsafe { explored_by(options, program, user) }?;
        said = ended.as_ref().err().map(|failed| failed.to_string()).unwrap_or_default();
        Ok(summary(ended))
    };
    // SAFETY: the caller's precondition on `explored`.
    let status = unsafe { growing::give_sized("pinlane_explore", "explored", explored, run) };
    if status != crate::capi::status::PINLANE_STATUS_OK {
        return status;
    }
    // SAFETY: the caller's preconditions on `report` and `needed`.
    unsafe { pointer::give_text("pinlane_explore", report, capacity, needed, || Ok(said)) }
}

/// The explored program, as in `pinlane_explore`.
type Program = unsafe extern "C" fn(*mut c_void, *mut pinlane_emulator, *mut c_char, usize) -> i32;

type Ended = std::result::Result<Explored, Box<FailedRun>>;

fn summary(ended: Ended) -> pinlane_explored {
    match ended {
        Ok(Explored { runs, complete }) => {
            pinlane_explored { runs, complete: complete.into(), ..Growing::DEFAULT }
        }
        Err(failed) => pinlane_explored {
            runs: failed.runs,
            seed: failed.replay.seed(),
            findings: failed.findings.len(),
            decisions: failed.replay.decisions(),
            failed: 1,
            ..Growing::DEFAULT
        },
    }
}

/// # Safety
///
/// * `machine` of the options is NULL, or points to options as for `pinlane_emulator_create`.
/// * `program` may be called with `user`.
unsafe fn explored_by(
    given: pinlane_exploration,
    program: Program,
    user: *mut c_void,
) -> Result<Ended> {
    check_flags(given.flags, PINLANE_EXPLORE_QUIET | PINLANE_EXPLORE_ORDERS)?;
    if !(1..=64).contains(&given.devices) {
        let context = format!("machines with {} devices", given.devices);
        return Err(invalid(context, "ask for 1 to 64"));
    }
    // SAFETY: the precondition on `machine`.
    let machine = unsafe { growing::options(given.machine)?.builder() }?;
    let mut exploration = Exploration::new()
        .machine(machine.devices(given.devices as usize).execution(Execution::Eager))
        .seed(given.seed)
        .shrink_runs(given.shrink_runs)
        .quiet(given.flags & PINLANE_EXPLORE_QUIET != 0);
    exploration = set_unless_0(exploration, given.runs, Exploration::runs);
    let time = Duration::from_millis(given.time_ms);
    exploration = set_unless_0(exploration, time, Exploration::time);
    let orders = given.flags & PINLANE_EXPLORE_ORDERS != 0;
    asked_for()?;
    let run = |machine: &Emulator| -> std::result::Result<(), String> {
        let machine = handle::create(machine.clone());
        let mut message = [0u8; MESSAGE];
        // SAFETY: the precondition on `program`; the message is valid during the call.
        let status =
            theirs(|| unsafe { program(user, machine, message.as_mut_ptr().cast(), MESSAGE - 1) });
        let freed = handle::free(machine);
        let said = message.split(|&byte| byte == 0).next().unwrap_or_default();
        match (status, freed) {
            (0, Ok(())) => Ok(()),
            (0, Err(_)) => Err("it freed its machine, which is freed for it".into()),
            (status, _) if said.is_empty() => Err(status.to_string()),
            (_, _) => Err(String::from_utf8_lossy(said).into_owned()),
        }
    };
    Ok(if orders { explore_orders(exploration, run) } else { explore(exploration, run) })
}
