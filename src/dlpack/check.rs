//! Computes the bytes that a tensor covers. Checked before anything is exported or imported
//! (soundness rule 9).

use super::{DataType, ManagedTensor, Tensor, VERSION};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Strides;

impl DataType {
    /// Whether the specification defines its size.
    pub(super) fn is_known(self) -> bool {
        // Other sizes of FP6 and FP4 are unspecified, and must not be imported.
        let expected = match self.code {
            15 | 16 => 6,
            17 => 4,
            _ => self.bits,
        };
        self.element_bits() > 0 && self.bits == expected
    }

    /// Whether neighbouring elements share bytes.
    pub(super) fn shares_bytes(self) -> bool {
        !self.element_bits().is_multiple_of(8)
    }

    /// The bytes of a whole tensor without gaps; `None` if memory cannot hold it.
    pub(super) fn tensor_bytes(self, elements: usize, padded: bool) -> Option<usize> {
        // Below 2^64 elements of less than 2^24 bits each.
        let bits = if padded { 8 * self.bytes() } else { self.element_bits() };
        let bytes = (elements as u128 * bits as u128).div_ceil(8);
        isize::try_from(bytes).ok().map(isize::cast_unsigned)
    }
}

/// The strides of a tensor without gaps whose last dimension is the innermost. `None` if they
/// overflow.
pub(super) fn compact(shape: &[i64]) -> Option<Vec<i64>> {
    let mut strides = vec![0; shape.len()];
    let mut stride = 1i64;
    for (length, place) in shape.iter().zip(&mut strides).rev() {
        *place = stride;
        stride = stride.checked_mul((*length).max(1))?;
    }
    Some(strides)
}

/// The number of elements; `None` if a length is negative or there are too many.
pub(super) fn count(shape: &[i64]) -> Option<usize> {
    if shape.contains(&0) {
        return shape.iter().all(|&length| length >= 0).then_some(0);
    }
    shape.iter().try_fold(1usize, |product, &length| product.checked_mul(length.try_into().ok()?))
}

/// Checks that every element lies within `bytes`, the first at `offset`. Elements are packed.
pub(super) fn fits(
    operation: &'static str,
    dtype: DataType,
    shape: &[i64],
    strides: &[i64],
    offset: usize,
    bytes: usize,
) -> Result<()> {
    let element = dtype.element_bits() as i128;
    let (mut low, mut high) = (0i128, 0i128);
    for (&length, &stride) in shape.iter().zip(strides) {
        let last = i128::from(length - 1) * i128::from(stride);
        low = low.saturating_add(last.min(0));
        high = high.saturating_add(last.max(0));
    }
    // Saturation is fine: the result is far outside of any buffer.
    let bits = |elements: i128| elements.saturating_mul(element).saturating_add(8 * offset as i128);
    let (first, end) = (bits(low), bits(high.saturating_add(1)));
    if first >= 0 && end <= 8 * bytes as i128 {
        return Ok(());
    }
    let (first, end) = (first.div_euclid(8), end.div_euclid(8) + i128::from(end.rem_euclid(8) > 0));
    let what = format!("the tensor covers bytes {first} .. {end} of a buffer of {bytes} bytes");
    let remedy = "keep offset, shape and strides within the buffer";
    Err(Error::new(ErrorKind::OutOfRange, operation, what, remedy))
}

/// Whether a tensor's elements must be writable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Writable,
    Readable,
}

/// The address and the number of the bytes of a caller's tensor, which must be without gaps.
///
/// # Safety
///
/// * As for [`rows_of`].
pub(super) unsafe fn bytes_of(
    operation: &'static str,
    managed: &ManagedTensor,
    need: Need,
) -> Result<(*mut u8, usize)> {
    // SAFETY: the precondition.
    let (first, rows) = unsafe { rows_of(operation, managed, need) }?;
    if rows.is_empty() || rows.is_dense() {
        return Ok((first, rows.elements()));
    }
    let what =
        format!("a tensor with gaps: {} rows of {} bytes", rows.rows * rows.planes, rows.row);
    let remedy = "make the tensor contiguous first, or import it with its strides";
    Err(Error::invalid(operation, what, remedy))
}

/// The address of a caller's tensor, and where the rows of its bytes lie, in bytes. They are as few
/// as there can be: one row if there are no gaps.
///
/// # Safety
///
/// * `managed` is live; if its major version is known, so are its shape and strides.
pub(super) unsafe fn rows_of(
    operation: &'static str,
    managed: &ManagedTensor,
    need: Need,
) -> Result<(*mut u8, Strides)> {
    let refused = |what, remedy: &'static str| Err(Error::invalid(operation, what, remedy));
    if managed.version.major != VERSION.major {
        let what = format!("a tensor of DLPack {}", managed.version.major);
        return refused(what, "ask the producer for version 1, and call this tensor's deleter");
    }
    if managed.flags & ManagedTensor::READ_ONLY != 0 && need == Need::Writable {
        return refused("the tensor is read-only".to_owned(), "copy it to a buffer");
    }
    let known = ManagedTensor::READ_ONLY | ManagedTensor::COPIED | ManagedTensor::PADDED;
    if managed.flags & !known != 0 {
        let what = format!("a tensor with the flags {:#x}", managed.flags);
        return refused(what, "pass a tensor without flags that DLPack 1.1 does not know");
    }
    let Tensor { data, ndim, dtype, shape, strides, byte_offset, .. } = managed.tensor;
    let is_array = |array: *mut i64| ndim == 0 || array.is_aligned();
    if ndim < 0 || (ndim > 0 && shape.is_null()) || !is_array(shape) || !is_array(strides) {
        let what = format!("{ndim} dimensions, the shape at {shape:p}, strides at {strides:p}");
        return refused(what, "pass a tensor whose arrays have an element for each dimension");
    }
    if !dtype.is_known() {
        return refused(format!("{dtype:?}"), "pass a type whose size DLPack knows");
    }
    let dimensions = |pointer: *mut i64| {
        if ndim == 0 || pointer.is_null() {
            return &[][..];
        }
        // SAFETY: the members of a live tensor, which has `ndim` of them.
        unsafe { std::slice::from_raw_parts(pointer.cast_const(), ndim as usize) }
    };
    let shape = dimensions(shape);
    let padded = managed.flags & ManagedTensor::PADDED != 0;
    let bytes = count(shape).and_then(|count| dtype.tensor_bytes(count, padded));
    if bytes == Some(0) {
        return Ok((std::ptr::null_mut(), Strides::flat(0)));
    }
    let (Some(bytes), Some(tight)) = (bytes, compact(shape)) else {
        let what = format!("a tensor of shape {shape:?}, {dtype:?}");
        return refused(what, "pass a tensor that memory can hold");
    };
    // The stride of a dimension of length 1 has no meaning.
    let has_gaps = |strides: &[i64]| {
        let dimensions = shape.iter().zip(strides.iter().zip(&tight));
        dimensions.into_iter().any(|(&length, (stride, tight))| length > 1 && stride != tight)
    };
    let rows = if !strides.is_null() && has_gaps(dimensions(strides)) {
        let strides = dimensions(strides);
        let remedy = "make the tensor contiguous first";
        if dtype.shares_bytes() && !padded {
            let what = format!("gaps between elements that share bytes, {dtype:?}");
            return refused(what, remedy);
        }
        let rows = merged(shape, strides);
        let Some(rows) = rows.and_then(|rows| in_bytes(rows, dtype.bytes())) else {
            let what = format!(
                "shape {shape:?} with strides {strides:?} is not of rows that lie apart, in planes \
                 at most; elements that lie apart are a row each"
            );
            return refused(what, remedy);
        };
        rows
    } else {
        Strides::flat(bytes)
    };
    let bytes = rows.extent().unwrap_or(usize::MAX);
    if data.is_null() {
        return refused(format!("{bytes} bytes at NULL"), "pass the address of the memory");
    }
    let offset = usize::try_from(byte_offset).ok();
    let end = offset.and_then(|offset| data.addr().checked_add(offset)?.checked_add(bytes));
    let (Some(offset), Some(_)) = (offset, end) else {
        let what = format!("{bytes} bytes, {byte_offset} bytes behind {data:p}");
        return refused(what, "pass a tensor that lies in the address space");
    };
    Ok((data.cast::<u8>().wrapping_add(offset), rows))
}

/// The rows of a tensor with gaps, in elements: at most three dimensions are left when those that
/// are contiguous are one, and elements of the innermost one follow each other. If they lie apart,
/// such as in one column of a matrix, each element is a row, and at most two dimensions are left.
/// `None` for any other.
fn merged(shape: &[i64], strides: &[i64]) -> Option<Strides> {
    // From the innermost on: the length and the stride.
    let mut left: Vec<(usize, usize)> = Vec::new();
    for (&length, &stride) in shape.iter().zip(strides).rev().filter(|it| *it.0 > 1) {
        let (length, stride) = (usize::try_from(length).ok()?, usize::try_from(stride).ok()?);
        match left.last_mut() {
            Some(inner) if inner.0.checked_mul(inner.1) == Some(stride) => {
                inner.0 = inner.0.checked_mul(length)?;
            }
            _ => left.push((length, stride)),
        }
    }
    if left.first().is_none_or(|inner| inner.1 != 1) {
        left.insert(0, (1, 1));
    }
    let row = left[0].0;
    match left[1..] {
        [] => Some(Strides::flat(row)),
        [rows] => Some(Strides::new(row, rows.0, rows.1)),
        [rows, planes] => Some(Strides::new(row, rows.0, rows.1).planes(planes.0, planes.1)),
        _ => None,
    }
}

/// The same rows in bytes, if they are apart and memory can hold them.
fn in_bytes(rows: Strides, element: usize) -> Option<Strides> {
    let rows = Strides {
        row: rows.row.checked_mul(element)?,
        pitch: rows.pitch.checked_mul(element)?,
        plane_pitch: rows.plane_pitch.checked_mul(element)?,
        ..rows
    };
    let fits = rows.extent().is_some_and(|extent| isize::try_from(extent).is_ok());
    Some(rows).filter(|rows| fits && rows.are_apart())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_dimensions_are_one() {
        let plane = |row, rows, pitch| Some(Strides::new(row, rows, pitch));
        assert_eq!(merged(&[4, 5, 6], &[100, 10, 1]), Some(Strides::new(6, 5, 10).planes(4, 100)));
        assert_eq!(merged(&[4, 5, 6], &[50, 6, 1]), plane(30, 4, 50));
        assert_eq!(merged(&[4, 5, 6], &[50, 10, 1]), plane(6, 20, 10));
        assert_eq!(merged(&[4, 1, 6], &[50, -7, 1]), plane(6, 4, 50));
        let planes = Strides::new(6, 5, 10).planes(24, 60);
        assert_eq!(merged(&[2, 3, 4, 5, 6], &[720, 240, 60, 10, 1]), Some(planes));
        // Exchanged dimensions: the rows of a plane lie further apart than the planes.
        let exchanged = Strides::new(8, 4, 24).planes(3, 8);
        assert_eq!(merged(&[3, 4, 8], &[8, 24, 1]), Some(exchanged));
        // One column, of a matrix and of a volume.
        assert_eq!(merged(&[30, 1], &[100, 1]), plane(1, 30, 100));
        assert_eq!(merged(&[4, 5, 1], &[80, 10, 7]), Some(Strides::new(1, 5, 10).planes(4, 80)));
        // The same without the dimension of one element.
        assert_eq!(merged(&[30], &[100]), plane(1, 30, 100));
        assert_eq!(merged(&[4, 5], &[80, 10]), Some(Strides::new(1, 5, 10).planes(4, 80)));
        assert_eq!(merged(&[4, 5], &[50, 10]), plane(1, 20, 10));
        assert_eq!(merged(&[6, 4, 5], &[200, 50, 10]), plane(1, 120, 10));
        // Transposed: the next element lies a row further.
        assert_eq!(merged(&[4, 5], &[1, 4]), Some(Strides::new(1, 5, 4).planes(4, 1)));
        // Backwards, and in more dimensions than rows have.
        assert_eq!(merged(&[4, 5], &[-5, 1]), None);
        assert_eq!(merged(&[5], &[-2]), None);
        assert_eq!(merged(&[5, 1], &[-2, 1]), None);
        assert_eq!(merged(&[9, 4, 5, 6], &[999, 110, 12, 1]), None);
        assert_eq!(merged(&[4, 5, 6, 1], &[999, 110, 12, 1]), None);
        assert_eq!(merged(&[4, 5, 6], &[999, 110, 12]), None);
    }

    #[test]
    fn rows_that_overlap_or_overflow_are_none() {
        assert_eq!(in_bytes(Strides::new(6, 5, 10), 4), Some(Strides::new(24, 5, 40)));
        assert_eq!(in_bytes(Strides::new(6, 5, 5), 4), None);
        assert_eq!(in_bytes(Strides::new(6, 5, 0), 4), None);
        assert_eq!(in_bytes(Strides::new(1, 5, 0), 4), None);
        assert_eq!(in_bytes(Strides::new(1, 5, 2), 4), Some(Strides::new(4, 5, 8)));
        assert_eq!(in_bytes(Strides::new(1, 5, 4).planes(5, 1), 4), None);
        assert_eq!(in_bytes(Strides::new(6, 5, usize::MAX / 4), 4), None);
        assert_eq!(in_bytes(Strides::new(6, 5, usize::MAX / 2), 4), None);
    }

    /// With the largest strides and elements, the offset of the last element overflows every
    /// integer.
    #[test]
    fn a_tensor_that_no_integer_can_measure_does_not_fit() {
        let dtype = DataType { code: 255, bits: 255, lanes: u16::MAX };
        for stride in [i64::MIN, i64::MAX] {
            let fits = fits("test", dtype, &[i64::MAX], &[stride], 0, usize::MAX);
            assert_eq!(fits.map_err(|error| error.kind()), Err(ErrorKind::OutOfRange));
        }
    }
}
