//! Tests of the crate. `harness` runs them, and says which variables they take.

mod conformance;
mod harness;
mod programs;

fn main() -> std::process::ExitCode {
    let variables = ["PINLANE_CUDARC_PROGRAMS", "PINLANE_CUDARC_SEED"];
    let (conformance, programs) = (&conformance::TESTS, programs::run);
    harness::Suite { conformance, programs, count: 400, variables }.run()
}
