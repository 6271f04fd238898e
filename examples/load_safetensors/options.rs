//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::error::{Error, Result};
use super::load::Reading;

pub const USAGE: &str = "\
Loads a safetensors file to a device, all tensors in one job, and verifies it.

usage: load_safetensors [OPTIONS] [FILE]

  FILE               the file; without one, examples/data/digits.safetensors
  --device N         GPU number N, or `emulated`; otherwise GPU 0 if there is one, else emulated
  --direct           read past the page cache (O_DIRECT)
  --mapped           page-lock the file in the page cache once, for the device to read from there:
                     for files that are loaded about three times or more
  --loads N          load N times [2]; only the first load allocates memory and starts threads
  --threads N        read with N threads beside the caller's own [so that all cores read]
  --slot-bytes N     upload at most N bytes at a time, at least 4096
  --ring-bytes N     page-lock at most N bytes for all slots, at least two slots
  --verify-all       download and compare every tensor, not just one in eight and the largest
  --json PATH        write the totals to PATH as well
  --help             print this text

`loaded` is the first load from end to end: allocating on the device, page-locking, starting
threads, reading the file (from the disk, or from memory if the system has it there), uploading,
until all has arrived. `again` is the median of the other loads: reading and uploading. `verified`
is the time to verify, which is in neither. A GB is 10^9 bytes.

Exit code: 0 if all is well, 1 if not, 2 if the command line is wrong.
";

const MOST_LOADS: usize = 1000;
/// The most that the crate accepts.
pub const MOST_THREADS: usize = 256;

/// What the command line asks for.
pub enum Command {
    Load(Options),
    Help,
}

/// How to load.
pub struct Options {
    pub file: PathBuf,
    pub device: Where,
    pub reading: Reading,
    pub loads: usize,
    pub threads: Option<usize>,
    pub slot_bytes: Option<usize>,
    pub ring_bytes: Option<usize>,
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
pub fn parse(mut arguments: impl Iterator<Item = OsString>, file: &Path) -> Result<Command> {
    let mut named = None;
    let mut options = Options {
        file: file.to_owned(),
        device: Where::Any,
        reading: Reading::Cached,
        loads: 2,
        threads: None,
        slot_bytes: None,
        ring_bytes: None,
        verify_all: false,
        json: None,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let missing = || wrong(format!("{} needs a value", argument.display()));
            arguments.next().ok_or_else(missing)
        };
        match argument.to_str() {
            Some("--help" | "-h") => return Ok(Command::Help),
            Some("--device") => options.device = device(&value()?)?,
            Some(way @ ("--direct" | "--mapped")) => {
                if options.reading != Reading::Cached {
                    return Err(wrong("--direct and --mapped exclude each other".into()));
                }
                let is_direct = way == "--direct";
                options.reading = if is_direct { Reading::Direct } else { Reading::Mapped };
            }
            Some("--loads") => options.loads = number("--loads", &value()?, MOST_LOADS)?,
            Some("--threads") => {
                options.threads = Some(number("--threads", &value()?, MOST_THREADS)?);
            }
            Some("--slot-bytes") => {
                options.slot_bytes = Some(number("--slot-bytes", &value()?, usize::MAX)?);
            }
            Some("--ring-bytes") => {
                options.ring_bytes = Some(number("--ring-bytes", &value()?, usize::MAX)?);
            }
            Some("--verify-all") => options.verify_all = true,
            Some("--json") => options.json = Some(value()?.into()),
            Some(unknown) if unknown.starts_with('-') => {
                return Err(wrong(format!("unknown option {unknown}")));
            }
            _ if named.is_some() => {
                let message = format!("one file at a time: {} is too much", argument.display());
                return Err(wrong(message));
            }
            _ => named = Some(argument.into()),
        }
    }
    options.file = named.unwrap_or(options.file);
    Ok(Command::Load(options))
}

fn device(value: &OsStr) -> Result<Where> {
    match value.to_str() {
        Some("emulated") => Ok(Where::Emulated),
        text => match text.and_then(|text| text.parse().ok()) {
            Some(ordinal) if ordinal >= 0 => Ok(Where::Gpu(ordinal)),
            _ => Err(wrong(format!(
                "--device {}: give a GPU's number, or emulated",
                value.display()
            ))),
        },
    }
}

fn number(option: &str, value: &OsStr, most: usize) -> Result<usize> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.filter(|number| (1..=most).contains(number)).ok_or_else(|| {
        wrong(format!("{option} {}: give a number from 1 to {most}", value.display()))
    })
}

/// The error of a wrong command line, with the usage.
fn wrong(message: String) -> Error {
    Error::Usage(format!("{message}\n\n{}", USAGE.trim_end()))
}
