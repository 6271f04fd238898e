//! Tests of the crate. `harness` runs them, and says which variables they take.

mod conformance;
#[path = "../../cudarc/tests/harness/mod.rs"]
mod harness;
mod programs;

fn main() -> std::process::ExitCode {
    let variables = ["PINLANE_CUDA_CORE_PROGRAMS", "PINLANE_CUDA_CORE_SEED"];
    let (conformance, programs) = (&conformance::TESTS, programs::run);
    harness::Suite { conformance, programs, count: 1000, variables }.run()
}
