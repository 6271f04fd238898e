//! Loads a safetensors file to a GPU, or to the emulated device, and proves that it arrived.
//!
//! ```text
//! cargo run --example load_safetensors [-- FILE]     (--help lists the options)
//! ```
//!
//! ```text
//!   file --read--> page-locked memory --upload--> device        load.rs
//!   file --read--> expected bytes  ==  checksum, download       verify.rs
//! ```
//!
//! The modules in reading order: [`load`] is the main part and shows the use of the crate.
//! [`verify`] shows that the result is right. [`tensor_file`] reads the format. [`report`],
//! [`options`] and [`error`] are the rest of a command.

mod error;
pub(crate) mod load;
mod options;
mod report;
pub(crate) mod tensor_file;
pub(crate) mod verify;

use std::ffi::OsString;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use indicatif::ProgressBar;
use pinlane::{
    Device,
    staging::{CopyTeam, Staging},
};

use error::Result;
use options::{Command, Options, Where};
use report::{Phases, Report};
use tensor_file::TensorFile;

fn main() -> ExitCode {
    let bar = if stderr().is_terminal() { report::progress_bar() } else { ProgressBar::hidden() };
    match run(std::env::args_os().skip(1), &digits(), &mut stdout(), &bar) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            bar.finish_and_clear();
            eprintln!("load_safetensors: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// The data set of the crate. It is found if `cargo run` started the program, or if the program
/// runs in the folder of the package.
fn digits() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    Path::new(&package).join("examples/data/digits.safetensors")
}

/// The whole command: reads `arguments`, which may name another file than `file`, and writes the
/// report to `out`.
pub(crate) fn run(
    arguments: impl Iterator<Item = OsString>,
    file: &Path,
    out: &mut dyn Write,
    bar: &ProgressBar,
) -> Result<()> {
    let options = match options::parse(arguments, file)? {
        Command::Load(options) => options,
        Command::Help => return report::print(out, options::USAGE),
    };
    let start = Instant::now();
    let device = match options.device {
        Where::Any => Device::open_or_emulated()?,
        Where::Gpu(ordinal) => Device::open(ordinal)?,
        Where::Emulated => Device::emulated()?,
    };
    configure(&device, &options)?;
    let opened = start.elapsed();
    device.warm_up(); // while the header is read and memory is allocated
    let file = TensorFile::open(&options.file)?;
    let stream = device.stream()?;
    let phases = Phases { device: opened, header: start.elapsed() - opened };

    report::begin(bar, "loading", file.bytes());
    let loaded = load::load(&file, options.reading, &device, &stream, options.loads)?;
    report::begin(bar, "verifying", file.bytes());
    let checked = |bytes| bar.inc(bytes as u64);
    let verified = verify::verify(&file, &loaded, &device, &stream, options.verify_all, checked)?;
    bar.finish_and_clear();

    let report =
        Report { file: &file, device: device.name(), phases, loaded: &loaded, verified: &verified };
    report::print(out, &report.to_string())?;
    options.json.as_deref().map_or(Ok(()), |path| report.write_json(path))
}

/// Applies the options of the command line to the crate.
fn configure(device: &Device, options: &Options) -> Result<()> {
    if let Some(threads) = options.threads {
        CopyTeam::new().threads(threads).install()?;
    }
    if options.slot_bytes.is_none() && options.ring_bytes.is_none() {
        return Ok(());
    }
    let mut staging = Staging::new();
    if let Some(bytes) = options.slot_bytes {
        staging = staging.slot_bytes(bytes).first_bytes((bytes / 16).clamp(1024, 256 << 10));
    }
    if let Some(bytes) = options.ring_bytes {
        staging = staging.ring_bytes(bytes);
    }
    Ok(device.set_staging(staging)?)
}
