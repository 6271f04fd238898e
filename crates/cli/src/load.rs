//! `pinlane load`: safetensors files to the device, verified.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pinlane::Device;
use pinlane::staging::CopyTeam;
use serde_json::{Value, json};

use crate::device::{self, Choice, EMULATED};
use crate::error::{Error, Result};
use crate::example::load::{self, Reading};
use crate::example::report::{self, Phases};
use crate::example::tensor_file::TensorFile;
use crate::example::verify;
use crate::output::Report;

#[derive(clap::Args)]
pub struct Options {
    /// The files, one after the other
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Read past the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
    /// Page-lock each file in the page cache once, and let the device read it from there: for files
    /// that are loaded about three times or more. With --loads 10, `again` shows the gain
    #[arg(long, conflicts_with = "direct")]
    mapped: bool,
    /// Load each file N times; only the first load allocates memory
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    loads: u32,
    /// Read with N threads beside the caller's own [default: so that all cores read]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Download and compare every tensor, not just one in eight and the largest
    #[arg(long)]
    verify_all: bool,
}

impl From<crate::example::error::Error> for Error {
    fn from(error: crate::example::error::Error) -> Error {
        Error(error.to_string())
    }
}

pub fn run(options: &Options, choice: Choice) -> Result<Report> {
    if let Some(threads) = options.threads {
        CopyTeam::new().threads(threads as usize).install()?;
    }
    let bar = if stderr().is_terminal() { report::progress_bar() } else { ProgressBar::hidden() };
    let start = Instant::now();
    let device = device::open(choice)?;
    device.warm_up(); // while the header is read and memory is allocated
    let opened = start.elapsed();
    let emulated = device.emulator().is_some();
    let (mut text, mut files) = (String::new(), Vec::new());
    for path in &options.files {
        let opened = if files.is_empty() { opened } else { Duration::ZERO };
        let phases = Phases { device: opened, header: Duration::ZERO };
        let (table, totals) = one(path, options, &device, phases, &bar)?;
        if !text.is_empty() {
            text.push('\n');
        }
        text += &table;
        files.push(totals);
    }
    if emulated {
        text += &format!("note      {EMULATED}\n");
    }
    let json = json!({
        "command": "load",
        "version": env!("CARGO_PKG_VERSION"),
        "device": device.name(),
        "emulated": emulated,
        "note": if emulated { EMULATED } else { "" },
        "files": files,
    });
    Ok(Report { text, json, good: true })
}

/// Loads and verifies a file. Returns the table and the totals.
fn one(
    path: &Path,
    options: &Options,
    device: &Device,
    mut phases: Phases,
    bar: &ProgressBar,
) -> Result<(String, Value)> {
    let start = Instant::now();
    let file = TensorFile::open(path)?;
    let stream = device.stream()?;
    phases.header = start.elapsed();
    report::begin(bar, "loading", file.bytes());
    let reading = match (options.direct, options.mapped) {
        (true, _) => Reading::Direct,
        (_, true) => Reading::Mapped,
        _ => Reading::Cached,
    };
    let loaded = load::load(&file, reading, device, &stream, options.loads as usize)?;
    report::begin(bar, "verifying", file.bytes());
    let checked = |bytes| bar.inc(bytes as u64);
    let verified = verify::verify(&file, &loaded, device, &stream, options.verify_all, checked)?;
    bar.finish_and_clear();
    let report = report::Report {
        file: &file,
        device: device.name(),
        phases,
        loaded: &loaded,
        verified: &verified,
    };
    Ok((report.to_string(), report.json()))
}
