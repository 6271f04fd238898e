//! Errors of both crates.

use std::fmt;

use cuda_core::{DriverError, sys};

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of this crate failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// pinlane failed.
    Pinlane(pinlane::Error),
    /// CUDA failed in a call of cuda-core, or cuda-core refused it.
    CudaCore(DriverError),
    /// The stream, or the memory, is not of the context that it has to be of.
    OtherContext(String),
    /// The memory is in use on another stream, and the use conflicts: cuda-core refuses such a call
    /// until that use is complete (`CUDA_ERROR_NOT_READY`). Nothing was copied.
    InUse,
    /// The stream was being captured into a graph: nothing was copied. Or a closure that memory was
    /// lent to left it so: the capture was ended, and its graph destroyed.
    Captured,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Pinlane(error) => error.fmt(f),
            Error::CudaCore(error) => write!(f, "cuda-core: {error}"),
            Error::OtherContext(what) => f.write_str(what),
            Error::InUse => f.write_str(
                "the memory of cuda-core is in use on another stream, and it orders no conflicting \
                 uses; wait for that stream, or use the memory on it",
            ),
            Error::Captured => f.write_str(
                "the stream is being captured into a graph, or a closure left it so; a graph would \
                 copy from recycled memory at every replay: end the capture first",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Pinlane(error) => Some(error),
            Error::CudaCore(error) => Some(error),
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
        match error.0 {
            sys::cudaError_enum_CUDA_ERROR_NOT_READY => Error::InUse,
            _ => Error::CudaCore(error),
        }
    }
}
