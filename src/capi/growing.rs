//! Structs that begin with their size, and may grow at their end from release to release.
//!
//! A program that was compiled with an older header has a shorter struct. The structs that it
//! passes are filled up with defaults, and the structs that it gets are truncated.
//!
//! # Invariants
//!
//! * Only sizes that a released header had are accepted.
//! * Nothing after the end of the caller's struct is read or written.

use std::ptr::NonNull;

use super::pointer::{VARIABLE, object};
use super::status::{boundary, invalid, pinlane_status};
use crate::error::{Error, Result};

/// Implemented by [`growing!`](crate::capi::pointer::growing).
///
/// # Safety
///
/// * The type is `repr(C)`, and its first member is its size, a `usize`.
/// * `SIZES` are at least the size of that member and at most that of the type.
/// * Any bytes that a caller may pass are a valid value.
pub(super) unsafe trait Growing: Copy {
    const NAME: &'static str;
    /// The size in each released header and in this one, ascending.
    const SIZES: &'static [usize];
    /// The result of the struct's initialiser.
    const DEFAULT: Self;
}

/// A struct that C passes. Members that the caller's header did not have get their defaults.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or points to a struct that is as large as its
///   first member says.
pub(super) unsafe fn sized<T: Growing>(name: &str, pointer: *const T) -> Result<T> {
    // SAFETY: the same precondition.
    let (pointer, size) = unsafe { checked(name, pointer.cast_mut()) }?;
    let mut whole = T::DEFAULT;
    // SAFETY: the caller's struct has `size` bytes, and `whole` has at least as many, since `size`
    // is one of SIZES. Any bytes of the caller are valid, by Growing's precondition.
    unsafe {
        let into = (&raw mut whole).cast::<u8>();
        into.copy_from_nonoverlapping(pointer.as_ptr().cast(), size);
    }
    Ok(whole)
}

/// Options, which are such a struct; the defaults if the pointer is NULL.
///
/// # Safety
///
/// * As for [`sized`].
pub(super) unsafe fn options<T: Growing>(pointer: *const T) -> Result<T> {
    if pointer.is_null() {
        return Ok(T::DEFAULT);
    }
    // SAFETY: the same precondition.
    unsafe { sized("options", pointer) }
}

/// Runs the body of the exported function `function`, whose only output is a struct that begins
/// with its size. Writes as much as the caller's struct has room for, and keeps its size.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or points to a struct that is as large as its
///   first member says, and valid for writing until the call returns.
pub(super) unsafe fn give_sized<T: Growing>(
    function: &'static str,
    name: &str,
    pointer: *mut T,
    body: impl FnOnce() -> Result<T>,
) -> pinlane_status {
    boundary(function, || {
        // SAFETY: the same precondition.
        let (out, size) = unsafe { checked(name, pointer) }?;
        let whole = body()?;
        let behind = size_of::<usize>();
        // SAFETY: the caller's struct has `size` bytes, and `whole` has at least as many, since
        // `size` is one of SIZES; none of them is less than the size of the first member.
        unsafe {
            let from = (&raw const whole).cast::<u8>().add(behind);
            out.as_ptr().cast::<u8>().add(behind).copy_from_nonoverlapping(from, size - behind);
        }
        Ok(())
    })
}

/// Writes the defaults to a struct of `size` bytes.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or valid for writing `size` bytes.
pub(super) unsafe fn init<T: Growing>(pointer: *mut T, size: usize) -> Result<()> {
    let pointer = object(T::NAME, pointer, VARIABLE)?;
    check_size::<T>(T::NAME, size)?;
    let whole = T::DEFAULT;
    // SAFETY: `pointer` is not NULL, so it has `size` bytes, and `whole` has at least as many,
    // since `size` is one of SIZES. The first member, which is aligned, lies in them.
    unsafe {
        let from = (&raw const whole).cast::<u8>();
        pointer.as_ptr().cast::<u8>().copy_from_nonoverlapping(from, size);
        pointer.as_ptr().cast::<usize>().write(size);
    }
    Ok(())
}

/// Checks the pointer. Returns the struct and its size, from its first member.
///
/// # Safety
///
/// * `pointer` is NULL, misaligned (both are errors), or points to a struct whose first member is
///   set.
unsafe fn checked<T: Growing>(name: &str, pointer: *mut T) -> Result<(NonNull<T>, usize)> {
    let pointer = object(name, pointer, VARIABLE)?;
    // SAFETY: not NULL and aligned, as just found. The size is the first member, so a struct of any
    // size has it.
    let size = unsafe { pointer.as_ptr().cast::<usize>().read() };
    check_size::<T>(name, size).map(|()| (pointer, size))
}

fn check_size<T: Growing>(name: &str, size: usize) -> Result<()> {
    if T::SIZES.contains(&size) { Ok(()) } else { Err(unknown_size::<T>(name, size)) }
}

#[cold]
fn unknown_size<T: Growing>(name: &str, size: usize) -> Error {
    let known: Vec<String> = T::SIZES.iter().map(ToString::to_string).collect();
    let known = known.join(" or ");
    invalid(
        format!("{name} of {size} bytes: {} has {known} bytes in this library", T::NAME),
        "initialise the struct with its _INIT macro, and use a header that is not newer than the \
         library",
    )
}

/// A struct that begins with its size: the sizes that released headers had, this one's last; the
/// members whose default is not 0, as numbers or constants of the header; and the exported function
/// that initialises it. `build/header.rs` reads the same text to write the function's prototype and
/// the `_INIT` macro.
///
/// When a struct gets members, its new size is added to the list. New members go to the end,
/// without a gap: a member that a shorter struct does not have must not begin inside it.
macro_rules! growing {
    (
        $init:ident: $type:ident, sizes [$($size:literal),+],
        default { $($member:ident: $value:expr),* }
    ) => {
        growing!(@type $type, [$($size),+], { $($member: $value),* });

        /// # Safety
        ///
        /// - `pointer` is NULL or points to `size` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(
            pointer: *mut $type,
            size: usize,
        ) -> $crate::capi::status::pinlane_status {
            $crate::capi::status::boundary(stringify!($init), || {
                // SAFETY: the caller's precondition on `pointer`.
                unsafe { $crate::capi::growing::init(pointer, size) }
            })
        }
    };
    (@type $type:ident, [$($size:literal),+], { $($member:ident: $value:expr),* }) => {
        const _: () = {
            let sizes = [$($size),+];
            assert!(std::mem::offset_of!($type, size) == 0 && sizes[0] >= size_of::<usize>());
            assert!(sizes[sizes.len() - 1] == size_of::<$type>());
            let mut next = 1;
            while next < sizes.len() {
                assert!(sizes[next - 1] < sizes[next]);
                next += 1;
            }
        };
        // SAFETY: as just asserted; the members are numbers, pointers and optional functions,
        // initialised by the caller's precondition.
        unsafe impl $crate::capi::growing::Growing for $type {
            const NAME: &'static str = stringify!($type);
            const SIZES: &'static [usize] = &[$($size),+];
            const DEFAULT: Self = $type {
                size: size_of::<$type>(),
                $($member: $value,)*
                // SAFETY: 0 is a number, a NULL pointer, and no function.
                ..unsafe { std::mem::zeroed() }
            };
        }
    };
}
pub(super) use growing;

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::mem::MaybeUninit;

    use super::*;
    use crate::capi::status::{
        PINLANE_STATUS_INVALID_VALUE, PINLANE_STATUS_OK, pinlane_last_error, refused,
    };
    use crate::error::ErrorKind;

    /// A struct of 16 bytes in its first release, with two more members in its second.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Grown {
        size: usize,
        old: u64,
        new: u32,
        zero: u32,
    }
    growing!(@type Grown, [16, 24], { old: 1, new: 7 });

    fn last_message() -> String {
        // SAFETY: a string, valid until this thread's next call.
        unsafe { CStr::from_ptr(pinlane_last_error()) }.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn c_rule_15_a_shorter_input_is_filled_up_with_defaults() {
        let long = Grown { size: 24, old: 2, new: 3, zero: 4 };
        // SAFETY: it has 24 bytes.
        assert_eq!(unsafe { sized("input", &raw const long) }.unwrap(), long);

        // A block of 16 bytes: Miri would find a read past its end.
        let short: Box<[u64; 2]> = Box::new([16, 2]);
        // SAFETY: it has 16 bytes, as its first member says.
        let read = unsafe { options(short.as_ptr().cast::<Grown>()) }.unwrap();
        assert_eq!(read, Grown { size: 16, old: 2, new: 7, zero: 0 });
        // SAFETY: NULL.
        assert_eq!(unsafe { options::<Grown>(std::ptr::null()) }.unwrap(), Grown::DEFAULT);
    }

    #[test]
    fn c_rule_15_an_output_is_cut_off_at_the_callers_size() {
        let now = Grown { size: 24, old: 2, new: 3, zero: 4 };
        for (size, expected) in [(16, [16, 2, 99]), (24, [24, 2, 4 << 32 | 3])] {
            let mut given: [u64; 3] = [size, 99, 99];
            let out = given.as_mut_ptr().cast::<Grown>();
            // SAFETY: it has at least as many bytes as its first member says.
            let status = unsafe { give_sized("pinlane_test", "output", out, || Ok(now)) };
            assert_eq!((status, given), (PINLANE_STATUS_OK, expected));
        }
        let mut given: [u64; 3] = [24, 99, 99];
        let failing = || Err(refused(ErrorKind::Busy, "busy", "wait"));
        // SAFETY: it has 24 bytes.
        unsafe {
            give_sized("pinlane_test", "output", given.as_mut_ptr().cast::<Grown>(), failing)
        };
        assert_eq!(given, [24, 99, 99], "an output is written only on success");
    }

    #[test]
    fn a_struct_is_initialised_as_far_as_the_caller_knows_it() {
        for (size, expected) in [(16, [16, 1, 99]), (24, [24, 1, 7])] {
            let mut given: [u64; 3] = [99; 3];
            // SAFETY: it has at least `size` bytes.
            unsafe { init(given.as_mut_ptr().cast::<Grown>(), size) }.unwrap();
            assert_eq!(given, expected);
        }
        let mut given = MaybeUninit::<Grown>::uninit();
        // SAFETY: it has 24 bytes.
        unsafe { init(given.as_mut_ptr(), 24) }.unwrap();
        // SAFETY: initialised by the call.
        assert_eq!(unsafe { given.assume_init() }, Grown::DEFAULT);
    }

    #[test]
    fn c_rule_15_sizes_that_no_release_had_are_refused() {
        for size in [0, 8, 15, 17, 23, 25, 32, usize::MAX] {
            let mut given: [u64; 3] = [size as u64, 99, 99];
            let pointer = given.as_mut_ptr().cast::<Grown>();
            // SAFETY: only the first member is read, which exists.
            let error = unsafe { sized("input", pointer.cast_const()) }.unwrap_err();
            assert!(error.to_string().contains("Grown has 16 or 24 bytes"), "{error}");
            // SAFETY: as above.
            let status = unsafe {
                give_sized("pinlane_test", "output", pointer, || unreachable!("refused before"))
            };
            assert_eq!(status, PINLANE_STATUS_INVALID_VALUE);
            assert!(last_message().starts_with(&format!("pinlane_test: output of {size} bytes")));
            // SAFETY: nothing is written for such a size.
            unsafe { init(pointer, size) }.unwrap_err();
            assert_eq!(given, [size as u64, 99, 99]);
        }
    }
}
