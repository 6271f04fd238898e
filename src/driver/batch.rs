//! A batch: many copies by one call, unordered among themselves.

/// One copy of a [batch](super::Driver::copy_batch).
///
/// Both addresses are plain numbers, as CUDA takes them. That of host memory which is not
/// page-locked comes from `expose_provenance`; the driver knows page-locked memory by its address
/// alone.
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
    /// From host memory that is not page-locked to the device.
    PageableH2D,
    /// From the device to host memory that is not page-locked.
    PageableD2H,
}

/// When a batch reads its sources (`cudaMemcpySrcAccessOrder`). Its destinations are always written
/// in stream order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BatchAccess {
    /// In stream order, as any other copy (`cudaMemcpySrcAccessOrderStream`).
    #[default]
    StreamOrder,
    /// Before the call returns, ahead of the stream's earlier work
    /// (`cudaMemcpySrcAccessOrderDuringApiCall`): the sources may be reused at once.
    DuringCall,
}
