//! The names of errors, of the runtime and of the driver.

use std::ffi::{CStr, c_char, c_int};

/// The number, the name, and what it says.
pub type Row = (c_int, &'static CStr, &'static CStr);

static ERRORS: &[Row] = include!(concat!(env!("OUT_DIR"), "/errors.rs"));
pub static OF_DRIVER: &[Row] = include!(concat!(env!("OUT_DIR"), "/driver_errors.rs"));

fn find(code: c_int) -> (&'static CStr, &'static CStr) {
    let found = ERRORS.iter().find(|error| error.0 == code);
    found.map_or((c"unrecognized error code", c"unrecognized error code"), |e| (e.1, e.2))
}

/// The number of the error of that name, in the runtime or in the driver.
pub fn named(name: &str) -> Option<c_int> {
    let mut all = ERRORS.iter().chain(OF_DRIVER);
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
