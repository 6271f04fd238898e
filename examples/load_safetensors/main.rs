//! Loads a safetensors file to a GPU, or to the emulated device, and proves that it arrived.
//!
//! ```text
//! cargo run --release --example load_safetensors [FILE]     (--help lists the options)
//! ```
//!
//! ```text
//!   file --read--> page-locked block --upload--> device        load.rs
//!   file --read--> expected bytes  ==  checksum, download      verify.rs
//! ```
//!
//! The modules in reading order: [`load`] is the heart, and shows what the crate is for;
//! [`verify`] shows that the result is right; [`tensor_file`] reads the format; [`report`], [`options`]
//! and [`error`] are the rest of a command.

mod error;
pub(crate) mod load;
mod options;
mod report;
pub(crate) mod tensor_file;
pub(crate) mod verify;

use std::ffi::OsString;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use indicatif::ProgressBar;
use pinlane::{Device, PinnedPool};

use error::Result;
use load::Lanes;
use options::{Command, Options, Where};
use report::Report;
use tensor_file::TensorFile;

fn main() -> ExitCode {
    let bar = if stderr().is_terminal() { report::progress_bar() } else { ProgressBar::hidden() };
    match run(std::env::args_os().skip(1), &mut stdout(), &bar) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            bar.finish_and_clear();
            eprintln!("load_safetensors: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// The whole command: reads `arguments`, writes the report to `out`.
pub(crate) fn run(
    arguments: impl Iterator<Item = OsString>,
    out: &mut dyn Write,
    bar: &ProgressBar,
) -> Result<()> {
    let options = match options::parse(arguments)? {
        Command::Load(options) => options,
        Command::Help => return report::print(out, options::USAGE),
    };
    let file = TensorFile::open(&options.file)?;
    let device = match options.device {
        Where::Any => Device::open_or_emulated()?,
        Where::Gpu(ordinal) => Device::open(ordinal)?,
        Where::Emulated => Device::emulated()?,
    };
    let lanes = lanes(device, &file, &options)?;

    report::begin(bar, "loading", file.bytes());
    let loaded = load::load(&file, &lanes, |bytes| bar.inc(bytes as u64))?;
    report::begin(bar, "verifying", file.bytes());
    let verified = verify::verify(&file, &loaded.tensors, &lanes, options.verify_all, |bytes| {
        bar.inc(bytes as u64);
    })?;
    bar.finish_and_clear();

    let report = Report {
        file: &file,
        device: lanes.device.name(),
        loaded: &loaded,
        verified: &verified,
        streams: lanes.streams.len(),
        block: lanes.block,
        pool: lanes.pool.stats(),
    };
    report::print(out, &report.to_string())?;
    options.json.as_deref().map_or(Ok(()), |path| report.write_json(path))
}

/// Makes the streams, and the pool that feeds them.
///
/// All blocks have one size, so that any free block serves any tensor, and a small file does not
/// page-lock large blocks. The budget has room for two blocks a stream: one that is being filled, and
/// one that is under way.
fn lanes(device: Device, file: &TensorFile, options: &Options) -> Result<Lanes> {
    let block = options
        .chunk_bytes
        .min(options.pool_bytes / (2 * options.streams))
        .min(file.largest().map_or(0, |tensor| tensor.bytes))
        .max(1);
    Ok(Lanes {
        pool: PinnedPool::builder(&device).max_bytes(options.pool_bytes).build()?,
        streams: (0..options.streams).map(|_| device.stream()).collect::<Result<_, _>>()?,
        block,
        device,
    })
}
