//! What the test suites share: which device they run on.
//!
//! `PINLANE_TEST_DEVICE` chooses: `emulated` (the default), or `cuda` for the real GPUs. A suite
//! that is asked for a GPU and finds none fails; it is never skipped.

#![allow(dead_code)] // every suite uses a part

pub mod executor;
pub mod faults;
pub mod process;
pub mod support;

use std::sync::Arc;

use pinlane::Device;
use pinlane::driver::{Driver, Ordinal, cuda_runtime};
use pinlane::emulated::{Emulator, Execution};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Emulated,
    Cuda,
}

pub fn target() -> Target {
    match std::env::var("PINLANE_TEST_DEVICE").as_deref() {
        Err(_) | Ok("" | "emulated") => Target::Emulated,
        Ok("cuda") => Target::Cuda,
        Ok(other) => panic!("PINLANE_TEST_DEVICE={other}: use emulated or cuda"),
    }
}

/// Device 0 of the target; a fresh eager machine if it is emulated.
pub fn device() -> Device {
    match target() {
        Target::Emulated => Device::emulated().expect("the emulated device always opens"),
        Target::Cuda => Device::open(0).expect("PINLANE_TEST_DEVICE=cuda needs a GPU"),
    }
}

/// The target's driver and a device of it.
pub fn driver() -> (Arc<dyn Driver>, Ordinal) {
    match target() {
        Target::Emulated => (Emulator::new().driver(), 0),
        Target::Cuda => {
            let driver = cuda_runtime().expect("PINLANE_TEST_DEVICE=cuda needs a build with CUDA");
            assert!(driver.device_count().is_ok_and(|count| count > 0), "no GPU");
            (driver, 0)
        }
    }
}

/// An emulated machine with two devices. The memory is small, so that running out is cheap to test.
pub fn emulator(execution: Execution, seed: u64) -> Emulator {
    Emulator::builder().devices(2).memory_bytes(64 << 20).execution(execution).seed(seed).build()
}

/// All devices of a machine that [`emulator`] built.
pub fn devices_of(emulator: &Emulator) -> Vec<Device> {
    (0..2).map(|ordinal| Device::of_emulator(emulator, ordinal).expect("two devices")).collect()
}
