//! The machine that a run was measured on.

use std::fs;

use serde_json::{Value, json};

/// A description of the machine, as `docs/measured` keeps it. `device` is the device's name.
pub fn machine(device: &str) -> Value {
    let versions = pinlane::driver::cuda().and_then(|driver| driver.versions().ok());
    let (driver, cuda) = versions.unwrap_or((0, 0));
    let kibibytes = field("/proc/meminfo", "MemTotal");
    let kibibytes = kibibytes.trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
    json!({
        "gpu": device,
        "driver": kernel_module(),
        "driver_api": driver,
        "cuda": cuda,
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(0, |cores| cores.get()),
        "memory_gib": kibibytes >> 20,
    })
}

/// The version of the kernel module, such as 580.159.04. CUDA reports only its API version.
fn kernel_module() -> Option<String> {
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_number =
        |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
    text.split_whitespace().find(is_number).map(str::to_owned)
}

fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
}
