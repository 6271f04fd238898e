//! One loop over faults. A program runs once to count its calls; then again and again, each time
//! with another call of it failing: every call that it makes, once and from then on, with no effect
//! and late, with every error that the CUDA documents list for it, eagerly and lazily.
//!
//! After each run: no panic, no hang, no misuse, nothing leaked. That what is said to have been
//! copied has been, the program asserts itself.
//!
//! `PINLANE_TEST_FAULTS` says how many faults each program gets, or `all`, or a part of all, as in
//! `3/16`; unless said, a sample that takes a second or so. `scripts/soak` runs all, in parts: a
//! process cannot map memory for the threads that so many lost machines keep.

mod plan;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pinlane::driver::Call;
use pinlane::emulated::{Builder, Emulator, Execution, Fault};
use pinlane::{Error, ErrorKind};

pub use plan::Case;
use plan::Plan;

use super::process::in_a_child;
use super::support::check_each;

/// Frees and destroys: if they fail, what they name is left.
pub const RELEASES: [Call; 5] = [
    Call::HostFree,
    Call::HostUnregister,
    Call::DeviceFree,
    Call::EventDestroy,
    Call::StreamDestroy,
];

/// A run of a program: with a fault, or the first one, without.
pub struct Run {
    pub emulator: Emulator,
    pub execution: Execution,
    pub case: Option<Case>,
    /// How many calls of each kind were made: before the program began, and when it had ended.
    before: Mutex<Option<Counts>>,
    after: Mutex<Option<Counts>>,
}

type Counts = [u64; Call::ALL.len()];

impl Run {
    fn new(machine: &Builder, execution: Execution, case: Option<Case>) -> Run {
        let emulator = machine.clone().execution(execution).seed(3).build();
        Run { emulator, execution, case, before: Mutex::default(), after: Mutex::default() }
    }

    fn counts(&self) -> Counts {
        Call::ALL.map(|call| self.emulator.calls(call))
    }

    /// What the program is about begins: calls count from here, and may fail.
    pub fn begin(&self) {
        *self.before.lock().unwrap() = Some(self.counts());
        if let Some(Case { nth, code, repeat, late, calls, .. }) = self.case {
            let fault = |&call: &Call| Fault { call, nth, code, repeat, late };
            calls.iter().map(fault).for_each(|fault| self.emulator.inject(fault));
        }
    }

    /// Nothing fails any more, but for what is lost. The loop calls it if the program has not.
    pub fn end(&self) {
        self.emulator.clear_faults();
        self.after.lock().unwrap().get_or_insert(self.counts());
    }

    /// The calls that the program has made.
    fn made(&self) -> Counts {
        let before = self.before.lock().unwrap().expect("the program has called `begin`");
        let after = self.after.lock().unwrap().unwrap_or_else(|| self.counts());
        std::array::from_fn(|call| after[call] - before[call])
    }

    /// Whether the fault has struck.
    pub fn struck(&self) -> bool {
        let made = self.made();
        self.case.is_some_and(|case| case.calls.iter().any(|&call| made[call as usize] >= case.nth))
    }

    /// Whether a device may be lost.
    pub fn is_lost(&self) -> bool {
        self.case.is_some_and(|case| case.loses()) && self.struck()
    }

    /// Whether a release has failed late: what counts as kept may be gone.
    pub fn may_have_released(&self) -> bool {
        let releases = |case: Case| case.calls.iter().any(|call| RELEASES.contains(call));
        self.case.is_some_and(|case| case.late && releases(case)) && self.struck()
    }

    /// Asserts that the fault explains this error.
    pub fn explains(&self, error: &Error) {
        let Some(case) = self.case else { panic!("without a fault: {error}") };
        // What a lost block leaves of a budget may be too little, and a way of copying may be
        // impossible.
        let consequences = [
            ErrorKind::BudgetExhausted,
            ErrorKind::TimedOut,
            ErrorKind::OutOfHostMemory,
            ErrorKind::OutOfDeviceMemory,
            ErrorKind::Unsupported,
        ];
        let explained =
            error.cuda_code() == Some(case.code) || consequences.contains(&error.kind());
        assert!(explained && self.struck(), "{error}");
        assert!(error.kind() != ErrorKind::DeviceLost || case.loses(), "{error}");
    }

    /// As [`explains`](Self::explains), for each error among the results.
    pub fn explains_all<T>(&self, results: impl IntoIterator<Item = Result<T, Error>>) {
        results.into_iter().filter_map(Result::err).for_each(|error| self.explains(&error));
    }

    /// Runs the program, and looks for what is left.
    fn check(&self, program: impl Fn(&Run) -> usize) -> usize {
        let kept = program(self);
        self.end();
        self.check_the_end(kept);
        kept
    }

    /// Looks for what is left when the program has dropped everything. `kept` bytes were counted as
    /// never to be freed, because nobody knows whether the device still uses them.
    fn check_the_end(&self, kept: usize) {
        assert_eq!(self.emulator.findings(), []);
        if self.is_lost() {
            return;
        }
        let fails = |call: Call| self.case.is_some_and(|case| case.calls.contains(&call));
        let gone = self.may_have_released();
        let made = self.made();
        let failed = |call: Call| if fails(call) { made[call as usize] as usize } else { 0 };
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let usage = self.emulator.usage();
            let bytes = usage.host_bytes + usage.device_bytes;
            let memory = bytes == kept
                || bytes > kept && RELEASES.into_iter().any(fails)
                || bytes < kept && gone;
            // Memory that is kept keeps the streams and events of those who may use it.
            let handles = kept > 0
                || usage.streams <= failed(Call::StreamDestroy)
                    && usage.events <= failed(Call::EventDestroy);
            if memory && handles {
                break;
            }
            // A thread that is ending may be the one that ends a pool.
            assert!(Instant::now() < end, "left, beside {kept} bytes that were counted: {usage:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.emulator.findings(), []);
    }
}

/// Runs `program` on machines like `machine`, without a fault, and with faults in each of its
/// calls; `faults` of them, unless the environment says how many. It gives how many bytes it knows
/// to be kept for ever.
pub fn at_every_call(
    name: &str,
    machine: &Builder,
    faults: usize,
    program: impl Fn(&Run) -> usize,
) {
    at_calls(name, machine, faults, &each_call(), |_| true, program);
}

/// Each call by itself.
pub fn each_call() -> Vec<&'static [Call]> {
    static EACH: [Call; Call::ALL.len()] = Call::ALL;
    EACH.iter().map(std::slice::from_ref).collect()
}

/// As [`at_every_call`]: each of these sets of calls fails, in those cases only that `fits` says.
pub fn at_calls(
    name: &str,
    machine: &Builder,
    faults: usize,
    sets: &[&'static [Call]],
    fits: impl Fn(&Case) -> bool,
    program: impl Fn(&Run) -> usize,
) {
    let plan = Plan::new(name, machine, faults, sets, fits, &program);
    let struck = AtomicUsize::new(0);
    check_each(&plan.chosen, |&case| {
        let run = Run::new(machine, case.execution, Some(case));
        let checked = catch_unwind(AssertUnwindSafe(|| run.check(&program)));
        struck.fetch_add(usize::from(run.struck()), Ordering::Relaxed);
        if let Err(panic) = checked {
            eprintln!("{name}: {case:?}");
            resume_unwind(panic);
        }
    });
    plan.report(struck.into_inner());
}

/// As [`at_calls`] for each call, each fault in a process of its own: one that cannot give borrowed
/// memory back ends its process, and says so. The test runs [alone](super::process::is_alone).
pub fn in_processes(
    name: &str,
    machine: &Builder,
    faults: usize,
    fits: impl Fn(&Case) -> bool,
    program: impl Fn(&Run) -> usize,
) {
    let plan = Plan::new(name, machine, faults, &each_call(), fits, &program);
    check_each(&plan.chosen, |&case| {
        let (status, said) = in_a_child(|| {
            Run::new(machine, case.execution, Some(case)).check(&program);
        });
        let is_right = said.contains("pinlane: aborting. The device may still use");
        let aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
        assert!(status == 0 || aborted && is_right, "{name}: {case:?}: {status:#x}\n{said}");
    });
    plan.report(plan.chosen.len());
}
