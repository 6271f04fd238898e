//! The names of errors, and the last one of each thread.

use std::ffi::{CStr, c_char, c_int};

use pinlane_driver::CudaCode;

use crate::{driver, machine};

/// The number, the name, and what it says.
pub type Row = (c_int, &'static CStr, &'static CStr);

static ERRORS: &[Row] = include!(concat!(env!("OUT_DIR"), "/errors.rs"));

fn find(code: c_int) -> (&'static CStr, &'static CStr) {
    let found = ERRORS.iter().find(|error| error.0 == code);
    found.map_or((c"unrecognized error code", c"unrecognized error code"), |e| (e.1, e.2))
}

/// The number of the error of that name, in the runtime or in the driver.
pub fn named(name: &str) -> Option<c_int> {
    let mut all = ERRORS.iter().chain(driver::errors::ERRORS);
    all.find(|error| error.1.to_bytes() == name.as_bytes()).map(|error| error.0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: c_int) -> *const c_char {
    find(code).0.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: c_int) -> *const c_char {
    find(code).1.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> c_int {
    machine::gpu().map_or(CudaCode::INITIALIZATION, |gpu| gpu.take_error()).0
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> c_int {
    machine::gpu().map_or(CudaCode::INITIALIZATION, |gpu| gpu.peek_error()).0
}
