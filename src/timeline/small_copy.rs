//! A small copy that may be enqueued together with those of other threads, and its outcome.

use super::marks::Fence;
use crate::driver::{CopyKind, DriverResult, Item};

/// A copy that may become part of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallCopy {
    pub(super) kind: CopyKind,
    pub(super) item: Item,
}

/// What became of one copy of a batch.
pub(crate) struct Enqueued {
    pub(super) fence: Fence,
    /// What the driver returned, or its panic.
    pub(super) result: std::thread::Result<DriverResult<()>>,
}

impl SmallCopy {
    /// # Safety
    ///
    /// * The copy keeps the preconditions of [`copy_h2d`] or [`copy_d2h`], by its `kind`, on the
    ///   stream that it is submitted to, until it is retired. The provenance of the host's address
    ///   was exposed.
    /// * Until the submission returns, no other code writes to its source, or touches its
    ///   destination.
    ///
    /// [`copy_h2d`]: crate::driver::Driver::copy_h2d
    /// [`copy_d2h`]: crate::driver::Driver::copy_d2h
    pub(crate) unsafe fn new(kind: CopyKind, item: Item) -> Self {
        SmallCopy { kind, item }
    }
}
