//! What C passes by pointer: outputs, structs and arrays, checked before any work.

use std::ptr::NonNull;

use crate::error::{Error, ErrorKind, Result};

/// An output parameter: checked before any work, written only on success.
pub(super) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    ///
    /// * `pointer` is NULL, misaligned (both are errors), or valid for writing a `T` until the call
    ///   returns.
    pub(super) unsafe fn new(operation: &'static str, name: &str, pointer: *mut T) -> Result<Self> {
        check_pointer(operation, name, pointer)?;
        NonNull::new(pointer).map(Out).ok_or_else(|| null(operation, name))
    }

    /// As [`new`](Self::new), for an output that the caller may not want.
    ///
    /// # Safety
    ///
    /// * As for [`new`](Self::new).
    pub(super) unsafe fn optional(
        operation: &'static str,
        name: &str,
        pointer: *mut T,
    ) -> Result<Option<Self>> {
        check_pointer(operation, name, pointer)?;
        Ok(NonNull::new(pointer).map(Out))
    }

    pub(super) fn set(self, value: T) {
        // SAFETY: by the precondition of `new` the pointer is valid for writing, and it was found
        // aligned; `self` is consumed, within the call.
        unsafe { self.0.write(value) }
    }
}

/// An input that C passes by pointer, such as an options struct.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or valid for reading a `T`.
pub(super) unsafe fn input<T: Copy>(
    operation: &'static str,
    name: &str,
    pointer: *const T,
) -> Result<T> {
    check_pointer(operation, name, pointer)?;
    let pointer = NonNull::new(pointer.cast_mut()).ok_or_else(|| null(operation, name))?;
    // SAFETY: not NULL and aligned, as just found, so valid for reading by the precondition.
    Ok(unsafe { pointer.read() })
}

/// An input that C passes as an array; none if `count` is 0.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or valid for reading `count` elements during
///   `'a`.
pub(super) unsafe fn inputs<'a, T: Copy>(
    operation: &'static str,
    name: &str,
    pointer: *const T,
    count: usize,
) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_pointer(operation, name, pointer)?;
    if pointer.is_null() {
        return Err(null(operation, name));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Error::new(
            ErrorKind::InvalidValue,
            operation,
            format!("{name} of {count} elements"),
            "pass how many elements the array has",
        ));
    }
    // SAFETY: aligned, not NULL and no longer than memory can be, as just found, so valid for
    // reading by the precondition.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

fn check_pointer<T>(operation: &'static str, name: &str, pointer: *const T) -> Result<()> {
    if pointer.is_aligned() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidValue,
        operation,
        format!("{name} ({pointer:p}) is not aligned to {} bytes", align_of::<T>()),
        "pass the address of a variable of the right type",
    ))
}

#[cold]
pub(super) fn null(operation: &'static str, name: &str) -> Error {
    Error::new(
        ErrorKind::InvalidValue,
        operation,
        format!("{name} is NULL"),
        "pass the address of a variable",
    )
}
