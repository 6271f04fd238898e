//! Functions of the driver API, found at run time: this crate is linked with the runtime only.
//!
//! A function is requested by its name and by the version of CUDA whose signature is declared here.
//! The driver keeps all versions, so the toolkit of the build does not matter.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use super::thread::call;
use crate::driver::DriverResult;
use crate::sys;

/// `CUresult`. The codes that these functions return are the same numbers in `cudaError`.
pub(super) type Code = c_uint;

/// `PFN_cuGetProcAddress_v12000`: name, place for the function, version, flags, place for a status.
type GetProcAddress = unsafe extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    c_int,
    u64,
    *mut sys::cudaDriverEntryPointQueryResult,
) -> Code;

/// A pointer to code. Not null.
pub(super) struct Function(*mut c_void);

// SAFETY: code may be called on any thread.
unsafe impl Send for Function {}

impl Function {
    pub(super) fn get(&self) -> *mut c_void {
        self.0
    }
}

/// The driver's function of this name as it was in that version of CUDA (1000 * major + 10 *
/// minor); `None` if the driver has no such function, or the runtime provides none.
pub(super) fn find(name: &CStr, version: c_int) -> DriverResult<Option<Function>> {
    let Some(lookup) = look_up_in_runtime(c"cuGetProcAddress")? else { return Ok(None) };
    // SAFETY: all runtimes since 12.0 return the second version of this function, which has this
    // type.
    let lookup = unsafe { transmute::<*mut c_void, GetProcAddress>(lookup.0) };
    let mut function = null_mut();
    // SAFETY: a C string, a live place for the function, no status requested.
    let code = unsafe { lookup(name.as_ptr(), &mut function, version, 0, null_mut()) };
    // Not found, or a version newer than the driver: both mean that it has no such function.
    Ok(Some(Function(function)).filter(|_| code == 0 && !function.is_null()))
}

fn look_up_in_runtime(name: &CStr) -> DriverResult<Option<Function>> {
    let mut function = Function(null_mut());
    let mut status = sys::cudaDriverEntryPointQueryResult::cudaDriverEntryPointSymbolNotFound;
    call(|| {
        // Borrows the whole struct, because the call may run on another thread.
        let place = &mut function;
        // SAFETY: a C string, live places for the function and the status; default flags.
        unsafe { sys::cudaGetDriverEntryPoint(name.as_ptr(), &mut place.0, 0, &mut status) }
    })?;
    Ok(Some(function).filter(|function| !function.0.is_null()))
}
