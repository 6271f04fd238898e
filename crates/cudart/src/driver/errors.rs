//! The driver's names of errors. Its codes are the runtime's but for a few.

use std::ffi::{c_char, c_int};

use pinlane_driver::CudaCode;

use crate::abi::Out;
use crate::errors::{OF_DRIVER, Row};

/// The driver's code for what the runtime gives.
pub fn as_driver(code: CudaCode) -> CudaCode {
    match code.0 {
        // Invalid configurations of launches, pitches and directions of copies.
        9 | 12 | 21 => CudaCode::INVALID_VALUE,
        // There is no such function, or no such variable.
        98 => CudaCode(400),
        13 => CudaCode(500),
        _ => code,
    }
}

fn find(code: c_int, out: Out<*const c_char>, part: impl Fn(&Row) -> *const c_char) -> c_int {
    let found = OF_DRIVER.iter().find(|error| error.0 == code);
    let put = out.put(found.map_or(std::ptr::null(), part));
    if put.is_ok() && found.is_some() { 0 } else { CudaCode::INVALID_VALUE.0 }
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: c_int, out: Out<*const c_char>) -> c_int {
    find(code, out, |error| error.1.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: c_int, out: Out<*const c_char>) -> c_int {
    find(code, out, |error| error.2.as_ptr())
}
