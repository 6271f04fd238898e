//! Errors of both crates.

use std::fmt;

use cudarc::driver::DriverError;

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of this crate failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// pinlane failed.
    Pinlane(pinlane::Error),
    /// CUDA failed in a call of cudarc.
    Cudarc(DriverError),
    /// The stream, or the memory, is not of the context that it has to be of.
    OtherContext(String),
    /// Memory that was lent to cudarc for a stream was named in a call for another stream. It was
    /// not copied.
    OtherStream,
    /// Memory that was lent to cudarc was named while its stream was being captured into a graph,
    /// or the stream was left so. It was not copied.
    Captured,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Pinlane(error) => error.fmt(f),
            Error::Cudarc(error) => write!(f, "cudarc: {error}"),
            Error::OtherContext(what) => f.write_str(what),
            Error::OtherStream => f.write_str(
                "memory was lent to cudarc for one stream, and a call named it for another; lend \
                 it by the SharedStream of that one",
            ),
            Error::Captured => f.write_str(
                "memory was lent to cudarc for a stream that is being captured into a graph, which \
                 would copy from recycled memory at every replay; end the capture first",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Pinlane(error) => Some(error),
            Error::Cudarc(error) => Some(error),
            _ => None,
        }
    }
}

impl From<pinlane::Error> for Error {
    fn from(error: pinlane::Error) -> Self {
        Error::Pinlane(error)
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Error::Cudarc(error)
    }
}
