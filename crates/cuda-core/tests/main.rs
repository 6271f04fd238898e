//! Tests of the crate, on pinlane's drop-in for libcuda.so.1 (docs/drop-in.md), or on a GPU.
//!
//! - `conformance`: what each function does, one test each.
//! - `programs`: random programs, compared with a model.
//!
//! On the drop-in this program builds it and calls itself, in all modes; a finding fails the run.
//! With `PINLANE_TEST_DEVICE=cuda` everything runs here, on the first GPU.
//!
//! - `PINLANE_CUDA_CORE_PROGRAMS`: how many random programs; 1,000 unless set.
//! - `PINLANE_CUDA_CORE_SEED`: the seed of the first one; 1 unless set.
//!
//! The words of the command line are parts of the names of tests, as usual.

mod conformance;
#[path = "../../cudarc/tests/drop_in.rs"]
mod drop_in;
mod programs;
#[path = "../../cudarc/tests/random.rs"]
mod random;

use std::env;
use std::process::ExitCode;

/// The variables of random programs.
const PROGRAMS: &str = "PINLANE_CUDA_CORE_PROGRAMS";
const SEED: &str = "PINLANE_CUDA_CORE_SEED";

/// A number of the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    let value = env::var(name).ok();
    value.map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// How many random programs, and the seed of the first.
fn programs_wanted() -> (u64, u64) {
    (number(PROGRAMS, 1000), number(SEED, 1))
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    if env::var("PINLANE_TEST_DEVICE").as_deref() != Ok("cuda") {
        return drop_in::run(&words);
    }
    let mut failed = 0;
    for (name, test) in conformance::TESTS {
        if is_wanted(&format!("conformance::{name}")) {
            let passed = std::panic::catch_unwind(test).is_ok();
            println!("conformance::{name}: {}", if passed { "ok" } else { "FAILED" });
            failed += u32::from(!passed);
        }
    }
    if is_wanted("programs") {
        let (count, seed) = programs_wanted();
        let passed = programs::run(seed, count);
        println!("programs: {count} from seed {seed}: {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
