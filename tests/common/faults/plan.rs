//! Which faults a program gets.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Instant;

use pinlane::CudaCode;
use pinlane::driver::Call;
use pinlane::emulated::{Builder, Execution, Repeat};

use super::Run;

/// One fault in one run, or the same fault in several calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub execution: Execution,
    pub calls: &'static [Call],
    pub nth: u64,
    pub code: CudaCode,
    pub repeat: Repeat,
    pub late: bool,
}

impl Case {
    /// Whether the fault loses the device if it strikes.
    pub fn loses(&self) -> bool {
        self.code.is_sticky() || self.code == CudaCode::CUDART_UNLOADING
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { execution, calls, nth, code, repeat, late } = self;
        let late = if *late { ", late" } else { "" };
        write!(f, "{execution:?}: {calls:?} number {nth} gives {code}, {repeat:?}{late}")
    }
}

/// Which faults each program gets.
#[derive(Clone, Copy)]
enum Wanted {
    /// This many, evenly spread.
    Sample(usize),
    /// One of several equal parts of all.
    Part { number: usize, of: usize },
}

impl Wanted {
    fn or_sample(sample: usize) -> Wanted {
        let said = std::env::var("PINLANE_TEST_FAULTS").unwrap_or_default();
        let number = |digits: &str| -> usize {
            digits.parse().expect("PINLANE_TEST_FAULTS: a number, all, or a part as in 3/16")
        };
        match (said.as_str(), said.split_once('/')) {
            ("", _) => Wanted::Sample(sample),
            ("all", _) => Wanted::Part { number: 1, of: 1 },
            (_, Some((part, of))) => Wanted::Part { number: number(part), of: number(of) },
            (count, None) => Wanted::Sample(number(count)),
        }
    }

    /// The wanted cases out of all, which are grouped by mode and call.
    fn of(self, groups: &[Vec<Case>]) -> Vec<Case> {
        match self {
            Wanted::Sample(count) => {
                let each = count.div_ceil(groups.len());
                groups.iter().flat_map(|group| sample(group, each)).collect()
            }
            Wanted::Part { number, of } => {
                assert!((1..=of).contains(&number), "there is no part {number} of {of}");
                groups.iter().flatten().skip(number - 1).step_by(of).copied().collect()
            }
        }
    }
}

/// The cases of one call, or of several calls that fail together, in one mode: one at each of
/// `count` occurrences.
fn cases(execution: Execution, calls: &'static [Call], count: u64) -> Vec<Case> {
    // Also a code that the documentation does not list: newer drivers return more codes.
    let codes = calls.iter().flat_map(|call| call.documented_codes());
    let codes = codes.chain(&Call::ANY_RETURNS).chain(&[CudaCode::UNKNOWN]);
    let codes: BTreeSet<i32> = codes.map(|code| code.0).collect();
    let mut cases = Vec::new();
    for nth in 1..=count {
        for repeat in [Repeat::Once, Repeat::Forever] {
            for late in [false, true] {
                let code = |&code: &i32| CudaCode(code);
                // A call that fails with this code has had no effect.
                let is_early = |&code: &CudaCode| code == CudaCode::HOST_MEMORY_ALREADY_REGISTERED;
                let fits = |code: &CudaCode| !(late && is_early(code));
                let case = |code| Case { execution, calls, nth, code, repeat, late };
                cases.extend(codes.iter().map(code).filter(fits).map(case));
            }
        }
    }
    cases
}

/// `wanted` of the cases: one from each of `wanted` equal parts, the same ones every time.
fn sample(cases: &[Case], wanted: usize) -> Vec<Case> {
    let wanted = wanted.clamp(1, cases.len().max(1)).min(cases.len());
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below.max(1)
    };
    (0..wanted)
        .map(|part| {
            let (start, end) = (part * cases.len() / wanted, (part + 1) * cases.len() / wanted);
            cases[start + next(end - start)]
        })
        .collect()
}

/// The faults that a program gets.
pub(super) struct Plan<'n> {
    name: &'n str,
    start: Instant,
    pub(super) chosen: Vec<Case>,
    /// The number of all faults, and of the kinds of calls in both modes.
    all: usize,
    kinds: usize,
}

impl<'n> Plan<'n> {
    /// Runs the program in both modes without a fault, to count its calls.
    pub(super) fn new(
        name: &'n str,
        machine: &Builder,
        faults: usize,
        sets: &[&'static [Call]],
        fits: impl Fn(&Case) -> bool,
        program: impl Fn(&Run) -> usize,
    ) -> Self {
        let start = Instant::now();
        let mut groups = Vec::new();
        for execution in [Execution::Eager, Execution::Lazy] {
            let run = Run::new(machine, execution, None);
            assert_eq!(run.check(&program), 0, "{name}: nothing has failed");
            let made = run.made();
            for &calls in sets {
                let count = calls.iter().map(|&call| made[call as usize]).max().unwrap_or(0);
                let cases = cases(execution, calls, count).into_iter();
                groups.push(cases.filter(&fits).collect::<Vec<Case>>());
            }
        }
        groups.retain(|group| !group.is_empty());
        let (all, kinds) = (groups.iter().map(Vec::len).sum(), groups.len());
        assert!(kinds > 0, "{name} makes calls");
        let chosen = Wanted::or_sample(faults).of(&groups);
        Plan { name, start, chosen, all, kinds }
    }

    /// Prints a summary.
    pub(super) fn report(&self, struck: usize) {
        let Plan { name, start, chosen, all, kinds } = self;
        let injected = chosen.len();
        println!(
            "{name}: {injected} faults of {all}, {struck} struck, in {kinds} kinds of calls and \
             modes, {:.1?}: nothing leaked, hung or panicked, no misuse, no wrong byte",
            start.elapsed()
        );
        // With threads, a call may occur less often than in the first run.
        assert!(struck * 4 >= injected * 3, "{name}: only {struck} of {injected} faults struck");
    }
}
