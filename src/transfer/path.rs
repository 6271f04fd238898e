//! The ways in which the copies of a batch can be made.

use std::fmt;

/// How the bytes of a batch cross. What is fastest depends on how many entries there are, how long
/// they are, where they lie, and on the machine; see [`Plan`](crate::Plan).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Path {
    /// One `cudaMemcpyAsync` for each run of entries that follow each other. Best for long entries.
    Copies,
    /// One `cudaMemcpyBatchAsync` for many runs, where the driver has it (CUDA 12.8). Not on the
    /// legacy default stream.
    Batch,
    /// Entries are packed together and cross in one copy: up, a kernel takes them apart on the
    /// device; down, a kernel packs them there.
    Packed,
    /// A kernel fetches the entries out of page-locked memory over the bus. Uploads and copies
    /// within a device only: kernels do not write to host memory.
    Pull,
}

impl Path {
    /// Whether a kernel reads a list of items.
    pub(super) fn has_items(self) -> bool {
        matches!(self, Path::Packed | Path::Pull)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Path::Copies => "copies",
            Path::Batch => "batch call",
            Path::Packed => "packed",
            Path::Pull => "pull kernel",
        })
    }
}
