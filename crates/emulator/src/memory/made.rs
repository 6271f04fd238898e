//! How a program that calls CUDA made the memory that it has. Memory of other users of the machine
//! has no such note, and no call of the program ends it.

use crate::memory::pools::PoolId;

/// An allocation of device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeOnDevice {
    /// The pool that it came from; `None` for `cudaMalloc`.
    pub(crate) pool: Option<PoolId>,
}

/// A block of page-locked memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeHost {
    pub(crate) flags: u32,
    pub(crate) kind: HostKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    Allocated,
    Registered,
    Managed,
    /// Allocated from a pool of memory of the host.
    Pooled(PoolId),
}

/// `cudaHostRegisterReadOnly`, of the flags of a [`MadeHost`].
pub(crate) const READ_ONLY: u32 = 8;
