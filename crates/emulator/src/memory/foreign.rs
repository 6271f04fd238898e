//! Device memory of other processes.

use pinlane_driver::Ordinal;

/// An allocation as part of the file that all device memory of a process lies in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// The process that owns the memory.
    pub process: u64,
    /// When that process began, in ticks: the numbers of processes come back.
    pub began: u64,
    /// The device that the memory belongs to.
    pub device: Ordinal,
    /// The descriptor of the file, in that process.
    pub file: i32,
    /// Where in the file it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: usize,
}

/// Memory of another process that this one has opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) memory: SharedMemory,
    pub(crate) address: u64,
    /// How often it was opened and not closed.
    pub(crate) times: usize,
}
