//! The seam: what the crate needs from a CUDA runtime, one method for each CUDA call, and its own
//! [`Kernels`]. The crate `pinlane-driver` defines it.
//!
//! Everything above this module is written against [`Driver`]; code above it cannot distinguish the
//! drivers. There are two: `cuda`, a thin layer over CUDA, and [`emulated`], a CUDA runtime in pure
//! Rust for machines without a GPU and for finding bugs.
//!
//! This module is public so that conformance tests can drive both implementations; it is not
//! covered by the crate's semantic versioning.

#[cfg(pinlane_cuda)]
mod cuda;
#[cfg(pinlane_emulated)]
pub mod emulated;
mod gpu;
mod single;

pub use self::gpu::cuda;
pub(crate) use self::single::copy_item;

#[doc(inline)]
pub use pinlane_driver::{
    Attribute, Call, Capture, CopyKind, DevicePtr, Driver, DriverResult, Graphs, HostFlags,
    HostFunction, Item, Kernels, Layer, MAX_PATTERN, Ordinal, Pitched, Poll, RawEvent, RawGraph,
    RawNode, RawStream, RowIndex, RowMove, StreamFlags, StridedCopy, reference,
};

#[cfg(pinlane_emulated)]
impl From<emulated::Unreadable> for crate::error::Error {
    fn from(text: emulated::Unreadable) -> Self {
        let kind = crate::error::ErrorKind::InvalidValue;
        crate::error::Error::new(kind, text.of(), text.what().to_owned(), text.remedy())
    }
}
