//! One loop over faults. A program runs once to count its calls. Then it runs once for each fault.
//! The faults are: every call that it makes fails, once or from then on, without effect or after
//! its effect, with every error that the CUDA documentation lists for the call, on eager and lazy
//! machines.
//!
//! After each run the loop asserts that nothing panicked, hung, was misused or leaked. The program
//! itself asserts that every copy that was reported as done has been done.
//!
//! `PINLANE_TEST_FAULTS` sets how many faults each program gets: a number, `all`, or a part of all,
//! as in `3/16`. By default it is a sample that takes about a second. `scripts/soak` runs all, in
//! parts: one process cannot map memory for all threads that the lost machines keep.

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

/// Calls that free or destroy. If one fails, its object stays.
pub const RELEASES: [Call; 6] = [
    Call::HostFree,
    Call::HostUnregister,
    Call::DeviceFree,
    Call::EventDestroy,
    Call::StreamDestroy,
    Call::GraphDestroy,
];

/// A run of a program: the first one without a fault, the others with one.
pub struct Run {
    pub emulator: Emulator,
    pub execution: Execution,
    pub case: Option<Case>,
    /// The number of calls of each kind before the program began, and after it ended.
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

    /// The program calls this after its setup. Calls count from here, and may fail.
    pub fn begin(&self) {
        *self.before.lock().unwrap() = Some(self.counts());
        if let Some(Case { nth, code, repeat, late, calls, .. }) = self.case {
            let fault = |&call: &Call| Fault { call, nth, code, repeat, late };
            calls.iter().map(fault).for_each(|fault| self.emulator.inject(fault));
        }
    }

    /// From here on no call fails, except on a lost device. The loop calls it if the program has
    /// not.
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

    /// Whether a release has failed after its effect: memory that is counted as kept may be freed.
    pub fn may_have_released(&self) -> bool {
        let releases = |case: Case| case.calls.iter().any(|call| RELEASES.contains(call));
        self.case.is_some_and(|case| case.late && releases(case)) && self.struck()
    }

    /// Asserts that the fault explains this error.
    pub fn explains(&self, error: &Error) {
        let Some(case) = self.case else { panic!("without a fault: {error}") };
        // A lost block may leave too little of the budget, and a way of copying may be impossible.
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

    /// Runs the program, and checks what is left afterwards.
    fn check(&self, program: impl Fn(&Run) -> usize) -> usize {
        let kept = program(self);
        self.end();
        self.check_the_end(kept);
        kept
    }

    /// Checks what is left when the program has dropped everything. `kept` bytes were counted as
    /// never to be freed, because it is unknown whether the device still uses them.
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
            // Memory that is kept also keeps the streams and events of its possible uses.
            let handles = kept > 0
                || usage.streams <= failed(Call::StreamDestroy)
                    && usage.events <= failed(Call::EventDestroy);
            if memory && handles {
                break;
            }
            // The pool may be ended by a thread that is itself still ending.
            assert!(Instant::now() < end, "left, beside {kept} bytes that were counted: {usage:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.emulator.findings(), []);
    }
}

/// Runs `program` on machines like `machine`, once without a fault, then with `faults` faults
/// spread over its calls, unless the environment sets their number. `program` returns the number of
/// bytes that it knows to be kept forever.
pub fn at_every_call(
    name: &str,
    machine: &Builder,
    faults: usize,
    program: impl Fn(&Run) -> usize,
) {
    at_calls(name, machine, faults, &each_call(), |_| true, program);
}

/// Each call alone.
pub fn each_call() -> Vec<&'static [Call]> {
    static EACH: [Call; Call::ALL.len()] = Call::ALL;
    EACH.iter().map(std::slice::from_ref).collect()
}

/// As [`at_every_call`], but for these sets of calls, and only in the cases that `fits` accepts.
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

/// As [`at_calls`] for each call, with each fault in a process of its own: a run that cannot return
/// borrowed memory aborts its process with a message. The test runs
/// [alone](super::process::is_alone).
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
