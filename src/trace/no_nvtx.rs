//! Replaces `nvtx.rs` if the feature is off: no tool listens.

use super::span::{Kind, Work};

/// Never made.
pub(crate) enum Range {}

#[inline(always)]
pub(crate) fn range<'a>(_: Kind, _: impl FnOnce() -> Work<'a>) -> Option<Range> {
    None
}
