//! Correctness of copies: random programs agree with a plain sequential model, whatever the
//! schedule, and whatever fails.
//!
//! `PROPTEST_CASES` sets the number of programs of each test. Tests that fork run a quarter of it.
//! `scripts/soak` runs many.

#![cfg(feature = "emulated")]

#[path = "../common/mod.rs"]
mod common;
mod program;

use std::time::{Duration, Instant};

use common::process::is_alone;
use common::{Target, devices_of, emulator, target};
use pinlane::driver::Call;
use pinlane::emulated::{Emulator, Execution, Fault, Repeat};
use pinlane::pool::PageLocking;
use pinlane::{CudaCode, Device};
use program::{Family, Machine, Op, Others, Setup, Watch, program};
use proptest::prelude::*;
use proptest::test_runner::Config;

fn config() -> Config {
    Config { failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() }
}

fn setup(devices: Vec<Device>, emulator: &Emulator) -> Setup {
    Setup {
        devices,
        scale: 1,
        budget: 8192,
        default_streams: false,
        page_locking: PageLocking::default(),
        faulty: false,
        emulator: Some(emulator.clone()),
    }
}

/// Runs a program on a fresh emulated machine and checks what is left.
fn run_emulated(
    watch: &Watch,
    execution: Execution,
    seed: u64,
    change: fn(&mut Setup),
    program: Vec<Op>,
) {
    watch.run(program.clone(), move || {
        let emulator = emulator(execution, seed);
        let mut setup = setup(devices_of(&emulator), &emulator);
        change(&mut setup);
        let mut machine = Machine::new(setup).expect("no faults");
        machine.run(&program);
        let (leaks, loses) = (machine.has_forgotten(), machine.lost_bytes() > 0);
        drop(machine);
        assert_eq!(emulator.findings(), [], "the emulated device saw a misuse");
        // A thread of the pool, or one that was woken, may be the last to drop something.
        let end = Instant::now() + Duration::from_secs(10);
        let is_left = |emulator: &Emulator| {
            let usage = emulator.usage();
            let others = (usage.host_bytes, usage.streams, usage.events, usage.graphs);
            !loses && usage.device_bytes != 0 || !leaks && others != (0, 0, 0, 0)
        };
        while is_left(&emulator) && Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(!is_left(&emulator), "leaked: {:?}", emulator.usage());
    });
}

/// Runs a program while calls fail, or a device is lost. The destination of a failed call is
/// unspecified, and memory may leak. Everything else must hold, nothing may hang, and the device
/// must find no misuse.
fn run_in_trouble(
    watch: &Watch,
    execution: Execution,
    seed: u64,
    faults: Vec<Fault>,
    program: Vec<Op>,
) {
    watch.run((faults.clone(), program.clone()), move || {
        let emulator = emulator(execution, seed);
        let mut setup = setup(devices_of(&emulator), &emulator);
        faults.iter().for_each(|&fault| emulator.inject(fault));
        setup.faulty = !faults.is_empty();
        setup.default_streams = seed % 2 == 1;
        if let Ok(mut machine) = Machine::new(setup) {
            machine.run(&program);
        }
        assert_eq!(emulator.findings(), [], "the emulated device saw a misuse");
    });
}

/// Runs a program that forks in its middle, on a machine that watches the host or does not, with a
/// pool that registers memory or allocates it.
fn run_and_fork(
    watch: &Watch,
    execution: Execution,
    (seed, at, watches, allocates): (u64, usize, bool, bool),
    program: Vec<Op>,
) {
    watch.run((seed, at, watches, allocates, program.clone()), move || {
        let builder = Emulator::builder().devices(2).memory_bytes(64 << 20).watch_host(watches);
        let emulator = builder.execution(execution).seed(seed).build();
        let mut setup = setup(devices_of(&emulator), &emulator);
        if allocates {
            setup.page_locking = PageLocking::Allocate;
        }
        let others = Others::start();
        Machine::new(setup).expect("no faults").run_and_fork(&program, at);
        drop(others);
        assert_eq!(emulator.findings(), [], "the emulated device saw a misuse");
    });
}

/// Runs a program on the device that the suite runs for.
fn run_on_target(watch: &Watch, default_streams: bool, program: Vec<Op>) {
    let devices = match target() {
        Target::Emulated => vec![Device::emulated().expect("it always opens")],
        Target::Cuda => {
            let found = Device::available();
            assert!(!found.is_empty(), "PINLANE_TEST_DEVICE=cuda needs a GPU");
            let open = |number| Device::open(number).expect("it was found");
            (0..found.len().min(2) as i32).map(open).collect()
        }
    };
    watch.run(program.clone(), move || {
        let (scale, budget, faulty, emulator) = (64, 8192, false, None);
        let page_locking = PageLocking::default();
        let setup =
            Setup { devices, scale, budget, default_streams, page_locking, faulty, emulator };
        Machine::new(setup).expect("no faults").run(&program);
    });
}

/// At most two: there are three ways to wait for a device, and if all fail at the end of a borrow,
/// the process must abort.
fn faults() -> impl Strategy<Value = Vec<Fault>> {
    prop::collection::vec(fault(), 1..3)
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
    let fault = (call, 1..40u64, code, repeat, any::<bool>());
    fault.prop_map(|(call, nth, code, repeat, late)| Fault { call, nth, code, repeat, late })
}

fn with_default_streams(setup: &mut Setup) {
    setup.default_streams = true;
}

/// So little memory that tasks must wait for it.
fn with_little_memory(setup: &mut Setup) {
    setup.budget = 4096;
}

/// One of the modes in which operations run at any time, chosen by the seed.
fn any_time(seed: u64) -> Execution {
    let pct = |depth| Execution::Pct { depth };
    [Execution::Random, Execution::Chunked, pct(2), pct(3)][seed as usize % 4]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn programs_agree_with_the_model_eagerly(seed: u64, program in program(Family::Plain, 1)) {
        static WATCH: Watch = Watch::new("programs_agree_with_the_model_eagerly");
        run_emulated(&WATCH, Execution::Eager, seed, |_| (), program);
    }

    #[test]
    fn programs_survive_faults_eagerly(
        seed: u64,
        faults in faults(),
        program in program(Family::Plain, 1),
    ) {
        static WATCH: Watch = Watch::new("programs_survive_faults_eagerly");
        run_in_trouble(&WATCH, Execution::Eager, seed, faults, program);
    }

    #[test]
    fn default_streams_eagerly(seed: u64, program in program(Family::DefaultStreams, 1)) {
        static WATCH: Watch = Watch::new("default_streams_eagerly");
        run_emulated(&WATCH, Execution::Eager, seed, with_default_streams, program);
    }

    #[test]
    fn releases_eagerly(seed: u64, program in program(Family::Releases, 1)) {
        static WATCH: Watch = Watch::new("releases_eagerly");
        run_emulated(&WATCH, Execution::Eager, seed, with_default_streams, program);
    }

    #[test]
    fn graphs_eagerly(seed: u64, program in program(Family::Graphs, 1)) {
        static WATCH: Watch = Watch::new("graphs_eagerly");
        run_emulated(&WATCH, Execution::Eager, seed, with_default_streams, program);
    }

    #[test]
    fn graphs_survive_faults(
        seed: u64,
        faults in faults(),
        program in program(Family::Graphs, 1),
    ) {
        static WATCH: Watch = Watch::new("graphs_survive_faults");
        let any = [Execution::Eager, Execution::Lazy, any_time(seed)];
        run_in_trouble(&WATCH, any[seed as usize % 3], seed, faults, program);
    }

    #[test]
    fn wakers_eagerly(seed: u64, program in program(Family::Wakers, 1)) {
        static WATCH: Watch = Watch::new("wakers_eagerly");
        run_emulated(&WATCH, Execution::Eager, seed, with_little_memory, program);
    }

    #[test]
    fn lost_devices_eagerly(seed: u64, program in program(Family::LostDevices, 1)) {
        static WATCH: Watch = Watch::new("lost_devices_eagerly");
        run_in_trouble(&WATCH, Execution::Eager, seed, vec![], program);
    }

    #[test]
    fn unloading_eagerly(seed: u64, program in program(Family::Unloading, 1)) {
        static WATCH: Watch = Watch::new("unloading_eagerly");
        run_in_trouble(&WATCH, Execution::Eager, seed, vec![], program);
    }

    #[test]
    fn programs_agree_with_the_model_lazily(seed: u64, program in program(Family::Plain, 1)) {
        static WATCH: Watch = Watch::new("programs_agree_with_the_model_lazily");
        run_emulated(&WATCH, Execution::Lazy, seed, |_| (), program);
    }

    #[test]
    fn programs_survive_faults_lazily(
        seed: u64,
        faults in faults(),
        program in program(Family::Plain, 1),
    ) {
        static WATCH: Watch = Watch::new("programs_survive_faults_lazily");
        run_in_trouble(&WATCH, Execution::Lazy, seed, faults, program);
    }

    #[test]
    fn default_streams_lazily(seed: u64, program in program(Family::DefaultStreams, 1)) {
        static WATCH: Watch = Watch::new("default_streams_lazily");
        run_emulated(&WATCH, Execution::Lazy, seed, with_default_streams, program);
    }

    #[test]
    fn releases_lazily(seed: u64, program in program(Family::Releases, 1)) {
        static WATCH: Watch = Watch::new("releases_lazily");
        run_emulated(&WATCH, Execution::Lazy, seed, with_default_streams, program);
    }

    #[test]
    fn graphs_lazily(seed: u64, program in program(Family::Graphs, 1)) {
        static WATCH: Watch = Watch::new("graphs_lazily");
        run_emulated(&WATCH, Execution::Lazy, seed, with_default_streams, program);
    }

    #[test]
    fn wakers_lazily(seed: u64, program in program(Family::Wakers, 1)) {
        static WATCH: Watch = Watch::new("wakers_lazily");
        run_emulated(&WATCH, Execution::Lazy, seed, with_little_memory, program);
    }

    #[test]
    fn lost_devices_lazily(seed: u64, program in program(Family::LostDevices, 1)) {
        static WATCH: Watch = Watch::new("lost_devices_lazily");
        run_in_trouble(&WATCH, Execution::Lazy, seed, vec![], program);
    }

    #[test]
    fn unloading_lazily(seed: u64, program in program(Family::Unloading, 1)) {
        static WATCH: Watch = Watch::new("unloading_lazily");
        run_in_trouble(&WATCH, Execution::Lazy, seed, vec![], program);
    }

    #[test]
    fn programs_agree_with_the_model_at_random(seed: u64, program in program(Family::Plain, 1)) {
        static WATCH: Watch = Watch::new("programs_agree_with_the_model_at_random");
        run_emulated(&WATCH, Execution::Random, seed, |_| (), program);
    }

    #[test]
    fn programs_agree_with_the_model_in_pieces(seed: u64, program in program(Family::Plain, 1)) {
        static WATCH: Watch = Watch::new("programs_agree_with_the_model_in_pieces");
        run_emulated(&WATCH, Execution::Chunked, seed, |_| (), program);
    }

    #[test]
    fn agree_with_the_model_by_priorities(seed: u64, program in program(Family::Plain, 1)) {
        static WATCH: Watch = Watch::new("agree_with_the_model_by_priorities");
        let depth = 1 + (seed % 4) as u32;
        run_emulated(&WATCH, Execution::Pct { depth }, seed, |_| (), program);
    }

    #[test]
    fn default_streams_at_any_time(seed: u64, program in program(Family::DefaultStreams, 1)) {
        static WATCH: Watch = Watch::new("default_streams_at_any_time");
        run_emulated(&WATCH, any_time(seed), seed, with_default_streams, program);
    }

    #[test]
    fn releases_at_any_time(seed: u64, program in program(Family::Releases, 1)) {
        static WATCH: Watch = Watch::new("releases_at_any_time");
        run_emulated(&WATCH, any_time(seed), seed, with_default_streams, program);
    }

    #[test]
    fn graphs_at_any_time(seed: u64, program in program(Family::Graphs, 1)) {
        static WATCH: Watch = Watch::new("graphs_at_any_time");
        run_emulated(&WATCH, any_time(seed), seed, with_default_streams, program);
    }

    #[test]
    fn wakers_at_any_time(seed: u64, program in program(Family::Wakers, 1)) {
        static WATCH: Watch = Watch::new("wakers_at_any_time");
        run_emulated(&WATCH, any_time(seed), seed, with_little_memory, program);
    }

    #[test]
    fn lost_devices_at_any_time(seed: u64, program in program(Family::LostDevices, 1)) {
        static WATCH: Watch = Watch::new("lost_devices_at_any_time");
        run_in_trouble(&WATCH, any_time(seed), seed, vec![], program);
    }

    #[test]
    fn unloading_at_any_time(seed: u64, program in program(Family::Unloading, 1)) {
        static WATCH: Watch = Watch::new("unloading_at_any_time");
        run_in_trouble(&WATCH, any_time(seed), seed, vec![], program);
    }

    #[test]
    fn programs_survive_faults_at_any_time(
        seed: u64,
        faults in faults(),
        program in program(Family::Plain, 1),
    ) {
        static WATCH: Watch = Watch::new("programs_survive_faults_at_any_time");
        run_in_trouble(&WATCH, any_time(seed), seed, faults, program);
    }

    /// The same programs on the device that the suite runs for. On a GPU they are larger, so that
    /// copies are still in flight at the next call.
    #[test]
    fn programs_agree_with_the_model_on_the_chosen_device(
        default_streams: bool,
        program in program(Family::Plain, 64),
    ) {
        static WATCH: Watch = Watch::new("programs_agree_with_the_model_on_the_chosen_device");
        run_on_target(&WATCH, default_streams, program);
    }

    #[test]
    fn graphs_on_the_chosen_device(
        default_streams: bool,
        program in program(Family::Graphs, 64),
    ) {
        static WATCH: Watch = Watch::new("graphs_on_the_chosen_device");
        run_on_target(&WATCH, default_streams, program);
    }
}

/// Runs in a process of its own. The standard library prints a panic under the lock of its
/// backtraces. A child whose machine finds an early access takes a backtrace. If a program of
/// another test panicked during the fork, the child would wait for that lock forever.
fn fork(name: &'static str, execution: fn(u64) -> Execution) {
    if !is_alone(module_path!(), name) {
        return;
    }
    let watch: &'static Watch = Box::leak(Box::new(Watch::new(name)));
    let how = any::<(u64, usize, bool, bool)>();
    // One takes as long as twenty programs without a fork.
    let few = Config { cases: config().cases.div_ceil(4), ..config() };
    proptest!(few, |(how in how, program in program(Family::Plain, 1))| {
        run_and_fork(watch, execution(how.0), how, program);
    });
}

#[test]
fn forks_eagerly() {
    fork("forks_eagerly", |_| Execution::Eager);
}

#[test]
fn forks_lazily() {
    fork("forks_lazily", |_| Execution::Lazy);
}

#[test]
fn forks_at_any_time() {
    fork("forks_at_any_time", any_time);
}
