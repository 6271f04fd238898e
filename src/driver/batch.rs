//! A batch: many copies by one call, unordered among themselves.

/// One copy of a [batch](super::Driver::copy_batch). Both addresses are plain numbers, as CUDA
/// takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCopy {
    /// Where the bytes go.
    pub dst: u64,
    /// Where they come from.
    pub src: u64,
    /// How many; 0 is allowed and copies nothing.
    pub bytes: usize,
}

/// From which memory to which all copies of a batch go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchKind {
    /// From page-locked host memory to the device.
    H2D,
    /// From the device to page-locked host memory.
    D2H,
    /// Within the device.
    D2D,
}
