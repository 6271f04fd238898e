//! Options of staging for this run, instead of the defaults: `--threads N --copying N --cores
//! A,B,.. --ring N --slot N --first N --unit N --direct N --streaming N`, sizes in bytes. They are
//! for finding the defaults. Published figures use the defaults.

use std::error::Error;
use std::str::FromStr;

use pinlane::{
    Device,
    staging::{CopyTeam, Staging},
};

use super::common::options::Options;

pub const OPTIONS: [&str; 9] =
    ["threads", "copying", "cores", "ring", "slot", "first", "unit", "direct", "streaming"];

pub fn apply(options: &Options, device: &Device) -> Result<(), Box<dyn Error>> {
    if OPTIONS.iter().all(|name| options.value(name).is_none()) {
        return Ok(());
    }
    let mut team = CopyTeam::new();
    if let Some(threads) = number(options, "threads")? {
        team = team.threads(threads);
    }
    if let Some(copying) = number(options, "copying")? {
        team = team.copying(copying);
    }
    if let Some(cores) = options.value("cores") {
        team = team.cores(cores.split(',').map(usize::from_str).collect::<Result<Vec<_>, _>>()?);
    }
    type Setter = fn(Staging, usize) -> Staging;
    let setters: [(&str, Setter); 6] = [
        ("ring", Staging::ring_bytes),
        ("slot", Staging::slot_bytes),
        ("first", Staging::first_bytes),
        ("unit", Staging::unit_bytes),
        ("direct", Staging::direct_bytes),
        ("streaming", Staging::streaming_bytes),
    ];
    let mut staging = Staging::new();
    for (name, set) in setters {
        if let Some(bytes) = number(options, name)? {
            staging = set(staging, bytes);
        }
    }
    println!("{team:?}, {staging:?}");
    team.install()?;
    device.set_staging(staging)?;
    Ok(())
}

fn number(options: &Options, name: &str) -> Result<Option<usize>, Box<dyn Error>> {
    let parse = |value: &str| value.parse().map_err(|error| format!("--{name} {value}: {error}"));
    Ok(options.value(name).map(parse).transpose()?)
}
