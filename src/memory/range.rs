//! Arithmetic on element ranges, checked before anything is enqueued (soundness rule 9).

use std::ops::{Bound, Range, RangeBounds};

use crate::error::{Error, ErrorKind, Result};

/// `len` elements of `T`, in words. Elements of one byte, as all are in C, are called bytes.
pub(crate) fn counted<T>(len: usize) -> String {
    match size_of::<T>() {
        1 => format!("{len} bytes"),
        size => format!("{len} elements of {size} bytes"),
    }
}

/// The size of `len` elements of `T`, in bytes.
pub(crate) fn byte_count<T>(operation: &'static str, len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize).ok_or_else(|| {
        let what = format!("{} do not fit in an address space", counted::<T>(len));
        Error::invalid(operation, what, "ask for less")
    })
}

/// A range of elements of a buffer, in bytes.
#[inline]
pub(crate) fn in_bytes<T>(range: &Range<usize>) -> Range<usize> {
    range.start * size_of::<T>()..range.end * size_of::<T>()
}

/// The elements of a buffer that `range` names in a view. The view has the elements `view` of the
/// buffer.
#[inline]
pub(crate) fn within<T>(
    operation: &'static str,
    range: impl RangeBounds<usize>,
    view: &Range<usize>,
) -> Result<Range<usize>> {
    let range = resolve::<T>(operation, range, view.len())?;
    Ok(view.start + range.start..view.start + range.end)
}

/// The elements that `range` names in a buffer or view of `len`.
#[inline]
pub(crate) fn resolve<T>(
    operation: &'static str,
    range: impl RangeBounds<usize>,
    len: usize,
) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok(start..end),
        (start, end) => Err(outside(operation, start, end, counted::<T>(len))),
    }
}

#[cold]
fn outside(operation: &'static str, start: Option<usize>, end: Option<usize>, of: String) -> Error {
    let shown = |bound: Option<usize>| bound.map_or("beyond".into(), |bound| bound.to_string());
    let what = format!("the range {} .. {} does not lie in {of}", shown(start), shown(end));
    Error::new(ErrorKind::OutOfRange, operation, what, "keep start <= end <= len")
}
