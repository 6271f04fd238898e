//! Runs the tests of this crate, and those of `crates/cuda-core`, which includes this folder: on
//! pinlane's drop-in for libcuda.so.1 (docs/drop-in.md), or on a GPU.
//!
//! - `conformance`: what each function does, one test each.
//! - `programs`: random programs, compared with a model.
//!
//! On the drop-in this program builds it and calls itself, in all modes; a finding fails the run.
//! With `PINLANE_TEST_DEVICE=cuda` everything runs here, on the first GPU.
//!
//! - `PINLANE_CUDARC_PROGRAMS`, `PINLANE_CUDA_CORE_PROGRAMS`: how many random programs.
//! - `PINLANE_CUDARC_SEED`, `PINLANE_CUDA_CORE_SEED`: the seed of the first one; 1 unless set.
//!
//! The words of the command line are parts of the names of tests, as usual.

mod drop_in;
pub mod programs;
pub mod random;
pub mod support;

use std::env;
use std::process::ExitCode;

/// The tests of a crate.
pub struct Suite {
    /// What each function does, by name.
    pub conformance: &'static [(&'static str, fn())],
    /// Runs random programs: from that seed on, so many.
    pub programs: fn(u64, u64) -> bool,
    /// How many random programs, unless the variable is set.
    pub count: u64,
    /// The variables of random programs: how many, and the seed of the first.
    pub variables: [&'static str; 2],
}

/// A number of the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    let value = env::var(name).ok();
    value.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

impl Suite {
    /// How many random programs, and the seed of the first.
    fn wanted(&self) -> (u64, u64) {
        let [count, seed] = self.variables;
        (number(count, self.count), number(seed, 1))
    }

    /// Runs what the command line names.
    pub fn run(&self) -> ExitCode {
        let words = env::args().skip(1).filter(|word| !word.starts_with('-'));
        let words: Vec<String> = words.collect();
        if env::var("PINLANE_TEST_DEVICE").as_deref() != Ok("cuda") {
            return drop_in::run(self, &words);
        }
        let is_wanted =
            |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
        let mut failed = 0;
        let mut tell = |what: String, passed: bool| {
            println!("{what}: {}", if passed { "ok" } else { "FAILED" });
            failed += u32::from(!passed);
        };
        for (name, test) in self.conformance {
            let name = format!("conformance::{name}");
            if is_wanted(&name) {
                tell(name, std::panic::catch_unwind(test).is_ok());
            }
        }
        if is_wanted("programs") {
            let (count, seed) = self.wanted();
            let passed = (self.programs)(seed, count);
            tell(format!("programs: {count} from seed {seed}"), passed);
        }
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
