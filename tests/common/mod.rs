//! Shared by the test suites: the device that they run on.
//!
//! `PINLANE_TEST_DEVICE` chooses: `emulated` (the default), or `cuda` for the real GPUs. A suite
//! that is asked for a GPU and finds none fails; it is never skipped.

#![allow(dead_code)] // every suite uses a part

pub mod executor;
pub mod faults;
pub mod mapping;
pub mod process;
pub mod refused;
pub mod support;

use std::sync::Arc;

use pinlane::driver::{Call, Driver, Ordinal, cuda};
use pinlane::emulated::{Emulator, Execution, Fault};
use pinlane::pool::PageLocking;
use pinlane::{CudaCode, Device, PinnedPool};

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

/// How pools get page-locked memory, and whether the emulated machine watches the host.
/// `PINLANE_TEST_PAGES` chooses, by default the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    Registered,
    /// Because the pool's options say so.
    Allocated,
    /// Because the machine refuses to register memory.
    Refused,
    /// The machine watches the host, so pools allocate.
    Watched,
}

impl Pages {
    pub const ALL: [(&str, Pages); 4] = [
        ("registered", Pages::Registered),
        ("allocated", Pages::Allocated),
        ("refused", Pages::Refused),
        ("watched", Pages::Watched),
    ];
}

pub fn pages() -> Pages {
    let Ok(wanted) = std::env::var("PINLANE_TEST_PAGES") else { return Pages::Registered };
    let known = Pages::ALL.iter().find(|(name, _)| *name == wanted);
    known.unwrap_or_else(|| panic!("PINLANE_TEST_PAGES={wanted} is unknown")).1
}

/// The builder of a pool that page-locks as [`pages`] says.
pub fn pool(device: &Device) -> pinlane::pool::Builder {
    let how = match pages() {
        Pages::Allocated => PageLocking::Allocate,
        _ => PageLocking::Register,
    };
    PinnedPool::builder(device).page_locking(how)
}

/// The builder of a machine that registers memory, also where pools cannot.
pub fn registering_machine() -> pinlane::emulated::Builder {
    Emulator::builder().watch_host(pages() == Pages::Watched)
}

/// The builder of an emulated machine that is as [`pages`] says.
pub fn machine() -> pinlane::emulated::Builder {
    let builder = registering_machine();
    match pages() {
        Pages::Refused => {
            builder.fault(Fault::forever(Call::HostRegister, CudaCode::NOT_SUPPORTED))
        }
        _ => builder,
    }
}

/// Device 0 of the target; a fresh eager machine if it is emulated.
pub fn device() -> Device {
    match target() {
        Target::Emulated => {
            Device::of_emulator(&machine().build(), 0).expect("the emulated device always opens")
        }
        Target::Cuda => Device::open(0).expect("PINLANE_TEST_DEVICE=cuda needs a GPU"),
    }
}

/// The target's driver and a device of it.
pub fn driver() -> (Arc<dyn Driver>, Ordinal) {
    match target() {
        Target::Emulated => (Emulator::new().driver(), 0),
        Target::Cuda => {
            let driver = cuda().expect("PINLANE_TEST_DEVICE=cuda needs a build with CUDA");
            assert!(driver.device_count().is_ok_and(|count| count > 0), "no GPU");
            (driver, 0)
        }
    }
}

/// An emulated machine with two devices. The memory is small, so that running out is cheap to test.
pub fn emulator(execution: Execution, seed: u64) -> Emulator {
    machine().devices(2).memory_bytes(64 << 20).execution(execution).seed(seed).build()
}

/// All devices of a machine that [`emulator`] built.
pub fn devices_of(emulator: &Emulator) -> Vec<Device> {
    (0..2).map(|ordinal| Device::of_emulator(emulator, ordinal).expect("two devices")).collect()
}
