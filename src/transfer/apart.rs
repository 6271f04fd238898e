//! Destinations that overlap are refused.

use crate::error::{Error, ErrorKind, Result};
use crate::memory::hazard::Access;

/// Refuses destinations that overlap: the parts of a batch are unordered.
pub(crate) fn check_disjoint(
    operation: &'static str,
    written: impl Iterator<Item = (u64, usize)>,
) -> Result<()> {
    check_apart(operation, written.map(|(start, bytes)| (start, bytes, Access::Write)))
}

/// Refuses destinations that overlap one another or a source. Sources may overlap.
pub(super) fn check_apart(
    operation: &'static str,
    ranges: impl Iterator<Item = (u64, usize, Access)>,
) -> Result<()> {
    let mut sorted: Vec<_> = ranges.filter(|&(_, bytes, _)| bytes > 0).collect();
    sorted.sort_unstable_by_key(|&(start, ..)| start);
    // Of those so far the one that ends last, and of those that are written.
    let (mut last, mut written) = ((0, 0), (0, 0));
    let end = |(start, bytes): (u64, usize)| start + bytes as u64;
    for (start, bytes, access) in sorted {
        let range = (start, bytes);
        let before = if access == Access::Write { last } else { written };
        if end(before) > start {
            return Err(Error::new(
                ErrorKind::InvalidValue,
                operation,
                format!(
                    "a destination overlaps another one, or a source: {} bytes at {:#x} and {bytes} bytes at \
                     {start:#x}",
                    before.1, before.0
                ),
                "the copies of a batch are unordered: give each its own bytes",
            ));
        }
        last = if end(last) < end(range) { range } else { last };
        if access == Access::Write && end(written) < end(range) {
            written = range;
        }
    }
    Ok(())
}
