//! What a capture has recorded, for the graph that it becomes.

use super::buffer::{GraphBuffer, Use};
use super::outline::Outline;
use crate::driver::{CopyKind, DevicePtr, RawNode};
use crate::error::{Error, Result};
use crate::memory::hazard::Access;

/// What was captured.
#[derive(Default)]
pub(super) struct Work {
    pub(super) uses: Vec<Use>,
    pub(super) copies: Vec<CopyNode>,
    /// The buffers that a kernel or foreign work names: their addresses stay.
    pub(super) fixed: Vec<usize>,
    /// How many bytes it moves.
    pub(super) bytes: usize,
    pub(super) outline: Outline,
}

/// A copy that was captured, and how to give it other addresses.
pub(super) struct CopyNode {
    pub(super) node: Option<RawNode>,
    pub(super) kind: CopyKind,
    /// The buffer and the offset of the source in bytes, and those of the destination.
    pub(super) sides: [(usize, usize); 2],
    pub(super) bytes: usize,
}

impl CopyNode {
    pub(super) fn names(&self, index: usize) -> bool {
        self.sides.iter().any(|side| side.0 == index)
    }

    /// Whether one copy can cover its bytes in that buffer.
    pub(super) fn fits<B: GraphBuffer>(&self, index: usize, new: &B) -> bool {
        let is_it = |side: &&(usize, usize)| side.0 == index;
        let mut sides = self.sides.iter().filter(is_it);
        sides.all(|&(_, offset)| new.is_one_piece(offset..offset + self.bytes))
    }
}

/// The uses by buffer and access: the hull of the ranges of each.
pub(super) fn merged(mut uses: Vec<Use>) -> Vec<Use> {
    let is_write = |user: &Use| user.access == Access::Write;
    uses.sort_by_key(|user| (user.index, is_write(user)));
    uses.dedup_by(|next, kept| {
        let same = next.index == kept.index && next.access == kept.access;
        if same {
            kept.range.start = kept.range.start.min(next.range.start);
            kept.range.end = kept.range.end.max(next.range.end);
        }
        same
    });
    uses
}

/// Refuses a copy within a device whose two sides overlap.
pub(super) fn check_overlap(
    operation: &'static str,
    (src, dst): (DevicePtr, DevicePtr),
    bytes: usize,
) -> Result<()> {
    if src.abs_diff(dst) >= bytes as u64 {
        return Ok(());
    }
    let what = format!("{bytes} bytes at {src:#x} and at {dst:#x} overlap");
    Err(Error::invalid(operation, what, "copy between parts that do not overlap"))
}
