//! Copy correctness: random programs agree with a plain sequential model, whatever the schedule.
//!
//! `PROPTEST_CASES` sets how many programs each test runs; `scripts/soak` runs many.

#![cfg(feature = "emulated")]

mod common;

use common::program::{Machine, Op, program};
use common::{Target, devices_of, emulator, target};
use pinlane::driver::Call;
use pinlane::driver::emulated::{Execution, Fault, Repeat};
use pinlane::{CudaCode, Device};
use proptest::prelude::*;
use proptest::test_runner::Config;

fn config() -> Config {
    Config { failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() }
}

/// Runs a program on a fresh emulated machine and looks for what it left behind.
fn run_emulated(execution: Execution, seed: u64, program: &[Op]) {
    let emulator = emulator(execution, seed);
    let mut machine = Machine::new(devices_of(&emulator), 1, false).expect("no faults");
    machine.run(program);
    drop(machine);
    assert_eq!(emulator.findings(), [], "the emulated device saw a misuse");
    let usage = emulator.usage();
    assert_eq!((usage.host_bytes, usage.device_bytes), (0, 0), "memory leaked: {usage:?}");
    assert_eq!((usage.streams, usage.events), (0, 0), "handles leaked: {usage:?}");
}

/// Runs a program while calls fail. What a call that failed was to write is unspecified; everything else
/// must hold, nothing may hang, and the device must see no misuse.
fn run_with_faults(execution: Execution, seed: u64, faults: &[Fault], program: &[Op]) {
    let emulator = emulator(execution, seed);
    let devices = devices_of(&emulator);
    faults.iter().for_each(|&fault| emulator.inject(fault));
    if let Ok(mut machine) = Machine::new(devices, 1, true) {
        machine.run(program);
    }
    assert_eq!(emulator.findings(), [], "the emulated device saw a misuse");
}

fn fault() -> impl Strategy<Value = Fault> {
    let call = prop::sample::select(&Call::ALL[..]);
    let code = prop_oneof![
        4 => Just(CudaCode::UNKNOWN),
        2 => Just(CudaCode::MEMORY_ALLOCATION),
        1 => Just(CudaCode::ILLEGAL_ADDRESS),
        1 => Just(CudaCode::CUDART_UNLOADING),
    ];
    let repeat = prop_oneof![3 => Just(Repeat::Once), 1 => Just(Repeat::Forever)];
    (call, 1..40u64, code, repeat).prop_map(|(call, nth, code, repeat)| Fault {
        call,
        nth,
        code,
        repeat,
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn programs_agree_with_the_model_eagerly(seed: u64, program in program(1)) {
        run_emulated(Execution::Eager, seed, &program);
    }

    #[test]
    fn programs_agree_with_the_model_lazily(seed: u64, program in program(1)) {
        run_emulated(Execution::Lazy, seed, &program);
    }

    #[test]
    fn programs_survive_faults_eagerly(
        seed: u64,
        faults in prop::collection::vec(fault(), 1..4),
        program in program(1),
    ) {
        run_with_faults(Execution::Eager, seed, &faults, &program);
    }

    #[test]
    fn programs_survive_faults_lazily(
        seed: u64,
        faults in prop::collection::vec(fault(), 1..4),
        program in program(1),
    ) {
        run_with_faults(Execution::Lazy, seed, &faults, &program);
    }

    /// The same programs on the device that the suite is run for, larger on a real one, so that copies
    /// take long enough to be caught in flight.
    #[test]
    fn programs_agree_with_the_model_on_the_chosen_device(program in program(64)) {
        let devices = match target() {
            Target::Emulated => vec![Device::emulated().expect("it always opens")],
            Target::Cuda => {
                let found = Device::available();
                assert!(!found.is_empty(), "PINLANE_TEST_DEVICE=cuda needs a GPU");
                let open = |number| Device::open(number).expect("it was found");
                (0..found.len().min(2) as i32).map(open).collect()
            }
        };
        Machine::new(devices, 64, false).expect("no faults").run(&program);
    }
}
