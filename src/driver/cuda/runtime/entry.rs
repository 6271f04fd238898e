//! Functions of the driver API, found by the runtime: the crate is linked with the runtime only.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use super::super::driver_api::PFN_cuGetProcAddress_v12000;
use super::super::functions::{Search, function};
use super::convert::Address;
use super::sys;
use super::thread::call;
use pinlane_driver::{CudaCode, DriverResult};

/// The driver's function of this name as it was in that version of CUDA (1000 * major + 10 *
/// minor); `None` if the driver has no such function, or the runtime provides none.
pub(super) fn find(name: &CStr, version: c_int) -> DriverResult<Option<NonNull<c_void>>> {
    let Some(search) = look_up_in_runtime(c"cuGetProcAddress")? else { return Ok(None) };
    // SAFETY: all runtimes since 12.0 return the second version of this function, which has this
    // type.
    let search = Search(unsafe { function::<PFN_cuGetProcAddress_v12000>(search) });
    Ok(search.find(name, version).ok())
}

/// The same, for functions that every driver has.
pub(super) fn must_find(name: &CStr, version: c_int) -> DriverResult<NonNull<c_void>> {
    find(name, version)?.ok_or(CudaCode::NOT_SUPPORTED)
}

fn look_up_in_runtime(name: &CStr) -> DriverResult<Option<NonNull<c_void>>> {
    let mut function = Address::null();
    let mut status = sys::cudaDriverEntryPointQueryResult::cudaDriverEntryPointSymbolNotFound;
    call(|| {
        // SAFETY: a C string, live places for the function and the status; default flags.
        unsafe { sys::cudaGetDriverEntryPoint(name.as_ptr(), function.slot(), 0, &mut status) }
    })?;
    Ok(NonNull::new(function.get()))
}
