//! All errors. Each message is one line: the subject, what was found, what to do.

use std::fmt;
use std::path::Path;

use super::tensor_file::{Tensor, printable};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the command failed.
#[derive(Debug)]
pub enum Error {
    /// The command line is wrong.
    Usage(String),
    /// A file cannot be read or written, or has the wrong contents.
    File(String),
    /// A call of the crate failed.
    Device(pinlane::Error),
    /// The bytes on the device are not those of the file.
    Mismatch(String),
}

impl Error {
    /// An error about the file at `path`: `found` says what is wrong, `remedy` what to do.
    pub fn file(path: &Path, found: impl fmt::Display, remedy: &str) -> Error {
        Error::File(format!("{}: {found}; {remedy}", path.display()))
    }

    /// A tensor on the device is not the one in the file.
    pub fn mismatch(tensor: &Tensor, found: impl fmt::Display) -> Error {
        Error::Mismatch(format!(
            "tensor {} ({} bytes) on the device is not the one in the file: {found}; if the \
             file did not change during the load, this is a bug",
            printable(&tensor.name),
            tensor.bytes
        ))
    }

    /// 2 for a wrong command line, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::File(_) | Error::Device(_) | Error::Mismatch(_) => 1,
        }
    }
}

impl From<pinlane::Error> for Error {
    fn from(error: pinlane::Error) -> Error {
        Error::Device(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(message) | Error::File(message) | Error::Mismatch(message) => {
                f.write_str(message)
            }
            Error::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
