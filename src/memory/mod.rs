//! Buffers that track their uses: page-locked on the host ([`PinnedBuf`]), and on the device
//! ([`DeviceBuf`]).
//!
//! A buffer is an untyped *region* (an address, a length in bytes, its hazards) in a typed wrapper.
//! Views borrow the region and name a part of it.

pub(crate) mod block;
mod device;
mod frozen;
pub(crate) mod hazard;
pub(crate) mod lock;
mod pinned;
pub(crate) mod range;
mod read_only;
mod registered;
mod registration;
mod strided;
mod views;

pub use device::{DeviceBuf, DeviceSlice, DeviceSliceMut};
pub(crate) use device::{DeviceBytes, Heap};
pub use frozen::FrozenBuf;
pub use pinned::{PinnedBuf, PinnedSlice, PinnedSliceMut};
pub(crate) use pinned::{PinnedBytes, PinnedRegion};
pub(crate) use range::{byte_count, counted};
pub use read_only::{ReadOnlyBytes, ReadOnlyMemory, RegisteredReadOnly};
#[cfg(feature = "capi")]
pub(crate) use registered::Lent;
pub(crate) use registered::with_registered;
pub use registered::{HostMemory, Registered};
#[cfg(feature = "capi")]
pub(crate) use registration::Purpose;
pub(crate) use strided::aligned_pitch;
pub(crate) use strided::sealed::Cut;
pub use strided::{Strided, Strides, View};

use crate::context::Context;
use crate::timeline::{Fence, Timeline};
use hazard::{Access, Hazards, Rows};
use std::ops::Range;
use std::sync::Arc;

/// What an operation does with one buffer: which bytes, and whether it writes them.
pub struct Operand<'a> {
    pub(crate) context: &'a Context,
    pub(crate) hazards: &'a Hazards,
    pub(crate) range: Range<usize>,
    /// If not all of the range, which rows of it.
    pub(crate) rows: Option<&'a Rows>,
    pub(crate) access: Access,
}

impl<'a> Operand<'a> {
    /// Only these rows of the range, if there are gaps between them.
    pub(crate) fn of_rows(self, rows: Option<&'a Rows>) -> Self {
        Operand { rows, ..self }
    }

    /// Records an operation that does this. Its stream has waited for the uses that conflict.
    #[inline(always)]
    pub(crate) fn note(&self, stream: &Arc<Timeline>, fence: Fence) {
        match self.rows {
            None => self.hazards.note(stream, fence, self.range.clone(), self.access),
            Some(rows) => self.hazards.note_rows(stream, fence, &self.range, rows, self.access),
        }
    }
}

pub(crate) mod sealed {
    use super::Operand;

    /// How this crate sees a tracked buffer.
    pub trait Sealed {
        /// The bytes, for an operation that only reads them.
        fn reading(&self) -> Operand<'_>;
    }

    /// How this crate sees a tracked buffer that may be written.
    pub trait SealedMut: Sealed {
        /// The bytes, for an operation that writes them, and may read them.
        fn writing(&mut self) -> Operand<'_>;
    }
}

/// A buffer or a view whose uses are tracked. Only the buffers and views of this crate implement
/// it.
pub trait Tracked: sealed::Sealed {}

/// A tracked buffer or view that may be written.
pub trait TrackedMut: Tracked + sealed::SealedMut {}
