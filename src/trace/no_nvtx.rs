//! In the place of `nvtx.rs` where the feature is off: nobody listens.

use super::Work;
use super::span::Kind;

/// There is none.
pub(crate) enum Range {}

#[inline(always)]
pub(crate) fn range(_: Kind, _: impl FnOnce() -> Work) -> Option<Range> {
    None
}
