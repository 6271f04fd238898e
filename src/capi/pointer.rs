//! Arguments that C passes by pointer: outputs, structs and arrays. All are checked before any work
//! is done.

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use super::handle;
use super::status::{boundary, invalid, pinlane_status};
use super::table::Kind;
use crate::error::{Error, Result};

/// An output parameter as C passes it, not checked yet. It is written only if the call succeeds.
pub(super) struct Out<T> {
    name: &'static str,
    pointer: *mut T,
}

impl<T> Out<T> {
    /// # Safety
    ///
    /// * `pointer` is NULL, misaligned (both are found), or valid for writing a `T` until the call
    ///   returns.
    #[inline(always)]
    pub(super) const unsafe fn new(name: &'static str, pointer: *mut T) -> Self {
        Out { name, pointer }
    }

    /// Checks the pointer of an output, which must not be NULL.
    #[inline(always)]
    pub(super) fn check(self) -> Result<Checked<T>> {
        if self.pointer.is_null() {
            return Err(null(self.name, VARIABLE));
        }
        self.optional()
    }

    /// Checks the pointer of an output that may be NULL: then nothing is written.
    #[inline(always)]
    pub(super) fn optional(self) -> Result<Checked<T>> {
        check_aligned(self.name, self.pointer)?;
        Ok(Checked(self.pointer))
    }

    /// Runs the body of the exported function `function`, whose only output this is.
    #[inline(always)]
    pub(super) fn give(
        self,
        function: &'static str,
        body: impl FnOnce() -> Result<T>,
    ) -> pinlane_status {
        boundary(function, || {
            let out = self.check()?;
            out.set(body()?);
            Ok(())
        })
    }
}

impl<H: Kind> Out<*mut H> {
    /// As [`give`](Self::give), for a function that makes a handle: it checks the process.
    #[inline(always)]
    pub(super) fn create(
        self,
        function: &'static str,
        body: impl FnOnce() -> Result<H::Object>,
    ) -> pinlane_status {
        self.give(function, || {
            handle::check_process()?;
            Ok(handle::create(body()?))
        })
    }
}

/// An output parameter that can be written, if the caller wants it.
pub(super) struct Checked<T>(*mut T);

impl<T> Checked<T> {
    #[inline(always)]
    pub(super) fn set(self, value: T) {
        self.set_with(|| value);
    }

    /// Makes the value only if the caller wants it.
    #[inline(always)]
    pub(super) fn set_with(self, value: impl FnOnce() -> T) {
        if !self.0.is_null() {
            // SAFETY: `optional` found the pointer aligned, and it is not NULL, so it is valid for
            // writing by the precondition of `Out::new`; `self` is consumed, within the call.
            unsafe { self.0.write(value()) }
        }
    }
}

/// Refuses unknown flags: they may have a meaning in a newer program.
pub(super) fn check_flags(flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 {
        return Ok(());
    }
    let remedy = "use the flags that the header of this library names, and 0 for reserved members";
    Err(invalid(format!("unknown flags {:#x}", flags & !known), remedy))
}

/// Sets an option from a member. 0 means the default.
pub(super) fn set_unless_0<O, V: PartialEq + Default>(
    options: O,
    member: V,
    set: impl FnOnce(O, V) -> O,
) -> O {
    if member == V::default() { options } else { set(options, member) }
}

/// As [`set_unless_0`]; a flag, `zero`, asks for 0.
pub(super) fn set_or_0<O, V: PartialEq + Default>(
    options: O,
    member: V,
    zero: bool,
    set: impl FnOnce(O, V) -> O,
) -> O {
    if zero { set(options, V::default()) } else { set_unless_0(options, member, set) }
}

/// Refuses reserved members that are not 0, in any element of an array: they may have a meaning in
/// a newer program.
pub(super) fn check_spare(name: &str, mut members: impl Iterator<Item = u64>) -> Result<()> {
    let Some(number) = members.position(|member| member != 0) else { return Ok(()) };
    let what = format!("{name}: a reserved member of number {number} is not 0");
    Err(invalid(what, "set all members that you do not use to 0"))
}

/// The error for a number that is not a value of the member.
pub(super) fn unknown(member: &str, value: i32, remedy: &'static str) -> Error {
    invalid(format!("unknown {member} {value}"), remedy)
}

/// An array that C passes; empty if `count` is 0, with any pointer.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or valid for reading `count` elements during
///   `'a`.
pub(super) unsafe fn inputs<'a, T: Copy>(
    name: &str,
    pointer: *const T,
    count: usize,
) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check_aligned(name, pointer)?;
    if pointer.is_null() {
        return Err(null(name, ARRAY));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        let what = format!("{name} of {count} elements: more than memory can hold");
        return Err(invalid(what, "pass the number of elements of the array"));
    }
    // SAFETY: aligned, not NULL and no longer than memory can be, as just found, so valid for
    // reading by the precondition.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// # Safety
///
/// * `string` is NULL (an error), or points to a string that does not change during `'a`.
unsafe fn bytes<'a>(name: &str, string: *const c_char) -> Result<&'a CStr> {
    if string.is_null() {
        return Err(null(name, "pass a string that ends in a NUL"));
    }
    // SAFETY: not NULL, so a string during 'a, by the precondition.
    Ok(unsafe { CStr::from_ptr(string) })
}

/// A string that C passes. One that is not UTF-8 has replacement characters.
///
/// # Safety
///
/// * `string` is NULL (an error), or points to a string that does not change during `'a`.
pub(super) unsafe fn string<'a>(name: &str, string: *const c_char) -> Result<Cow<'a, str>> {
    // SAFETY: the same precondition.
    Ok(unsafe { bytes(name, string) }?.to_string_lossy())
}

/// A path that C passes, as the system takes it.
///
/// # Safety
///
/// * As for [`string`].
pub(super) unsafe fn path<'a>(name: &str, path: *const c_char) -> Result<&'a Path> {
    // SAFETY: the same precondition.
    Ok(Path::new(OsStr::from_bytes(unsafe { bytes(name, path) }?.to_bytes())))
}

/// Writes a text as `snprintf` does: at most `capacity` bytes, including the terminating NUL.
/// Returns the number of bytes that the whole text needs.
///
/// # Safety
///
/// * `buffer` is NULL (an error unless `capacity` is 0), or valid for writing `capacity` bytes.
pub(super) unsafe fn text(text: &str, buffer: *mut c_char, capacity: usize) -> Result<usize> {
    if capacity > 0 {
        if buffer.is_null() {
            return Err(null("buffer", ARRAY));
        }
        let shown = &text.as_bytes()[..text.len().min(capacity - 1)];
        // SAFETY: `buffer` is not NULL, so it has `capacity` bytes, of which at most `capacity - 1`
        // and a NUL are written; they do not overlap a text of the library.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(shown.as_ptr(), shown.len());
            buffer.add(shown.len()).write(0);
        }
    }
    Ok(text.len() + 1)
}

/// Checks the arguments of [`give_text`] in advance, for functions that do much work before.
pub(super) fn check_text(
    buffer: *const c_char,
    capacity: usize,
    needed: *const usize,
) -> Result<()> {
    if capacity > 0 && buffer.is_null() {
        return Err(null("buffer", ARRAY));
    }
    check_aligned("needed", needed)
}

/// Runs the body of the exported function `function`, which writes a text and the number of bytes
/// that it needs.
///
/// # Safety
///
/// * `buffer` is as for [`text`].
/// * `needed` is NULL, misaligned (an error), or valid for writing until the call returns.
pub(super) unsafe fn give_text(
    function: &'static str,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    body: impl FnOnce() -> Result<String>,
) -> pinlane_status {
    boundary(function, || {
        // SAFETY: the second precondition.
        let out = unsafe { Out::new("needed", needed) }.optional()?;
        // SAFETY: the first precondition.
        let bytes = unsafe { text(&body()?, buffer, capacity) }?;
        out.set(bytes);
        Ok(())
    })
}

#[inline]
pub(super) fn check_aligned<T>(name: &str, pointer: *const T) -> Result<()> {
    if pointer.is_aligned() { Ok(()) } else { Err(misaligned(name, pointer)) }
}

#[cold]
fn misaligned<T>(name: &str, pointer: *const T) -> Error {
    let what = format!("{name} ({pointer:p}) is not aligned to {} bytes", align_of::<T>());
    invalid(what, "pass the address of an object of the right type")
}

#[cold]
pub(super) fn null(name: &str, remedy: &'static str) -> Error {
    invalid(format!("{name} is NULL"), remedy)
}

pub(super) const VARIABLE: &str = "pass the address of a variable";
pub(super) const ARRAY: &str = "pass the address of the first element";

/// A function that the caller must pass.
pub(super) fn function<F>(name: &str, function: Option<F>) -> Result<F> {
    function.ok_or_else(|| null(name, "pass a function"))
}

/// An object that the caller must pass.
pub(super) fn object<T>(name: &str, pointer: *mut T, remedy: &'static str) -> Result<NonNull<T>> {
    check_aligned(name, pointer)?;
    NonNull::new(pointer).ok_or_else(|| null(name, remedy))
}

/// Asserts the layout that C programs are compiled against: `layout!(type: size; member offset)`.
macro_rules! layout {
    ($type:ty: $size:literal; $($member:ident $offset:literal),*) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(std::mem::offset_of!($type, $member) == $offset);)*
        };
    };
}
pub(super) use layout;

/// Makes a struct of C from a value of Rust: from the members that have the same names, and others.
macro_rules! members {
    (
        $type:ident of $value:ident: $from:ty, same [$($same:ident),*],
        $($other:ident: $is:expr,)*
    ) => {
        impl From<$from> for $type {
            fn from($value: $from) -> Self {
                $type { $($same: $value.$same,)* $($other: $is),* }
            }
        }
    };
}
pub(super) use members;
