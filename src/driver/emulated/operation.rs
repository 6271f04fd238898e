//! What a stream's queue holds.

use std::ffi::c_void;

use super::host_memory::{Access, HostPtr};
use super::slots::Key;
use crate::driver::{Call, DevicePtr, HostFunction, MAX_PATTERN};

/// A point in a stream's life: after its first `count` operations. Events and waits are made of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) stream: Key,
    pub(super) count: u64,
}

/// An operation that waits for its turn.
#[derive(Debug)]
pub(super) struct Operation {
    /// Numbers all operations of a machine in the order of the calls.
    pub(super) id: u64,
    /// What must be complete first, besides the operations ahead in the queue.
    pub(super) waits: Vec<Position>,
    pub(super) action: Action,
}

/// What an operation does. Ranges are never empty.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// `fingerprint` is that of the source when the copy was enqueued, where it may not change.
    CopyH2D {
        dst: DevicePtr,
        src: HostPtr,
        bytes: usize,
        fingerprint: Option<u64>,
    },
    CopyD2H {
        dst: HostPtr,
        src: DevicePtr,
        bytes: usize,
    },
    CopyD2D {
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    },
    CopyPeer {
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    },
    Memset {
        dst: DevicePtr,
        value: u8,
        bytes: usize,
    },
    Fill {
        dst: DevicePtr,
        bytes: usize,
        pattern: Pattern,
    },
    Checksum {
        src: DevicePtr,
        bytes: usize,
        out: DevicePtr,
    },
    Scatter {
        packed: DevicePtr,
        items: DevicePtr,
        count: usize,
    },
    Gather {
        packed: DevicePtr,
        items: DevicePtr,
        count: usize,
    },
    Busy {
        nanoseconds: u64,
    },
    /// The allocation of this address becomes usable.
    Alloc {
        ptr: DevicePtr,
    },
    Free {
        ptr: DevicePtr,
    },
    /// Where an event is recorded.
    Mark {
        event: Key,
    },
    /// Nothing but its waits.
    Join,
    HostFunction(HostCall),
}

/// A host function and its argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostCall {
    pub(super) function: HostFunction,
    pub(super) data: *mut c_void,
}

// SAFETY: `Driver::launch_host` is told that `function` may be called with `data` on any thread.
unsafe impl Send for HostCall {}

/// The pattern of a fill, in the operation itself as in the parameters of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    bytes: [u8; MAX_PATTERN],
    len: u8,
}

impl Pattern {
    /// `None` unless the pattern has 1 to [`MAX_PATTERN`] bytes.
    pub(super) fn new(pattern: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_PATTERN];
        bytes.get_mut(..pattern.len())?.copy_from_slice(pattern);
        (!pattern.is_empty()).then_some(Pattern { bytes, len: pattern.len() as u8 })
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Action {
    /// The call that enqueues such an operation.
    pub(super) fn call(&self) -> Call {
        match self {
            Action::CopyH2D { .. } => Call::CopyH2D,
            Action::CopyD2H { .. } => Call::CopyD2H,
            Action::CopyD2D { .. } => Call::CopyD2D,
            Action::CopyPeer { .. } => Call::CopyPeer,
            Action::Memset { .. } => Call::Memset,
            Action::Fill { .. } => Call::Fill,
            Action::Checksum { .. } => Call::Checksum,
            Action::Scatter { .. } => Call::Scatter,
            Action::Gather { .. } => Call::Gather,
            Action::Busy { .. } => Call::Busy,
            Action::Alloc { .. } => Call::DeviceAlloc,
            Action::Free { .. } => Call::DeviceFree,
            Action::Mark { .. } => Call::EventRecord,
            Action::Join => Call::StreamWaitEvent,
            Action::HostFunction(_) => Call::LaunchHost,
        }
    }

    /// The page-locked range that the operation names.
    pub(super) fn host_range(&self) -> Option<(HostPtr, usize, Access)> {
        match *self {
            Action::CopyH2D { src, bytes, .. } => Some((src, bytes, Access::Read)),
            Action::CopyD2H { dst, bytes, .. } => Some((dst, bytes, Access::Write)),
            _ => None,
        }
    }
}
