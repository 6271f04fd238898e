//! The machine of a run.

use pinlane::Device;
use pinlane::driver::cuda;
use serde_json::{Value, json};

use crate::system::System;

/// The most threads that copy one slice of pageable memory.
pub const COPY_THREADS: usize = 8;

/// A description of the machine, for JSON.
pub fn machine(device: &Device) -> Value {
    let system = System::here();
    let emulated = device.emulator().is_some();
    let versions = if emulated { None } else { cuda() };
    let versions = versions.and_then(|driver| driver.versions().ok());
    let memory = system.field("proc/meminfo", "MemTotal");
    let kib = memory.and_then(|memory| memory.split(' ').next()?.parse::<u64>().ok());
    json!({
        "device": device.name(),
        "driver_api": versions.map(|versions| versions.0),
        "cuda": versions.map(|versions| versions.1),
        "cpu": system.field("proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        "memory_gib": kib.map(|kib| kib >> 20),
        "kernel": system.read("proc/sys/kernel/osrelease"),
    })
}
