//! `pinlane doctor`: looks at the machine, and says what slows copies down.
//!
//! | module | what it looks at |
//! |---|---|
//! | [`host`] | kernel, cores, memory and its limits |
//! | [`cuda`] | toolkit, driver, GPUs |
//! | [`bus`] | link, NUMA node and IOMMU of a GPU |
//! | [`pages`] | how memory is page-locked, and at least how much |
//! | [`speed`] | what copies reach |
//! | [`finding`] | one line of the report |

mod bus;
mod cuda;
mod finding;
mod host;
mod pages;
mod speed;

use pinlane::driver::cuda;
use pinlane::{Device, ErrorKind};
use serde_json::json;

use crate::device::{self, Choice, EMULATED};
use crate::error::{Result, cause};
use crate::output::Report;
use crate::system::System;
use finding::{Finding, State};
use speed::Speed;

/// It has no options of its own.
#[derive(clap::Args)]
pub struct Options {}

const MIB: usize = 1 << 20;

pub fn run(_: &Options, choice: Choice) -> Result<Report> {
    let system = System::here();
    let mut findings = host::findings(&system);
    findings.push(cuda::way());
    let versions = cuda().and_then(|driver| driver.versions().ok());
    findings.push(cuda::driver(&system, versions));
    findings.extend(cuda::library(&system));
    let gpus = match choice {
        Choice::Any => Device::available().into_iter().map(|info| info.ordinal).collect(),
        Choice::Gpu(ordinal) => vec![ordinal],
        Choice::Emulated => Vec::new(),
    };
    for &ordinal in &gpus {
        findings.extend(gpu(&system, ordinal));
    }
    if gpus.is_empty() {
        findings.extend(emulated(choice)?);
    }
    Ok(report(&findings, gpus.is_empty()))
}

/// What there is to say of one GPU, also if it cannot be opened.
fn gpu(system: &System, ordinal: i32) -> Vec<Finding> {
    let name = format!("gpu {ordinal}");
    let device = match Device::open(ordinal) {
        Ok(device) => device,
        Err(error) => return vec![Finding::wrong(name, cause(&error), error.remedy())],
    };
    let driver = cuda().expect("a GPU was opened with it");
    let pages = pages::finding(format!("{name} pages"), &device, 1024 * MIB);
    match Speed::measure(&device, 64 * MIB) {
        Ok(speed) => {
            let mut findings = cuda::gpu(system, &*driver, &device, &speed);
            findings.push(pages);
            findings
        }
        Err(error) => {
            let remedy = "fix that first; a lost device needs a new process, or a reset";
            vec![Finding::wrong(name, error.to_string(), remedy), pages]
        }
    }
}

/// Why there is no GPU, and that the emulated device works. Of a build without CUDA the finding of
/// the build says why.
fn emulated(choice: Choice) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if choice == Choice::Any && cuda().is_some() {
        match Device::open(0) {
            Ok(_) => unreachable!("a GPU that `Device::available` did not list"),
            Err(error) if error.kind() == ErrorKind::NoDevice => findings.push(Finding::notice(
                "gpu",
                format!("none: {}", cause(&error)),
                error.remedy(),
            )),
            Err(error) => {
                findings.push(Finding::wrong("gpu", cause(&error), error.remedy()));
            }
        }
    }
    let device = device::open(Choice::Emulated)?;
    let speed = Speed::measure(&device, 4 * MIB)?;
    let Speed { up, down } = speed;
    let found = format!("copies right, up {up:.1} GB/s, down {down:.1} GB/s ({EMULATED})");
    findings.push(Finding::good("emulated device", found).with(speed.json()));
    Ok(findings)
}

fn report(findings: &[Finding], emulated: bool) -> Report {
    let wrong = findings.iter().filter(|finding| finding.state == State::Wrong).count();
    let notices = findings.iter().filter(|finding| finding.state == State::Notice).count();
    let mut text: String = findings.iter().map(Finding::text).collect();
    text += &format!("\n{wrong} wrong, {notices} worth a note\n");
    let json = json!({
        "command": "doctor",
        "version": env!("CARGO_PKG_VERSION"),
        "emulated": emulated,
        "note": if emulated { EMULATED } else { "" },
        "wrong": wrong,
        "notes": notices,
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
    });
    Report { text, json, good: wrong == 0 }
}
