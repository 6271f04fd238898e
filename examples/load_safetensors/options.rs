//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::error::{Error, Result};

pub const USAGE: &str = "\
Loads a safetensors file to a device, tensor by tensor through page-locked memory, and verifies it.

usage: load_safetensors [OPTIONS] [FILE]

  FILE               the file; without one, examples/data/digits.safetensors
  --device N         GPU number N, or `emulated`; otherwise GPU 0 if there is one, else emulated
  --streams N        upload on N streams, each fed by a thread of its own [4]
  --chunk-bytes N    upload at most N bytes at a time [4194304]; less if the pool has no room for
                     two chunks a stream, or if no tensor is that large
  --pool-bytes N     page-lock at most N bytes [67108864], at least 4096 a stream
  --verify-all       download and compare every tensor, not just one in eight and the largest
  --json PATH        write the totals to PATH as well
  --help             print this text

The table has a row for each tensor. `ms` is the time from when a thread turned to the tensor, before
it had a page-locked block to read into, until its last upload was seen complete; uploads are looked
at in the order in which they were enqueued. GB/s is bytes / ms, a GB being 10^9 bytes. Tensors
overlap, so the `ms` of all rows add up to more than the whole load.

`loaded` is the time of the load from end to end: allocating on the device, page-locking, reading the
file (from the disk, or from memory if the system has it there), uploading. It is not the speed of
the bus. `verified` is taken after it and by itself.

Exit code: 0 if all is well, 1 if not, 2 if the command line is wrong.
";

/// The least that the pool may be: a page.
const LEAST_POOL_BYTES_A_STREAM: usize = 4096;
const MOST_STREAMS: usize = 1024;

/// What to do.
pub enum Command {
    Load(Options),
    Help,
}

/// How to load.
pub struct Options {
    pub file: PathBuf,
    pub device: Where,
    pub streams: usize,
    pub chunk_bytes: usize,
    pub pool_bytes: usize,
    pub verify_all: bool,
    pub json: Option<PathBuf>,
}

/// Which device to use.
pub enum Where {
    Any,
    Gpu(i32),
    Emulated,
}

/// Reads the arguments, without the program's name.
pub fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Command> {
    let mut file = None;
    let mut options = Options {
        file: PathBuf::new(),
        device: Where::Any,
        streams: 4,
        chunk_bytes: 4 << 20,
        pool_bytes: 64 << 20,
        verify_all: false,
        json: None,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let missing = || Error::Usage(format!("{} needs a value", argument.display()));
            arguments.next().ok_or_else(missing)
        };
        match argument.to_str() {
            Some("--help" | "-h") => return Ok(Command::Help),
            Some("--device") => options.device = device(&value()?)?,
            Some("--streams") => options.streams = number("--streams", &value()?, MOST_STREAMS)?,
            Some("--chunk-bytes") => {
                options.chunk_bytes = number("--chunk-bytes", &value()?, usize::MAX)?;
            }
            Some("--pool-bytes") => {
                options.pool_bytes = number("--pool-bytes", &value()?, usize::MAX)?;
            }
            Some("--verify-all") => options.verify_all = true,
            Some("--json") => options.json = Some(value()?.into()),
            Some(unknown) if unknown.starts_with('-') => {
                return Err(Error::Usage(format!("unknown option {unknown}")));
            }
            _ if file.is_some() => {
                let message = format!("one file at a time: {} is too much", argument.display());
                return Err(Error::Usage(message));
            }
            _ => file = Some(argument.into()),
        }
    }
    let least = options.streams * LEAST_POOL_BYTES_A_STREAM;
    if options.pool_bytes < least {
        let (pool, streams) = (options.pool_bytes, options.streams);
        let message = format!("--pool-bytes {pool}: {streams} streams need at least {least}");
        return Err(Error::Usage(message));
    }
    options.file = file.unwrap_or_else(digits);
    Ok(Command::Load(options))
}

/// The data set that comes with the crate, for a program that `cargo run` started anywhere in the
/// package, or that runs in the package's folder.
fn digits() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    Path::new(&package).join("examples/data/digits.safetensors")
}

fn device(value: &OsStr) -> Result<Where> {
    match value.to_str() {
        Some("emulated") => Ok(Where::Emulated),
        text => match text.and_then(|text| text.parse().ok()) {
            Some(ordinal) if ordinal >= 0 => Ok(Where::Gpu(ordinal)),
            _ => Err(Error::Usage(format!(
                "--device {}: give a GPU's number, or emulated",
                value.display()
            ))),
        },
    }
}

fn number(option: &str, value: &OsStr, most: usize) -> Result<usize> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.filter(|number| (1..=most).contains(number)).ok_or_else(|| {
        Error::Usage(format!("{option} {}: give a number from 1 to {most}", value.display()))
    })
}
