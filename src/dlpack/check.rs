//! Which bytes a tensor covers. Checked before anything is exported or imported (soundness rule 9).

use super::{DataType, ManagedTensor, Tensor, VERSION};
use crate::error::{Error, ErrorKind, Result};

pub(super) fn refused(operation: &'static str, what: String, remedy: &'static str) -> Error {
    Error::new(ErrorKind::InvalidValue, operation, what, remedy)
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

/// How many elements there are; `None` if a length is negative or there are too many.
pub(super) fn count(shape: &[i64]) -> Option<usize> {
    if shape.contains(&0) {
        return shape.iter().all(|&length| length >= 0).then_some(0);
    }
    shape.iter().try_fold(1usize, |product, &length| product.checked_mul(length.try_into().ok()?))
}

/// Checks that every element lies within `bytes`, the first at `offset`.
pub(super) fn fits(
    operation: &'static str,
    dtype: DataType,
    shape: &[i64],
    strides: &[i64],
    offset: usize,
    bytes: usize,
) -> Result<()> {
    let element = dtype.bytes() as i128;
    let (mut low, mut high) = (0i128, 0i128);
    for (&length, &stride) in shape.iter().zip(strides) {
        let last = i128::from(length - 1) * i128::from(stride);
        low = low.saturating_add(last.min(0));
        high = high.saturating_add(last.max(0));
    }
    // Far outside of any buffer, these need not be exact.
    let first = low.saturating_mul(element).saturating_add(offset as i128);
    let end = high.saturating_add(1).saturating_mul(element).saturating_add(offset as i128);
    if first >= 0 && end <= bytes as i128 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::OutOfRange,
        operation,
        format!("the tensor covers bytes {first} .. {end} of a buffer of {bytes} bytes"),
        "keep offset, shape and strides within the buffer",
    ))
}

/// The bytes of a tensor that a caller gives: where they begin, and how many there are. It must
/// have no gaps and may be written.
///
/// # Safety
///
/// * `managed` is live; if its major version is known, so are its shape and strides.
pub(super) unsafe fn bytes_of(
    operation: &'static str,
    managed: &ManagedTensor,
) -> Result<(*mut u8, usize)> {
    let refused = |what, remedy| Err(refused(operation, what, remedy));
    if managed.version.major != VERSION.major {
        let what = format!("a tensor of DLPack {}", managed.version.major);
        return refused(what, "ask the producer for version 1, and call this tensor's deleter");
    }
    if managed.flags & ManagedTensor::READ_ONLY != 0 {
        return refused("the tensor is read-only".to_owned(), "copy it to a buffer");
    }
    let Tensor { data, ndim, dtype, shape, strides, byte_offset, .. } = managed.tensor;
    if ndim < 0 || dtype.bytes() == 0 || (ndim > 0 && shape.is_null()) {
        return refused(format!("a tensor of {ndim} dimensions, {dtype:?}"), "pass a tensor");
    }
    let dimensions = |pointer: *mut i64| {
        if ndim == 0 || pointer.is_null() {
            return &[][..];
        }
        // SAFETY: the members of a live tensor, which has `ndim` of them.
        unsafe { std::slice::from_raw_parts(pointer.cast_const(), ndim as usize) }
    };
    let shape = dimensions(shape);
    let bytes = count(shape).and_then(|count| count.checked_mul(dtype.bytes()));
    let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok());
    let Some(bytes) = bytes else {
        return refused(
            format!("a tensor of shape {shape:?}"),
            "pass a tensor that memory can hold",
        );
    };
    if bytes == 0 {
        return Ok((std::ptr::null_mut(), 0));
    }
    // The stride of a dimension of length 1 means nothing.
    let has_gaps = |strides: &[i64]| {
        let expected = compact(shape).unwrap_or_default();
        let dimensions = shape.iter().zip(strides.iter().zip(&expected));
        dimensions.into_iter().any(|(&length, (stride, tight))| length > 1 && stride != tight)
    };
    if !strides.is_null() && has_gaps(dimensions(strides)) {
        let what = format!("shape {shape:?} with strides {:?} has gaps", dimensions(strides));
        return refused(what, "make the tensor contiguous first");
    }
    if data.is_null() {
        return refused(format!("{bytes} bytes at NULL"), "pass the address of the memory");
    }
    Ok((data.cast::<u8>().wrapping_add(byte_offset as usize), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last element of the largest strides and elements lies further away than any integer
    /// counts.
    #[test]
    fn a_tensor_that_no_integer_can_measure_does_not_fit() {
        let dtype = DataType { code: 255, bits: 255, lanes: u16::MAX };
        for stride in [i64::MIN, i64::MAX] {
            let fits = fits("test", dtype, &[i64::MAX], &[stride], 0, usize::MAX);
            assert_eq!(fits.map_err(|error| error.kind()), Err(ErrorKind::OutOfRange));
        }
    }
}
