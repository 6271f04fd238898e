//! The seam's handles as CUDA's.

use super::driver_api::{CUevent, CUstream};
use crate::driver::{RawEvent, RawStream};

/// The handle as CUDA's type. The runtime's is the same type, by another name.
pub(super) fn stream_of(stream: RawStream) -> CUstream {
    std::ptr::with_exposed_provenance_mut(stream.handle)
}

pub(super) fn event_of(event: RawEvent) -> CUevent {
    std::ptr::with_exposed_provenance_mut(event.handle)
}
