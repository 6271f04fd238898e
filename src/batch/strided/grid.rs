//! What a copy of strided views comes to: rows of equal length on both sides, in bytes.

use std::mem::swap;

use crate::copy::order::Door;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Strides;
use crate::memory::hazard::Rows;

/// Rows that are copied, in as few dimensions as they have. Distances and lengths are in bytes, and
/// count from the first byte of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// The length of a row.
    pub(super) row: usize,
    pub(super) rows: Dimension,
    pub(super) planes: Dimension,
}

/// How many rows or planes there are, and how far apart they are on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dimension {
    pub(super) count: usize,
    pub(super) src: usize,
    pub(super) dst: usize,
}

/// One of the two ends of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

impl Dimension {
    const ONE: Dimension = Dimension { count: 1, src: 0, dst: 0 };
}

impl Grid {
    /// For copying rows of elements of `T`. `None` if there are none.
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](ErrorKind::LengthMismatch), unless the sides have the same rows, or one
    /// of them has no gaps and as many elements.
    pub(super) fn new<T>(door: Door<'_>, src: Strides, dst: Strides) -> Result<Option<Self>> {
        let shape = |side: &Strides| (side.row, side.rows, side.planes);
        if src.is_empty() && dst.is_empty() {
            return Ok(None);
        }
        let as_many = src.elements() == dst.elements();
        let (src, dst) = match () {
            () if shape(&src) == shape(&dst) => (src, dst),
            () if as_many && src.is_dense() => (dst.dense(), dst),
            () if as_many && dst.is_dense() => (src, src.dense()),
            () => {
                let what = format!("the source has {src:?}, the destination {dst:?}");
                let remedy = "give both sides the same rows, or one of them as many elements \
                              without gaps";
                return Err(Error::new(ErrorKind::LengthMismatch, door.operation, what, remedy));
            }
        };
        let size = size_of::<T>();
        Ok((size > 0).then(|| Self::merged(src, dst, size)))
    }

    /// The rows of two sides of one shape.
    fn merged(src: Strides, dst: Strides, size: usize) -> Self {
        let dimension = |count, src, dst| match count {
            1 => Dimension::ONE,
            _ => Dimension { count, src: src * size, dst: dst * size },
        };
        let rows = dimension(src.rows, src.pitch, dst.pitch);
        let planes = dimension(src.planes, src.plane_pitch, dst.plane_pitch);
        Grid { row: src.row * size, rows, planes }.settled()
    }

    /// The same rows with a source, or a destination, without gaps.
    pub(super) fn packed(self, side: End) -> Self {
        let plane = self.row * self.rows.count;
        let (mut rows, mut planes) = (self.rows, self.planes);
        match side {
            End::Source => (rows.src, planes.src) = (self.row, plane),
            End::Destination => (rows.dst, planes.dst) = (self.row, plane),
        }
        Grid { rows, planes, ..self }.settled()
    }

    /// The same rows in as few dimensions as they have.
    fn settled(self) -> Self {
        let mut grid = self;
        if grid.rows.count == 1 || grid.joins_the_row(grid.planes) {
            swap(&mut grid.rows, &mut grid.planes);
        }
        while grid.rows.count > 1 && grid.joins_the_row(grid.rows) {
            grid.row *= grid.rows.count;
            grid.rows = std::mem::replace(&mut grid.planes, Dimension::ONE);
        }
        for grid_as_it_is in [grid, grid.swapped()] {
            let Grid { rows, planes, .. } = grid_as_it_is;
            let follows = |pitch: usize, plane: usize| plane == rows.count * pitch;
            if planes.count > 1 && follows(rows.src, planes.src) && follows(rows.dst, planes.dst) {
                let rows = Dimension { count: rows.count * planes.count, ..rows };
                return Grid { rows, planes: Dimension::ONE, ..grid };
            }
        }
        grid
    }

    /// Whether rows of this dimension follow each other without gaps on both sides.
    fn joins_the_row(&self, dimension: Dimension) -> bool {
        dimension.count > 1 && dimension.src == self.row && dimension.dst == self.row
    }

    /// The same rows, with the two dimensions exchanged. Rows are unordered.
    pub(super) fn swapped(self) -> Self {
        Grid { rows: self.planes, planes: self.rows, ..self }
    }

    /// The number of rows of all planes.
    pub(super) fn count(&self) -> usize {
        self.rows.count * self.planes.count
    }

    /// The number of bytes of all rows.
    pub(super) fn bytes(&self) -> usize {
        self.count() * self.row
    }

    /// Which bytes of its range the source has, and which the destination, if there are gaps.
    pub(super) fn uses(&self) -> (Option<Rows>, Option<Rows>) {
        let Grid { row, rows, planes } = *self;
        let side = |pitch, plane_pitch| {
            let strides = Strides::new(row, rows.count, pitch).planes(planes.count, plane_pitch);
            let dimensions = [(rows.count, pitch), (planes.count, plane_pitch)];
            (!strides.is_dense()).then(|| Rows::new(row, dimensions))
        };
        (side(rows.src, planes.src), side(rows.dst, planes.dst))
    }

    /// What a copy of them does, for errors.
    pub(super) fn describe(&self) -> String {
        format!("copying {} rows of {} bytes", self.count(), self.row)
    }

    /// Where each row begins, at the source and at the destination.
    pub(super) fn starts(self) -> impl Iterator<Item = (usize, usize)> + Clone {
        let row = move |n: usize| {
            let (plane, row) = (n / self.rows.count, n % self.rows.count);
            let at = |plane_pitch, pitch| plane * plane_pitch + row * pitch;
            (at(self.planes.src, self.rows.src), at(self.planes.dst, self.rows.dst))
        };
        (0..self.count()).map(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(row: usize, rows: (usize, usize, usize), planes: (usize, usize, usize)) -> Grid {
        let of = |(count, src, dst)| Dimension { count, src, dst };
        Grid { row, rows: of(rows), planes: of(planes) }
    }

    const ONE: (usize, usize, usize) = (1, 0, 0);

    #[test]
    fn dimensions_without_gaps_go() {
        let merged = |src, dst| Grid::merged(src, dst, 2);
        let dense = Strides::new(5, 3, 5).planes(4, 15);
        assert_eq!(merged(dense, dense), grid(120, ONE, ONE));
        // Gaps between the planes only: their rows are one row.
        let planes = Strides::new(5, 3, 5).planes(4, 20);
        assert_eq!(merged(planes, dense), grid(30, (4, 40, 30), ONE));
        // Gaps between the rows only: one plane.
        let rows = Strides::new(5, 3, 7).planes(4, 21);
        assert_eq!(merged(rows, dense), grid(10, (12, 14, 10), ONE));
        assert_eq!(merged(dense, rows), grid(10, (12, 10, 14), ONE));
        // Both.
        let both = Strides::new(5, 3, 7).planes(4, 22);
        assert_eq!(merged(both, dense), grid(10, (3, 14, 10), (4, 44, 30)));
        // One row to a plane, whatever its pitch says.
        let thin = Strides::new(5, 1, 1).planes(4, 6);
        assert_eq!(merged(thin, thin), grid(10, (4, 12, 12), ONE));
        // Interleaved planes, the same on both sides.
        let mixed = Strides::new(5, 3, 20).planes(4, 5);
        assert_eq!(merged(mixed, mixed), grid(120, ONE, ONE));
        assert_eq!(merged(mixed, dense), grid(10, (3, 40, 10), (4, 10, 30)));
    }

    #[test]
    fn a_row_starts_where_its_numbers_say() {
        let two = grid(10, (3, 14, 10), (2, 50, 30));
        let starts = [(0, 0), (14, 10), (28, 20), (50, 30), (64, 40), (78, 50)];
        assert_eq!(two.starts().collect::<Vec<_>>(), starts);
        assert_eq!((two.count(), two.bytes()), (6, 60));
    }
}
