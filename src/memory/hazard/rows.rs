//! Rows that lie a pitch apart, as the bytes of a use: two copies of different columns of a matrix
//! use ranges that overlap, and no byte in common.

use std::ops::Range;

/// If two uses have rows at different pitches, so many rows of the larger pitch are compared one by
/// one. More of them count as if one had a byte of the other use.
const MANY: isize = 32;

/// Which bytes of its range a use has. The range begins with the first row, and ends with the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    row: isize,
    /// The dimension with the larger pitch. Each of its parts holds the other dimension.
    outer: Level,
    inner: Level,
}

/// So many parts, which begin a pitch apart and do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    count: isize,
    pitch: isize,
}

impl Level {
    const ONE: Level = Level { count: 1, pitch: 0 };
}

impl Rows {
    /// Rows of `row` bytes in two dimensions, each a count and a pitch, in any order. They lie in
    /// memory, with gaps, and do not overlap.
    pub(crate) fn new(row: usize, dimensions: [(usize, usize); 2]) -> Self {
        let [one, other] = dimensions.map(|(count, pitch)| match count {
            1 => Level::ONE,
            _ => Level { count: count.cast_signed(), pitch: pitch.cast_signed() },
        });
        let (outer, inner) = if one.pitch > other.pitch { (one, other) } else { (other, one) };
        Rows { row: row.cast_signed(), outer, inner }
    }

    /// A range without gaps.
    fn whole(bytes: usize) -> Self {
        Rows { row: bytes.cast_signed(), outer: Level::ONE, inner: Level::ONE }
    }

    /// From the first byte to behind the last one.
    pub(super) fn span(&self) -> isize {
        let behind = |level: Level| (level.count - 1) * level.pitch;
        behind(self.outer) + behind(self.inner) + self.row
    }

    /// The outer dimension and one of its parts, if there are gaps.
    fn parts(&self) -> Option<(Level, Rows)> {
        let part = Rows { outer: self.inner, inner: Level::ONE, ..*self };
        (self.outer.count > 1).then_some((self.outer, part))
    }

    /// Whether these rows, of which the first begins at `start`, have a byte of a range, which
    /// overlaps theirs.
    #[cold]
    pub(super) fn meet_range(&self, start: usize, range: &Range<usize>) -> bool {
        // Only what the rows span: the range may be longer than any memory.
        let end = range.end.min(start + self.span().cast_unsigned());
        let from = range.start.max(start);
        self.meet_rows(start, &Rows::whole(end - from), from)
    }

    /// Whether these rows, of which the first begins at `start`, have a byte of others. If not, the
    /// answer is exact; otherwise it may be wrong, which costs a wait.
    pub(super) fn meet_rows(&self, start: usize, theirs: &Rows, from: usize) -> bool {
        self.meet(theirs, from.cast_signed() - start.cast_signed())
    }

    /// Whether one of these bytes is one of theirs, which begin `at` bytes behind the first of
    /// these; see [`MANY`].
    fn meet(&self, theirs: &Rows, at: isize) -> bool {
        if at >= self.span() || at + theirs.span() <= 0 {
            return false;
        }
        match (self.parts(), theirs.parts()) {
            (None, None) => true,
            (Some((ours, part)), Some((others, other))) if ours.pitch == others.pitch => {
                // The first of their parts begins in our part of that number, or in the gap behind
                // it, and may end in the next one. So does each with those that many further on.
                let (number, at) = (at.div_euclid(ours.pitch), at.rem_euclid(ours.pitch));
                let meet_from = |number: isize, at: isize| {
                    number < ours.count && number + others.count > 0 && part.meet(&other, at)
                };
                meet_from(number, at) || meet_from(number + 1, at - ours.pitch)
            }
            (Some((ours, part)), others) if others.is_none_or(|it| it.0.pitch < ours.pitch) => {
                let first = (at - part.span()).div_euclid(ours.pitch) + 1;
                let last = (at + theirs.span() - 1).div_euclid(ours.pitch);
                let near = first.max(0)..=last.min(ours.count - 1);
                let number = near.end() - near.start() + 1;
                number > MANY || near.into_iter().any(|n| part.meet(theirs, at - n * ours.pitch))
            }
            _ => theirs.meet(self, -at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows as their numbers, and as the bytes that they have.
    struct Case {
        rows: Rows,
        bytes: Vec<isize>,
    }

    fn case(row: usize, one: (usize, usize), other: (usize, usize)) -> Case {
        let rows = Rows::new(row, [one, other]);
        let starts = (0..one.0).flat_map(|n| (0..other.0).map(move |m| n * one.1 + m * other.1));
        let bytes: Vec<usize> = starts.flat_map(|start| start..start + row).collect();
        let bytes: Vec<_> = bytes.into_iter().map(usize::cast_signed).collect();
        assert_eq!(bytes.iter().max().map(|last| last + 1), Some(rows.span()));
        Case { rows, bytes }
    }

    /// All with small numbers, in one and two dimensions, whose rows do not overlap.
    fn cases() -> Vec<Case> {
        let mut cases: Vec<_> = (1..5).map(|row| case(row, (1, 0), (1, 0))).collect();
        for (row, rows, gap) in numbers([3, 4, 3]) {
            let pitch = row + gap;
            cases.push(case(row, (rows, pitch), (1, 7)));
            let span = (rows - 1) * pitch + row;
            for (planes, gap) in [(2, 0), (2, 1), (3, 0), (3, 2)] {
                cases.push(case(row, (rows, pitch), (planes, span + gap)));
                // The rows of a plane further apart than the planes.
                cases.push(case(row, (planes, span + gap), (rows, pitch)));
            }
        }
        cases
    }

    /// All of three numbers, from 1, 2 and 0 on.
    fn numbers(ends: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
        let [a, b, c] = ends;
        (1..=a).flat_map(move |a| (2..=b).flat_map(move |b| (0..=c).map(move |c| (a, b, c))))
    }

    #[test]
    fn rows_meet_if_they_have_a_byte_in_common() {
        let cases = cases();
        for (number, ours) in cases.iter().enumerate() {
            let mut is_ours = vec![false; ours.rows.span().cast_unsigned()];
            ours.bytes.iter().for_each(|&byte| is_ours[byte.cast_unsigned()] = true);
            // Each meets some of the others: all would take too long.
            for theirs in cases.iter().skip(number % 7).step_by(7) {
                for at in -theirs.rows.span() - 1..=ours.rows.span() + 1 {
                    let at_byte = |byte: &isize| is_ours.get((byte + at).cast_unsigned());
                    let expected = theirs.bytes.iter().filter_map(at_byte).any(|is| *is);
                    let found = ours.rows.meet(&theirs.rows, at);
                    assert_eq!(found, expected, "{:?}, {:?} at {at}", ours.rows, theirs.rows);
                }
            }
        }
    }

    #[test]
    fn of_many_rows_columns_and_every_second_row_are_told_apart() {
        let column = Rows::new(64, [(1 << 20, 4096), (1, 0)]);
        let of_columns = |at| column.meet_rows(0, &column, at);
        assert_eq!([0, 63, 64, 4032, 4033].map(of_columns), [true, true, false, false, true]);
        let second = Rows::new(4096, [(1 << 20, 8192), (1, 0)]);
        let of_seconds = |at| second.meet_rows(0, &second, at);
        assert_eq!([0, 4095, 4096, 4097, 8192].map(of_seconds), [true, true, false, true, true]);
        // A gap is nobody's, and the range of a whole buffer has every row.
        assert!(!second.meet_range(0, &(5000..8192)) && second.meet_range(0, &(5000..8193)));
        assert!(second.meet_range(4096, &(0..usize::MAX)));
        // Too many to compare.
        assert!(second.meet_rows(0, &column, 4096));
    }
}
