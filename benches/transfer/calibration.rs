//! How long calibration takes, and what it finds. The batches after it are planned by it.

use std::time::Instant;

use pinlane::Result;

use super::Bench;
use super::common::figures::{Figure, Report};

const NAME: &str = "calibration";

/// The benchmark neither writes nor reads the user's calibration file. Must be called before the
/// program has threads.
pub fn keep_to_itself() {
    const VARIABLE: &str = "PINLANE_CALIBRATION";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: there are no other threads yet, which might read the environment.
        unsafe { std::env::set_var(VARIABLE, "off") };
    }
}

pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    if !["batch", NAME].iter().any(|name| report.wants(name)) {
        return Ok(());
    }
    let start = Instant::now();
    let found = bench.device.calibrate()?;
    let seconds = start.elapsed().as_secs_f64();
    report.add(
        Figure::lower(format!("{NAME}.seconds"), seconds, "s")
            .by("Device::calibrate, once, the first of the process", 1),
    );
    for (cost, value) in found.costs() {
        report.add(
            Figure::lower(format!("{NAME}.{cost}"), value, "us, B/us").by(
                "found by Device::calibrate: microseconds, bytes a microsecond, or a number",
                1,
            ),
        );
    }
    Ok(())
}
