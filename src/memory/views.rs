//! What the buffers of both kinds of memory, and the views of them, have in common.
//!
//! A view is a region, which records its uses, and a range of elements. Two exclusive views of one
//! buffer are disjoint.

use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};

use bytemuck::Pod;

use super::device::{DeviceBuf, DeviceSlice, DeviceSliceMut};
use super::hazard::Access;
use super::pinned::{PinnedBuf, PinnedSlice, PinnedSliceMut};
use super::range::in_bytes;
use super::{Operand, Tracked, TrackedMut, range, sealed};
use crate::error::Result;

macro_rules! buffer {
    ($buffer:ident, $shared:ident, $exclusive:ident) => {
        impl<T: Pod> $buffer<T> {
            /// Whether there are no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// A view of the elements in `range`. Does not block.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if the range does not lie in the
            /// buffer.
            #[inline]
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<$shared<'_, T>> {
                const OPERATION: &str = concat!(stringify!($buffer), "::slice");
                let range = range::resolve::<T>(OPERATION, range, self.len())?;
                Ok($shared { region: self.region(), range, element: PhantomData })
            }

            /// A view of the elements in `range` that may be written. Does not block.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if the range does not lie in the
            /// buffer.
            #[inline]
            pub fn slice_mut(
                &mut self,
                range: impl RangeBounds<usize>,
            ) -> Result<$exclusive<'_, T>> {
                const OPERATION: &str = concat!(stringify!($buffer), "::slice_mut");
                let range = range::resolve::<T>(OPERATION, range, self.len())?;
                Ok($exclusive { region: self.region(), range, element: PhantomData })
            }

            /// The whole buffer as a view.
            #[must_use]
            #[inline]
            pub fn as_slice(&self) -> $shared<'_, T> {
                $shared { region: self.region(), range: 0..self.len(), element: PhantomData }
            }

            /// The whole buffer as a view that may be written.
            #[must_use]
            #[inline]
            pub fn as_slice_mut(&mut self) -> $exclusive<'_, T> {
                $exclusive { region: self.region(), range: 0..self.len(), element: PhantomData }
            }
        }

        impl<'a, T: Pod> From<&'a $buffer<T>> for $shared<'a, T> {
            #[inline]
            fn from(buffer: &'a $buffer<T>) -> Self {
                buffer.as_slice()
            }
        }

        impl<'a, T: Pod> From<&'a mut $buffer<T>> for $exclusive<'a, T> {
            #[inline]
            fn from(buffer: &'a mut $buffer<T>) -> Self {
                buffer.as_slice_mut()
            }
        }

        impl<'a, T: Pod> From<$exclusive<'a, T>> for $shared<'a, T> {
            #[inline]
            fn from(view: $exclusive<'a, T>) -> Self {
                $shared { region: view.region, range: view.range, element: PhantomData }
            }
        }

        impl<T: Pod> sealed::Sealed for $buffer<T> {
            fn reading(&self) -> Operand<'_> {
                self.region().operand(in_bytes::<T>(&(0..self.len())), Access::Read)
            }
        }

        impl<T: Pod> sealed::SealedMut for $buffer<T> {
            fn writing(&mut self) -> Operand<'_> {
                self.region().operand(in_bytes::<T>(&(0..self.len())), Access::Write)
            }
        }

        impl<T: Pod> Tracked for $buffer<T> {}
        impl<T: Pod> TrackedMut for $buffer<T> {}
    };
}

buffer!(DeviceBuf, DeviceSlice, DeviceSliceMut);
buffer!(PinnedBuf, PinnedSlice, PinnedSliceMut);

macro_rules! view {
    ($view:ident) => {
        impl<T: Pod> $view<'_, T> {
            /// The number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                self.range.len()
            }

            /// Whether there are no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.range.is_empty()
            }
        }

        impl<T: Pod> sealed::Sealed for $view<'_, T> {
            fn reading(&self) -> Operand<'_> {
                self.region.operand(in_bytes::<T>(&self.range), Access::Read)
            }
        }

        impl<T: Pod> Tracked for $view<'_, T> {}
    };
}

view!(DeviceSlice);
view!(DeviceSliceMut);
view!(PinnedSlice);
view!(PinnedSliceMut);

impl<T: Pod> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        DeviceSlice { region: self.region, range: self.range.clone(), element: PhantomData }
    }
}

impl<T: Pod> Clone for PinnedSlice<'_, T> {
    fn clone(&self) -> Self {
        PinnedSlice { region: self.region, range: self.range.clone(), element: PhantomData }
    }
}

/// The elements of `range` in parts of `len`, of which the last may be shorter. No two parts have
/// an element in common, from whichever ends they are taken: exclusive views rely on that.
///
/// As [`step_by`](Iterator::step_by), without its division before the first part: thousands of
/// buffers may have one part each.
#[inline]
fn parts(range: &Range<usize>, len: usize) -> Parts {
    assert!(len > 0, "a chunk has at least one element");
    Parts { left: range.clone(), len }
}

struct Parts {
    left: Range<usize>,
    len: usize,
}

impl Iterator for Parts {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        let Range { start, end } = self.left;
        if start >= end {
            return None;
        }
        self.left.start = start.saturating_add(self.len).min(end);
        Some(start..self.left.start)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.left.len().div_ceil(self.len);
        (count, Some(count))
    }
}

impl DoubleEndedIterator for Parts {
    #[inline]
    fn next_back(&mut self) -> Option<Range<usize>> {
        let Range { start, end } = self.left;
        if start >= end {
            return None;
        }
        // The elements before the last part are a whole number of parts.
        self.left.end = start + (end - start - 1) / self.len * self.len;
        Some(self.left.end..end)
    }
}

impl ExactSizeIterator for Parts {}

macro_rules! shared {
    ($view:ident) => {
        impl<'a, T: Pod> $view<'a, T> {
            /// A view of a part of this one. Does not block.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if the range does not lie in it.
            #[inline]
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
                const OPERATION: &str = concat!(stringify!($view), "::slice");
                let range = range::within::<T>(OPERATION, range, &self.range)?;
                Ok($view { region: self.region, range, element: PhantomData })
            }

            /// Views of `len` elements each, of which the last may have fewer: one copy of a list
            /// each. As `chunks` of a slice; does not block.
            ///
            /// # Panics
            ///
            /// `len` is 0.
            #[inline]
            pub fn chunks(
                &self,
                len: usize,
            ) -> impl ExactSizeIterator<Item = Self> + DoubleEndedIterator + use<'a, T> {
                let region = self.region;
                parts(&self.range, len).map(move |range| $view {
                    region,
                    range,
                    element: PhantomData,
                })
            }
        }
    };
}

shared!(DeviceSlice);
shared!(PinnedSlice);

macro_rules! exclusive {
    ($view:ident, $shared:ident) => {
        impl<'a, T: Pod> $view<'a, T> {
            /// Exclusive views of `len` elements each, of which the last may have fewer: one copy
            /// of a list each. As `chunks_mut` of a slice; does not block.
            ///
            /// # Panics
            ///
            /// `len` is 0.
            #[inline]
            pub fn chunks_mut(
                self,
                len: usize,
            ) -> impl ExactSizeIterator<Item = Self> + DoubleEndedIterator + use<'a, T> {
                let region = self.region;
                parts(&self.range, len).map(move |range| $view {
                    region,
                    range,
                    element: PhantomData,
                })
            }
        }

        impl<T: Pod> $view<'_, T> {
            /// A second view of the same elements.
            ///
            /// # Safety
            ///
            /// * Only one of a view and its twins is used at a time, including everything that
            ///   borrows from it.
            pub(crate) unsafe fn twin(&self) -> Self {
                $view { region: self.region, range: self.range.clone(), element: PhantomData }
            }

            /// The same view, borrowed for a shorter time.
            #[must_use]
            #[inline]
            pub fn reborrow(&mut self) -> $view<'_, T> {
                $view { region: self.region, range: self.range.clone(), element: PhantomData }
            }

            /// A view of a part of this one, which is borrowed for as long. Does not block.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if the range does not lie in it.
            #[inline]
            pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<$view<'_, T>> {
                const OPERATION: &str = concat!(stringify!($view), "::slice_mut");
                let range = range::within::<T>(OPERATION, range, &self.range)?;
                Ok($view { region: self.region, range, element: PhantomData })
            }

            /// Two exclusive views: the elements before `middle`, and those from `middle` on.
            ///
            /// # Errors
            ///
            /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if `middle` is more than
            /// [`len`](Self::len).
            #[inline]
            pub fn split_at_mut(self, middle: usize) -> Result<(Self, Self)> {
                const OPERATION: &str = concat!(stringify!($view), "::split_at_mut");
                let first = range::within::<T>(OPERATION, ..middle, &self.range)?;
                let second = first.end..self.range.end;
                let part = |range| $view { region: self.region, range, element: PhantomData };
                Ok((part(first), part(second)))
            }

            /// A shared view of the same elements.
            #[must_use]
            #[inline]
            pub fn as_slice(&self) -> $shared<'_, T> {
                $shared { region: self.region, range: self.range.clone(), element: PhantomData }
            }
        }

        impl<T: Pod> sealed::SealedMut for $view<'_, T> {
            fn writing(&mut self) -> Operand<'_> {
                self.region.operand(in_bytes::<T>(&self.range), Access::Write)
            }
        }

        impl<T: Pod> TrackedMut for $view<'_, T> {}
    };
}

exclusive!(DeviceSliceMut, DeviceSlice);
exclusive!(PinnedSliceMut, PinnedSlice);

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn chunks_are_those_of_a_slice() {
        let elements: Vec<usize> = (3..17).collect();
        for len in [1, 4, 7, 14, 15, usize::MAX] {
            let like_slices =
                elements.chunks(len).map(|chunk| chunk[0]..chunk[chunk.len() - 1] + 1);
            assert!(parts(&(3..17), len).eq(like_slices.clone()), "{len}");
            assert!(parts(&(3..17), len).rev().eq(like_slices.clone().rev()), "{len}");
            assert_eq!(parts(&(3..17), len).len(), elements.chunks(len).len(), "{len}");
            let (mut ours, mut theirs) = (parts(&(3..17), len), like_slices);
            for turn in 0..16 {
                let from_the_front = turn % 3 != 1;
                let both = match from_the_front {
                    true => (ours.next(), theirs.next()),
                    false => (ours.next_back(), theirs.next_back()),
                };
                assert_eq!(both.0, both.1, "{len}, from both ends");
            }
        }
        assert_eq!(parts(&(5..5), 3).len(), 0);
    }

    #[test]
    #[should_panic(expected = "at least one element")]
    fn chunks_of_nothing_are_refused() {
        let _ = parts(&(0..4), 0);
    }
}
