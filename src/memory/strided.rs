//! Views of rows that lie a pitch apart: columns of a matrix, a box of a volume.
//!
//! ```text
//!   |row....|  gap  |row....|  gap  |row....|      one plane of three rows
//!   `----- pitch ---'
//! ```
//!
//! A strided view is a view and the [`Strides`] of its rows. The view is cut off behind the last
//! row, so that the uses of its buffer end there.

use bytemuck::Pod;

use super::{
    DeviceBuf, DeviceSlice, DeviceSliceMut, PinnedBuf, PinnedSlice, PinnedSliceMut, counted,
};
use crate::error::{Error, ErrorKind, Result};

/// Where rows of equal length lie, in elements. The first one begins at the first element.
///
/// Rows lie in planes of equally many: a matrix is one plane, a volume has several. Either distance
/// may be the larger one: planes may follow each other, or lie interleaved, a row of each in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strides {
    /// The length of a row.
    pub row: usize,
    /// The number of rows of a plane.
    pub rows: usize,
    /// From the start of a row to that of the next. No meaning if a plane has one row.
    pub pitch: usize,
    /// The number of planes.
    pub planes: usize,
    /// From the start of a plane to that of the next. No meaning if there is one plane.
    pub plane_pitch: usize,
}

impl Strides {
    /// One plane of `rows` rows of `row` elements, which begin `pitch` elements apart.
    #[must_use]
    pub const fn new(row: usize, rows: usize, pitch: usize) -> Self {
        Strides { row, rows, pitch, planes: 1, plane_pitch: 0 }
    }

    /// As many planes, which begin `plane_pitch` elements apart.
    #[must_use]
    pub const fn planes(self, planes: usize, plane_pitch: usize) -> Self {
        Strides { planes, plane_pitch, ..self }
    }

    /// Elements without gaps.
    pub(crate) const fn flat(elements: usize) -> Self {
        Strides::new(elements, 1, elements)
    }

    /// Whether there are no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.row == 0 || self.rows == 0 || self.planes == 0
    }

    /// The number of elements of all rows, which lie in memory.
    pub(crate) fn elements(&self) -> usize {
        if self.is_empty() { 0 } else { self.row * self.rows * self.planes }
    }

    /// Whether the elements, of which there are some, follow each other in their order.
    pub(crate) fn is_dense(&self) -> bool {
        let plane = self.row * self.rows;
        (self.rows == 1 || self.pitch == self.row)
            && (self.planes == 1 || self.plane_pitch == plane)
    }

    /// The same rows, of which there are some, without gaps.
    pub(crate) fn dense(self) -> Self {
        Strides { pitch: self.row, plane_pitch: self.row * self.rows, ..self }
    }

    /// From the first element to behind the last one. `None` if it overflows.
    pub(crate) fn extent(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        let behind = |count: usize, pitch: usize| (count - 1).checked_mul(pitch);
        let rows = behind(self.rows, self.pitch)?.checked_add(self.row)?;
        behind(self.planes, self.plane_pitch)?.checked_add(rows)
    }

    /// Whether no two rows overlap: in one of the two dimensions rows are apart, and in the other
    /// one what these span is. No number overflows, because the extent does not.
    pub(crate) fn are_apart(&self) -> bool {
        let nested = |inner: (usize, usize), outer: (usize, usize)| {
            let span = (inner.0 - 1) * inner.1 + self.row;
            (inner.0 == 1 || inner.1 >= self.row) && (outer.0 == 1 || outer.1 >= span)
        };
        let (rows, planes) = ((self.rows, self.pitch), (self.planes, self.plane_pitch));
        self.is_empty() || nested(rows, planes) || nested(planes, rows)
    }
}

/// The fewest elements from the start of a row to that of the next, if each is to begin at a
/// multiple of 256 bytes. `None` if it overflows.
pub(crate) fn aligned_pitch<T>(row: usize) -> Option<usize> {
    const BOUNDARY: usize = 256;
    // A power of two divides their product by what is in both.
    let common = 1 << size_of::<T>().trailing_zeros().min(BOUNDARY.trailing_zeros());
    row.checked_next_multiple_of(BOUNDARY / common)
}

pub(crate) mod sealed {
    /// How a strided view sees its view.
    pub trait Cut: Sized {
        /// The number of elements.
        fn elements(&self) -> usize;

        /// The first `len` elements, as many as there are at least.
        #[must_use]
        fn first(self, len: usize) -> Self;

        /// An element's size in bytes.
        const SIZE: usize;
    }
}

/// What a strided view can be made of: a view of a buffer, or a slice.
pub trait View: sealed::Cut {}

/// A view of rows that lie a pitch apart, for
/// [`Stream::upload_strided`](crate::Stream::upload_strided) and its like.
///
/// `V` is a view of a buffer, shared or exclusive, or a slice.
///
/// ```
/// use pinlane::{Device, Strided, Strides};
///
/// let device = Device::open_or_emulated()?;
/// let mut gpu = device.alloc::<f32>(100 * 512)?; // a matrix of 100 rows of 512
/// // Columns 64 .. 128 of it.
/// let columns = Strided::new(gpu.slice_mut(64..)?, Strides::new(64, 100, 512))?;
/// let host = vec![1.0f32; 100 * 64];
/// device.stream()?.upload_strided(&host, columns)?;
/// # Ok::<(), pinlane::Error>(())
/// ```
///
/// # Uses
///
/// A copy counts as a use of the rows, without the gaps between them. So copies of different
/// columns of a matrix, or of its even and its odd rows, do not wait for each other. Two copies of
/// rows at different pitches, of which more than 32 lie near each other, count as if they
/// overlapped.
#[derive(Clone, Debug)]
pub struct Strided<V> {
    pub(crate) view: V,
    pub(crate) strides: Strides,
}

impl<V: View> Strided<V> {
    /// The rows of a view. They begin at its first element.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](ErrorKind::OutOfRange) if the rows do not lie in the view,
    /// [`InvalidValue`](ErrorKind::InvalidValue) if two rows overlap.
    pub fn new(view: V, strides: Strides) -> Result<Self> {
        const OPERATION: &str = "Strided::new";
        let within = strides.extent().filter(|&extent| extent <= view.elements());
        let Some(extent) = within else {
            let len = view.elements();
            let what = match V::SIZE {
                1 => format!("{strides:?} in {}", counted::<u8>(len)),
                size => format!("{strides:?} in {len} elements of {size} bytes"),
            };
            let remedy = "keep the end of the last row within the view";
            return Err(Error::new(ErrorKind::OutOfRange, OPERATION, what, remedy));
        };
        if !strides.are_apart() {
            let what = format!("rows overlap: {strides:?}");
            let remedy = "keep pitch >= row, and plane_pitch >= what the rows of a plane span";
            return Err(Error::invalid(OPERATION, what, remedy));
        }
        Ok(Strided { view: view.first(extent), strides })
    }

    /// Where its rows lie.
    #[must_use]
    pub fn strides(&self) -> Strides {
        self.strides
    }
}

impl<V> Strided<V> {
    /// `len` elements of a view without gaps.
    pub(crate) fn flat(view: V, len: usize) -> Self {
        Strided { view, strides: Strides::flat(len) }
    }

    /// The same rows of another view of the same elements.
    pub(crate) fn map<W>(self, view: impl FnOnce(V) -> W) -> Strided<W> {
        Strided { view: view(self.view), strides: self.strides }
    }
}

/// Views whose first elements are a view of the same type.
macro_rules! views {
    ($($view:ident)*) => {
        $(impl<T: Pod> sealed::Cut for $view<'_, T> {
            const SIZE: usize = size_of::<T>();

            fn elements(&self) -> usize {
                self.len()
            }

            fn first(mut self, len: usize) -> Self {
                debug_assert!(len <= self.len());
                self.range.end = self.range.start + len;
                self
            }
        }

        impl<T: Pod> View for $view<'_, T> {}

        impl<'a, T: Pod> From<$view<'a, T>> for Strided<$view<'a, T>> {
            fn from(view: $view<'a, T>) -> Self {
                let len = view.len();
                Strided::flat(view, len)
            }
        })*
    };
}

views!(DeviceSlice DeviceSliceMut PinnedSlice PinnedSliceMut);

impl<T: Pod> sealed::Cut for &[T] {
    const SIZE: usize = size_of::<T>();

    fn elements(&self) -> usize {
        self.len()
    }

    fn first(self, len: usize) -> Self {
        &self[..len]
    }
}

impl<T: Pod> View for &[T] {}

impl<T: Pod> sealed::Cut for &mut [T] {
    const SIZE: usize = size_of::<T>();

    fn elements(&self) -> usize {
        self.len()
    }

    fn first(self, len: usize) -> Self {
        &mut self[..len]
    }
}

impl<T: Pod> View for &mut [T] {}

/// Whole buffers, and exclusive views that are only read.
macro_rules! buffers {
    ($($buffer:ident: $shared:ident, $exclusive:ident;)*) => {
        $(impl<'a, T: Pod> From<&'a $buffer<T>> for Strided<$shared<'a, T>> {
            fn from(buffer: &'a $buffer<T>) -> Self {
                buffer.as_slice().into()
            }
        }

        impl<'a, T: Pod> From<&'a mut $buffer<T>> for Strided<$exclusive<'a, T>> {
            fn from(buffer: &'a mut $buffer<T>) -> Self {
                buffer.as_slice_mut().into()
            }
        }

        impl<'a, T: Pod> From<Strided<$exclusive<'a, T>>> for Strided<$shared<'a, T>> {
            fn from(rows: Strided<$exclusive<'a, T>>) -> Self {
                rows.map($shared::from)
            }
        })*
    };
}

buffers! {
    DeviceBuf: DeviceSlice, DeviceSliceMut;
    PinnedBuf: PinnedSlice, PinnedSliceMut;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(result: Result<Strided<&[u16]>>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn rows_lie_in_the_view_and_apart() {
        let elements = [0u16; 100];
        let of = |strides| kind(Strided::new(&elements[..], strides));
        assert_eq!(of(Strides::new(10, 10, 10)), None);
        assert_eq!(of(Strides::new(10, 4, 30)), None); // ends with the view
        assert_eq!(of(Strides::new(11, 4, 30)), Some(ErrorKind::OutOfRange));
        assert_eq!(of(Strides::new(10, 4, 9)), Some(ErrorKind::InvalidValue));
        assert_eq!(of(Strides::new(10, 1, 0)), None);
        // Planes one after the other, interleaved, and overlapping.
        assert_eq!(of(Strides::new(5, 3, 10).planes(2, 30)), None);
        assert_eq!(of(Strides::new(5, 3, 20).planes(2, 5)), None);
        assert_eq!(of(Strides::new(5, 3, 20).planes(2, 4)), Some(ErrorKind::InvalidValue));
        assert_eq!(of(Strides::new(5, 3, 9).planes(2, 5)), Some(ErrorKind::InvalidValue));
        assert_eq!(of(Strides::new(5, 3, 10).planes(2, 24)), Some(ErrorKind::InvalidValue));
        assert_eq!(of(Strides::new(5, 3, 10).planes(2, 25)), None);
    }

    #[test]
    fn no_number_overflows() {
        let elements = [0u16; 4];
        let huge = usize::MAX;
        for strides in [
            Strides::new(huge, 2, 1),
            Strides::new(1, huge, huge),
            Strides::new(2, huge, 1),
            Strides::new(1, 2, huge),
            Strides::new(1, 2, 2).planes(huge, huge),
            Strides::new(1, 2, 2).planes(2, huge),
        ] {
            assert_eq!(kind(Strided::new(&elements[..], strides)), Some(ErrorKind::OutOfRange));
        }
        for strides in [
            Strides::new(0, huge, huge),
            Strides::new(huge, 0, huge),
            Strides::new(huge, huge, 1).planes(0, 0),
        ] {
            assert_eq!(kind(Strided::new(&elements[..], strides)), None, "{strides:?}");
        }
    }

    #[test]
    fn aligned_rows_begin_at_multiples_of_256_bytes() {
        fn of<T>(row: usize) -> Option<usize> {
            let pitch = aligned_pitch::<T>(row)?;
            assert!(pitch >= row && (pitch * size_of::<T>()).is_multiple_of(256));
            Some(pitch)
        }
        assert_eq!([of::<u8>(1), of::<u8>(256), of::<u8>(257)], [256, 256, 512].map(Some));
        assert_eq!([of::<f32>(64), of::<f32>(65)], [64, 128].map(Some));
        assert_eq!([of::<[f32; 3]>(1), of::<[f32; 3]>(65)], [64, 128].map(Some));
        assert_eq!([of::<[u8; 1000]>(1), of::<[u8; 512]>(7)], [32, 7].map(Some));
        assert_eq!(aligned_pitch::<u8>(usize::MAX - 1), None);
    }

    /// The view ends behind the last row, and so does its use.
    #[test]
    fn a_view_is_cut_off_behind_its_last_row() {
        let elements: Vec<u16> = (0..100).collect();
        let rows = Strided::new(&elements[10..], Strides::new(5, 3, 20)).expect("in the view");
        assert_eq!(rows.view, &elements[10..55]);
    }
}
