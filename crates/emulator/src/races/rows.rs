//! Uses of rows: the bytes of a use are all of its range, or rows of it at a stride.
//!
//! A column of a table is thousands of rows. The shadow keeps it as one use of the range from the
//! first row to the last, and looks at the rows only where two uses may race.

use super::shadow::Use;

/// Which bytes of its range a use has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    /// The length of a row in bytes.
    bytes: u64,
    /// From the start of a row to that of the next, in bytes; 0 if the use has the whole range.
    stride: u64,
}

impl Rows {
    /// Rows with gaps between them. The first one begins where the use does.
    pub(crate) fn new(bytes: u64, stride: u64) -> Self {
        debug_assert!(0 < bytes && bytes < stride, "otherwise it is a range");
        Rows { bytes, stride }
    }
}

impl Use {
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.rows.stride == 0
    }

    /// The first of its bytes between two addresses of its range, as far as they lie together.
    fn first_in(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        if self.is_whole() {
            return (from < end).then_some((from, end));
        }
        let Rows { bytes, stride } = self.rows;
        let row = self.row_of(from);
        let row = if from < row + bytes { row } else { row + stride };
        let (start, end) = (row.max(from), (row + bytes).min(end));
        (start < end).then_some((start, end))
    }

    /// The same of the last of its bytes.
    fn last_in(&self, from: u64, end: u64) -> Option<(u64, u64)> {
        if self.is_whole() || from >= end {
            return (from < end).then_some((from, end));
        }
        let row = self.row_of(end - 1);
        let (start, end) = (row.max(from), (row + self.rows.bytes).min(end));
        (start < end).then_some((start, end))
    }

    /// Where the row begins that an address of its range lies in, or in the gap after it.
    fn row_of(&self, address: u64) -> u64 {
        address - (address - self.start) % self.rows.stride
    }

    /// The first and the last byte that both use between two addresses, if they use some.
    #[inline]
    pub(super) fn common(&self, other: &Use, from: u64, end: u64) -> Option<(u64, u64)> {
        if self.is_whole() && other.is_whole() {
            return Some((from, end));
        }
        self.common_rows(other, from, end)
    }

    #[cold]
    fn common_rows(&self, other: &Use, from: u64, end: u64) -> Option<(u64, u64)> {
        let (rows, other) = if self.is_whole() { (other, self) } else { (self, other) };
        // After so many rows the two lie to each other as at first.
        let most = match other.is_whole() {
            true => 1,
            false => other.rows.stride / divisor(rows.rows.stride, other.rows.stride) + 1,
        };
        let mut at = from;
        let first = (0..most).find_map(|_| {
            let (start, end) = rows.first_in(at, end)?;
            at = end;
            other.first_in(start, end)
        })?;
        let mut at = end;
        let last = (0..most).find_map(|_| {
            let (start, end) = rows.last_in(from, at)?;
            at = start;
            other.last_in(start, end)
        });
        Some((first.0, last.unwrap_or(first).1))
    }

    /// Whether every row of another use, as far as it lies in this one's range, is in a row of
    /// this one.
    pub(super) fn has_rows_of(&self, other: &Use) -> bool {
        let Rows { bytes, stride } = self.rows;
        if other.rows.stride != stride || stride == 0 {
            return false;
        }
        let skipped = match other.start.checked_sub(self.start) {
            Some(later) => later % stride,
            None => (stride - (self.start - other.start) % stride) % stride,
        };
        skipped + other.rows.bytes <= bytes
    }

    /// A part of it that begins after an address of its range, or there: the rest of a row, or all
    /// rows from the next one on.
    pub(super) fn after(self, address: u64, end: u64) -> Option<Use> {
        let (start, row_end) = self.first_in(address, end)?;
        if self.is_whole() || self.row_of(start) == start {
            return Some(Use { start, bytes: end - start, ..self });
        }
        Some(Use { start, bytes: row_end - start, rows: Rows::default(), ..self })
    }

    /// The part of it between two addresses of its range; with the beginning of its first row.
    pub(super) fn between(self, start: u64, end: u64) -> Use {
        let start = if self.is_whole() { start } else { self.row_of(start) };
        Use { start, bytes: end - start, ..self }
    }
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::clock::{Called, Epoch};
    use super::*;

    fn used(start: u64, bytes: u64, rows: u64, stride: u64) -> Use {
        let by = Use::by(Epoch { agent: 1, position: 1 }, None, Called::default());
        let span = (rows - 1) * stride + bytes;
        let rows = if rows == 1 { Rows::default() } else { Rows::new(bytes, stride) };
        Use { start, bytes: span, rows, ..by }
    }

    fn bytes(of: &Use) -> Vec<u64> {
        let is_its = |at: &u64| of.is_whole() || (at - of.start) % of.rows.stride < of.rows.bytes;
        (of.start..of.start + of.bytes).filter(is_its).collect()
    }

    /// Compares chosen pairs with lists of their bytes.
    #[test]
    fn the_common_bytes_are_those_of_both_lists() {
        let mut state = 11_u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let (mut some, mut none, mut covered) = (0, 0, 0);
        for _ in 0..20_000 {
            let mut any = || {
                let (start, stride) = (10 + below(20), 2 + below(12));
                used(start, 1 + below(stride - 1), 1 + below(6), stride)
            };
            let (a, b) = (any(), any());
            let (from, end) = (a.start.max(b.start), (a.start + a.bytes).min(b.start + b.bytes));
            if from >= end {
                continue;
            }
            let from = from + below(end - from);
            let end = from + 1 + below(end - from);
            let listed = bytes(&b);
            let both: Vec<u64> = bytes(&a)
                .into_iter()
                .filter(|at| listed.contains(at) && (from..end).contains(at))
                .collect();
            let expected = both.first().map(|&first| (first, both[both.len() - 1] + 1));
            assert_eq!(a.common(&b, from, end), expected, "{a:?} {b:?} {from}..{end}");
            some += u64::from(expected.is_some());
            none += u64::from(expected.is_none());
            if a.has_rows_of(&b) {
                let list = bytes(&a);
                let inside = |at: &&u64| (a.start..a.start + a.bytes).contains(at);
                assert!(listed.iter().filter(inside).all(|at| list.contains(at)), "{a:?} {b:?}");
                covered += 1;
            }
            let part = bytes(&a.between(from, end));
            let whole = bytes(&a);
            assert!(part.iter().all(|at| whole.contains(at)), "{a:?} {from}..{end}");
            let inside = |at: &&u64| (from..end).contains(at);
            assert!(whole.iter().filter(inside).all(|at| part.contains(at)));
        }
        assert!(some > 1000 && none > 1000 && covered > 100, "{some} {none} {covered}");
    }
}
