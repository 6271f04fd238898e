//! Functions of the driver API, found at run time by their name and by the version of CUDA whose
//! signature `driver_api` declares. The driver keeps all versions.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::ptr::{NonNull, null_mut};

use super::driver_api::{LEGACY_STREAM, PFN_cuGetProcAddress_v12000};

/// A pointer to a function as bindgen declares it.
pub(super) trait Pointer {
    /// The same, not null.
    type Function: Copy;
}

impl<F: Copy> Pointer for Option<F> {
    type Function = F;
}

/// The function that a pointer of this type points to.
pub(super) type Function<P> = <P as Pointer>::Function;

/// The code at an address as a function.
///
/// # Safety
///
/// * `P` is an `Option` of a pointer to a function, and a function of that type lies at `at`.
pub(super) unsafe fn function<P: Pointer>(at: NonNull<c_void>) -> Function<P> {
    assert_eq!(size_of::<Function<P>>(), size_of::<NonNull<c_void>>());
    // SAFETY: as the caller promises; both are pointers, which are not null.
    unsafe { transmute_copy(&at) }
}

/// Declares a table of functions, each with the version of CUDA whose signature it is.
macro_rules! table {
    ($(#[$doc:meta])* $($field:ident: $name:literal $version:literal $type:ident;)*) => {
        $(#[$doc])*
        pub(in crate::driver::cuda) struct Functions {
            $(pub(in crate::driver::cuda) $field: Function<$type>,)*
        }

        impl Functions {
            /// Finds them all by `find`, which gives the driver's function of a name and version.
            pub(in crate::driver::cuda) fn find<E>(
                find: impl Fn(&std::ffi::CStr, std::ffi::c_int)
                    -> Result<std::ptr::NonNull<std::ffi::c_void>, E>,
            ) -> Result<Functions, E> {
                // SAFETY: the driver's functions of these names and versions have these signatures.
                unsafe {
                    Ok(Functions { $($field: function::<$type>(find($name, $version)?),)* })
                }
            }
        }
    };
}
pub(super) use table;

/// The driver's search for functions: `cuGetProcAddress` of CUDA 12.0.
#[derive(Clone, Copy)]
pub(super) struct Search(pub(super) Function<PFN_cuGetProcAddress_v12000>);

impl Search {
    /// The function of this name as it was in that version (1000 * major + 10 * minor). `Err` with
    /// the driver's code if it has none, or the version is newer than the driver.
    pub(super) fn find(self, name: &CStr, version: c_int) -> Result<NonNull<c_void>, c_uint> {
        let mut found = null_mut();
        // SAFETY: a C string, a live place for the function, no status requested.
        let code = unsafe {
            (self.0)(name.as_ptr(), &mut found, version, LEGACY_STREAM.into(), null_mut())
        };
        match NonNull::new(found) {
            Some(found) if code == 0 => Ok(found),
            // `CUDA_ERROR_NOT_FOUND`
            _ => Err(if code == 0 { 500 } else { code }),
        }
    }
}
