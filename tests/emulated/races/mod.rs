//! Which edges order two operations (docs/semantics.md, "Races").
//!
//! Each test has a program that one edge orders, and its twin without that edge. Both compute the
//! same, because the machines here are eager. But the twin has one finding, which names both
//! operations.
//!
//! Streams get letters in the order of their creation. Each `memory` creates one.
//!
//! ```text
//!   streams   streams, events, default streams     host     the host's waits and accesses
//!   memory    allocations, frees, bytes in use     reports  the texts of races
//!   watched   loads and stores without an announcement
//! ```

mod host;
mod memory;
mod reports;
mod streams;
mod watched;

use std::ptr::NonNull;

use pinlane::driver::{DevicePtr, RawStream};
use pinlane::emulated::{Builder, Emulator, FindingKind, Race, RacingUse};

use crate::rig::{BYTES, Rig};

// SAFETY (of all calls of the driver in this folder): as in `rig`. Some programs race, but only on
// the emulated device, for which a race is a finding and nothing else. Where the host would access
// memory in use, the test only announces the access to the machine.

fn machine(builder: Builder) -> (Rig, Emulator) {
    let emulator = builder.memory_bytes(1 << 24).build();
    (Rig { driver: emulator.driver(), device: 0 }, emulator)
}

/// The only race of a run.
fn only_race(emulator: &Emulator) -> Race {
    let findings = emulator.findings();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings[0].race().expect("it is a race").clone()
}

/// `second on its stream after first on its stream`.
fn in_short(race: &Race) -> String {
    let of = |used: &RacingUse| format!("{} on {}", used.operation, used.agent);
    format!("{} after {}", of(&race.second), of(&race.first))
}

/// Runs a program with the edge and without it.
fn twins(expected: &str, program: impl Fn(&Rig, &Emulator, bool)) {
    twins_on(&Emulator::builder(), expected, program);
}

fn twins_on(builder: &Builder, expected: &str, program: impl Fn(&Rig, &Emulator, bool)) {
    let run = |ordered| {
        let (rig, emulator) = machine(builder.clone());
        program(&rig, &emulator, ordered);
        emulator
    };
    assert_eq!(run(true).findings(), [], "with the edge");
    let without = run(false);
    assert_eq!(without.findings().first().map(|found| found.kind), Some(FindingKind::Race));
    assert_eq!(in_short(&only_race(&without)), expected);
}

// SAFETY (of all calls of the driver here): as in `rig`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Rig {
    fn on_device(&self, device: i32) -> Rig {
        Rig { device, ..self.clone() }
    }

    fn download(&self, stream: RawStream, dst: NonNull<u8>, src: DevicePtr) {
        unsafe { self.driver.copy_d2h(stream, dst.as_ptr(), src, BYTES) }.unwrap();
    }

    fn upload_from(&self, stream: RawStream, dst: DevicePtr, src: NonNull<u8>) {
        unsafe { self.driver.copy_h2d(stream, dst, src.as_ptr(), BYTES) }.unwrap();
    }

    /// Fills half of the memory: the first half, or the second.
    fn fill_half(&self, stream: RawStream, dst: DevicePtr, half: u64) {
        let at = dst + half * BYTES as u64 / 2;
        unsafe { self.driver.fill(stream, at, BYTES / 2, &[9]) }.unwrap();
    }

    fn sync_event(&self, event: pinlane::driver::RawEvent) {
        unsafe { self.driver.event_synchronize(event) }.unwrap();
    }

    fn alloc_on(&self, stream: RawStream) -> DevicePtr {
        unsafe { self.driver.device_alloc(stream, BYTES) }.unwrap()
    }

    fn free_on(&self, stream: RawStream, ptr: DevicePtr) {
        unsafe { self.driver.device_free(stream, ptr) }.unwrap();
    }

    fn free_host(&self, ptr: NonNull<u8>) {
        unsafe { self.driver.host_free(ptr) }.unwrap();
    }

    fn copy_to_device_1(&self, stream: RawStream, dst: DevicePtr, src: DevicePtr) {
        unsafe { self.driver.copy_peer(stream, dst, 1, src, 0, BYTES) }.unwrap();
    }
}
